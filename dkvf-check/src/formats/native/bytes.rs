//! Keys, values and versions in JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// JSON numbers up to here survive readers that use floating point.
const EXACT_MAX: u128 = 1 << 53;

pub(super) fn number_to_json(number: u128) -> Value {
    if number <= EXACT_MAX {
        json!(number as u64)
    } else {
        json!(number.to_string())
    }
}

pub(super) fn bytes_to_json(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({"hex": hex(bytes)}),
    }
}

/// The name of a key in `wb.order`, where JSON admits only strings.
pub(super) fn order_key(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| hex(bytes), str::to_owned)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn json_to_bytes(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Number(number) => Ok(number.to_string().into_bytes()),
        Value::Object(fields) => fields
            .get("hex")
            .and_then(Value::as_str)
            .and_then(unhex)
            .ok_or_else(|| format!("{value} is neither a string nor {{\"hex\":\"…\"}}")),
        _ => Err(format!("{value} is neither a string nor a number")),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |byte: u8| (byte as char).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? * 16 + digit(low)?).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

pub(super) fn version(value: &Value) -> Result<u128, String> {
    let version = match value {
        Value::Number(number) => number.as_u64().map(u128::from),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    version.ok_or_else(|| format!("{value} is not a version: a whole number below 2^128"))
}

pub(super) fn stamp(value: &Value) -> Result<u64, String> {
    version(value)?
        .try_into()
        .map_err(|_| format!("{value} is not an entry of a stamp: a whole number below 2^64"))
}
