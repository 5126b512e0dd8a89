//! What is around the bars: title, lanes, axis, legend and caption.

use super::super::EdgeKind;
use super::super::diagram::Diagram;
use super::super::words;
use super::routes::Stack;
use super::{
    CELL, Columns, GUTTER, LINE, Label, Layout, Line, MARGIN, NAME_CELLS_MAX, Rect, Role,
    text_width,
};

/// Height of a line of the title.
const TITLE_LINE: f64 = 26.0;
/// Size of the font of the title, and how much wider it is for being bold.
const TITLE_FONT: f64 = 17.0 * 1.12;
/// Height of a line of verdict and caption.
const TEXT_LINE: f64 = 20.0;
/// Size of the font of verdict and caption.
const TEXT_FONT: f64 = 13.0;
/// Between groups.
const GROUP_GAP: f64 = 4.0;
/// Length of a tick.
const TICK: f64 = 5.0;
/// Width of the arrow in the legend.
const SAMPLE: f64 = 26.0;

/// Places title and verdict; returns where they end.
pub(super) fn head(diagram: &Diagram, layout: &mut Layout) -> f64 {
    let y = paragraph(&diagram.title, Role::Title, MARGIN, layout);
    paragraph(&diagram.verdict, Role::Verdict, y, layout) + 4.0
}

/// Places a text in as many lines as it takes; returns where it ends.
fn paragraph(text: &str, role: Role, top: f64, layout: &mut Layout) -> f64 {
    let (line, font) = match role {
        Role::Title => (TITLE_LINE, TITLE_FONT),
        _ => (TEXT_LINE, TEXT_FONT),
    };
    let width = layout.width - 2.0 * MARGIN;
    let mut y = top;
    for text in words::wrap(text, width / font, words::proportional) {
        layout.labels.push(Label {
            area: Rect {
                x: MARGIN,
                y,
                width: words::proportional(&text) * font,
                height: line,
            },
            text,
            role,
        });
        y += line;
    }
    y
}

/// Places the lines of the lanes, their names and the names of their groups.
pub(super) fn lanes(columns: &Columns, stack: &Stack, layout: &mut Layout) {
    for (index, lane) in columns.diagram.lanes.iter().enumerate() {
        let middle = f64::midpoint(stack.lane_top(index), stack.lane_bottom(index));
        layout.lanes.push(Line {
            from: (columns.plot.left, middle),
            to: (columns.plot.right, middle),
        });
        let name = name(&lane.name, Role::Lane, middle - LINE / 2.0);
        layout.labels.extend(name);
        let bottom = stack.lane_bottom(index) + GUTTER / 2.0;
        match layout.groups.last_mut() {
            Some(group) if !columns.diagram.begins_group(index) => {
                group.height = bottom - group.y;
            }
            _ => {
                let top = stack.gutter_top(index) + GUTTER / 2.0 + GROUP_GAP;
                layout.groups.push(Rect {
                    x: MARGIN / 2.0,
                    y: top,
                    width: layout.width - MARGIN,
                    height: bottom - top,
                });
                layout.labels.extend(name_of_group(&lane.group, top));
            }
        }
    }
}

fn name_of_group(group: &str, top: f64) -> Option<Label> {
    name(group, Role::Group, top + 1.0)
}

fn name(name: &str, role: Role, y: f64) -> Option<Label> {
    let text = words::shorten(name, NAME_CELLS_MAX);
    let area = Rect {
        x: MARGIN,
        y,
        width: text_width(words::cells(&text)),
        height: LINE,
    };
    (!text.is_empty()).then_some(Label { area, text, role })
}

/// Places the axis, the legend and the caption, and with them the height of the picture.
pub(super) fn foot(columns: &Columns, stack: &Stack, layout: &mut Layout) {
    let mut y = stack.bottom();
    if let Some((_, last_us)) = columns.diagram.span_us() {
        y = axis(columns, y, last_us, layout);
    }
    y = legend(columns.diagram, y, layout);
    for sentence in &columns.diagram.caption {
        y = paragraph(sentence, Role::Caption, y, layout);
    }
    layout.height = y + MARGIN;
}

/// Places the axis with a tick for each moment, and a time at as many of them as there is room for.
fn axis(columns: &Columns, y: f64, last_us: u64, layout: &mut Layout) -> f64 {
    let plot = columns.plot;
    layout.axis = Some(Line {
        from: (plot.left, y),
        to: (plot.right, y),
    });
    let breaks = columns.timeline.breaks().iter();
    layout.breaks = breaks.map(|position| plot.left + position).collect();
    let note = "not to scale";
    let mut note = Label {
        area: Rect {
            x: MARGIN,
            y: y + TICK,
            width: text_width(words::cells(note)),
            height: LINE,
        },
        text: note.to_owned(),
        role: Role::Tick,
    };
    let mut free = plot.left;
    for (us, position) in columns.timeline.ticks() {
        let x = plot.left + position;
        layout.ticks.push(x);
        let text = words::time(us, last_us);
        let width = text_width(words::cells(&text));
        let left = (x - width / 2.0).clamp(plot.left, plot.right - width);
        if left < free {
            continue;
        }
        free = left + width + CELL;
        layout.labels.push(Label {
            area: Rect {
                x: left,
                y: y + TICK,
                width,
                height: LINE,
            },
            text,
            role: Role::Tick,
        });
    }
    if note.area.right() > plot.left {
        note.area.y += LINE;
    }
    let bottom = note.area.bottom();
    layout.labels.push(note);
    bottom + 8.0
}

/// Places a sample and a name for every kind of arrow in the diagram.
fn legend(diagram: &Diagram, top: f64, layout: &mut Layout) -> f64 {
    let mut kinds: Vec<EdgeKind> = diagram.arrows.iter().map(|arrow| arrow.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let (mut x, mut y) = (MARGIN, top);
    for kind in &kinds {
        let text = format!("{}: {}", kind.label(), meaning(*kind));
        let width = text_width(words::cells(&text));
        if x > MARGIN && x + SAMPLE + width > layout.width - MARGIN {
            (x, y) = (MARGIN, y + TEXT_LINE);
        }
        let sample = Rect {
            x,
            y,
            width: SAMPLE,
            height: LINE,
        };
        layout.legend.push((*kind, sample));
        let area = Rect {
            x: sample.right() + 6.0,
            width,
            ..sample
        };
        layout.labels.push(Label {
            area,
            text,
            role: Role::Legend,
        });
        x = area.right() + 2.0 * CELL;
    }
    if kinds.is_empty() {
        y
    } else {
        y + TEXT_LINE + 6.0
    }
}

/// What the legend says about arrows of a kind.
fn meaning(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Session => "earlier in the same session",
        EdgeKind::RealTime => "returned before the other began",
        EdgeKind::ReadsFrom => "is read by",
        EdgeKind::VersionOrder => "is overwritten by",
        EdgeKind::AntiDependency => "read what the other replaced",
        EdgeKind::Inferred => "must come before",
    }
}
