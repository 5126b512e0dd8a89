//! Pictures as text, for terminals, mails and screen readers.

use std::fmt::{self, Write as _};

use super::arrange::{Slot, arrange};
use super::diagram::{Bar, Diagram, Place};
use super::timeline::{Spacing, Span, Timeline};
use super::words::{cells, shorten, time};

/// Wider lanes have names instead of texts, and a list of what the names stand for.
const WIDTH_MAX: usize = 110;
/// Cells of the longest text in a bar.
const STEP_CELLS_MAX: usize = 40;
/// Cells of the longest name of a lane.
const NAME_CELLS_MAX: usize = 24;
/// What is before the name of a lane.
const INDENT: &str = "  ";

/// The diagram, which is drawable, as text.
pub(super) fn text(diagram: &Diagram) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(diagram, &mut out);
    out
}

fn write(diagram: &Diagram, out: &mut String) -> fmt::Result {
    for line in [&diagram.title, &diagram.verdict] {
        if !line.is_empty() {
            writeln!(out, "{line}")?;
        }
    }
    let chart = Chart::new(diagram, Bar::full_text);
    if chart.width() <= WIDTH_MAX {
        chart.write(out)?;
    } else {
        Chart::new(diagram, Bar::short_text).write(out)?;
        list_steps(diagram, out)?;
    }
    list_events(diagram, out)?;
    if !diagram.arrows.is_empty() {
        out.push('\n');
    }
    for arrow in &diagram.arrows {
        let line = if arrow.is_dashed { "." } else { "-" };
        let (from, to) = (
            place_name(diagram, arrow.from),
            place_name(diagram, arrow.to),
        );
        writeln!(out, "{INDENT}{from} {line}{}{line}> {to}", arrow.label)?;
    }
    if !diagram.caption.is_empty() {
        out.push('\n');
    }
    for sentence in &diagram.caption {
        writeln!(out, "{sentence}")?;
    }
    Ok(())
}

/// Lanes as lines of characters.
struct Chart<'d> {
    diagram: &'d Diagram,
    slots: Vec<Slot>,
    row_counts: Vec<usize>,
    texts: Vec<String>,
    timeline: Timeline,
    name_width: usize,
}

impl<'d> Chart<'d> {
    fn new(diagram: &'d Diagram, text: impl Fn(&Bar) -> String) -> Self {
        let (slots, row_counts) = arrange(diagram);
        let texts: Vec<String> = diagram.bars.iter().map(text).collect();
        let spans = slots.iter().zip(&texts).map(|(slot, text)| Span {
            start: slot.start,
            end: slot.end,
            length: cells(text) as f64,
        });
        let spans: Vec<Span> = spans.collect();
        let spacing = Spacing {
            least: 2.0,
            most: 8.0,
        };
        let names = diagram.lanes.iter().map(|lane| cells(&lane.name));
        Chart {
            diagram,
            timeline: Timeline::new(&spans, &[], spacing),
            slots,
            row_counts,
            texts,
            name_width: names.max().unwrap_or(0).min(NAME_CELLS_MAX),
        }
    }

    fn column(&self, position: f64) -> usize {
        position.round() as usize
    }

    fn width(&self) -> usize {
        self.name_width + self.column(self.timeline.length())
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        for (lane, &rows) in self.row_counts.iter().enumerate() {
            let group = &self.diagram.lanes[lane].group;
            if !group.is_empty() && self.diagram.begins_group(lane) {
                writeln!(out, "{group}")?;
            }
            for row in 0..rows {
                let name = if row == 0 {
                    self.diagram.lanes[lane].name.as_str()
                } else {
                    ""
                };
                let name = shorten(name, NAME_CELLS_MAX);
                let padding = self.name_width - cells(&name);
                writeln!(out, "{INDENT}{name}{:padding$} {}", "", self.row(lane, row))?;
            }
        }
        self.axis(out)
    }

    /// The bars of one row, on a line.
    fn row(&self, lane: usize, row: usize) -> String {
        let bars = 0..self.slots.len();
        let mut bars: Vec<usize> = bars
            .filter(|&bar| self.diagram.bars[bar].lane == lane && self.slots[bar].row == row)
            .collect();
        bars.sort_by_key(|&bar| self.slots[bar].start);
        let mut line = String::new();
        let mut column = 0;
        for bar in bars {
            let slot = &self.slots[bar];
            let start = self.column(self.timeline.position(slot.start)).max(column);
            let end = self.column(self.timeline.position(slot.end));
            let text = &self.texts[bar];
            let width = cells(text).max(end.saturating_sub(start));
            // Within the brackets, so that their distance is the time it took.
            let inner = text.strip_suffix(']').unwrap_or(text);
            let fill = width - cells(text);
            line += &"-".repeat(start - column);
            line += inner;
            line += &" ".repeat(fill);
            line.push(']');
            column = start + width;
        }
        let end = self.column(self.timeline.length());
        line += &"-".repeat((end + 1).saturating_sub(column));
        line
    }

    /// When things happened, as far as there is room, and `//` where a long time was shortened.
    fn axis(&self, out: &mut String) -> fmt::Result {
        let Some((_, last_us)) = self.diagram.span_us() else {
            return Ok(());
        };
        let mut marks: Vec<(usize, String)> = Vec::new();
        let mut free = 0;
        let breaks = self
            .timeline
            .breaks()
            .iter()
            .map(|&at| (at - 1.0, "//".to_owned()));
        let ticks = self
            .timeline
            .ticks()
            .map(|(us, at)| (at, format!("|{}", time(us, last_us))));
        let mut all: Vec<(f64, String)> = breaks.chain(ticks).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (at, text) in all {
            let column = self.column(at.max(0.0));
            if column >= free {
                free = column + cells(&text) + 1;
                marks.push((column, text));
            }
        }
        write!(out, "{INDENT}{:width$} ", "", width = self.name_width)?;
        let mut column = 0;
        for (at, text) in marks {
            write!(out, "{:gap$}{text}", "", gap = at - column)?;
            column = at + cells(&text);
        }
        out.write_char('\n')
    }
}

impl Bar {
    /// Everything it did, in brackets.
    fn full_text(&self) -> String {
        let steps = self.steps.iter();
        let steps: Vec<String> = steps
            .map(|step| shorten(&step.label(), STEP_CELLS_MAX))
            .collect();
        bracketed(&self.name, &steps.join("; "))
    }

    /// Its name, or those of its steps, in brackets.
    fn short_text(&self) -> String {
        if !self.name.is_empty() {
            return bracketed(&shorten(&self.name, STEP_CELLS_MAX), "");
        }
        let names: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
        bracketed("", &shorten(&names.join(" "), STEP_CELLS_MAX))
    }
}

fn bracketed(name: &str, content: &str) -> String {
    let both = !name.is_empty() && !content.is_empty();
    let space = if both { ": " } else { "" };
    format!("[{name}{space}{content}]")
}

/// What the names in a wide chart stand for.
fn list_steps(diagram: &Diagram, out: &mut String) -> fmt::Result {
    out.push('\n');
    for bar in &diagram.bars {
        let text = bar.full_text();
        let text = text.trim_start_matches('[').trim_end_matches(']');
        writeln!(out, "{INDENT}{text}")?;
    }
    Ok(())
}

/// Messages and marks, in the order of time.
fn list_events(diagram: &Diagram, out: &mut String) -> fmt::Result {
    let Some((_, last_us)) = diagram.span_us() else {
        return Ok(());
    };
    let lane = |lane: usize| diagram.lanes[lane].name.as_str();
    let until = |us: Option<u64>| us.map_or(String::new(), |us| format!("..{}", time(us, last_us)));
    let marks = diagram.marks.iter().map(|mark| {
        let place = mark
            .lane
            .map_or(String::new(), |index| format!(" at {}", lane(index)));
        let when = time(mark.at_us, last_us);
        (
            mark.at_us,
            format!("{when}{}: {}{place}", until(mark.until_us), mark.text),
        )
    });
    let messages = diagram.messages.iter().map(|message| {
        let when = time(message.sent_us, last_us);
        let lost = if message.received_us.is_none() {
            " (lost)"
        } else {
            ""
        };
        let ends = format!("{} -> {}", lane(message.from), lane(message.to));
        let when = format!("{when}{}", until(message.received_us));
        (
            message.sent_us,
            format!("{when}: {ends} {}{lost}", message.text),
        )
    });
    let mut events: Vec<(u64, String)> = marks.chain(messages).collect();
    events.sort_by_key(|&(us, _)| us);
    if !events.is_empty() {
        out.push('\n');
    }
    for (_, event) in events {
        writeln!(out, "{INDENT}{}", event.trim_end())?;
    }
    Ok(())
}

fn place_name(diagram: &Diagram, place: Place) -> String {
    let bar = &diagram.bars[place.bar];
    let step = &bar.steps[place.step];
    let names = [bar.name.as_str(), step.name.as_str()];
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        shorten(&step.text, STEP_CELLS_MAX)
    } else {
        names.join(" ")
    }
}
