//! Which bars of a lane are beside and which above one another.

use std::collections::BTreeMap;

use super::diagram::Diagram;
use super::timeline::Instant;

/// Where a bar is, in time and on its lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// Its left end.
    pub start: Instant,
    /// Its right end, later than `start`. A bar without end is drawn as short as its text permits.
    pub end: Instant,
    /// Its row on its lane, from the top. Bars of one row do not overlap.
    pub row: usize,
}

/// The slots of all bars and the number of rows of each lane, at least 1. O(n log n), times the rows.
pub(super) fn arrange(diagram: &Diagram) -> (Vec<Slot>, Vec<usize>) {
    let mut by_lane: Vec<Vec<usize>> = vec![Vec::new(); diagram.lanes.len()];
    for (index, bar) in diagram.bars.iter().enumerate() {
        by_lane[bar.lane].push(index);
    }
    let mut slots = vec![Slot::default(); diagram.bars.len()];
    let rows = by_lane.iter_mut().map(|bars| {
        bars.sort_by_key(|&bar| diagram.bars[bar].start_us);
        arrange_lane(diagram, bars, &mut slots)
    });
    let rows = rows.collect();
    (slots, rows)
}

/// Places the bars of one lane, which come in the order of their beginnings, and returns how many rows they need.
///
/// What took no time still needs a place: bars that begin in one microsecond follow one another in it.
fn arrange_lane(diagram: &Diagram, bars: &[usize], slots: &mut [Slot]) -> usize {
    let mut begun: BTreeMap<u64, u32> = BTreeMap::new();
    let mut ends: Vec<Instant> = Vec::new();
    for &index in bars {
        let bar = &diagram.bars[index];
        let order = begun.entry(bar.start_us).or_insert(1);
        let start = (bar.start_us, *order);
        let end = match bar.end_us {
            Some(end_us) if end_us > bar.start_us => (end_us, 0),
            _ => (bar.start_us, *order + 1),
        };
        *order += 2;
        let free = ends.iter().position(|&taken| taken < start);
        let row = free.unwrap_or(ends.len());
        match free {
            Some(row) => ends[row] = end,
            None => ends.push(end),
        }
        slots[index] = Slot { start, end, row };
    }
    ends.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::super::diagram::{Bar, Lane};
    use super::*;

    #[test]
    fn bars_that_overlap_are_above_one_another_and_others_are_not() {
        let times = [
            (0, Some(10)),
            (10, Some(20)),
            (15, None),
            (20, Some(20)),
            (20, Some(20)),
        ];
        let diagram = Diagram {
            lanes: vec![Lane::default()],
            bars: times
                .map(|(start_us, end_us)| Bar {
                    start_us,
                    end_us,
                    ..Bar::default()
                })
                .into(),
            ..Diagram::default()
        };
        let (slots, rows) = arrange(&diagram);
        assert_eq!(rows, [2]);
        assert_eq!(
            slots.iter().map(|slot| slot.row).collect::<Vec<_>>(),
            [0, 0, 1, 0, 0]
        );
        assert!(slots.iter().all(|slot| slot.start < slot.end));
    }
}
