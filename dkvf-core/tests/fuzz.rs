//! The decoders of the wire on bytes that nobody should send. `net::fuzz` says what must hold.

use dkvf_core::net::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_not_confuse_a_decoder(bytes in vec(any::<u8>(), 0..200)) {
        fuzz::fuzz_one(&bytes);
    }

    #[test]
    fn damaged_frames_do_not_confuse_a_decoder(seed in any::<u64>()) {
        fuzz::fuzz_all(seed, 16);
    }
}
