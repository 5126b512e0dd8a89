//! Goodness of fit with fixed seeds, and ranges while items are added.

use dkvf_workload::{Chooser, Lengths, Requests, Zipf};
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;

const SAMPLES: u64 = 200_000;

/// Is the statistic below the quantile that one fitting sample in 4,000
/// exceeds? Wilson and Hilferty's approximation of the chi-square quantile.
fn fits(observed: &[u64], probabilities: &[f64]) -> bool {
    let samples: u64 = observed.iter().sum();
    // The test wants at least ten expected observations in each cell.
    let mut cells = vec![(0.0, 0.0)];
    for (&count, &probability) in observed.iter().zip(probabilities) {
        let (expected, seen) = cells.last_mut().unwrap();
        *expected += probability * samples as f64;
        *seen += count as f64;
        if *expected >= 10.0 {
            cells.push((0.0, 0.0));
        }
    }
    let (rest_expected, rest_seen) = cells.pop().unwrap();
    let (expected, seen) = cells.last_mut().unwrap();
    *expected += rest_expected;
    *seen += rest_seen;

    let statistic: f64 = cells
        .iter()
        .map(|(expected, seen): &(f64, f64)| (seen - expected).powi(2) / expected)
        .sum();
    let freedom = (cells.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let quantile = freedom * (1.0 - spread + 3.5 * spread.sqrt()).powi(3);
    statistic < quantile
}

fn zipf_probabilities(theta: f64, items: u64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=items).map(|k| (k as f64).powf(-theta)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

fn histogram(items: u64, mut sample: impl FnMut() -> u64) -> Vec<u64> {
    let mut counts = vec![0; items as usize];
    for _ in 0..SAMPLES {
        counts[sample() as usize] += 1;
    }
    counts
}

fn zipf_histogram(theta: f64, items: u64) -> Vec<u64> {
    let mut rng = Pcg64Mcg::new(7);
    let mut zipf = Zipf::new(theta);
    histogram(items, || zipf.sample(items, &mut rng))
}

fn histogram_of(requests: Requests, items: u64) -> Vec<u64> {
    let mut rng = Pcg64Mcg::new(11);
    let mut chooser = Chooser::new(requests, items, 0, 1);
    histogram(items, || chooser.sample(items, &mut rng))
}

#[test]
fn zipf_has_exact_probabilities_for_every_exponent() {
    for theta in [0.0, 0.5, 0.99, 1.0, 1.5, 3.0] {
        for items in [1, 2, 10, 1000] {
            let counts = zipf_histogram(theta, items);
            if items > 1 {
                let probabilities = zipf_probabilities(theta, items);
                assert!(
                    fits(&counts, &probabilities),
                    "theta {theta}, {items} items"
                );
            }
        }
    }
}

#[test]
fn the_goodness_of_fit_test_tells_neighbouring_exponents_apart() {
    for (theta, other) in [(0.0, 0.03), (0.99, 1.01), (1.0, 0.97), (1.5, 1.52)] {
        let counts = zipf_histogram(theta, 1000);
        assert!(
            !fits(&counts, &zipf_probabilities(other, 1000)),
            "{theta} as {other}"
        );
    }
}

#[test]
fn zipf_follows_a_number_of_items_that_changes_between_samples() {
    let mut rng = Pcg64Mcg::new(3);
    let mut zipf = Zipf::new(0.99);
    let (mut small, mut large) = (vec![0; 10], vec![0; 1000]);
    for _ in 0..SAMPLES {
        small[zipf.sample(10, &mut rng) as usize] += 1;
        large[zipf.sample(1000, &mut rng) as usize] += 1;
    }
    assert!(fits(&small, &zipf_probabilities(0.99, 10)));
    assert!(fits(&large, &zipf_probabilities(0.99, 1000)));
}

#[test]
fn extreme_exponents_and_counts_terminate_in_range() {
    let mut rng = Pcg64Mcg::new(5);
    for theta in [0.0, 1e-12, 1.0 - 1e-12, 1.0 + 1e-12, 20.0, 1e6, f64::MAX] {
        let mut zipf = Zipf::new(theta);
        for items in [1, 2, 1 << 40, 1 << 60, u64::MAX] {
            for _ in 0..100 {
                assert!(zipf.sample(items, &mut rng) < items);
            }
        }
    }
}

#[test]
fn uniform_treats_items_alike() {
    let counts = histogram_of(Requests::Uniform, 100);
    assert!(fits(&counts, &[0.01; 100]));
}

#[test]
fn latest_prefers_the_newest_item() {
    let mut counts = histogram_of(Requests::Latest { theta: 0.99 }, 1000);
    counts.reverse();
    assert!(fits(&counts, &zipf_probabilities(0.99, 1000)));
}

#[test]
fn zipfian_without_scrambling_prefers_the_first_item() {
    let requests = Requests::Zipfian {
        theta: 0.99,
        scrambled: false,
    };
    assert!(fits(
        &histogram_of(requests, 1000),
        &zipf_probabilities(0.99, 1000)
    ));
}

/// FNV-1a of eight little-endian bytes, written again from its definition.
fn hash(rank: u64) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for shift in (0..64).step_by(8) {
        hash ^= (rank >> shift) & 0xff;
        hash = hash.wrapping_mul(1_099_511_628_211);
    }
    hash.cast_signed().unsigned_abs()
}

#[test]
fn scrambled_ranks_share_items_where_their_hashes_collide() {
    let mut probabilities = vec![0.0; 1000];
    for (rank, probability) in zipf_probabilities(0.99, 1000).into_iter().enumerate() {
        probabilities[(hash(rank as u64) % 1000) as usize] += probability;
    }
    let requests = Requests::Zipfian {
        theta: 0.99,
        scrambled: true,
    };
    let counts = histogram_of(requests, 1000);
    assert!(fits(&counts, &probabilities));
    assert!(counts.contains(&0), "collisions leave items without a rank");
}

#[test]
fn inserts_do_not_move_the_hot_items_of_a_scrambled_chooser() {
    let requests = Requests::Zipfian {
        theta: 0.99,
        scrambled: true,
    };
    let mut rng = Pcg64Mcg::new(1);
    let mut chooser = Chooser::new(requests, 1000, 0, 1);
    let hottest = hash(0) % 1000;
    for items in [1000, 1001, 1500] {
        let hits = (0..10_000)
            .filter(|_| chooser.sample(items, &mut rng) == hottest)
            .count();
        assert!(hits > 1000, "{hits} of 10,000 with {items} items");
    }
    let new = (0..10_000)
        .filter(|_| chooser.sample(2000, &mut rng) >= 1000)
        .count();
    assert!((200..2000).contains(&new), "{new} of 10,000 on new items");
}

#[test]
fn a_hotspot_takes_its_share_of_the_requests() {
    let requests = |data_fraction, operation_fraction| Requests::Hotspot {
        data_fraction,
        operation_fraction,
    };
    let mut probabilities = [0.8 / 20.0; 100];
    probabilities[20..].fill(0.2 / 80.0);
    assert!(fits(&histogram_of(requests(0.2, 0.8), 100), &probabilities));
    // Without a hot or without a cold set all items are alike.
    for data_fraction in [0.0, 1.0] {
        let counts = histogram_of(requests(data_fraction, 0.5), 100);
        assert!(fits(&counts, &[0.01; 100]), "{data_fraction}");
    }
}

#[test]
fn an_exponential_has_exactly_the_share_asked_for() {
    for (share, fraction) in [(0.95, 0.857_142_857_1), (0.9, 0.1), (0.6, 0.5)] {
        let requests = Requests::Exponential { share, fraction };
        let items = 100_000;
        let counts = histogram_of(requests, items);
        let newest = (items as f64 * fraction) as usize;
        let hits: u64 = counts.iter().rev().take(newest).sum();
        let seen = hits as f64 / SAMPLES as f64;
        assert!((seen - share).abs() < 0.003, "{seen} instead of {share}");

        // Equal stretches of age differ by a constant factor.
        let part = |i: usize| -> f64 {
            let stretch = counts.iter().rev().skip(i * 20_000).take(20_000);
            stretch.sum::<u64>() as f64
        };
        if fraction >= 0.5 {
            let factors: Vec<f64> = (0..4).map(|i| part(i + 1) / part(i)).collect();
            let spread = factors
                .iter()
                .fold(0.0, |max: f64, f| max.max((f - factors[0]).abs()));
            assert!(spread < 0.1, "{factors:?}");
            assert!(factors[0] < 1.0, "the newest are the hottest");
        }
    }
}

#[test]
fn sequential_sessions_walk_the_items_together_and_in_order() {
    let mut rng = Pcg64Mcg::new(1);
    let mut choosers: Vec<_> = (0..3)
        .map(|session| Chooser::new(Requests::Sequential, 7, session, 3))
        .collect();
    let walked: Vec<u64> = (0..7)
        .flat_map(|_| {
            let step: Vec<u64> = choosers.iter_mut().map(|c| c.sample(7, &mut rng)).collect();
            step
        })
        .collect();
    let expected: Vec<u64> = (0..21).map(|i| i % 7).collect();
    assert_eq!(walked, expected);
}

#[test]
fn lengths_follow_their_law_and_reach_both_ends() {
    let draw = |mut lengths: Lengths| {
        let mut rng = Pcg64Mcg::new(9);
        let mut counts = vec![0; 10];
        for _ in 0..SAMPLES {
            counts[lengths.sample(&mut rng) as usize - 1] += 1;
        }
        counts
    };
    assert!(fits(
        &draw(Lengths::Uniform { min: 1, max: 10 }),
        &[0.1; 10]
    ));
    let zipfian = Lengths::Zipfian {
        min: 1,
        max: 10,
        zipf: Zipf::new(0.99),
    };
    assert!(fits(&draw(zipfian), &zipf_probabilities(0.99, 10)));
    assert_eq!(draw(Lengths::Constant(4))[3], SAMPLES);
}

#[test]
#[should_panic(expected = "at least one item")]
fn there_is_nothing_to_choose_from_nothing() {
    Chooser::new(Requests::Uniform, 0, 0, 1).sample(0, &mut Pcg64Mcg::new(1));
}

fn any_requests() -> impl Strategy<Value = Requests> {
    prop_oneof![
        Just(Requests::Uniform),
        Just(Requests::Sequential),
        (0.0..4.0, any::<bool>())
            .prop_map(|(theta, scrambled)| Requests::Zipfian { theta, scrambled }),
        (0.0..4.0).prop_map(|theta| Requests::Latest { theta }),
        (0.0..=1.0, 0.0..=1.0).prop_map(|(data_fraction, operation_fraction)| Requests::Hotspot {
            data_fraction,
            operation_fraction
        }),
        (0.01..0.98, 0.01..0.99).prop_map(|(fraction, rest)| Requests::Exponential {
            share: fraction + (1.0 - fraction) * rest,
            fraction
        }),
    ]
}

proptest! {
    #[test]
    fn every_item_is_in_range_while_items_are_added(
        requests in any_requests(),
        loaded in 1..2000_u64,
        growth in proptest::collection::vec(0..3_u64, 1..200),
        session in 0..4_u32,
        seed in any::<u128>(),
    ) {
        let mut rng = Pcg64Mcg::new(seed);
        let mut chooser = Chooser::new(requests, loaded, session, 4);
        let mut items = loaded;
        for added in growth {
            let item = chooser.sample(items, &mut rng);
            prop_assert!(item < items, "{} of {} from {:?}", item, items, requests);
            items += added;
        }
    }
}
