//! Text in pictures: how wide it is, and what of it is shown.
//!
//! Widths are counted in cells, as terminals do: fixed-width fonts are as good as equally wide on every machine, so a
//! picture needs no font metrics.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Cells that `text` takes.
pub(super) fn cells(text: &str) -> usize {
    text.width()
}

/// `text` without characters that have no place in a picture: what XML forbids, line ends, and marks that turn the
/// direction of the text around them.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// `text` in at most `max` cells. What is too long loses its middle: the ends of keys and values tell most.
pub(super) fn shorten(text: &str, max: usize) -> String {
    if cells(text) <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(1);
    let head = prefix(text, room.div_ceil(2));
    let tail = suffix(text, room / 2);
    format!("{head}…{tail}")
}

/// The longest beginning of at most `max` cells.
fn prefix(text: &str, max: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        used += c.width().unwrap_or(0);
        (used > max).then_some(at)
    });
    &text[..end.unwrap_or(text.len())]
}

/// The longest end of at most `max` cells that does not begin with a mark of the character before it.
fn suffix(text: &str, max: usize) -> &str {
    let mut used = 0;
    let mut start = text.len();
    for (at, c) in text.char_indices().rev() {
        let width = c.width().unwrap_or(0);
        used += width;
        if used > max {
            break;
        }
        if width > 0 {
            start = at;
        }
    }
    &text[start..]
}

/// Width of `text` in a proportional font of a size of 1. None of the usual fonts is wider.
pub(super) fn proportional(text: &str) -> f64 {
    let width = |c: char| match c {
        ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | 'i' | 'j' | 'l' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' | '!' => 0.44,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.0,
        'A'..='Z' | '<' | '>' | '=' | '+' | '&' | '#' => 0.84,
        c if c.is_ascii() => 0.64,
        c => 0.7 * c.width().unwrap_or(0) as f64,
    };
    text.chars().map(width).sum()
}

/// `text` in lines of at most `max`, as `measure` measures them, broken at spaces where there are any.
pub(super) fn wrap(text: &str, max: f64, measure: impl Fn(&str) -> f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = format!("{line} {word}");
        if line.is_empty() {
            line.push_str(word);
        } else if measure(&longer) <= max {
            line = longer;
        } else {
            lines.push(std::mem::replace(&mut line, word.to_owned()));
        }
        while measure(&line) > max {
            let head = fitting(&line, max, &measure);
            if head == line.len() {
                break;
            }
            let rest = line.split_off(head);
            lines.push(std::mem::replace(&mut line, rest));
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Bytes of the longest beginning that is at most `max` wide, but at least of one character.
fn fitting(text: &str, max: f64, measure: impl Fn(&str) -> f64) -> usize {
    let ends = text.char_indices().skip(1).map(|(at, _)| at);
    let first = ends.clone().next().unwrap_or(text.len());
    let fitting = ends.take_while(|&end| measure(&text[..end]) <= max);
    fitting.last().unwrap_or(first)
}

/// `text` as XML text or attribute.
pub(super) fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A time in the unit that suits times up to `largest_us`.
pub(super) fn time(us: u64, largest_us: u64) -> String {
    let (unit_us, name) = match largest_us {
        0..10_000 => (1, "us"),
        10_000..10_000_000 => (1_000, "ms"),
        _ => (1_000_000, "s"),
    };
    let (whole, rest) = (us / unit_us, us % unit_us);
    if rest == 0 {
        return format!("{whole} {name}");
    }
    let digits = unit_us.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{} {name}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_loses_its_middle() {
        assert_eq!(shorten("abcdefgh", 8), "abcdefgh");
        assert_eq!(shorten("abcdefghi", 8), "abcd…ghi");
        assert_eq!(shorten("日本語日本語", 7), "日…語");
        assert_eq!(shorten("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
        assert_eq!(shorten("abc", 1), "…");
    }

    #[test]
    fn lines_break_at_spaces_and_within_words_that_are_too_long() {
        let wrap = |text, max| wrap(text, max, |text| cells(text) as f64);
        assert_eq!(wrap("one two three", 8.0), ["one two", "three"]);
        assert_eq!(wrap("a abcdefgh", 3.0), ["a", "abc", "def", "gh"]);
        assert_eq!(wrap("日", 1.0), ["日"]);
        assert!(wrap(" ", 8.0).is_empty());
    }

    #[test]
    fn nothing_in_a_text_can_leave_it() {
        assert_eq!(
            escape_xml("<a b='\"'>&"),
            "&lt;a b=&#39;&quot;&#39;&gt;&amp;"
        );
        assert_eq!(
            printable("a\nb\0\u{202e}\u{ffff}é"),
            "a b\u{fffd}\u{fffd}\u{fffd}é"
        );
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time(123, 123), "123 us");
        assert_eq!(time(12_340, 50_000), "12.34 ms");
        assert_eq!(time(60_000_001, 60_000_001), "60.000001 s");
        assert_eq!(time(0, 60_000_001), "0 s");
    }
}
