//! A reader of EDN, the notation of Clojure, and of JSON, which is a dialect of it: commas are white space in the one, and
//! colons in the other.

use super::input::{LINE_BYTES_MAX, ReadError};

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Edn,
    Json,
}

/// Deeper nesting is malformed.
const DEPTH_MAX: usize = 32;

/// What is written in a file. Tags, meta data and comments are passed over.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Datum {
    Nil,
    Bool(bool),
    /// Its digits as they are written.
    Number(String),
    Text(String),
    /// A keyword without its colon, or a symbol.
    Name(String),
    /// A vector, a list or a set.
    List(Vec<Datum>),
    Map(Vec<(Datum, Datum)>),
}

impl Datum {
    /// A name, in JSON a text.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Datum::Name(name) | Datum::Text(name) => Some(name),
            _ => None,
        }
    }

    /// The value of a field of a map.
    pub(super) fn field(&self, field: &str) -> Option<&Datum> {
        match self {
            Datum::Map(fields) => fields
                .iter()
                .find(|(name, _)| name.name() == Some(field))
                .map(|(_, value)| value),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Datum]> {
        match self {
            Datum::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// A whole number; also one in a text, for JSON cannot be trusted with large ones.
    pub(super) fn whole<T: std::str::FromStr>(&self) -> Option<T> {
        match self {
            Datum::Number(text) | Datum::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// What identifies a key or a value.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Datum::Number(text) | Datum::Text(text) => Some(text.clone().into_bytes()),
            Datum::Name(name) => Some(format!(":{name}").into_bytes()),
            Datum::Bool(value) => Some(value.to_string().into_bytes()),
            Datum::Nil | Datum::List(_) | Datum::Map(_) => None,
        }
    }
}

/// Reads one datum after another.
pub(super) struct Data<'b> {
    bytes: &'b [u8],
    at: usize,
    syntax: Syntax,
    /// The line of `counted`, kept up so that each byte is looked at once.
    line: u64,
    counted: usize,
}

impl<'b> Data<'b> {
    pub(super) fn new(bytes: &'b [u8], syntax: Syntax) -> Self {
        Data {
            bytes,
            at: 0,
            syntax,
            line: 1,
            counted: 0,
        }
    }

    /// The line that has been reached.
    pub(super) fn line(&mut self) -> u64 {
        let passed = self.bytes.get(self.counted..self.at).unwrap_or_default();
        self.line += passed.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.counted = self.at.max(self.counted);
        self.line
    }

    pub(super) fn malformed(&mut self, reason: impl Into<String>) -> ReadError {
        ReadError::at(self.line(), reason)
    }

    /// The first byte of what comes next.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        self.skip_blanks(0)?;
        Ok(self.bytes.get(self.at).copied())
    }

    /// Goes into a list if one comes next.
    pub(super) fn open(&mut self, bracket: u8) -> Result<bool, ReadError> {
        let found = self.peek()? == Some(bracket);
        self.at += usize::from(found);
        Ok(found)
    }

    /// Goes out of a list or a map if it ends here. An end of the file ends it too late.
    pub(super) fn close(&mut self, bracket: u8) -> Result<bool, ReadError> {
        match self.peek()? {
            None => {
                Err(self.malformed(format!("the file ends before a {:?}", char::from(bracket))))
            }
            Some(byte) => {
                self.at += usize::from(byte == bracket);
                Ok(byte == bracket)
            }
        }
    }

    /// The next datum, which must be shorter than [`LINE_BYTES_MAX`].
    pub(super) fn datum(&mut self) -> Result<Datum, ReadError> {
        self.skip_blanks(0)?;
        self.bounded(0)
    }

    fn bounded(&mut self, depth: usize) -> Result<Datum, ReadError> {
        let end = self.bytes.len().min(self.at + LINE_BYTES_MAX);
        let all = self.bytes;
        self.bytes = &all[..end];
        let datum = self.nested(depth);
        let is_cut = end < all.len() && self.at >= end;
        self.bytes = all;
        match is_cut {
            true => Err(self.malformed(format!("a value is longer than {LINE_BYTES_MAX} bytes"))),
            false => datum,
        }
    }

    fn nested(&mut self, depth: usize) -> Result<Datum, ReadError> {
        if depth > DEPTH_MAX {
            return Err(self.malformed(format!("values are nested deeper than {DEPTH_MAX}")));
        }
        self.skip_blanks(depth)?;
        let Some(&byte) = self.bytes.get(self.at) else {
            return Err(self.malformed("the file ends where a value is expected"));
        };
        self.at += 1;
        match byte {
            b'[' => Ok(Datum::List(self.elements(b']', depth)?)),
            b'(' => Ok(Datum::List(self.elements(b')', depth)?)),
            b'{' => {
                let elements = self.elements(b'}', depth)?;
                if elements.len() % 2 == 1 {
                    return Err(self.malformed("a map has a key without a value"));
                }
                let mut elements = elements.into_iter();
                let pairs = std::iter::from_fn(|| elements.next().zip(elements.next()));
                Ok(Datum::Map(pairs.collect()))
            }
            b'"' => Ok(Datum::Text(self.text()?)),
            b'\\' => self.character(),
            b':' => Ok(Datum::Name(self.token())),
            b'#' => self.dispatch(depth),
            b'^' => {
                self.nested(depth + 1)?;
                self.nested(depth + 1)
            }
            b']' | b')' | b'}' => {
                Err(self.malformed(format!("{:?} closes nothing", char::from(byte))))
            }
            _ => {
                self.at -= 1;
                self.atom()
            }
        }
    }

    fn elements(&mut self, end: u8, depth: usize) -> Result<Vec<Datum>, ReadError> {
        let mut elements = Vec::new();
        loop {
            self.skip_blanks(depth)?;
            match self.bytes.get(self.at) {
                None => {
                    return Err(
                        self.malformed(format!("the file ends before a {:?}", char::from(end)))
                    );
                }
                Some(&byte) if byte == end => {
                    self.at += 1;
                    return Ok(elements);
                }
                Some(_) => elements.push(self.nested(depth + 1)?),
            }
        }
    }

    /// White space, comments and data that is commented out.
    fn skip_blanks(&mut self, depth: usize) -> Result<(), ReadError> {
        loop {
            match &self.bytes[self.at..] {
                [b',' | 0x0b | 0x0c, ..] => self.at += 1,
                [byte, ..] if byte.is_ascii_whitespace() => self.at += 1,
                [b':', ..] if self.syntax == Syntax::Json => self.at += 1,
                [b';', rest @ ..] => {
                    let end = rest.iter().position(|&byte| byte == b'\n');
                    self.at += 1 + end.unwrap_or(rest.len());
                }
                [b'#', b'_', ..] => {
                    self.at += 2;
                    self.bounded(depth + 1)?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// What begins with `#`: a set, or a tag, which is passed over.
    fn dispatch(&mut self, depth: usize) -> Result<Datum, ReadError> {
        if self.bytes.get(self.at) == Some(&b'{') {
            self.at += 1;
            return Ok(Datum::List(self.elements(b'}', depth)?));
        }
        match self.token().is_empty() {
            true => Err(self.malformed("a # that is neither of a set nor of a tag")),
            false => self.nested(depth + 1),
        }
    }

    /// The bytes up to the next delimiter.
    fn token(&mut self) -> String {
        let is_delimiter = |byte: &u8| byte.is_ascii_whitespace() || b",;\"()[]{}".contains(byte);
        let is_end = |byte: &u8| is_delimiter(byte) || *byte == b':' && self.syntax == Syntax::Json;
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        self.at += length;
        String::from_utf8_lossy(&rest[..length]).into_owned()
    }

    fn atom(&mut self) -> Result<Datum, ReadError> {
        let token = self.token();
        let digits = token.strip_prefix(['+', '-']).unwrap_or(&token);
        Ok(match token.as_str() {
            "nil" | "null" => Datum::Nil,
            "true" => Datum::Bool(true),
            "false" => Datum::Bool(false),
            _ if digits.starts_with(|first: char| first.is_ascii_digit()) => {
                let number = token.strip_prefix('+').unwrap_or(&token);
                let number = number.strip_suffix(['N', 'M']).unwrap_or(number);
                Datum::Number(number.to_owned())
            }
            "" => return Err(self.malformed("a value is expected")),
            _ => Datum::Name(token),
        })
    }

    fn text(&mut self) -> Result<String, ReadError> {
        let mut text = Vec::new();
        loop {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(self.malformed("the file ends within a text"));
            };
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let character = self.escape()?;
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                byte => text.push(byte),
            }
        }
        String::from_utf8(text).map_err(|_| self.malformed("a text is not UTF-8"))
    }

    /// What stands behind a backslash in a text.
    fn escape(&mut self) -> Result<char, ReadError> {
        let byte = self.bytes.get(self.at).copied();
        self.at += usize::from(byte.is_some());
        Ok(match byte {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'u') => {
                let first = self.four_digits()?;
                // A character beyond 16 bits is a pair of escapes.
                let is_pair =
                    (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u");
                let code = if is_pair {
                    self.at += 2;
                    let second = self.four_digits()?;
                    0x10000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff)
                } else {
                    first
                };
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return Err(self.malformed("a text has an escape that is not known")),
        })
    }

    fn four_digits(&mut self) -> Result<u32, ReadError> {
        let digits = self.bytes[self.at..].first_chunk::<4>();
        let code = digits.and_then(|digits| {
            digits.iter().try_fold(0, |code, &digit| {
                Some(code * 16 + char::from(digit).to_digit(16)?)
            })
        });
        let Some(code) = code else {
            return Err(self.malformed("\\u without four digits"));
        };
        self.at += 4;
        Ok(code)
    }

    fn character(&mut self) -> Result<Datum, ReadError> {
        let first = self.bytes.get(self.at).copied();
        self.at += usize::from(first.is_some());
        let rest = self.token();
        let name = [
            first.map(char::from).map(String::from).unwrap_or_default(),
            rest,
        ]
        .concat();
        Ok(Datum::Text(match name.as_str() {
            "newline" => "\n".to_owned(),
            "space" => " ".to_owned(),
            "tab" => "\t".to_owned(),
            "return" => "\r".to_owned(),
            _ => name,
        }))
    }
}
