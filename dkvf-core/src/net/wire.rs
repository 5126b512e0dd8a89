//! Bytes on a connection: frames and what is in them. Pure functions; every byte from outside is hostile.
//!
//! A frame is a little-endian `u32` length and so many bytes. The fixed header can be filled in after the body
//! was encoded in place, so no length is computed twice. The first frame on a connection is a [`Hello`], the first
//! answer a [`Welcome`]; then
//!
//! | connection | frame body |
//! | --- | --- |
//! | client → server | session varint, request varint, `ClientMessage` |
//! | server → client | session varint, request varint, code byte (0 = ok), `ClientReply` |
//! | server → server | `ServerMessage`; frames are numbered by their position, see [`super::link`] |
//! | server ← server | `u64` little-endian: frames taken so far |

use bytes::{Buf, Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};

use crate::limits::SESSIONS_PER_PROCESS_MAX;
use crate::{Code, Failure, Message, Outcome, Reason};

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 4;
/// Most bytes of a request before its message: a session of 24 bits and a request of 64.
pub const REQUEST_NUMBERS_BYTES_MAX: usize = 4 + 10;
/// First field of a [`Hello`]: "dkvf" and a version of the wire format.
pub const MAGIC: u32 = 0x646b_7602;

/// What is wrong with bytes from outside. The connection they came on is closed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A frame longer than the run allows.
    #[error("a frame of {length} bytes, over the limit of {max} (message_bytes_max)")]
    TooLong {
        /// Its length.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// The frame ends before its content.
    #[error("a frame that ends within its {0}")]
    Truncated(&'static str),
    /// A number that nobody gives.
    #[error("a {0} out of range")]
    OutOfRange(&'static str),
    /// Not a message of this protocol.
    #[error("not a message of this protocol: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// Not dkvf, or another version of it.
    #[error("not a dkvf handshake (is this the right port?)")]
    Magic,
}

/// Starts a frame; [`end_frame`] with the returned position completes it.
pub fn begin_frame(buffer: &mut BytesMut) -> usize {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; HEADER_BYTES]);
    start
}

/// Writes the length of the frame begun at `start`.
pub fn end_frame(buffer: &mut BytesMut, start: usize) {
    let length = (buffer.len() - start - HEADER_BYTES) as u32;
    buffer[start..start + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Takes the next complete frame's body off `buffer`, `None` if it is not complete yet.
///
/// # Errors
/// Its length is over `max`.
pub fn next_frame(buffer: &mut BytesMut, max: usize) -> Result<Option<Bytes>, WireError> {
    let Some(length) = frame_length(buffer) else {
        return Ok(None);
    };
    if length > max {
        return Err(WireError::TooLong { length, max });
    }
    if buffer.len() < HEADER_BYTES + length {
        return Ok(None);
    }
    buffer.advance(HEADER_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// The length of the body of the frame at the start of `bytes`, if its header is there.
pub fn frame_length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    Some(u32::from_le_bytes(*header) as usize)
}

/// Appends a request.
pub fn encode_request<T: Message>(buffer: &mut BytesMut, session: u32, request: u64, message: &T) {
    let start = begin_frame(buffer);
    encode_varint(u64::from(session), buffer);
    encode_varint(request, buffer);
    message.encode(buffer);
    end_frame(buffer, start);
}

/// Reads a request: `(session, request, message)`. The session and request numbers are there even if the
/// message is not one of this protocol, so that the client can be told.
///
/// # Errors
/// The frame ends too early, or its numbers are none that a client gives.
pub fn decode_request<T: Message>(
    mut frame: Bytes,
) -> Result<(u32, u64, Result<T, WireError>), WireError> {
    let session = session(&mut frame)?;
    let request = request(&mut frame)?;
    Ok((session, request, T::decode(frame).map_err(WireError::from)))
}

/// Appends a reply.
pub fn encode_reply<T: Message>(
    buffer: &mut BytesMut,
    session: u32,
    request: u64,
    result: &Result<T, Code>,
) {
    let start = begin_frame(buffer);
    encode_varint(u64::from(session), buffer);
    encode_varint(request, buffer);
    match result {
        Ok(reply) => {
            buffer.extend_from_slice(&[0]);
            reply.encode(buffer);
        }
        Err(code) => buffer.extend_from_slice(&[*code as u8]),
    }
    end_frame(buffer, start);
}

/// Reads a reply: `(session, request, result)`. A code of a later version is [`Failure::Unknown`]: whether it means
/// "without effect" is not known here.
///
/// # Errors
/// Truncated or malformed.
pub fn decode_reply<T: Message>(mut frame: Bytes) -> Result<(u32, u64, Outcome<T>), WireError> {
    let session = session(&mut frame)?;
    let request = request(&mut frame)?;
    if frame.is_empty() {
        return Err(WireError::Truncated("result"));
    }
    let result = match frame.get_u8() {
        0 => Ok(T::decode(frame)?),
        code => Err(Code::from_u8(code).map_or(Failure::Unknown, |code| {
            Failure::Failed(Reason::Refused(code))
        })),
    };
    Ok((session, request, result))
}

fn session(frame: &mut Bytes) -> Result<u32, WireError> {
    let session = decode_varint(frame).map_err(|_| WireError::Truncated("session number"))?;
    u32::try_from(session)
        .ok()
        .filter(|session| *session < SESSIONS_PER_PROCESS_MAX)
        .ok_or(WireError::OutOfRange("session number"))
}

/// Requests of a session are numbered from 1.
fn request(frame: &mut Bytes) -> Result<u64, WireError> {
    match decode_varint(frame) {
        Ok(0) => Err(WireError::OutOfRange("request number")),
        Ok(request) => Ok(request),
        Err(_) => Err(WireError::Truncated("request number")),
    }
}

/// The largest message of a server, if `message_bytes_max` is that of a client's request: what a request carried goes on
/// to other servers or back to clients, wrapped in more.
pub fn wrapped_bytes_max(message_bytes_max: usize) -> usize {
    2 * message_bytes_max
}

/// Appends a message of a server.
pub fn encode_message<T: Message>(buffer: &mut BytesMut, message: &T) {
    let start = begin_frame(buffer);
    message.encode(buffer);
    end_frame(buffer, start);
}

/// Appends an acknowledgement of all frames up to `taken`.
pub fn encode_ack(buffer: &mut BytesMut, taken: u64) {
    let start = begin_frame(buffer);
    buffer.extend_from_slice(&taken.to_le_bytes());
    end_frame(buffer, start);
}

/// Reads an acknowledgement.
///
/// # Errors
/// It is not eight bytes long.
pub fn decode_ack(frame: &[u8]) -> Result<u64, WireError> {
    let bytes = frame
        .try_into()
        .map_err(|_| WireError::Truncated("acknowledgement"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// The first frame of whoever opened a connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// [`MAGIC`].
    #[prost(fixed32, tag = "1")]
    pub magic: u32,
    /// The protocol the caller speaks.
    #[prost(string, tag = "2")]
    pub protocol: String,
    /// A server's name; empty for a client.
    #[prost(string, tag = "3")]
    pub server: String,
    /// A server's incarnation, or a client process's number.
    #[prost(fixed64, tag = "4")]
    pub incarnation: u64,
    /// Number of partitions in the caller's view of the cluster. A client may know some of the replicas only, but it
    /// must know which partition a key is of.
    #[prost(uint32, tag = "5")]
    pub partitions: u32,
    /// A server's [`crate::Topology::fingerprint`].
    #[prost(fixed64, tag = "6")]
    pub fingerprint: u64,
}

/// The answer to a [`Hello`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Welcome {
    /// [`MAGIC`].
    #[prost(fixed32, tag = "1")]
    pub magic: u32,
    /// The answering server's incarnation.
    #[prost(fixed64, tag = "2")]
    pub incarnation: u64,
    /// Frames of the calling server's incarnation taken so far.
    #[prost(uint64, tag = "3")]
    pub taken: u64,
    /// Why the caller is not welcome; empty if it is.
    #[prost(string, tag = "4")]
    pub refusal: String,
}

/// Appends a handshake message as a frame.
pub fn encode_handshake(buffer: &mut BytesMut, message: &impl prost::Message) {
    let start = begin_frame(buffer);
    message.encode_raw(buffer);
    end_frame(buffer, start);
}

/// Reads a [`Hello`].
///
/// # Errors
/// Not one.
pub fn decode_hello(frame: &[u8]) -> Result<Hello, WireError> {
    let hello = <Hello as prost::Message>::decode(frame).map_err(|_| WireError::Magic)?;
    if hello.magic == MAGIC {
        Ok(hello)
    } else {
        Err(WireError::Magic)
    }
}

/// Reads a [`Welcome`].
///
/// # Errors
/// Not one.
pub fn decode_welcome(frame: &[u8]) -> Result<Welcome, WireError> {
    let welcome = <Welcome as prost::Message>::decode(frame).map_err(|_| WireError::Magic)?;
    if welcome.magic == MAGIC {
        Ok(welcome)
    } else {
        Err(WireError::Magic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_error_code_says_nothing_about_the_effect() {
        for (code, expected) in [
            (2, Failure::Failed(Reason::Refused(Code::Overloaded))),
            (200, Failure::Unknown),
        ] {
            let frame = Bytes::from(vec![0, 1, code]);
            let (_, _, result) =
                decode_reply::<super::super::fuzz::Anything>(frame).expect("a reply");
            assert_eq!(result, Err(expected));
        }
    }
}
