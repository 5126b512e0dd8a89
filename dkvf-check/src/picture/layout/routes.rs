//! How arrows run, and how high the gutters between the lanes are.
//!
//! An arrow leaves its step up or down, runs along a track of one gutter and goes up or down into the other step. Where
//! it has to cross a lane it passes behind the bars. Texts of marks take places on the tracks, too.

use super::super::diagram::{Arrow, Place};
use super::super::words;
use super::{
    BAR, Columns, GUTTER, LABEL_CELLS_MAX, LINE, Label, Layout, MARGIN, Path, Plot, ROW_GAP, Rect,
    Role, TRACK, text_width,
};

/// Least distance between things on one track.
const APART: f64 = 10.0;
/// Least distance between two vertical parts of arrows.
const PORT_APART: f64 = 6.0;
/// Room left and right of a text on a track.
const PADDING: f64 = 6.0;

/// Something on a track: a text, and for an arrow the line that it stands on.
#[derive(Clone, Debug)]
struct Item {
    text: String,
    role: Role,
    /// Where its text begins, and how wide its box is.
    text_x: f64,
    text_width: f64,
    /// The ends of its line, which is none for a text alone.
    line: Option<(f64, f64)>,
    gutter: usize,
    track: usize,
}

impl Item {
    /// What it takes of its track.
    fn extent(&self) -> (f64, f64) {
        let (from, to) = self.line.unwrap_or((self.text_x, self.text_x));
        let left = self.text_x.min(from).min(to);
        let right = (self.text_x + self.text_width).max(from).max(to);
        (left, right)
    }
}

/// What is on the tracks of all gutters. Gutter `i` is above lane `i`; the last one is below all lanes.
pub(super) struct Gutters {
    items: Vec<Item>,
    /// By gutter: how many tracks it has.
    tracks: Vec<usize>,
}

/// Which side of a step an arrow uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Top,
    Bottom,
}

/// One end of an arrow.
#[derive(Clone, Copy, Debug)]
struct End {
    place: Place,
    side: Side,
    x: f64,
}

/// Chooses gutters and tracks. Takes O(a (a + b)) time for a arrows and b bars.
pub(super) fn route(columns: &Columns) -> Gutters {
    let diagram = columns.diagram;
    let ends = ends(columns);
    let arrows = (0..ends.len()).map(|index| arrow_item(columns, index, &ends));
    let marks = diagram.marks.iter().enumerate();
    let marks = marks.map(|(index, mark)| {
        let x = columns.x((mark.at_us, 1));
        let text = words::shorten(&mark.text, LABEL_CELLS_MAX);
        let middle = x + text_width(words::cells(&text)) / 2.0 + PADDING;
        item(
            text,
            Role::Mark(index),
            middle,
            None,
            mark.lane.unwrap_or(0),
            columns.plot,
        )
    });
    let mut items: Vec<Item> = marks.chain(arrows).collect();
    let tracks = assign_tracks(&mut items, diagram.lanes.len() + 1);
    Gutters { items, tracks }
}

fn arrow_item(columns: &Columns, index: usize, ends: &[[End; 2]]) -> Item {
    let [from, to] = &ends[index];
    let text = words::shorten(&columns.diagram.arrows[index].label, LABEL_CELLS_MAX);
    let gutter = gutter(columns, &ends[index]);
    let others = ends.iter().flatten().map(|end| end.x);
    let others = others.filter(|x| *x != from.x && *x != to.x);
    let at = label_place((from.x, to.x), box_width(&text) / 2.0, others);
    let line = Some((from.x, to.x));
    item(text, Role::Arrow(index), at, line, gutter, columns.plot)
}

/// Where on a line to centre a text, so that no other arrow goes up or down behind it: the middle, or where there is room
/// on the line.
fn label_place(
    (from, to): (f64, f64),
    half: f64,
    others: impl Iterator<Item = f64> + Clone,
) -> f64 {
    let places = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8].map(|share| from + (to - from) * share);
    let (left, right) = (from.min(to), from.max(to));
    let is_clear = |place: &&f64| {
        let (start, end) = (*place - half, *place + half);
        start > left && end < right && others.clone().all(|x| x < start || end < x)
    };
    *places.iter().find(is_clear).unwrap_or(&places[0])
}

/// Width of the box of a text on a track.
fn box_width(text: &str) -> f64 {
    match words::cells(text) {
        0 => 0.0,
        cells => text_width(cells) + 2.0 * PADDING,
    }
}

/// An item whose text is centred at `middle` as far as the plot permits.
fn item(
    text: String,
    role: Role,
    middle: f64,
    line: Option<(f64, f64)>,
    gutter: usize,
    plot: Plot,
) -> Item {
    let text_width = box_width(&text);
    let text_x = (middle - text_width / 2.0)
        .min(plot.right - text_width)
        .max(plot.left);
    Item {
        text,
        role,
        text_x,
        text_width,
        line,
        gutter,
        track: 0,
    }
}

/// Where the arrows meet their steps. Those of one side of a step are spread over it in the order of where they lead,
/// so that they do not cross at once, and moved a little where another arrow is in the way.
fn ends(columns: &Columns) -> Vec<[End; 2]> {
    let arrows = &columns.diagram.arrows;
    let sides = arrows.iter().map(|arrow| sides(columns, arrow));
    let mut ends: Vec<[End; 2]> = arrows
        .iter()
        .zip(sides)
        .map(|(arrow, [from, to])| {
            [(arrow.from, from), (arrow.to, to)].map(|(place, side)| End {
                place,
                side,
                x: middle(columns, place),
            })
        })
        .collect();
    // By step and side, then from left to right by where the other end is.
    let mut order: Vec<(Place, Side, usize, usize)> = (0..ends.len())
        .flat_map(|arrow| [(arrow, 0), (arrow, 1)])
        .map(|(arrow, end)| (ends[arrow][end].place, ends[arrow][end].side, arrow, end))
        .collect();
    let leads_to = |&(.., arrow, end): &(Place, Side, usize, usize)| {
        middle(columns, ends[arrow][1 - end].place)
    };
    order.sort_by(|a, b| {
        let there = leads_to(a).total_cmp(&leads_to(b));
        (a.0, a.1).cmp(&(b.0, b.1)).then(there).then(a.cmp(b))
    });
    let mut taken: Vec<f64> = Vec::with_capacity(order.len());
    for group in order.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let step = step(columns, group[0].0);
        for (place, &(.., arrow, end)) in (1..).zip(group) {
            let share = f64::from(place) / (group.len() + 1) as f64;
            let x = free_port(step, step.x + step.width * share, &taken);
            taken.push(x);
            ends[arrow][end].x = x;
        }
    }
    ends
}

/// The place on `step` nearest to `wanted` that keeps away from the others, or `wanted` if there is none.
fn free_port(step: Rect, wanted: f64, taken: &[f64]) -> f64 {
    let is_free = |x: &f64| taken.iter().all(|other| (other - x).abs() >= PORT_APART);
    let inside = |x: &f64| *x >= step.x + PORT_APART && *x <= step.right() - PORT_APART;
    let steps = (0..16).map(|step| f64::from(step) * PORT_APART);
    let candidates = steps.flat_map(|distance| [wanted + distance, wanted - distance]);
    candidates.filter(inside).find(is_free).unwrap_or(wanted)
}

fn step(columns: &Columns, place: Place) -> Rect {
    columns.bars[place.bar].steps[place.step]
}

fn middle(columns: &Columns, place: Place) -> f64 {
    let step = step(columns, place);
    step.x + step.width / 2.0
}

fn lane(columns: &Columns, place: Place) -> usize {
    columns.diagram.bars[place.bar].lane
}

/// An arrow to a lower lane goes down, one to a higher lane up; one within a lane goes over it.
fn sides(columns: &Columns, arrow: &Arrow) -> [Side; 2] {
    match lane(columns, arrow.from).cmp(&lane(columns, arrow.to)) {
        std::cmp::Ordering::Less => [Side::Bottom, Side::Top],
        std::cmp::Ordering::Equal => [Side::Top, Side::Top],
        std::cmp::Ordering::Greater => [Side::Top, Side::Bottom],
    }
}

/// The gutter between the two lanes where an arrow hides least behind bars.
fn gutter(columns: &Columns, ends: &[End; 2]) -> usize {
    let mut ends = ends.map(|end| (lane(columns, end.place), end.x));
    ends.sort_by_key(|&(lane, _)| lane);
    let [(upper, upper_x), (lower, lower_x)] = ends;
    let hidden = |gutter: usize| {
        bars_at(columns, upper + 1..gutter, upper_x) + bars_at(columns, gutter..lower, lower_x)
    };
    let between = upper + 1..=lower;
    between
        .min_by_key(|&gutter| hidden(gutter))
        .unwrap_or(upper)
}

/// How many bars of these lanes are at `x`.
fn bars_at(columns: &Columns, lanes: std::ops::Range<usize>, x: f64) -> usize {
    let bars = columns.diagram.bars.iter().zip(&columns.bars);
    bars.filter(|(bar, placed)| {
        lanes.contains(&bar.lane) && placed.area.x <= x && x <= placed.area.right()
    })
    .count()
}

/// Gives every item the first track on which it is alone; returns how many tracks each gutter needs.
fn assign_tracks(items: &mut [Item], gutters: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| items[a].extent().0.total_cmp(&items[b].extent().0));
    let mut ends: Vec<Vec<f64>> = vec![Vec::new(); gutters];
    for index in order {
        let item = &mut items[index];
        let (left, right) = item.extent();
        let tracks = &mut ends[item.gutter];
        let free = tracks.iter().position(|&end| end + APART <= left);
        item.track = free.unwrap_or(tracks.len());
        match free {
            Some(track) => tracks[track] = right,
            None => tracks.push(right),
        }
    }
    ends.iter().map(Vec::len).collect()
}

/// The heights of lanes and gutters.
pub(super) struct Stack {
    /// By gutter: its upper edge.
    gutter_tops: Vec<f64>,
    /// By lane: its upper edge.
    lane_tops: Vec<f64>,
    /// By lane: its lower edge.
    lane_bottoms: Vec<f64>,
    /// The lower edge of the last gutter.
    bottom: f64,
}

impl Stack {
    /// The upper edge of a lane.
    pub(super) fn lane_top(&self, lane: usize) -> f64 {
        self.lane_tops[lane]
    }

    /// The lower edge of a lane.
    pub(super) fn lane_bottom(&self, lane: usize) -> f64 {
        self.lane_bottoms[lane]
    }

    /// The upper edge of a gutter.
    pub(super) fn gutter_top(&self, gutter: usize) -> f64 {
        self.gutter_tops[gutter]
    }

    /// The lower edge of everything.
    pub(super) fn bottom(&self) -> f64 {
        self.bottom
    }
}

/// Puts gutters and lanes one below another, from `top` on.
pub(super) fn stack(columns: &Columns, gutters: &Gutters, top: f64) -> Stack {
    let mut stack = Stack {
        gutter_tops: Vec::new(),
        lane_tops: Vec::new(),
        lane_bottoms: Vec::new(),
        bottom: top,
    };
    for (gutter, &tracks) in gutters.tracks.iter().enumerate() {
        stack.gutter_tops.push(stack.bottom);
        stack.bottom += 2.0 * GUTTER + tracks as f64 * TRACK;
        if let Some(&rows) = columns.row_counts.get(gutter) {
            stack.lane_tops.push(stack.bottom);
            stack.bottom += rows as f64 * (BAR + ROW_GAP) - ROW_GAP;
            stack.lane_bottoms.push(stack.bottom);
        }
    }
    stack
}

impl Gutters {
    /// Places arrows, marks and their texts.
    pub(super) fn place(&self, columns: &Columns, stack: &Stack, layout: &mut Layout) {
        let ends = ends(columns);
        layout.marks = vec![Rect::default(); columns.diagram.marks.len()];
        for item in &self.items {
            let y = stack.gutter_top(item.gutter) + GUTTER + (item.track as f64 + 0.5) * TRACK;
            match item.role {
                Role::Arrow(arrow) => {
                    let corners = corners(&ends[arrow], y, layout);
                    layout.arrows.push(Path { arrow, corners });
                }
                Role::Mark(mark) => {
                    layout.marks[mark] = mark_area(columns, stack, mark, y + LINE / 2.0);
                }
                _ => {}
            }
            if !item.text.is_empty() {
                layout.labels.push(Label {
                    area: Rect {
                        x: item.text_x,
                        y: y - LINE / 2.0,
                        width: item.text_width,
                        height: LINE,
                    },
                    text: item.text.clone(),
                    role: item.role,
                });
            }
        }
        layout.arrows.sort_by_key(|path| path.arrow);
    }
}

/// From a step along the track at `y` to the other step.
fn corners(ends: &[End; 2], y: f64, layout: &Layout) -> Vec<(f64, f64)> {
    let meets = |end: &End| {
        let bar = &layout.bars[end.place.bar].area;
        match end.side {
            Side::Top => bar.y,
            Side::Bottom => bar.bottom(),
        }
    };
    let [from, to] = ends;
    vec![
        (from.x, meets(from)),
        (from.x, y),
        (to.x, y),
        (to.x, meets(to)),
    ]
}

/// From the text of a mark down to the end of what it is about.
fn mark_area(columns: &Columns, stack: &Stack, mark: usize, top: f64) -> Rect {
    let mark = &columns.diagram.marks[mark];
    let x = columns.x((mark.at_us, 1));
    let until = mark.until_us.map_or(x, |until_us| columns.x((until_us, 1)));
    let bottom = match mark.lane {
        Some(lane) => stack.lane_bottom(lane),
        None => stack.bottom() - GUTTER,
    };
    Rect {
        x,
        y: top,
        width: (until - x).min(columns.plot.right - MARGIN - x),
        height: bottom - top,
    }
}
