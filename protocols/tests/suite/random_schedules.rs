//! Random schedules: causality, convergence, nothing left waiting, and the same run for the same seed.

use dkvf_core::Protocol;
use dkvf_protocols::{causalspartan::CausalSpartan, cops::Cops, gentlerain::GentleRain};

use crate::random::{Plan, run};

const SEEDS: u64 = 20;

fn causal_and_convergent<P: Protocol>(read_only: bool) {
    for seed in 0..SEEDS {
        let skew_us = if seed % 2 == 0 { 50_000 } else { 3_000 };
        run::<P>(Plan { seed, read_only, skew_us });
    }
}

#[test]
fn cops_is_causal_and_converges() {
    causal_and_convergent::<Cops>(false);
}

#[test]
fn gentlerain_is_causal_and_converges() {
    causal_and_convergent::<GentleRain>(true);
}

#[test]
fn causalspartan_is_causal_and_converges() {
    causal_and_convergent::<CausalSpartan>(true);
}

#[test]
fn a_seed_is_one_run() {
    fn twice<P: Protocol>(read_only: bool) {
        let plan = |seed| Plan { seed, read_only, skew_us: 10_000 };
        assert_eq!(run::<P>(plan(7)), run::<P>(plan(7)), "{}", P::NAME);
        assert_ne!(run::<P>(plan(7)), run::<P>(plan(8)), "{}", P::NAME);
    }
    twice::<Cops>(false);
    twice::<GentleRain>(true);
    twice::<CausalSpartan>(true);
}
