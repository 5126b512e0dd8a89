//! Wrong clocks, and their correction.

use dkvf_sim::{ClockOptions, Ntp, Options, measure};

use crate::common::{options, simulate};

/// Mean time until a write is visible elsewhere, in microseconds, in ten virtual minutes.
fn mean_visibility_us(clocks: ClockOptions) -> f64 {
    let outcome = simulate(
        "gentlerain",
        &Options {
            clocks,
            spread_us: Some(600_000_000),
            strict: false,
            ..options(1, 300)
        },
    );
    assert_eq!(outcome.failure, None);
    assert_eq!((outcome.operations, outcome.unknown), (300, 0));
    measure::total(&outcome.visibility.by_pair).mean()
}

#[test]
fn ntp_brings_back_what_clocks_that_drift_apart_cost() {
    let perfect = mean_visibility_us(ClockOptions::default());
    let drifting = ClockOptions {
        skew_us: 1_000,
        drift_ppm: 400,
        ntp: None,
    };
    // A version is visible when the slowest clock has passed its stamp: in ten minutes they drift apart by up to 480 ms.
    let apart = mean_visibility_us(drifting);
    let ntp = Ntp {
        interval_us: 4_000_000,
        error_us: 200,
    };
    let corrected = mean_visibility_us(ClockOptions {
        ntp: Some(ntp),
        ..drifting
    });
    assert!(apart > perfect + 50_000.0, "{perfect} {apart}");
    assert!(corrected < perfect + 5_000.0, "{perfect} {corrected}");
}
