//! Fuzzes the decoders of everything that comes from a socket for a number of seconds: `cargo xtask fuzz SECONDS`.

use std::time::{Duration, Instant};

use dkvf_core::net::fuzz::fuzz_all;

fn main() -> anyhow::Result<()> {
    let seconds: u64 = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "60".to_owned())
        .parse()?;
    let (start, duration) = (Instant::now(), Duration::from_secs(seconds));
    let mut seed = 0;
    while start.elapsed() < duration {
        // A failure names the seed: `fuzz_all(seed, 10_000)` in a test repeats it.
        println!("seed {seed}");
        fuzz_all(seed, 10_000);
        seed += 1;
    }
    println!("{seed} seeds of 10000 inputs each: no finding");
    Ok(())
}
