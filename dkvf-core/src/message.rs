//! The messages of a protocol. `dkvf-build` generates these implementations from the protocol's `.proto`.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use dkvf_storage::Record;

/// One of a protocol's three message envelopes: an enum with a variant per kind of message.
pub trait Message:
    Clone + PartialEq + Debug + serde::Serialize + serde::de::DeserializeOwned + 'static
{
    /// Appends the protobuf encoding.
    fn encode(&self, buffer: &mut BytesMut);

    /// Length of the encoding in bytes.
    fn encoded_len(&self) -> usize;

    /// Reads one message that fills `bytes` exactly. Byte strings share `bytes` instead of being copied.
    ///
    /// # Errors
    /// Malformed bytes, or none of the variants.
    fn decode(bytes: Bytes) -> Result<Self, prost::DecodeError>;

    /// The variant's name, for traces and metrics.
    fn name(&self) -> &'static str;
}

/// The metadata of a protocol: what it stores and what its nodes and clients say to each other.
pub trait Metadata: Debug + Sized + 'static {
    /// A stored version.
    type Record: Record + serde::Serialize + serde::de::DeserializeOwned;
    /// Client to server.
    type ClientMessage: Message;
    /// Server to server.
    type ServerMessage: Message;
    /// Server to client.
    type ClientReply: Message;
}
