//! When inserted records become visible to readers: a sample, for the visibility figure of a run.

use dkvf_storage::VersionKey;

use crate::limits::{VISIBILITY_SAMPLE_EVERY, VISIBILITY_SAMPLES_MAX, WATCHED_RECORDS_MAX};

/// A record that was inserted on this node, or became visible to its readers.
///
/// Nodes sample the same versions without talking to each other, because the sample is chosen by hash; the
/// latency is the difference between a version's first insertion anywhere and its becoming visible elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibilitySample {
    /// Identifies key and version.
    pub version: u64,
    /// When it was inserted here, in microseconds on the host's monotonic clock.
    pub inserted_us: u64,
    /// When it became visible here.
    pub visible_us: u64,
}

#[derive(Debug)]
pub(crate) struct Visibility<R> {
    enabled: bool,
    watched: Vec<(u64, u64, R)>,
    samples: Vec<VisibilitySample>,
}

impl<R: Clone> Visibility<R> {
    pub(crate) fn new() -> Self {
        Visibility {
            enabled: false,
            watched: Vec::new(),
            samples: Vec::new(),
        }
    }

    pub(crate) fn enable(&mut self) {
        self.enabled = true;
    }

    pub(crate) fn inserted(&mut self, now_us: u64, key: &[u8], version: VersionKey, record: &R) {
        if !self.enabled
            || self.watched.len() == WATCHED_RECORDS_MAX
            || self.samples.len() >= VISIBILITY_SAMPLES_MAX
        {
            return;
        }
        let seed = (version.0 as u64) ^ ((version.0 >> 64) as u64);
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(key, seed);
        if hash.is_multiple_of(VISIBILITY_SAMPLE_EVERY) {
            self.watched.push((hash, now_us, record.clone()));
        }
    }

    /// Stamps the watched records that `visible` says a reader would now see.
    pub(crate) fn check(&mut self, now_us: u64, visible: impl Fn(&R) -> bool) {
        let samples = &mut self.samples;
        self.watched.retain(|(version, inserted_us, record)| {
            let seen = visible(record);
            if seen {
                samples.push(VisibilitySample {
                    version: *version,
                    inserted_us: *inserted_us,
                    visible_us: now_us,
                });
            }
            !seen
        });
    }

    pub(crate) fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<VisibilitySample> {
        std::mem::take(&mut self.samples)
    }
}
