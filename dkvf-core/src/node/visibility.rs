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

/// Which records are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibilityOptions {
    /// One version in so many, chosen by hash; 1 watches all, 0 none.
    pub one_in: u64,
    /// Most records watched at the same time on one node: each costs a look at every event.
    pub watched_max: usize,
    /// Most samples kept until they are taken.
    pub samples_max: usize,
}

impl Default for VisibilityOptions {
    fn default() -> Self {
        VisibilityOptions {
            one_in: VISIBILITY_SAMPLE_EVERY,
            watched_max: WATCHED_RECORDS_MAX,
            samples_max: VISIBILITY_SAMPLES_MAX,
        }
    }
}

/// Identifies a version of a key in a [`VisibilitySample`], the same on all nodes.
pub fn version_hash(key: &[u8], version: VersionKey) -> u64 {
    // Stamps and origins can be small numbers: their plain XOR would be the same for many versions.
    let (stamp, origin) = ((version.0 >> 64) as u64, version.0 as u64);
    let seed = stamp ^ origin.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

#[derive(Debug)]
pub(crate) struct Visibility<R> {
    /// `None` while nothing is watched.
    options: Option<VisibilityOptions>,
    watched: Vec<(u64, u64, R)>,
    samples: Vec<VisibilitySample>,
}

impl<R: Clone> Visibility<R> {
    pub(crate) fn new() -> Self {
        Visibility {
            options: None,
            watched: Vec::new(),
            samples: Vec::new(),
        }
    }

    pub(crate) fn enable(&mut self, options: VisibilityOptions) {
        self.options = Some(options).filter(|options| options.one_in > 0);
    }

    pub(crate) fn inserted(&mut self, now_us: u64, key: &[u8], version: VersionKey, record: &R) {
        let Some(options) = self.options else {
            return;
        };
        if self.watched.len() >= options.watched_max || self.samples.len() >= options.samples_max {
            return;
        }
        let hash = version_hash(key, version);
        if hash.is_multiple_of(options.one_in) {
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
