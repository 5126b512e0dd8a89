//! How long operations took.

use std::fmt::{self, Write as _};

use hdrhistogram::Histogram;

use crate::generator::OperationKind;

/// Latencies beyond an hour count as an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// How an operation ended, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It was done.
    Ok,
    /// It was answered, and there is no such record.
    NotFound,
    /// It was refused or failed.
    Error,
    /// Nobody knows whether it was done.
    Unknown,
}

impl Status {
    const ALL: [Status; 4] = [Status::Ok, Status::NotFound, Status::Error, Status::Unknown];

    fn name(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::NotFound => "NOT_FOUND",
            Status::Error => "ERROR",
            Status::Unknown => "UNKNOWN",
        }
    }
}

/// Latencies by kind of operation, those of operations that did not succeed
/// apart: a quick refusal is not a quick answer.
///
/// Histograms have three significant digits, from 1 us to 1 h. One is about
/// 180 KB and exists only once something is recorded in it: use one
/// `Measurements` per thread, not per session.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    kinds: [PerKind; OperationKind::ALL.len()],
}

#[derive(Clone, Debug, Default)]
struct PerKind {
    ok: Option<Histogram<u64>>,
    failed: Option<Histogram<u64>>,
    by_status: [u64; Status::ALL.len()],
}

impl Measurements {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Measurements::default()
    }

    /// Adds an operation that took `latency_us`.
    pub fn record(&mut self, kind: OperationKind, status: Status, latency_us: u64) {
        let per_kind = &mut self.kinds[kind as usize];
        per_kind.by_status[status as usize] += 1;
        let histogram = match status {
            Status::Ok => &mut per_kind.ok,
            _ => &mut per_kind.failed,
        };
        histogram
            .get_or_insert_with(new_histogram)
            .saturating_record(latency_us);
    }

    /// Adds all that `other` measured.
    pub fn merge(&mut self, other: &Measurements) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            merge(&mut mine.ok, theirs.ok.as_ref());
            merge(&mut mine.failed, theirs.failed.as_ref());
            for (mine, theirs) in mine.by_status.iter_mut().zip(theirs.by_status) {
                *mine += theirs;
            }
        }
    }

    /// Latencies of the successful operations of `kind`, in microseconds; `None`
    /// if there were none.
    pub fn latency_us(&self, kind: OperationKind) -> Option<&Histogram<u64>> {
        self.kinds[kind as usize].ok.as_ref()
    }

    /// How many operations of any kind ended with `status`.
    pub fn count(&self, status: Status) -> u64 {
        let of_status = |per_kind: &PerKind| per_kind.by_status[status as usize];
        self.kinds.iter().map(of_status).sum()
    }

    /// The result in the lines that YCSB prints after a run of `run_time_ms`.
    ///
    /// `intended` are latencies of the same operations counted from when they
    /// should have started, of an open loop. The throughput counts successful
    /// operations; YCSB's counts all.
    pub fn ycsb_lines(&self, run_time_ms: u64, intended: Option<&Measurements>) -> String {
        let mut lines = String::new();
        // Writing to a string does not fail.
        let _ = self.write_ycsb(&mut lines, run_time_ms, intended);
        lines
    }

    fn write_ycsb(
        &self,
        out: &mut String,
        run_time_ms: u64,
        intended: Option<&Measurements>,
    ) -> fmt::Result {
        let throughput = match run_time_ms {
            0 => 0.0,
            ms => self.count(Status::Ok) as f64 * 1000.0 / ms as f64,
        };
        writeln!(out, "[OVERALL], RunTime(ms), {run_time_ms}")?;
        writeln!(out, "[OVERALL], Throughput(ops/sec), {throughput}")?;
        let plain = [("", self)];
        let intended = intended.map(|intended| ("Intended-", intended));
        for (prefix, measurements) in plain.into_iter().chain(intended) {
            for kind in OperationKind::ALL {
                let name = format!("{prefix}{}", kind.name());
                measurements.kinds[kind as usize].write_ycsb(out, &name)?;
            }
        }
        Ok(())
    }
}

impl PerKind {
    fn write_ycsb(&self, out: &mut String, name: &str) -> fmt::Result {
        if let Some(histogram) = &self.ok {
            write_latencies(out, name, histogram)?;
        }
        for status in Status::ALL {
            match self.by_status[status as usize] {
                0 => {}
                count => writeln!(out, "[{name}], Return={}, {count}", status.name())?,
            }
        }
        if let Some(histogram) = &self.failed {
            write_latencies(out, &format!("{name}-FAILED"), histogram)?;
        }
        Ok(())
    }
}

fn write_latencies(out: &mut String, name: &str, histogram: &Histogram<u64>) -> fmt::Result {
    writeln!(out, "[{name}], Operations, {}", histogram.len())?;
    writeln!(out, "[{name}], AverageLatency(us), {}", histogram.mean())?;
    writeln!(out, "[{name}], MinLatency(us), {}", histogram.min())?;
    writeln!(out, "[{name}], MaxLatency(us), {}", histogram.max())?;
    for percentile in [50_u8, 95, 99] {
        let latency_us = histogram.value_at_percentile(f64::from(percentile));
        writeln!(
            out,
            "[{name}], {percentile}thPercentileLatency(us), {latency_us}"
        )?;
    }
    Ok(())
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS)
        .expect("bounds and digits are constants")
}

fn merge(mine: &mut Option<Histogram<u64>>, theirs: Option<&Histogram<u64>>) {
    if let Some(theirs) = theirs {
        mine.get_or_insert_with(new_histogram)
            .add(theirs)
            .expect("all histograms have the same bounds");
    }
}
