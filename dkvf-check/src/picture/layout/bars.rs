//! Bars and what stands in them.

use super::super::diagram::{Bar, Step};
use super::super::words;
use super::routes::Stack;
use super::{
    BAR, BarBox, Columns, LINE, Label, Layout, ROW_GAP, Rect, Role, STEP_CELLS_MAX, text_width,
};

/// Room left and right of a text in a step.
const PADDING: f64 = 8.0;
/// Width of a step without text.
const EMPTY: f64 = 14.0;

/// The text of a step as it is drawn; the first one has the name of its bar before it.
fn step_text(bar: &Bar, index: usize, step: &Step) -> String {
    let text = words::shorten(&step.label(), STEP_CELLS_MAX);
    if index == 0 && !bar.name.is_empty() {
        format!("{} {text}", words::shorten(&bar.name, STEP_CELLS_MAX / 2))
    } else {
        text
    }
}

/// The least widths of the steps of a bar; of one without steps, the width of its name.
pub(super) fn step_widths(bar: &Bar) -> Vec<f64> {
    if bar.steps.is_empty() {
        return vec![width(words::cells(&bar.name).min(STEP_CELLS_MAX))];
    }
    let steps = bar.steps.iter().enumerate();
    let widths = steps.map(|(index, step)| width(words::cells(&step_text(bar, index, step))));
    widths.collect()
}

fn width(cells: usize) -> f64 {
    if cells == 0 {
        EMPTY
    } else {
        text_width(cells) + 2.0 * PADDING
    }
}

/// A bar from `from` to `to` whose steps share what is left of its length.
pub(super) fn spread(from: f64, to: f64, widths: &[f64]) -> BarBox {
    let spare = (to - from - widths.iter().sum::<f64>()).max(0.0) / widths.len() as f64;
    let mut x = from;
    let steps = widths.iter().map(|width| {
        let step = Rect {
            x,
            y: 0.0,
            width: width + spare,
            height: BAR,
        };
        x = step.right();
        step
    });
    BarBox {
        steps: steps.collect(),
        area: Rect {
            x: from,
            y: 0.0,
            width: to - from,
            height: BAR,
        },
    }
}

/// Gives every bar its height, and its texts.
pub(super) fn place(columns: &Columns, lanes: &Stack, layout: &mut Layout) {
    for (index, bar) in columns.diagram.bars.iter().enumerate() {
        let y = lanes.lane_top(bar.lane) + columns.rows[index] as f64 * (BAR + ROW_GAP);
        let mut placed = columns.bars[index].clone();
        placed.area.y = y;
        for step in &mut placed.steps {
            step.y = y;
        }
        layout.labels.extend(texts(bar, &placed));
        layout.bars.push(placed);
    }
}

fn texts(bar: &Bar, placed: &BarBox) -> Vec<Label> {
    let label = |text: String, area: Rect, is_involved| {
        let y = area.y + (BAR - LINE) / 2.0;
        Label {
            area: Rect {
                x: area.x + PADDING,
                y,
                width: text_width(words::cells(&text)),
                height: LINE,
            },
            text,
            role: Role::Step(is_involved),
        }
    };
    if bar.steps.is_empty() {
        let name = words::shorten(&bar.name, STEP_CELLS_MAX);
        let named = !name.is_empty();
        let name = named.then(|| label(name, placed.area, bar.is_involved));
        return name.into_iter().collect();
    }
    let steps = bar.steps.iter().zip(&placed.steps).enumerate();
    let texts = steps.map(|(index, (step, &area))| {
        label(
            step_text(bar, index, step),
            area,
            bar.is_involved && step.is_involved,
        )
    });
    texts.filter(|label| !label.text.is_empty()).collect()
}
