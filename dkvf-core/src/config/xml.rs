//! XML to a tree of elements that know their line, and back. The XML library is used here and
//! nowhere else.
//!
//! Reading is stricter than the library: UTF-8 only, one root, nothing after it, no document type,
//! no entities but the five of XML, and the bounds of [`limits`](super::limits).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use quick_xml::XmlVersion;
use quick_xml::escape::{escape, resolve_xml_entity};
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::error::{ConfigError, Origin, Result, quote, shorten};
use super::limits::{ATTRIBUTES_MAX, DEPTH_MAX, ELEMENTS_MAX, FILE_BYTES_MAX};

/// Names the file as a whole where an error concerns no element.
const DOCUMENT: &str = "the document";

/// One element with everything in it.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) origin: Origin,
    /// In the order of the file, without duplicates.
    pub(super) attributes: Vec<(String, String)>,
    pub(super) children: Vec<Element>,
    /// All text directly inside, trimmed once the element is closed.
    pub(super) text: String,
}

impl Element {
    /// The value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first child of that name.
    pub(super) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The element as messages show it: `<server id="0_1">`, `<property key="dc_id">` or plain
    /// `<bind>`.
    pub(super) fn label(&self) -> String {
        let key = if self.name == "property" { "key" } else { "id" };
        match self.attribute(key) {
            Some(value) => format!("<{} {key}={}>", shorten(&self.name), quote(value)),
            None => format!("<{}>", shorten(&self.name)),
        }
    }

    /// An error about this element.
    pub(super) fn error(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::new(&self.origin, self.label(), problem)
    }
}

/// Reads the file into memory unless it is larger than a configuration can be.
///
/// # Errors
/// The file cannot be read.
pub(super) fn load(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that `parse` sees that the file is too large.
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let origin = Origin::whole(&path.display().to_string());
            ConfigError::new(
                &origin,
                DOCUMENT,
                format!("cannot be read: {error}; give the path of a readable file"),
            )
        })?;
    Ok(bytes)
}

/// Reads a whole document and returns its root.
///
/// # Errors
/// The document is not well-formed XML, holds what is not read here, or exceeds a limit.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Element> {
    let text = decode(file, bytes)?;
    let mut tree = Tree {
        lines: Lines {
            text,
            offset: 0,
            line: 1,
        },
        file: Origin::whole(file),
        open: Vec::new(),
        root: None,
        elements: 0,
    };
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_comments = true;
    loop {
        let start = offset(reader.buffer_position());
        let event = reader.read_event();
        let origin = tree.origin(start);
        match event {
            Ok(Event::Eof) => break,
            Ok(event) => tree.take(event, start, &origin)?,
            Err(error) => {
                let origin = tree.origin(offset(reader.error_position()));
                let error = error.to_string();
                let problem = format!(
                    "{}; every element, quote and comment needs its end",
                    shorten(&error)
                );
                return Err(ConfigError::new(&origin, tree.innermost(), problem));
            }
        }
    }
    if let Some(element) = tree.open.last() {
        return Err(element.error(format!(
            "not closed before the end of the file; add </{}>",
            shorten(&element.name)
        )));
    }
    tree.root.ok_or_else(|| {
        ConfigError::new(
            &tree.file,
            DOCUMENT,
            "empty; write <config> and in it at least <id>",
        )
    })
}

/// The text of a document: of bounded size, UTF-8, and without characters that XML forbids.
fn decode<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str> {
    let whole = Origin::whole(file);
    if bytes.len() > FILE_BYTES_MAX {
        let problem = format!(
            "larger than {FILE_BYTES_MAX} bytes; a node's configuration is never that large: is it the right file?"
        );
        return Err(ConfigError::new(&whole, DOCUMENT, problem));
    }
    let fault = |offset: usize, problem: &str| {
        let line = 1 + bytes[..offset]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        Err(ConfigError::new(&whole.at(line as u32), DOCUMENT, problem))
    };
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            return fault(
                error.valid_up_to(),
                "not UTF-8; save the file in the encoding UTF-8",
            );
        }
    };
    match text.find(forbidden) {
        Some(offset) => fault(offset, "a character that XML forbids; remove it"),
        None => Ok(text),
    }
}

/// Whether no XML document can hold the character, not even as a reference.
pub(super) fn forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// A position of the reader, which counts in 64 bits, in a text that is in memory.
fn offset(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

/// Counts lines up to growing offsets, so that a document is counted once.
struct Lines<'a> {
    text: &'a str,
    offset: usize,
    line: u32,
}

impl Lines<'_> {
    fn at(&mut self, offset: usize) -> u32 {
        let passed = self
            .text
            .as_bytes()
            .get(self.offset..offset)
            .unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u32;
        self.offset = self.offset.max(offset);
        self.line
    }
}

/// The part of the document read so far.
struct Tree<'a> {
    lines: Lines<'a>,
    file: Origin,
    /// The elements that are open, outermost first.
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl Tree<'_> {
    fn origin(&mut self, offset: usize) -> Origin {
        self.file.at(self.lines.at(offset))
    }

    fn innermost(&self) -> String {
        self.open
            .last()
            .map_or_else(|| DOCUMENT.to_owned(), Element::label)
    }

    fn take(&mut self, event: Event<'_>, start: usize, origin: &Origin) -> Result<()> {
        let fail =
            |tree: &Self, problem: String| Err(ConfigError::new(origin, tree.innermost(), problem));
        match event {
            Event::Start(tag) => self.enter(&tag, origin),
            Event::Empty(tag) => {
                self.enter(&tag, origin)?;
                self.leave();
                Ok(())
            }
            Event::End(_) => {
                self.leave();
                Ok(())
            }
            Event::Text(text) => self.text(&text.xml10_content(), origin),
            Event::CData(text) => self.text(&text.xml10_content(), origin),
            Event::GeneralRef(reference) => {
                let character = match reference.resolve_char_ref() {
                    Ok(Some(c)) if !forbidden(c) => Some(c.to_string()),
                    Ok(None) => resolve_xml_entity(&reference).map(str::to_owned),
                    _ => None,
                };
                match character {
                    Some(text) => self.text(&text, origin),
                    None => fail(self, bad_reference(&reference)),
                }
            }
            Event::Decl(_) if start != 0 => fail(self, "<?xml ...?> is allowed at the very start only; remove it".to_owned()),
            Event::Decl(declaration) => match declaration.encoding() {
                None => Ok(()),
                Some(Ok(encoding)) if encoding.eq_ignore_ascii_case("utf-8") || encoding.eq_ignore_ascii_case("us-ascii") => Ok(()),
                Some(_) => fail(self, "an encoding other than UTF-8; save the file as UTF-8 and say so in <?xml ...?>".to_owned()),
            },
            Event::DocType(_) => fail(self, "a document type, which is not read; remove <!DOCTYPE ...>".to_owned()),
            Event::Comment(_) | Event::PI(_) | Event::Eof => Ok(()),
        }
    }

    fn enter(&mut self, tag: &BytesStart<'_>, origin: &Origin) -> Result<()> {
        let name = tag.name().as_ref().to_owned();
        let mut element = Element {
            name,
            origin: origin.clone(),
            attributes: Vec::new(),
            children: Vec::new(),
            text: String::new(),
        };
        if self.root.is_some() {
            return Err(element.error("a second root element; write one node per file"));
        }
        if self.open.len() == DEPTH_MAX {
            return Err(element.error(format!(
                "nested deeper than {DEPTH_MAX} elements; close the elements before it"
            )));
        }
        self.elements += 1;
        if self.elements > ELEMENTS_MAX {
            return Err(element.error(format!(
                "more than {ELEMENTS_MAX} elements in one file; remove some"
            )));
        }
        element.attributes = attributes(tag).map_err(|problem| element.error(problem))?;
        self.open.push(element);
        Ok(())
    }

    fn leave(&mut self) {
        let Some(mut element) = self.open.pop() else {
            return;
        };
        element.text = element.text.trim().to_owned();
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
    }

    fn text(&mut self, text: &str, origin: &Origin) -> Result<()> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => {
                let problem = format!(
                    "text outside the root element: {}; remove it",
                    quote(text.trim())
                );
                return Err(ConfigError::new(origin, DOCUMENT, problem));
            }
        }
        Ok(())
    }
}

/// The attributes of a tag, or what is wrong with them.
fn attributes(tag: &BytesStart<'_>) -> Result<Vec<(String, String)>, String> {
    let mut read: Vec<(String, String)> = Vec::new();
    // The library's search for duplicates is quadratic in the number of attributes; ours is bounded
    // first.
    for attribute in tag.attributes().with_checks(false) {
        let attribute = attribute.map_err(|error| {
            format!("ill-formed attribute: {error}; write attributes as name=\"value\"")
        })?;
        let key = attribute.key.as_ref();
        if read.len() == ATTRIBUTES_MAX {
            return Err(format!(
                "more than {ATTRIBUTES_MAX} attributes; remove some"
            ));
        }
        if read.iter().any(|(name, _)| name == key) {
            return Err(format!(
                "attribute {} is given twice; remove one",
                quote(key)
            ));
        }
        let value = attribute
            .normalized_value_with(XmlVersion::Implicit1_0, 1, resolve_xml_entity)
            .map_err(|_| bad_reference(&attribute.value))?;
        if value.contains(forbidden) {
            return Err(bad_reference(&attribute.value));
        }
        read.push((key.to_owned(), value.into_owned()));
    }
    Ok(read)
}

fn bad_reference(text: &str) -> String {
    format!(
        "unknown entity in {}; write &amp; for an ampersand; only &lt; &gt; &amp; &apos; &quot; and &#N; are read",
        quote(text)
    )
}

/// Writes an indented document.
#[derive(Default)]
pub(super) struct Writer {
    out: String,
    open: Vec<&'static str>,
}

impl Writer {
    /// Opens an element that has children.
    pub(super) fn open(&mut self, name: &'static str) {
        self.line(&format!("<{name}>"));
        self.open.push(name);
    }

    /// Closes the innermost open element.
    pub(super) fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            self.line(&format!("</{name}>"));
        }
    }

    /// Writes an element with text in it.
    pub(super) fn text(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.line(&format!(
            "<{name}{}>{}</{name}>",
            written(attributes),
            escape(text)
        ));
    }

    /// Writes an element that has attributes only.
    pub(super) fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.line(&format!("<{name}{}/>", written(attributes)));
    }

    /// The document, every element closed.
    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }

    fn line(&mut self, line: &str) {
        for _ in &self.open {
            self.out.push_str("  ");
        }
        self.out.push_str(line);
        self.out.push('\n');
    }
}

fn written(attributes: &[(&str, &str)]) -> String {
    // A reader turns white space in an attribute into blanks unless it is written as a reference.
    let reference = |value: &str| {
        escape(value)
            .replace('\t', "&#9;")
            .replace('\n', "&#10;")
            .replace('\r', "&#13;")
    };
    attributes
        .iter()
        .map(|(key, value)| format!(" {key}=\"{}\"", reference(value)))
        .collect()
}
