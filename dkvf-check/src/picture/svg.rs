//! Pictures as SVG, written directly: a file of its own, without references to anything outside.

use std::fmt::{self, Display, Write as _};

use super::diagram::{Arrow, Diagram};
use super::layout::{BAR, BarBox, Label, Layout, Line, Path, Rect, Role, layout};
use super::style;
use super::words::escape_xml;

/// Radius of the corners of arrows.
const BEND: f64 = 8.0;
/// Length and half of the width of an arrowhead.
const HEAD: (f64, f64) = (8.0, 4.0);

/// The picture of a diagram that is drawable.
pub(super) fn svg(diagram: &Diagram) -> String {
    let layout = layout(diagram);
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(diagram, &layout, &mut out);
    out
}

fn write(diagram: &Diagram, layout: &Layout, out: &mut String) -> fmt::Result {
    let (width, height) = (layout.width.ceil(), layout.height.ceil());
    let title = escape_xml(&diagram.title);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">"#
    )?;
    writeln!(
        out,
        "<title>{title}</title>\n<style>{}</style>",
        style::SHEET
    )?;
    writeln!(
        out,
        r#"<rect class="paper" width="{width}" height="{height}"/>"#
    )?;
    for group in &layout.groups {
        writeln!(out, r#"<rect class="site" rx="8" {}/>"#, area(group))?;
    }
    for lane in &layout.lanes {
        writeln!(out, r#"<line class="line" {}/>"#, ends(lane))?;
    }
    axis(layout, out)?;
    for (mark, area) in diagram.marks.iter().zip(&layout.marks) {
        tooltip(&mark.detail, mark_lines(area), out)?;
    }
    for (message, line) in diagram.messages.iter().zip(&layout.messages) {
        let is_lost = message.received_us.is_none();
        let detail = format!("{} {}", message.text, message.detail);
        tooltip(detail.trim(), message_line(line, is_lost), out)?;
    }
    for path in &layout.arrows {
        let arrow = &diagram.arrows[path.arrow];
        tooltip(&arrow.label, arrow_path(arrow, path), out)?;
    }
    for (index, placed) in layout.bars.iter().enumerate() {
        bar(diagram, index, placed, out)?;
    }
    for (kind, sample) in &layout.legend {
        legend_sample(style::class(*kind), sample, out)?;
    }
    for label in &layout.labels {
        text(diagram, label, out)?;
    }
    out.write_str("</svg>\n")
}

/// `shape` in a group with a tooltip.
fn tooltip(detail: &str, shape: impl Display, out: &mut String) -> fmt::Result {
    match detail {
        "" => writeln!(out, "<g>{shape}</g>"),
        detail => writeln!(out, "<g><title>{}</title>{shape}</g>", escape_xml(detail)),
    }
}

fn area(rect: &Rect) -> impl Display {
    let Rect {
        x,
        y,
        width,
        height,
    } = *rect;
    fmt::from_fn(move |f| {
        write!(
            f,
            r#"x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}""#
        )
    })
}

fn ends(line: &Line) -> impl Display {
    let ((x1, y1), (x2, y2)) = (line.from, line.to);
    fmt::from_fn(move |f| write!(f, r#"x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}""#))
}

fn axis(layout: &Layout, out: &mut String) -> fmt::Result {
    let Some(axis) = layout.axis else {
        return Ok(());
    };
    let y = axis.from.1;
    write!(
        out,
        r#"<path class="axis" d="M{:.1} {y:.1}H{:.1}"#,
        axis.from.0, axis.to.0
    )?;
    for x in &layout.ticks {
        write!(out, "M{x:.1} {y:.1}v5")?;
    }
    out.write_str("\"/>\n")?;
    // A break: the axis is interrupted between two slanted strokes.
    for x in &layout.breaks {
        writeln!(
            out,
            r#"<g><title>a long time, shortened</title><path class="paper" d="M{:.1} {y:.1}m-1 5l4 -10h4l-4 10z"/><path class="axis" d="M{:.1} {:.1}l4 -10m4 0l-4 10"/></g>"#,
            x - 3.0,
            x - 4.0,
            y + 5.0,
        )?;
    }
    Ok(())
}

/// The line of a moment, or the area of an interval.
fn mark_lines(area: &Rect) -> impl Display {
    let Rect {
        x,
        y,
        width,
        height,
    } = *area;
    let right = x + width;
    fmt::from_fn(move |f| {
        if width > 0.0 {
            write!(
                f,
                r#"<path class="during" d="M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z"/><path class="mark" d="M{right:.1} {y:.1}v{height:.1}"/>"#
            )?;
        }
        write!(f, r#"<path class="mark" d="M{x:.1} {y:.1}v{height:.1}"/>"#)
    })
}

fn message_line(line: &Line, is_lost: bool) -> impl Display {
    let ((x1, y1), (x2, y2)) = (line.from, line.to);
    fmt::from_fn(move |f| {
        write!(
            f,
            r#"<path class="message" d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"#
        )?;
        if is_lost {
            return f.write_str(r#"m-4 -4l8 8m0 -8l-8 8"/>"#);
        }
        // The two strokes of its head, turned along the line.
        let length = (x2 - x1).hypot(y2 - y1).max(1.0);
        let (along_x, along_y) = ((x2 - x1) / length * 7.0, (y2 - y1) / length * 7.0);
        let side = |sign: f64| {
            let x = x2 - along_x - sign * along_y / 2.0;
            let y = y2 - along_y + sign * along_x / 2.0;
            format!("M{x2:.1} {y2:.1}L{x:.1} {y:.1}")
        };
        write!(f, r#"{}{}"/>"#, side(1.0), side(-1.0))
    })
}

/// A line with round corners and a head.
fn arrow_path(arrow: &Arrow, path: &Path) -> impl Display {
    let class = style::class(arrow.kind);
    let dashed = if arrow.is_dashed { " dashed" } else { "" };
    fmt::from_fn(move |f| {
        let &[(x1, y1), (_, track), (x2, _), (_, y2)] = path.corners.as_slice() else {
            return Ok(());
        };
        let down = if y2 > track { 1.0 } else { -1.0 };
        let tail = if track > y1 { 1.0 } else { -1.0 };
        let right = if x2 > x1 { 1.0 } else { -1.0 };
        let bend = BEND.min((x2 - x1).abs() / 2.0);
        let neck = y2 - down * HEAD.0;
        write!(
            f,
            r#"<path class="arrow {class}{dashed}" d="M{x1:.1} {y1:.1}V{:.1}"#,
            track - tail * bend
        )?;
        write!(f, "Q{x1:.1} {track:.1} {:.1} {track:.1}", x1 + right * bend)?;
        write!(
            f,
            "H{:.1}Q{x2:.1} {track:.1} {x2:.1} {:.1}",
            x2 - right * bend,
            track + down * bend
        )?;
        write!(
            f,
            r#"V{neck:.1}"/><path class="head {class}" d="M{x2:.1} {y2:.1}L{:.1} {neck:.1}H{:.1}z"/>"#,
            x2 - HEAD.1,
            x2 + HEAD.1
        )
    })
}

fn bar(diagram: &Diagram, index: usize, placed: &BarBox, out: &mut String) -> fmt::Result {
    let bar = &diagram.bars[index];
    let involved = if bar.is_involved { "" } else { " context" };
    let certain = if bar.is_certain { "" } else { " uncertain" };
    let shape = format!(
        r#"<rect class="bar{involved}{certain}" rx="5" {}/>"#,
        area(&placed.area)
    );
    tooltip(&bar.detail, shape, out)?;
    for step in placed.steps.iter().skip(1) {
        let (x, y) = (step.x, step.y + 4.0);
        let bottom = step.y + BAR - 4.0;
        writeln!(
            out,
            r#"<path class="between" d="M{x:.1} {y:.1}V{bottom:.1}"/>"#
        )?;
    }
    // What the pointer meets: the whole step, not its text alone.
    for (step, placed) in bar.steps.iter().zip(&placed.steps) {
        if !step.detail.is_empty() {
            let target = format!(r#"<rect fill-opacity="0" {}/>"#, area(placed));
            tooltip(&step.detail, target, out)?;
        }
    }
    Ok(())
}

fn legend_sample(class: &str, sample: &Rect, out: &mut String) -> fmt::Result {
    let (x, y) = (sample.x, sample.y + sample.height / 2.0);
    let dashed = if class == "in" { " dashed" } else { "" };
    let tip = sample.right();
    let neck = tip - HEAD.0;
    writeln!(
        out,
        r#"<path class="arrow {class}{dashed}" d="M{x:.1} {y:.1}H{neck:.1}"/><path class="head {class}" d="M{tip:.1} {y:.1}L{neck:.1} {:.1}V{:.1}z"/>"#,
        y - HEAD.1,
        y + HEAD.1,
    )
}

fn text(diagram: &Diagram, label: &Label, out: &mut String) -> fmt::Result {
    let class = match label.role {
        Role::Title => "title",
        Role::Verdict => "verdict",
        Role::Caption => "caption",
        Role::Group => "group",
        Role::Lane => "lane",
        Role::Step(true) => "step",
        Role::Step(false) => "faint",
        Role::Arrow(_) => "text",
        Role::Mark(_) => "mark-text",
        Role::Message(_) => "message-text",
        Role::Tick => "tick",
        Role::Legend => "legend",
    };
    let text = escape_xml(&label.text);
    let y = label.area.y + label.area.height * 0.72;
    let middle = label.area.x + label.area.width / 2.0;
    match label.role {
        Role::Arrow(index) => {
            let kind = style::class(diagram.arrows[index].kind);
            writeln!(
                out,
                r#"<rect class="pill {kind}" rx="9" {}/><text class="{class} {kind}" x="{middle:.1}" y="{y:.1}" text-anchor="middle">{text}</text>"#,
                area(&label.area),
            )
        }
        Role::Message(_) | Role::Mark(_) => writeln!(
            out,
            r#"<rect class="plain" rx="4" {}/><text class="{class}" x="{middle:.1}" y="{y:.1}" text-anchor="middle">{text}</text>"#,
            area(&label.area),
        ),
        _ => writeln!(
            out,
            r#"<text class="{class}" x="{:.1}" y="{y:.1}" xml:space="preserve">{text}</text>"#,
            label.area.x,
        ),
    }
}
