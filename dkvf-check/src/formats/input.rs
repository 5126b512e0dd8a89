//! Bytes of a file, decompressed and bounded.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// A longer line, or a longer record of a format without lines, is malformed.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A file with more bytes, after decompression, is refused.
pub const FILE_BYTES_MAX: u64 = 2 << 30;

/// So many bytes are looked at to tell the format.
const HEAD_BYTES: usize = 1 << 12;

/// A history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source failed.
    #[error("cannot read the history: {0}")]
    Io(#[from] io::Error),
    /// A line is not what the format asks for.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Number of the line, from 1; of a binary file always 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl ReadError {
    pub(super) fn at(line: u64, reason: impl Into<String>) -> Self {
        ReadError::Malformed {
            line,
            reason: reason.into(),
        }
    }
}

/// The bytes of a file.
pub(super) struct Input<R> {
    source: BufReader<Decoded<BufReader<R>>>,
}

/// What may be compressed.
enum Decoded<R> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<R>>),
}

impl<R: BufRead> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoded::Plain(source) => source.read(buffer),
            Decoded::Gzip(source) => source.read(buffer),
        }
    }
}

impl<R: Read> Input<R> {
    pub(super) fn open(source: R) -> io::Result<Self> {
        let mut source = BufReader::with_capacity(1 << 16, source);
        let decoded = match source.fill_buf()? {
            [0x1f, 0x8b, ..] => Decoded::Gzip(Box::new(MultiGzDecoder::new(source))),
            _ => Decoded::Plain(source),
        };
        Ok(Input {
            source: BufReader::with_capacity(1 << 16, decoded),
        })
    }

    /// The first bytes, which stay where they are.
    pub(super) fn head(&mut self) -> io::Result<&[u8]> {
        let buffer = self.source.fill_buf()?;
        Ok(&buffer[..buffer.len().min(HEAD_BYTES)])
    }

    /// All bytes.
    pub(super) fn all(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        let read = (&mut self.source)
            .take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)?;
        if read as u64 > FILE_BYTES_MAX {
            return Err(too_long());
        }
        Ok(bytes)
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.read(buffer)
    }
}

impl<R: Read> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.source.consume(amount);
    }
}

fn too_long() -> ReadError {
    ReadError::at(1, format!("the file is longer than {FILE_BYTES_MAX} bytes"))
}

/// The lines of a file, one at a time.
pub(super) struct Lines<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
    /// So many bytes may follow.
    left: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Lines {
            source,
            line: Vec::new(),
            number: 0,
            left: FILE_BYTES_MAX,
        }
    }

    /// The next line without the white space around it.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, ReadError> {
        self.line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let length = (&mut self.source)
            .take(limit)
            .read_until(b'\n', &mut self.line)?;
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.left = self.left.checked_sub(length as u64).ok_or_else(too_long)?;
        if self.line.len() > LINE_BYTES_MAX {
            return Err(self.malformed(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(Some(self.line.trim_ascii()))
    }

    /// The present line is not of the format.
    pub(super) fn malformed(&self, reason: impl Into<String>) -> ReadError {
        ReadError::at(self.number, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_unpacks_to_too_much_is_refused() {
        let mut lines = Lines {
            left: 7,
            ..Lines::new(&b"abc\nde\nf\n"[..])
        };
        assert_eq!(lines.next().unwrap(), Some(&b"abc"[..]));
        assert_eq!(lines.next().unwrap(), Some(&b"de"[..]));
        let error = lines.next().unwrap_err().to_string();
        assert!(error.contains("the file is longer than"), "{error}");
    }
}
