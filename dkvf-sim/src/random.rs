//! Streams of random numbers: one per purpose, so that what is drawn for one never shifts another.

use rand_pcg::Pcg64Mcg;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The stream of `seed` for a purpose; `index` tells those of one purpose apart, such as the clocks of hosts.
pub(crate) fn stream(seed: u64, purpose: &str, index: u64) -> Pcg64Mcg {
    let name = [purpose.as_bytes(), &index.to_be_bytes()].concat();
    Pcg64Mcg::new(xxh3_128_with_seed(&name, seed))
}

/// A number derived from `seed` for a purpose, for those who make their own streams of it.
pub(crate) fn derived_seed(seed: u64, purpose: &str) -> u64 {
    xxh3_128_with_seed(purpose.as_bytes(), seed) as u64
}
