//! Messages: slanted lines between lanes.

use super::super::words;
use super::{Columns, LABEL_CELLS_MAX, LINE, Label, Layout, Line, Rect, Role, text_width};

/// Draws every message, and its text if there is room for it beside the line.
pub(super) fn place(columns: &Columns, layout: &mut Layout) {
    for (index, message) in columns.diagram.messages.iter().enumerate() {
        let end = |lane: usize, us| (columns.x((us, 1)), layout.lanes[lane].from.1);
        let from = end(message.from, message.sent_us);
        let line = match message.received_us {
            Some(received_us) => Line {
                from,
                to: end(message.to, received_us),
            },
            // A lost message comes half way.
            None => {
                let to = end(message.to, message.sent_us);
                let x = (from.0 + 2.0 * LINE).min(columns.plot.right);
                let y = f64::midpoint(from.1, to.1);
                Line { from, to: (x, y) }
            }
        };
        layout.messages.push(line);
        let text = words::shorten(&message.text, LABEL_CELLS_MAX);
        let shares: &[f64] = match message.received_us {
            Some(_) => &[0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8],
            None => &[-0.2, 1.7, 0.5],
        };
        if let Some(area) = free_area(&text, line, shares, columns, layout) {
            layout.labels.push(Label {
                area,
                text,
                role: Role::Message(index),
            });
        }
    }
}

/// A place for the text at one of these shares of its line that touches no other text and no bar.
fn free_area(
    text: &str,
    line: Line,
    shares: &[f64],
    columns: &Columns,
    layout: &Layout,
) -> Option<Rect> {
    let cells = words::cells(text);
    if cells == 0 {
        return None;
    }
    let width = text_width(cells) + 4.0;
    let mut candidates = shares.iter().map(|share| {
        let x = line.from.0 + (line.to.0 - line.from.0) * share;
        let y = line.from.1 + (line.to.1 - line.from.1) * share;
        Rect {
            x: x - width / 2.0,
            y: y - LINE / 2.0,
            width,
            height: LINE,
        }
    });
    let is_free = |area: &Rect| {
        area.x >= columns.plot.left
            && area.right() <= columns.plot.right
            && !layout
                .labels
                .iter()
                .any(|label| label.area.intersects(area))
            && !layout.bars.iter().any(|bar| bar.area.intersects(area))
    };
    candidates.find(is_free)
}
