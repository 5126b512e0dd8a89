//! How long writes took to become visible, and how old what clients read was.

use std::collections::BTreeMap;

use dkvf_check::Outcome as RecordedOutcome;
use dkvf_core::VersionKey;
use dkvf_core::node::version_hash;
use dkvf_workload::{Entry, KeyNaming, Kind};
use hdrhistogram::Histogram;

/// Longer times count as so much, in microseconds: a day.
const TIME_US_MAX: u64 = 86_400_000_000;

/// Times by pair of replicas.
pub type ByPair = BTreeMap<(u16, u16), Histogram<u64>>;

/// Time from the reply to a write until another replica shows it, in microseconds; 0 if it showed it before.
#[derive(Clone, Debug, Default)]
pub struct Visibility {
    /// By the replica of the write and the one that shows it.
    pub by_pair: ByPair,
}

/// Age of what successful reads returned, in microseconds: how long before the end of the read a newer version was
/// first acknowledged to its writer; 0 if none was. Reads of versions whose place in the protocol's order is not known
/// are left out.
#[derive(Clone, Debug, Default)]
pub struct Staleness {
    /// By the replica of the read, and that of the newer write; a read of the newest counts for its own replica.
    pub by_pair: ByPair,
}

/// A record became visible at a server of a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) version: u64,
    pub(crate) replica: u16,
    /// In true time.
    pub(crate) visible_us: u64,
}

pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_US_MAX, 3)
        .expect("invariant: bounds and digits are constants")
}

fn add(times: &mut ByPair, pair: (u16, u16), us: u64) {
    times
        .entry(pair)
        .or_insert_with(new_histogram)
        .saturating_record(us);
}

/// All times of a measurement, whatever their pair.
pub fn total(times: &ByPair) -> Histogram<u64> {
    let mut all = new_histogram();
    for one in times.values() {
        all.add(one)
            .expect("invariant: all histograms have the same bounds");
    }
    all
}

/// Successful writes whose place in the order of versions is known.
fn known_writes<'a>(entries: &'a [&'a Entry]) -> impl Iterator<Item = (&'a Entry, u128, u64)> {
    entries
        .iter()
        .filter(|entry| entry.kind == Kind::Write && entry.outcome == RecordedOutcome::Ok)
        .filter_map(|entry| Some((*entry, entry.version?, entry.complete_us?)))
}

/// O(n log n) for n operations and sightings.
pub(crate) fn visibility(entries: &[&Entry], naming: &KeyNaming, seen: &[Seen]) -> Visibility {
    let mut visibility = Visibility::default();
    let mut written: Vec<(u64, u16, u64)> = known_writes(entries)
        .map(|(entry, version, replied_us)| {
            let hash = version_hash(&naming.name(entry.key_index), VersionKey(version));
            (hash, entry.site, replied_us)
        })
        .collect();
    written.sort_unstable();
    for seen in seen {
        let place = written.partition_point(|(hash, ..)| *hash < seen.version);
        if let Some((hash, origin, replied_us)) = written.get(place).copied()
            && hash == seen.version
            && origin != seen.replica
        {
            add(
                &mut visibility.by_pair,
                (origin, seen.replica),
                seen.visible_us.saturating_sub(replied_us),
            );
        }
    }
    visibility
}

/// O(n log n) for n operations.
pub(crate) fn staleness(entries: &[&Entry]) -> Staleness {
    let mut staleness = Staleness::default();
    // By key, the writes from the newest version to the oldest; then each with the first reply of it and all newer
    // ones.
    let mut writes: BTreeMap<u64, Vec<(u128, u64, u16)>> = BTreeMap::new();
    for (entry, version, replied_us) in known_writes(entries) {
        writes
            .entry(entry.key_index)
            .or_default()
            .push((version, replied_us, entry.site));
    }
    for versions in writes.values_mut() {
        versions.sort_unstable_by(|a, b| b.cmp(a));
        let mut first = (u64::MAX, 0);
        for (_, replied_us, site) in versions.iter_mut() {
            first = first.min((*replied_us, *site));
            (*replied_us, *site) = first;
        }
    }
    let reads = entries
        .iter()
        .filter(|entry| entry.kind == Kind::Read && entry.outcome == RecordedOutcome::Ok);
    for read in reads {
        let Some(read_us) = read.complete_us else {
            continue;
        };
        let version = match (read.version, read.value) {
            (Some(version), _) => version,
            // Nothing was found: every version is newer.
            (None, None) => 0,
            (None, Some(_)) => continue,
        };
        let versions = writes.get(&read.key_index).map_or(&[][..], Vec::as_slice);
        let newer = versions.partition_point(|(other, ..)| *other > version);
        let (age_us, site) = match newer
            .checked_sub(1)
            .map(|oldest_newer| versions[oldest_newer])
        {
            Some((_, replied_us, site)) if replied_us < read_us => (read_us - replied_us, site),
            _ => (0, read.site),
        };
        add(&mut staleness.by_pair, (read.site, site), age_us);
    }
    staleness
}

#[cfg(test)]
mod tests {
    use super::*;
    use dkvf_workload::{InsertOrder, Tag};

    fn entry(kind: Kind, site: u16, version: Option<u128>, complete_us: u64) -> Entry {
        Entry {
            process: 0,
            session: 0,
            site,
            kind,
            key_index: 7,
            value: version.map(|_| Tag {
                session: 1,
                counter: 1,
            }),
            version,
            invoke_us: complete_us.saturating_sub(10),
            complete_us: Some(complete_us),
            outcome: RecordedOutcome::Ok,
            same_transaction: false,
        }
    }

    fn values(histogram: &Histogram<u64>) -> Vec<u64> {
        histogram
            .iter_recorded()
            .flat_map(|v| std::iter::repeat_n(v.value_iterated_to(), v.count_at_value() as usize))
            .collect()
    }

    #[test]
    fn visibility_counts_from_the_reply_to_the_write_at_every_other_replica() {
        let naming = KeyNaming {
            order: InsertOrder::Ordered,
            zero_padding: 1,
        };
        let write = entry(Kind::Write, 0, Some(5), 1_000);
        let version = version_hash(b"user7", VersionKey(5));
        let seen = |replica, version, visible_us| Seen {
            version,
            replica,
            visible_us,
        };
        let seen = [
            seen(0, version, 990),
            seen(1, version, 1_100),
            seen(2, version, 900),
            seen(1, version + 1, 5_000),
        ];
        let visibility = visibility(&[&write], &naming, &seen);
        assert_eq!(
            visibility.by_pair.keys().copied().collect::<Vec<_>>(),
            [(0, 1), (0, 2)]
        );
        assert_eq!(values(&visibility.by_pair[&(0, 1)]), [100]);
        assert_eq!(values(&visibility.by_pair[&(0, 2)]), [0]);
    }

    #[test]
    fn a_read_is_as_old_as_the_first_newer_version_was_acknowledged() {
        let writes = [(5, 100, 0), (6, 300, 1), (7, 200, 2)]
            .map(|(v, t, site)| entry(Kind::Write, site, Some(v), t));
        let age = |read: Entry| {
            let entries: Vec<&Entry> = writes.iter().chain([&read]).collect();
            let staleness = staleness(&entries);
            let (pair, ages) = staleness.by_pair.first_key_value().expect("one read");
            (*pair, values(ages))
        };
        let read = |version, complete_us| entry(Kind::Read, 3, version, complete_us);
        assert_eq!(age(read(Some(7), 900)), ((3, 3), vec![0]), "the newest");
        assert_eq!(age(read(Some(6), 900)), ((3, 2), vec![700]));
        assert_eq!(
            age(read(Some(5), 250)),
            ((3, 2), vec![50]),
            "version 7 was acknowledged before 6"
        );
        assert_eq!(
            age(read(Some(5), 150)),
            ((3, 3), vec![0]),
            "nothing newer was acknowledged yet"
        );
        assert_eq!(
            age(read(None, 900)),
            ((3, 0), vec![800]),
            "nothing was found"
        );
    }
}
