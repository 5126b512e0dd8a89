//! What must hold of every layout, on random diagrams.

use super::super::diagram::{Arrow, Bar, Diagram, Lane, Mark, Message, Place, Step};
use super::*;
use crate::verdict::EdgeKind;

const KINDS: [EdgeKind; 6] = [
    EdgeKind::Session,
    EdgeKind::RealTime,
    EdgeKind::ReadsFrom,
    EdgeKind::VersionOrder,
    EdgeKind::AntiDependency,
    EdgeKind::Inferred,
];

/// Small numbers from a seed (xorshift64*).
struct Dice(u64);

impl Dice {
    /// A number below `sides`.
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }

    /// Texts that are empty, short, long, wide and unusual.
    fn text(&mut self) -> String {
        let part = self.one_of(&[
            "",
            "x",
            "read x = 1",
            "日本語",
            "🎉",
            "e\u{301}",
            "<&>",
            "WWWWWWWW",
        ]);
        let times = self.one_of(&[1, 1, 1, 2, 9]);
        part.repeat(times)
    }

    /// Moments that often coincide and are sometimes far apart.
    fn us(&mut self) -> u64 {
        let scale = self.one_of(&[1, 1, 1, 100, 60_000_000]);
        self.roll(12) as u64 * scale
    }

    fn maybe_us(&mut self, from_us: u64) -> Option<u64> {
        let length_us = self.us();
        (self.roll(5) > 0).then_some(from_us + length_us)
    }

    fn diagram(&mut self) -> Diagram {
        let lanes = self.roll(6);
        let bars = if lanes == 0 { 0 } else { self.roll(14) };
        let groups = ["", "dc1", "a site with quite a long name"];
        let mut diagram = Diagram {
            title: self.text(),
            verdict: self.text(),
            ..Diagram::default()
        };
        diagram.caption = (0..self.roll(4)).map(|_| self.text()).collect();
        diagram.lanes = (0..lanes)
            .map(|_| Lane {
                name: self.text(),
                group: self.one_of(&groups).to_owned(),
            })
            .collect();
        diagram.bars = (0..bars).map(|_| self.bar(lanes)).collect();
        if bars > 0 {
            diagram.arrows = (0..self.roll(16)).map(|_| self.arrow(bars)).collect();
        }
        diagram.marks = (0..self.roll(4)).map(|_| self.mark()).collect();
        if lanes > 0 {
            let messages = self.one_of(&[0, 0, 20]);
            diagram.messages = (0..messages).map(|_| self.message(lanes)).collect();
        }
        diagram
    }

    fn bar(&mut self, lanes: usize) -> Bar {
        let start_us = self.us();
        Bar {
            lane: self.roll(lanes),
            start_us,
            end_us: self.maybe_us(start_us),
            name: self.text(),
            steps: (0..self.roll(4))
                .map(|step| Step {
                    name: format!("#{step}"),
                    text: self.text(),
                    detail: self.text(),
                    is_involved: self.roll(2) == 0,
                })
                .collect(),
            is_involved: self.roll(2) == 0,
            is_certain: self.roll(2) == 0,
            detail: self.text(),
        }
    }

    fn arrow(&mut self, bars: usize) -> Arrow {
        let mut place = || Place {
            bar: self.roll(bars),
            step: self.roll(3),
        };
        let (from, to) = (place(), place());
        Arrow {
            from,
            to,
            kind: self.one_of(&KINDS),
            label: self.text(),
            is_dashed: self.roll(2) == 0,
        }
    }

    fn mark(&mut self) -> Mark {
        let at_us = self.us();
        Mark {
            lane: (self.roll(2) == 0).then(|| self.roll(6)),
            at_us,
            until_us: self.maybe_us(at_us),
            text: self.text(),
            detail: self.text(),
        }
    }

    fn message(&mut self, lanes: usize) -> Message {
        let sent_us = self.us();
        Message {
            from: self.roll(lanes),
            sent_us,
            to: self.roll(lanes),
            received_us: self.maybe_us(sent_us),
            text: self.text(),
            detail: self.text(),
        }
    }
}

/// Layouts of many random diagrams, with what they are of.
fn layouts() -> impl Iterator<Item = (u64, Diagram, Layout)> {
    (1..=600).map(|seed| {
        let diagram = Dice(seed).diagram().drawable();
        let layout = layout(&diagram);
        (seed, diagram, layout)
    })
}

#[test]
fn no_two_texts_overlap() {
    for (seed, _, layout) in layouts() {
        for (index, label) in layout.labels.iter().enumerate() {
            for other in &layout.labels[..index] {
                assert!(
                    !label.area.intersects(&other.area),
                    "seed {seed}: {label:?} and {other:?}"
                );
            }
        }
    }
}

#[test]
fn nothing_is_outside_of_the_picture() {
    for (seed, _, layout) in layouts() {
        let inside = |x: f64, y: f64| {
            (0.0..=layout.width).contains(&x) && (0.0..=layout.height).contains(&y)
        };
        let boxes = layout.labels.iter().map(|label| label.area);
        let boxes = boxes
            .chain(layout.bars.iter().map(|bar| bar.area))
            .chain(layout.groups.iter().copied())
            .chain(layout.marks.iter().copied())
            .chain(layout.legend.iter().map(|&(_, sample)| sample));
        for area in boxes {
            assert!(inside(area.x, area.y), "seed {seed}: {area:?}");
            assert!(inside(area.right(), area.bottom()), "seed {seed}: {area:?}");
            assert!(
                area.width >= 0.0 && area.height >= 0.0,
                "seed {seed}: {area:?}"
            );
        }
        let corners = layout.arrows.iter().flat_map(|path| path.corners.clone());
        let lines = layout.messages.iter().chain(&layout.lanes);
        for (x, y) in corners.chain(lines.flat_map(|line| [line.from, line.to])) {
            assert!(inside(x, y), "seed {seed}: ({x}, {y})");
        }
    }
}

#[test]
fn bars_of_a_lane_do_not_overlap_and_their_texts_are_inside_of_them() {
    for (seed, diagram, layout) in layouts() {
        for (index, bar) in layout.bars.iter().enumerate() {
            for other in &layout.bars[..index] {
                assert!(
                    !bar.area.intersects(&other.area),
                    "seed {seed}: {bar:?} {other:?}"
                );
            }
        }
        let steps = layout
            .labels
            .iter()
            .filter(|label| matches!(label.role, Role::Step(_)));
        for label in steps {
            let holds = |bar: &BarBox| {
                let area = &bar.area;
                area.x <= label.area.x
                    && label.area.right() <= area.right()
                    && area.y <= label.area.y
                    && label.area.bottom() <= area.bottom()
            };
            assert!(layout.bars.iter().any(holds), "seed {seed}: {label:?}");
        }
        assert_eq!(layout.bars.len(), diagram.bars.len());
    }
}

#[test]
fn what_is_earlier_is_further_left() {
    for (seed, diagram, layout) in layouts() {
        let mut starts: Vec<(u64, f64)> = diagram
            .bars
            .iter()
            .zip(&layout.bars)
            .map(|(bar, placed)| (bar.start_us, placed.area.x))
            .collect();
        starts.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        assert!(
            starts.is_sorted_by(|a, b| a.1 <= b.1),
            "seed {seed}: {starts:?}"
        );
    }
}

#[test]
fn arrows_begin_and_end_at_their_steps() {
    for (seed, diagram, layout) in layouts() {
        assert_eq!(layout.arrows.len(), diagram.arrows.len());
        for path in &layout.arrows {
            let arrow = &diagram.arrows[path.arrow];
            let ends = [(arrow.from, path.corners[0]), (arrow.to, path.corners[3])];
            for (place, (x, y)) in ends {
                let step = &layout.bars[place.bar].steps[place.step];
                assert!(step.x <= x && x <= step.right(), "seed {seed}: {path:?}");
                assert!(y == step.y || y == step.bottom(), "seed {seed}: {path:?}");
            }
        }
    }
}
