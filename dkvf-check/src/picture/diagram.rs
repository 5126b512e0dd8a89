//! What a space-time diagram shows, whoever draws it.

use crate::verdict::EdgeKind;

use super::words::printable;

/// A space-time diagram: processes as horizontal lines, time from left to right, what happened as bars on the lines,
/// and arrows between them.
///
/// References are indices. One that leads nowhere is left out of the picture, and so is what goes beyond the bounds
/// [`Diagram::LANES_MAX`] and so on; the picture says how much that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagram {
    /// What it is about.
    pub title: String,
    /// What follows from it, in one line; may be empty.
    pub verdict: String,
    /// The argument, sentence by sentence.
    pub caption: Vec<String>,
    /// The processes, from top to bottom; those of a group one after another.
    pub lanes: Vec<Lane>,
    /// What took some time on one lane.
    pub bars: Vec<Bar>,
    /// What follows from what.
    pub arrows: Vec<Arrow>,
    /// Moments and intervals of one lane or all, such as faults.
    pub marks: Vec<Mark>,
    /// Messages between lanes.
    pub messages: Vec<Message>,
}

/// A process: a horizontal line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// The site that it belongs to; may be empty.
    pub group: String,
}

/// Something that took time on a lane: a transaction, an operation, a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// Index of its lane.
    pub lane: usize,
    /// When it began, in microseconds.
    pub start_us: u64,
    /// When it ended, in microseconds; `None` if it never did.
    pub end_us: Option<u64>,
    /// Its name, such as `T3`; may be empty.
    pub name: String,
    /// What it did, in its order.
    pub steps: Vec<Step>,
    /// Whether the picture is about it; others are drawn faintly.
    pub is_involved: bool,
    /// Whether it certainly happened.
    pub is_certain: bool,
    /// What a tooltip says about it; may be empty.
    pub detail: String,
}

/// A part of a bar, such as an operation of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Its name, such as `#12`; may be empty.
    pub name: String,
    /// What it did.
    pub text: String,
    /// What a tooltip says about it; may be empty.
    pub detail: String,
    /// Whether the picture is about it.
    pub is_involved: bool,
}

/// A step of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Index of the bar.
    pub bar: usize,
    /// Index of the step in [`Bar::steps`].
    pub step: usize,
}

/// An arrow between two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Where it begins.
    pub from: Place,
    /// Where its head is.
    pub to: Place,
    /// Its colour and its place in the legend.
    pub kind: EdgeKind,
    /// What stands on it.
    pub label: String,
    /// Whether it is dashed: it was inferred, not seen.
    pub is_dashed: bool,
}

/// A moment or an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The lane that it happened to; `None` is all of them.
    pub lane: Option<usize>,
    /// When it began, in microseconds.
    pub at_us: u64,
    /// When it ended, in microseconds; `None` is a moment.
    pub until_us: Option<u64>,
    /// What it is.
    pub text: String,
    /// What a tooltip says about it; may be empty.
    pub detail: String,
}

/// A message between two lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Index of the sender's lane.
    pub from: usize,
    /// When it was sent, in microseconds.
    pub sent_us: u64,
    /// Index of the receiver's lane.
    pub to: usize,
    /// When it was received, in microseconds; `None` if it was lost.
    pub received_us: Option<u64>,
    /// What it says. Left out of the drawing where there is no room; the tooltip has it.
    pub text: String,
    /// What a tooltip says about it; may be empty.
    pub detail: String,
}

impl Diagram {
    /// More lanes are left out.
    pub const LANES_MAX: usize = 64;
    /// More bars are left out.
    pub const BARS_MAX: usize = 400;
    /// More steps of a bar are left out.
    pub const STEPS_MAX: usize = 16;
    /// More arrows are left out.
    pub const ARROWS_MAX: usize = 400;
    /// More marks are left out.
    pub const MARKS_MAX: usize = 100;
    /// More messages are left out.
    pub const MESSAGES_MAX: usize = 1_000;
    /// More sentences of the caption are left out.
    pub const SENTENCES_MAX: usize = 40;
    /// Longer texts are cut, in characters.
    pub const TEXT_MAX: usize = 2_000;

    /// The diagram that is drawn: within the bounds, with text that can be printed, without what leads nowhere.
    pub(super) fn drawable(&self) -> Diagram {
        let lanes = self.lanes.len().min(Self::LANES_MAX);
        let bars: Vec<Option<Bar>> = self.bars.iter().map(|bar| bar.drawable(lanes)).collect();
        let mut places = Vec::with_capacity(bars.len());
        let mut kept: Vec<Bar> = Vec::new();
        for bar in bars {
            let bar = bar.filter(|_| kept.len() < Self::BARS_MAX);
            places.push(bar.as_ref().map(|_| kept.len()));
            kept.extend(bar);
        }
        let place = |place: Place| {
            let bar = *places.get(place.bar)?;
            let bar = bar?;
            (place.step < kept[bar].steps.len()).then_some(Place { bar, ..place })
        };
        let arrows = self.arrows.iter().filter_map(|arrow| {
            Some(Arrow {
                from: place(arrow.from)?,
                to: place(arrow.to)?,
                label: text(&arrow.label),
                ..*arrow
            })
        });
        let arrows: Vec<Arrow> = arrows.take(Self::ARROWS_MAX).collect();
        let marks = self.marks.iter().filter_map(|mark| mark.drawable(lanes));
        let marks: Vec<Mark> = marks.take(Self::MARKS_MAX).collect();
        let messages = self.messages.iter();
        let messages = messages.filter_map(|message| message.drawable(lanes));
        let messages: Vec<Message> = messages.take(Self::MESSAGES_MAX).collect();
        let left_out = [
            (self.lanes.len() - lanes, "lanes"),
            (self.bars.len() - kept.len(), "bars"),
            (self.arrows.len() - arrows.len(), "arrows"),
            (self.marks.len() - marks.len(), "marks"),
            (self.messages.len() - messages.len(), "messages"),
        ];
        Diagram {
            title: text(&self.title),
            verdict: text(&self.verdict),
            caption: self.sentences(&left_out),
            lanes: self.lanes[..lanes].iter().map(Lane::drawable).collect(),
            bars: kept,
            arrows,
            marks,
            messages,
        }
    }

    /// The caption, and what the picture does not show.
    fn sentences(&self, left_out: &[(usize, &str)]) -> Vec<String> {
        let mut sentences: Vec<String> = self.caption.iter().map(|line| text(line)).collect();
        let more = sentences.len().saturating_sub(Self::SENTENCES_MAX);
        sentences.truncate(Self::SENTENCES_MAX);
        let missing: Vec<String> = left_out
            .iter()
            .chain([&(more, "sentences")])
            .filter(|&&(count, _)| count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !missing.is_empty() {
            sentences.push(format!("Not shown: {}.", missing.join(", ")));
        }
        sentences
    }

    /// Whether a group of lanes begins with this one.
    pub(super) fn begins_group(&self, lane: usize) -> bool {
        let before = lane.checked_sub(1);
        before.is_none_or(|before| self.lanes[before].group != self.lanes[lane].group)
    }

    /// Beginning and end of all that happens, in microseconds; `None` if nothing does.
    pub(super) fn span_us(&self) -> Option<(u64, u64)> {
        let bars = self.bars.iter();
        let bars = bars.flat_map(|bar| [Some(bar.start_us), bar.end_us]);
        let marks = self.marks.iter();
        let marks = marks.flat_map(|mark| [Some(mark.at_us), mark.until_us]);
        let messages = self.messages.iter();
        let messages = messages.flat_map(|message| [Some(message.sent_us), message.received_us]);
        let times = || {
            bars.clone()
                .chain(marks.clone())
                .chain(messages.clone())
                .flatten()
        };
        Some((times().min()?, times().max()?))
    }
}

impl Lane {
    fn drawable(&self) -> Lane {
        Lane {
            name: text(&self.name),
            group: text(&self.group),
        }
    }
}

impl Bar {
    fn drawable(&self, lanes: usize) -> Option<Bar> {
        let steps = self.steps.iter().take(Diagram::STEPS_MAX);
        (self.lane < lanes).then(|| Bar {
            name: text(&self.name),
            end_us: self.end_us.map(|end_us| end_us.max(self.start_us)),
            steps: steps.map(Step::drawable).collect(),
            detail: text(&self.detail),
            ..*self
        })
    }
}

impl Step {
    fn drawable(&self) -> Step {
        Step {
            name: text(&self.name),
            text: text(&self.text),
            detail: text(&self.detail),
            is_involved: self.is_involved,
        }
    }

    /// Its name and what it did.
    pub(super) fn label(&self) -> String {
        match self.name.as_str() {
            "" => self.text.clone(),
            name => format!("{name} {}", self.text),
        }
    }
}

impl Mark {
    fn drawable(&self, lanes: usize) -> Option<Mark> {
        self.lane.is_none_or(|lane| lane < lanes).then(|| Mark {
            until_us: self.until_us.map(|until_us| until_us.max(self.at_us)),
            text: text(&self.text),
            detail: text(&self.detail),
            ..*self
        })
    }
}

impl Message {
    fn drawable(&self, lanes: usize) -> Option<Message> {
        (self.from < lanes && self.to < lanes).then(|| Message {
            received_us: self.received_us.map(|at_us| at_us.max(self.sent_us)),
            text: text(&self.text),
            detail: text(&self.detail),
            ..*self
        })
    }
}

fn text(text: &str) -> String {
    match text.char_indices().nth(Diagram::TEXT_MAX) {
        None => printable(text),
        Some((end, _)) => printable(&text[..end]) + "…",
    }
}
