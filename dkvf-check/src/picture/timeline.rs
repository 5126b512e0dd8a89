//! Time as length: the order of moments is kept, their distances are not.
//!
//! A history of a minute may hold three operations of a millisecond. To scale, they would be dots; so a long gap is
//! drawn much shorter than it is, and marked as broken, and an interval is never drawn narrower than its text.

/// A moment. The second number orders what happened in the same microsecond.
pub(super) type Instant = (u64, u32);

/// An interval that needs room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Where it begins.
    pub start: Instant,
    /// Where it ends; later than `start`.
    pub end: Instant,
    /// How long it must be drawn at least.
    pub length: f64,
}

/// How long gaps between neighbouring moments are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    /// The shortest.
    pub least: f64,
    /// The longest.
    pub most: f64,
}

/// Where every moment is.
#[derive(Debug)]
pub(super) struct Timeline {
    instants: Vec<Instant>,
    positions: Vec<f64>,
    breaks: Vec<f64>,
}

/// A gap that is this many times as long as the median is drawn as a break.
const BREAK: f64 = 16.0;

impl Timeline {
    /// Places the ends of `spans` and `others`. The first moment is at 0. O(n log n).
    pub(super) fn new(spans: &[Span], others: &[Instant], spacing: Spacing) -> Self {
        let ends = spans.iter().flat_map(|span| [span.start, span.end]);
        let mut instants: Vec<Instant> = ends.chain(others.iter().copied()).collect();
        instants.sort_unstable();
        instants.dedup();
        let mut spans = spans.to_vec();
        spans.sort_unstable_by_key(|span| span.end);
        let typical_us = typical_gap(&instants);

        let mut timeline = Timeline {
            positions: Vec::with_capacity(instants.len()),
            breaks: Vec::new(),
            instants,
        };
        let mut ending = spans.into_iter().peekable();
        for index in 0..timeline.instants.len() {
            let before = index.checked_sub(1);
            let mut position = before.map_or(0.0, |before| {
                let gap_us = timeline.instants[index].0 - timeline.instants[before].0;
                timeline.positions[before] + drawn_length(gap_us, typical_us, spacing)
            });
            while let Some(span) = ending.next_if(|span| span.end == timeline.instants[index]) {
                position = position.max(timeline.position(span.start) + span.length);
            }
            if let Some(before) = before {
                let gap_us = timeline.instants[index].0 - timeline.instants[before].0;
                if gap_us as f64 > BREAK * typical_us {
                    let middle = f64::midpoint(timeline.positions[before], position);
                    timeline.breaks.push(middle);
                }
            }
            timeline.positions.push(position);
        }
        timeline
    }

    /// Where a moment is. One that was not placed is where the last one before it is.
    pub(super) fn position(&self, instant: Instant) -> f64 {
        let after = self.instants.partition_point(|&known| known <= instant);
        let index = after.saturating_sub(1);
        self.positions.get(index).copied().unwrap_or(0.0)
    }

    /// Where the last moment is.
    pub(super) fn length(&self) -> f64 {
        self.positions.last().copied().unwrap_or(0.0)
    }

    /// Where gaps are drawn much shorter than the others.
    pub(super) fn breaks(&self) -> &[f64] {
        &self.breaks
    }

    /// The microseconds of the moments and where the first moment of each is, in their order.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (u64, f64)> {
        let mut last_us = None;
        let places = self.instants.iter().zip(&self.positions);
        places.filter_map(move |(&(us, _), &position)| {
            (last_us.replace(us) != Some(us)).then_some((us, position))
        })
    }
}

/// The median of the gaps in microseconds, at least 1.
fn typical_gap(instants: &[Instant]) -> f64 {
    let gaps = instants.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let mut gaps: Vec<u64> = gaps.filter(|&gap| gap > 0).collect();
    gaps.sort_unstable();
    // Of an even number the lower one: the longer ones are what is shortened.
    gaps.get(gaps.len().saturating_sub(1) / 2)
        .map_or(1.0, |&gap| gap as f64)
}

/// Grows with the logarithm of the gap.
fn drawn_length(gap_us: u64, typical_us: f64, spacing: Spacing) -> f64 {
    if gap_us == 0 {
        return spacing.least / 2.0;
    }
    let share = (1.0 + gap_us as f64 / typical_us).log2() / (1.0 + BREAK).log2();
    spacing.least + (spacing.most - spacing.least) * share.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACING: Spacing = Spacing {
        least: 10.0,
        most: 50.0,
    };

    fn span(start_us: u64, end_us: u64, length: f64) -> Span {
        Span {
            start: (start_us, 1),
            end: (end_us, 0),
            length,
        }
    }

    #[test]
    fn short_operations_of_a_long_run_stay_readable() {
        let spans = [
            span(0, 500, 80.0),
            span(30_000_000, 30_000_800, 80.0),
            span(60_000_000, 60_000_400, 80.0),
        ];
        let timeline = Timeline::new(&spans, &[], SPACING);
        for span in spans {
            let drawn = timeline.position(span.end) - timeline.position(span.start);
            assert!(drawn >= 80.0, "{drawn}");
        }
        assert_eq!(timeline.breaks().len(), 2);
        assert!(timeline.length() <= 3.0 * 80.0 + 2.0 * 50.0);
    }

    #[test]
    fn the_order_of_moments_is_kept_and_the_same_moment_is_one_place() {
        let spans = [span(0, 10, 100.0), span(5, 20, 10.0), span(10, 30, 10.0)];
        let timeline = Timeline::new(&spans, &[(7, 0)], SPACING);
        let places: Vec<f64> = timeline.ticks().map(|(_, position)| position).collect();
        assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
        let ticks: Vec<u64> = timeline.ticks().map(|(us, _)| us).collect();
        assert_eq!(ticks, [0, 5, 7, 10, 20, 30]);
        assert!(timeline.breaks().is_empty());
    }

    #[test]
    fn nothing_happens_at_the_beginning() {
        let timeline = Timeline::new(&[], &[], SPACING);
        assert_eq!(timeline.length(), 0.0);
        assert_eq!(timeline.position((5, 0)), 0.0);
    }
}
