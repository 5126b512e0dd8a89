//! Entry points for fuzzers: each takes any bytes, and whatever they are must neither panic nor be taken for something
//! that encodes differently.

use bytes::{Bytes, BytesMut};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::wire::{self, Hello, MAGIC, Welcome};
use crate::{Code, Failure, Message, Reason};

/// Longest frame the splitter accepts here, in bytes.
const FRAME_BYTES_MAX: usize = 512;

/// A message with a field of each kind that protocols use.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
pub(super) struct Anything {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(uint64, repeated, tag = "2")]
    stamps: Vec<u64>,
    #[prost(string, tag = "3")]
    text: String,
    #[prost(message, optional, boxed, tag = "4")]
    nested: Option<Box<Anything>>,
}

impl Message for Anything {
    fn encode(&self, buffer: &mut BytesMut) {
        prost::Message::encode_raw(self, buffer);
    }
    fn encoded_len(&self) -> usize {
        prost::Message::encoded_len(self)
    }
    fn decode(bytes: Bytes) -> Result<Self, prost::DecodeError> {
        prost::Message::decode(bytes)
    }
    fn name(&self) -> &'static str {
        "Anything"
    }
}

/// The frame splitter: what it returns is within the limit and in the input, and it always ends.
pub fn fuzz_frames(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    let mut consumed = 0;
    while let Ok(Some(frame)) = wire::next_frame(&mut buffer, FRAME_BYTES_MAX) {
        let start = consumed + wire::HEADER_BYTES;
        assert!(frame.len() <= FRAME_BYTES_MAX);
        assert_eq!(bytes[start..start + frame.len()], frame[..]);
        consumed = start + frame.len();
    }
    assert_eq!(bytes[consumed..], buffer[..]);
}

/// The decoders of both handshake messages.
pub fn fuzz_handshake(bytes: &[u8]) {
    if let Ok(hello) = wire::decode_hello(bytes) {
        assert_eq!(
            reread(
                |buffer| wire::encode_handshake(buffer, &hello),
                wire::decode_hello
            ),
            hello
        );
    }
    if let Ok(welcome) = wire::decode_welcome(bytes) {
        assert_eq!(
            reread(
                |buffer| wire::encode_handshake(buffer, &welcome),
                wire::decode_welcome
            ),
            welcome
        );
    }
}

/// The decoder of requests.
pub fn fuzz_request(bytes: &[u8]) {
    if let Ok((session, request, Ok(message))) =
        wire::decode_request::<Anything>(Bytes::copy_from_slice(bytes))
    {
        let decode = |frame: &[u8]| wire::decode_request::<Anything>(Bytes::copy_from_slice(frame));
        let (again, number, decoded) = reread(
            |buffer| wire::encode_request(buffer, session, request, &message),
            decode,
        );
        assert_eq!((again, number), (session, request));
        assert_eq!(decoded.ok(), Some(message));
    }
}

/// The decoder of replies.
pub fn fuzz_reply(bytes: &[u8]) {
    let decode = |frame: &[u8]| wire::decode_reply::<Anything>(Bytes::copy_from_slice(frame));
    if let Ok((session, request, result)) = decode(bytes) {
        let sent = match &result {
            Ok(reply) => Ok(reply.clone()),
            Err(Failure::Failed(Reason::Refused(code))) => Err(*code),
            // A code that nobody sends.
            Err(_) => return,
        };
        let again = reread(
            |buffer| wire::encode_reply(buffer, session, request, &sent),
            decode,
        );
        assert_eq!(again, (session, request, result));
    }
}

/// The decoder of acknowledgements.
pub fn fuzz_ack(bytes: &[u8]) {
    assert_eq!(
        wire::decode_ack(bytes)
            .ok()
            .map(u64::to_le_bytes)
            .as_ref()
            .map(|ack| &ack[..]),
        Some(bytes).filter(|bytes| bytes.len() == 8)
    );
}

/// All decoders with the same bytes.
pub fn fuzz_one(bytes: &[u8]) {
    fuzz_frames(bytes);
    fuzz_handshake(bytes);
    fuzz_request(bytes);
    fuzz_reply(bytes);
    fuzz_ack(bytes);
}

/// Runs all decoders `iterations` times on random bytes, and on valid frames with a few bytes changed, cut off, doubled
/// or put in. The same seed does the same.
pub fn fuzz_all(seed: u64, iterations: u64) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for _ in 0..iterations {
        let mut bytes = if random.random_bool(0.2) {
            noise(&mut random)
        } else {
            valid(&mut random)
        };
        for _ in 0..random.random_range(0..4) {
            mutate(&mut random, &mut bytes);
        }
        fuzz_one(&bytes);
        // The splitter wants whole frames, the decoders what is in them.
        fuzz_one(bytes.get(wire::HEADER_BYTES..).unwrap_or_default());
    }
}

/// What `encode` writes as one frame, decoded.
fn reread<T, E: std::fmt::Debug>(
    encode: impl FnOnce(&mut BytesMut),
    decode: impl FnOnce(&[u8]) -> Result<T, E>,
) -> T {
    let mut buffer = BytesMut::new();
    encode(&mut buffer);
    let frame = wire::next_frame(&mut buffer, usize::MAX)
        .expect("invariant: no limit")
        .expect("invariant: a whole frame");
    assert!(buffer.is_empty(), "one frame, not more");
    decode(&frame).expect("invariant: what was encoded can be decoded")
}

fn noise(random: &mut Pcg64Mcg) -> Vec<u8> {
    let mut bytes = vec![0; random.random_range(0..64)];
    random.fill_bytes(&mut bytes);
    bytes
}

fn valid(random: &mut Pcg64Mcg) -> Vec<u8> {
    let mut buffer = BytesMut::new();
    let message = anything(random, 2);
    // Small and extreme numbers take all paths of the variable-length encoding.
    let number = random.random::<u64>() >> random.random_range(0..64);
    let session = (number as u32) % crate::limits::SESSIONS_PER_PROCESS_MAX;
    match random.random_range(0..6) {
        0 => wire::encode_request(&mut buffer, session, number.max(1), &message),
        1 => wire::encode_reply(&mut buffer, session, number.max(1), &Ok(message)),
        2 => wire::encode_reply::<Anything>(
            &mut buffer,
            session,
            number.max(1),
            &Err(Code::Overloaded),
        ),
        3 => wire::encode_ack(&mut buffer, number),
        4 => wire::encode_handshake(
            &mut buffer,
            &Hello {
                magic: MAGIC,
                protocol: message.text,
                server: "0_1".to_owned(),
                incarnation: number,
                partitions: 3,
                fingerprint: number,
            },
        ),
        _ => wire::encode_handshake(
            &mut buffer,
            &Welcome {
                magic: MAGIC,
                incarnation: number,
                taken: number >> 8,
                refusal: message.text,
            },
        ),
    }
    buffer.to_vec()
}

fn anything(random: &mut Pcg64Mcg, depth: u32) -> Anything {
    Anything {
        key: noise(random).into(),
        stamps: (0..random.random_range(0..4))
            .map(|_| random.random())
            .collect(),
        text: String::from_utf8_lossy(&noise(random)).into_owned(),
        nested: (depth > 0 && random.random()).then(|| Box::new(anything(random, depth - 1))),
    }
}

fn mutate(random: &mut Pcg64Mcg, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let place = random.random_range(0..bytes.len());
    match random.random_range(0..5) {
        0 => bytes[place] ^= 1 << random.random_range(0..8),
        1 => bytes[place] = random.random(),
        2 => bytes.truncate(place),
        3 => bytes.extend_from_within(place..),
        _ => bytes.insert(place, random.random()),
    }
}
