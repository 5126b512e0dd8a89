//! Bars and arrows as graphs, for the tools that draw those. Time is lost; lanes are clusters.

use std::fmt::{self, Display, Write as _};

use super::diagram::{Bar, Diagram, Place};

/// In the language of Graphviz: a record for each bar, with a field for each step.
pub(super) fn dot(diagram: &Diagram) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_dot(diagram, &mut out);
    out
}

fn write_dot(diagram: &Diagram, out: &mut String) -> fmt::Result {
    out.write_str("digraph counterexample {\n  rankdir=LR;\n  node [shape=record, fontname=monospace];\n  edge [fontname=monospace];\n")?;
    writeln!(out, "  label={};", quoted(&title(diagram)))?;
    for (lane, bars) in lanes(diagram) {
        writeln!(
            out,
            "  subgraph cluster_{lane} {{\n    label={};",
            quoted(&lane_name(diagram, lane))
        )?;
        for index in bars {
            let bar = &diagram.bars[index];
            let steps = bar.steps.iter().enumerate();
            let mut fields: Vec<String> = steps
                .map(|(step, content)| format!("<s{step}> {}", record(&content.label())))
                .collect();
            if !bar.name.is_empty() || fields.is_empty() {
                fields.insert(0, record(&bar.name));
            }
            let style = style(bar);
            writeln!(
                out,
                "    b{index} [label=\"{}\"{style}];",
                fields.join(" | ")
            )?;
        }
        out.write_str("  }\n")?;
    }
    for arrow in &diagram.arrows {
        let style = if arrow.is_dashed {
            ", style=dashed"
        } else {
            ""
        };
        let (from, to) = (arrow.from, arrow.to);
        writeln!(
            out,
            "  b{}:s{} -> b{}:s{} [label={}{style}];",
            from.bar,
            from.step,
            to.bar,
            to.step,
            quoted(&arrow.label)
        )?;
    }
    out.write_str("}\n")
}

fn style(bar: &Bar) -> &'static str {
    match (bar.is_involved, bar.is_certain) {
        (true, true) => "",
        (true, false) => ", style=dashed",
        (false, true) => ", color=gray, fontcolor=gray",
        (false, false) => ", style=dashed, color=gray, fontcolor=gray",
    }
}

/// In the language of Mermaid: a node for each step.
pub(super) fn mermaid(diagram: &Diagram) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_mermaid(diagram, &mut out);
    out
}

fn write_mermaid(diagram: &Diagram, out: &mut String) -> fmt::Result {
    out.write_str("flowchart LR\n")?;
    for (lane, bars) in lanes(diagram) {
        writeln!(
            out,
            "  subgraph l{lane} [{}]",
            entities(&lane_name(diagram, lane))
        )?;
        for index in bars {
            let bar = &diagram.bars[index];
            for (step, content) in bar.steps.iter().enumerate() {
                let text = format!("{} {}", bar.name, content.label());
                writeln!(out, "    b{index}s{step}[{}]", entities(text.trim()))?;
            }
            if bar.steps.is_empty() {
                writeln!(out, "    b{index}[{}]", entities(&bar.name))?;
            }
        }
        out.write_str("  end\n")?;
    }
    let node = |place: Place| format!("b{}s{}", place.bar, place.step);
    for arrow in &diagram.arrows {
        let line = if arrow.is_dashed { "-.->" } else { "-->" };
        let (from, to) = (node(arrow.from), node(arrow.to));
        writeln!(out, "  {from} {line}|{}| {to}", entities(&arrow.label))?;
    }
    Ok(())
}

fn title(diagram: &Diagram) -> String {
    let lines = [diagram.title.as_str(), diagram.verdict.as_str()];
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

fn lane_name(diagram: &Diagram, lane: usize) -> String {
    let lane = &diagram.lanes[lane];
    format!("{} {}", lane.group, lane.name).trim().to_owned()
}

/// The lanes that have bars, with the indices of these.
fn lanes(diagram: &Diagram) -> impl Iterator<Item = (usize, Vec<usize>)> {
    let bars_of = |lane| {
        let bars = diagram.bars.iter().enumerate();
        let bars = bars.filter(move |(_, bar)| bar.lane == lane);
        bars.map(|(index, _)| index).collect::<Vec<_>>()
    };
    let lanes = (0..diagram.lanes.len()).map(move |lane| (lane, bars_of(lane)));
    lanes.filter(|(_, bars)| !bars.is_empty())
}

/// A string of Graphviz.
fn quoted(text: &str) -> impl Display {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}

/// The text of a field of a record, where more characters have a meaning than in a string.
fn record(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '"' | '{' | '}' | '|' | '<' | '>') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A text of Mermaid: everything but letters, digits and spaces as a numbered entity.
fn entities(text: &str) -> String {
    let mut escaped = String::from("\"");
    for c in text.chars() {
        if c.is_alphanumeric() || matches!(c, ' ' | '=' | '.' | '-' | ',') {
            escaped.push(c);
        } else {
            // Writing to a string does not fail.
            let _ = write!(escaped, "#{};", c as u32);
        }
    }
    escaped.push('"');
    escaped
}
