//! Figures of a run from what its parts counted.

use std::collections::BTreeMap;

use dkvf_core::net::status::{ServerStatus, Traffic};
use dkvf_core::node::VisibilitySample;
use dkvf_workload::{Measurements, OperationKind};
use hdrhistogram::Histogram;

use crate::report::{Latency, Visibility};

pub(super) fn total(statuses: &[ServerStatus]) -> Traffic {
    statuses
        .iter()
        .fold(Traffic::default(), |sum, status| sum + status.traffic)
}

pub(super) fn latencies(measurements: &Measurements) -> BTreeMap<String, Latency> {
    let names: [(&str, &[OperationKind]); 6] = [
        ("get", &[OperationKind::Read]),
        ("put", &[OperationKind::Update, OperationKind::Insert]),
        ("scan", &[OperationKind::Scan]),
        ("read_modify_write", &[OperationKind::ReadModifyWrite]),
        ("amplified_insert", &[OperationKind::AmplifiedInsert]),
        ("read_only", &[OperationKind::ReadOnly]),
    ];
    let mut latencies = BTreeMap::new();
    for (name, kinds) in names {
        let mut merged: Option<Histogram<u64>> = None;
        for histogram in kinds
            .iter()
            .filter_map(|kind| measurements.latency_us(*kind))
        {
            match &mut merged {
                None => merged = Some(histogram.clone()),
                Some(merged) => merged
                    .add(histogram)
                    .expect("invariant: all histograms have one range"),
            }
        }
        if let Some(histogram) = merged {
            latencies.insert(name.to_owned(), Latency::from(&histogram));
        }
    }
    latencies
}

/// From a version's insertion at its origin, the first anywhere, to its becoming visible at the others.
pub(super) fn visibility(samples: &[Vec<VisibilitySample>]) -> Visibility {
    let mut by_version: BTreeMap<u64, Vec<VisibilitySample>> = BTreeMap::new();
    for sample in samples.iter().flatten() {
        by_version.entry(sample.version).or_default().push(*sample);
    }
    let mut latencies: Vec<u64> = Vec::new();
    for versions in by_version.values() {
        let Some(origin) = versions.iter().min_by_key(|sample| sample.inserted_us) else {
            continue;
        };
        let elsewhere = versions
            .iter()
            .filter(|sample| !std::ptr::eq(*sample, origin));
        latencies.extend(elsewhere.map(|sample| sample.visible_us - origin.inserted_us));
    }
    latencies.sort_unstable();
    let at = |quantile: f64| {
        latencies
            .get(((latencies.len() as f64 - 1.0) * quantile).round() as usize)
            .copied()
            .unwrap_or(0)
    };
    Visibility {
        count: latencies.len() as u64,
        p50: at(0.5),
        p99: at(0.99),
    }
}
