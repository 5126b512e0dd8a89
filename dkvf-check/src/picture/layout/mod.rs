//! Where everything of a diagram is, before anything is drawn.
//!
//! Every text is a [`Label`] with the box that it has for itself. Boxes do not intersect by construction: the texts of
//! bars are in their bars, whose intervals are as long as the texts ([`Timeline`]); arrows run in gutters above and
//! below the lanes, on tracks that they do not share with anything they overlap ([`routes`]); names of lanes, the axis,
//! the legend and the caption have strips of their own ([`frame`]); the texts of messages are placed last, where there
//! is room ([`messages`]).

mod bars;
mod frame;
mod messages;
mod routes;
#[cfg(test)]
mod tests;

use super::arrange::arrange;
use super::diagram::Diagram;
use super::timeline::{Instant, Spacing, Span, Timeline};
use super::words;

/// Width of a cell of the labels' font: 12 px, fixed width.
pub(super) const CELL: f64 = 7.3;
/// Height of a label.
pub(super) const LINE: f64 = 18.0;
/// Height of a bar.
pub(super) const BAR: f64 = 26.0;
/// Between rows of a lane.
const ROW_GAP: f64 = 6.0;
/// Height of a track of a gutter.
const TRACK: f64 = 22.0;
/// Between the tracks of a gutter and the lanes beside it: an arrowhead fits.
const GUTTER: f64 = 14.0;
/// Around everything.
const MARGIN: f64 = 16.0;
/// Least width of the part where time passes.
const PLOT_MIN: f64 = 620.0;
/// Cells of the longest text in a bar.
const STEP_CELLS_MAX: usize = 40;
/// Cells of the longest name of a lane or a site.
const NAME_CELLS_MAX: usize = 24;
/// Cells of the longest text on an arrow, a message or a mark.
const LABEL_CELLS_MAX: usize = 28;

/// A rectangle; its corner is the upper left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    /// Where it ends on the right.
    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    /// Where it ends below.
    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// Whether they have more than an edge in common.
    pub(super) fn intersects(&self, other: &Rect) -> bool {
        self.x < other.right()
            && other.x < self.right()
            && self.y < other.bottom()
            && other.y < self.bottom()
    }
}

/// What a text is, which says how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Title,
    Verdict,
    Caption,
    Group,
    Lane,
    /// The text of a step, and whether the picture is about it.
    Step(bool),
    /// The text on the arrow with this index.
    Arrow(usize),
    Mark(usize),
    Message(usize),
    Tick,
    Legend,
}

/// A text and the box that it has for itself.
#[derive(Clone, Debug)]
pub(super) struct Label {
    pub area: Rect,
    pub text: String,
    pub role: Role,
}

/// A bar and its steps, from left to right.
#[derive(Clone, Debug)]
pub(super) struct BarBox {
    pub area: Rect,
    pub steps: Vec<Rect>,
}

/// The corners of an arrow, from its tail to its head, and the index of its arrow.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub arrow: usize,
    pub corners: Vec<(f64, f64)>,
}

/// A straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub from: (f64, f64),
    pub to: (f64, f64),
}

/// Where everything is.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub width: f64,
    pub height: f64,
    /// Behind the lanes of each site.
    pub groups: Vec<Rect>,
    /// The line of each lane.
    pub lanes: Vec<Line>,
    /// By index of the diagram's bars.
    pub bars: Vec<BarBox>,
    pub arrows: Vec<Path>,
    /// By index of the diagram's marks: a line has no width.
    pub marks: Vec<Rect>,
    /// By index of the diagram's messages.
    pub messages: Vec<Line>,
    pub axis: Option<Line>,
    /// Where the axis has its ticks and where it is broken.
    pub ticks: Vec<f64>,
    pub breaks: Vec<f64>,
    /// The samples of the legend, by kind of arrow.
    pub legend: Vec<(super::EdgeKind, Rect)>,
    pub labels: Vec<Label>,
}

/// The horizontal extent of the part where time passes.
#[derive(Clone, Copy, Debug)]
struct Plot {
    left: f64,
    right: f64,
}

/// What is known before heights are: everything horizontal.
struct Columns<'d> {
    diagram: &'d Diagram,
    timeline: Timeline,
    plot: Plot,
    /// By bar: its row on its lane.
    rows: Vec<usize>,
    /// By lane: how many rows it has.
    row_counts: Vec<usize>,
    /// By bar; heights are still those of a bar at 0.
    bars: Vec<BarBox>,
}

impl Columns<'_> {
    /// Where a moment is.
    fn x(&self, instant: Instant) -> f64 {
        self.plot.left + self.timeline.position(instant)
    }
}

/// Lays out what [`Diagram::drawable`] returned.
pub(super) fn layout(diagram: &Diagram) -> Layout {
    let columns = columns(diagram);
    let gutters = routes::route(&columns);
    let mut layout = Layout {
        width: columns.plot.right + MARGIN,
        ..Layout::default()
    };
    let top = frame::head(diagram, &mut layout);
    let lanes = routes::stack(&columns, &gutters, top);
    bars::place(&columns, &lanes, &mut layout);
    gutters.place(&columns, &lanes, &mut layout);
    frame::lanes(&columns, &lanes, &mut layout);
    frame::foot(&columns, &lanes, &mut layout);
    messages::place(&columns, &mut layout);
    layout
}

/// Spreads time and bars over the width of the picture.
fn columns(diagram: &Diagram) -> Columns<'_> {
    let (slots, row_counts) = arrange(diagram);
    let widths: Vec<Vec<f64>> = diagram.bars.iter().map(bars::step_widths).collect();
    let spans = slots.iter().zip(&widths).map(|(slot, widths)| Span {
        start: slot.start,
        end: slot.end,
        length: widths.iter().sum(),
    });
    let spans: Vec<Span> = spans.collect();
    let spacing = Spacing {
        least: if diagram.messages.is_empty() {
            16.0
        } else {
            8.0
        },
        most: 90.0,
    };
    let timeline = Timeline::new(&spans, &other_instants(diagram), spacing);
    let left = MARGIN + name_width(diagram);
    let plot = Plot {
        left,
        right: left + (timeline.length() + MARGIN).max(PLOT_MIN),
    };
    let bars = spans.iter().zip(&widths).map(|(span, widths)| {
        let from = left + timeline.position(span.start);
        let to = left + timeline.position(span.end);
        bars::spread(from, to, widths)
    });
    Columns {
        bars: bars.collect(),
        rows: slots.iter().map(|slot| slot.row).collect(),
        diagram,
        timeline,
        plot,
        row_counts,
    }
}

/// The moments of messages and marks, which need no room of their own.
fn other_instants(diagram: &Diagram) -> Vec<Instant> {
    let messages = diagram.messages.iter();
    let messages = messages.flat_map(|message| [Some(message.sent_us), message.received_us]);
    let marks = diagram.marks.iter();
    let marks = marks.flat_map(|mark| [Some(mark.at_us), mark.until_us]);
    messages.chain(marks).flatten().map(|us| (us, 1)).collect()
}

/// Width of the column of names.
fn name_width(diagram: &Diagram) -> f64 {
    let names = diagram.lanes.iter();
    let names = names.flat_map(|lane| [words::cells(&lane.name), words::cells(&lane.group)]);
    let longest = names.max().unwrap_or(0).min(NAME_CELLS_MAX);
    text_width(longest) + 2.0 * MARGIN
}

fn text_width(cells: usize) -> f64 {
    cells as f64 * CELL
}
