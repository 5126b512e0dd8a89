//! Which format a file has.

use super::Format;

/// The format of a file that begins with `head` (after decompression), as far as that and its name tell.
pub fn detect(head: &[u8], file_name: &str) -> Option<Format> {
    let name = file_name.strip_suffix(".gz").unwrap_or(file_name);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let text = match str::from_utf8(head) {
        Ok(text) => text,
        // The head may end within a character.
        Err(error) if error.valid_up_to() + 4 > head.len() => {
            str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return Some(Format::DbcopBincode),
    };
    if extension == Some("bincode") || text.contains('\0') {
        return Some(Format::DbcopBincode);
    }
    if text.contains("jepsen.util - ") {
        return Some(Format::JepsenLog);
    }
    let text = skip_comments(text);
    let has = |field: &str| text.contains(field);
    match text.trim_start_matches(['[', '(', ' ', '\n', '\t', '\r']) {
        "" => match extension {
            Some("edn") => Some(Format::JepsenEdn),
            Some("hist") => Some(Format::DbcopHist),
            _ => None,
        },
        start
            if start.starts_with("{\"") || start.starts_with("{ ") || start.starts_with("{\n") =>
        {
            of_json(text)
        }
        start if start.starts_with(['{', '#']) => match has(":key") && (has(":get") || has(":put"))
        {
            true => Some(Format::PorcupineKv),
            false => Some(Format::JepsenEdn),
        },
        start if start.starts_with("r(") || start.starts_with("w(") => Some(Format::PolysiText),
        _ if has(":=") || has("==") || text.starts_with("-") => Some(Format::DbcopHist),
        _ => None,
    }
}

fn of_json(text: &str) -> Option<Format> {
    let has = |field: &str| text.contains(field);
    if text.starts_with("{") && has("\"h\"") && has("\"clock\"") {
        Some(Format::Native)
    } else if has("\"sts\"") || has("\"cts\"") || has("\"ops\"") {
        Some(Format::TimekillerJson)
    } else if has("\"events\"") || has("\"params\"") || has("\"data\"") {
        Some(Format::DbcopJson)
    } else if has("\"type\"") {
        Some(Format::JepsenJson)
    } else {
        None
    }
}

/// The text behind the comments it begins with.
fn skip_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if !text.starts_with("//") && !text.starts_with(';') {
            return text;
        }
        text = text.split_once('\n').map_or("", |(_, rest)| rest);
    }
}
