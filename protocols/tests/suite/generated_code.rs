//! Code generated from a `.proto` (those of `tests/fixtures`) compiles, converts, and travels without being copied.

use bytes::{Bytes, BytesMut};
use dkvf_core::{Message, ServerId, VersionKey};
use simple::{ClientMessage, ClientReply, GetMessage, GetReply, Metadata, PutMessage, PutReply, Record, Replicate, ServerMessage};

mod simple {
    include!(concat!(env!("OUT_DIR"), "/simple.rs"));
}
/// Another one, with the same names.
mod nested {
    include!(concat!(env!("OUT_DIR"), "/nested.rs"));
}

impl dkvf_core::Record for Record {
    fn version(&self, _node: ServerId) -> VersionKey {
        VersionKey::stamped(self.ut, 0)
    }
    fn detach(&mut self) {
        self.detach_bytes();
    }
}

impl dkvf_core::Record for nested::Record {
    fn version(&self, _node: ServerId) -> VersionKey {
        VersionKey(0)
    }
    fn detach(&mut self) {
        self.detach_bytes();
    }
}

fn encoded<M: Message>(message: &M) -> Bytes {
    let mut buffer = BytesMut::new();
    message.encode(&mut buffer);
    assert_eq!(buffer.len(), message.encoded_len());
    buffer.freeze()
}

fn round_trip<M: Message>(message: &M) {
    assert_eq!(M::decode(encoded(message)).as_ref(), Ok(message));
    let json = serde_json::to_string(message).unwrap();
    assert_eq!(serde_json::from_str::<M>(&json).unwrap(), *message);
}

/// Whether `part` lies inside the memory of `whole`.
fn shares(whole: &Bytes, part: &Bytes) -> bool {
    whole.as_ptr_range().contains(&part.as_ptr())
}

fn put() -> PutMessage {
    PutMessage { key: Bytes::from_static(b"key"), value: Bytes::from(vec![7; 1000]) }
}

#[test]
fn messages_survive_a_round_trip() {
    round_trip(&ClientMessage::Put(put()));
    round_trip(&ClientMessage::Get(GetMessage::default()));
    round_trip(&ServerMessage::from(Replicate { key: Bytes::new(), record: Some(Record::default()) }));
    round_trip(&ClientReply::from(GetReply { value: Some(Bytes::new()) }));
    round_trip(&ClientReply::from(PutReply { ut: u64::MAX }));
}

#[test]
fn the_wire_format_is_that_of_the_proto() {
    // Field 7, length 2: field 1 = 5.
    assert_eq!(encoded(&ClientReply::Put(PutReply { ut: 5 })), [0x3a, 2, 8, 5].as_slice());
}

#[test]
fn handlers_match_on_variants() {
    let message = ClientMessage::from(GetMessage { key: Bytes::from_static(b"key"), gst: 3 });
    match &message {
        ClientMessage::Get(GetMessage { key, gst }) => {
            assert_eq!((&key[..], *gst), (&b"key"[..], 3))
        }
        ClientMessage::Put(PutMessage { .. }) => unreachable!(),
    }
    assert_eq!(message.name(), "Get");
}

#[test]
fn decoding_copies_no_bytes() {
    let buffer = encoded(&ClientMessage::Put(put()));
    let Ok(ClientMessage::Put(PutMessage { key, value })) = ClientMessage::decode(buffer.clone()) else {
        panic!("a put decodes to a put");
    };
    assert!(shares(&buffer, &key) && shares(&buffer, &value));

    let record = Record { value: Bytes::from(vec![7; 1000]), ut: 1 };
    let buffer = encoded(&ServerMessage::from(Replicate { key: Bytes::new(), record: Some(record) }));
    let ServerMessage::Replicate(replicate) = ServerMessage::decode(buffer.clone()).unwrap();
    let mut record = replicate.record.unwrap();
    assert!(shares(&buffer, &record.value));
    let before = record.clone();
    record.detach_bytes();
    assert_eq!(record, before);
    assert!(!shares(&buffer, &record.value));
}

#[test]
fn an_unexpected_reply_is_given_back() {
    let reply = ClientReply::from(PutReply { ut: 1 });
    assert_eq!(GetReply::try_from(reply.clone()), Err(reply.clone()));
    assert_eq!(PutReply::try_from(reply), Ok(PutReply { ut: 1 }));
}

#[test]
fn bytes_without_a_known_variant_are_an_error() {
    for bytes in [&[][..], &[0x7a, 0], &[0x0a, 5, 1], &[0xff]] {
        assert!(ClientMessage::decode(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
    }
    let error = ClientMessage::decode(Bytes::new()).unwrap_err();
    assert!(error.to_string().ends_with("ClientMessage: no variant set"), "{error}");
}

#[test]
fn a_repeated_variant_is_merged_and_the_last_one_wins() {
    let get = |gst| encoded(&ClientMessage::from(GetMessage { key: Bytes::from_static(b"key"), gst }));
    let both = [get(1), get(2)].concat();
    assert_eq!(ClientMessage::decode(both.into()), ClientMessage::decode(get(2)));
    let both = [get(1), encoded(&ClientMessage::from(put()))].concat();
    assert_eq!(ClientMessage::decode(both.into()), Ok(ClientMessage::from(put())));
}

#[test]
fn nested_bytes_are_detached() {
    use nested::record::{Version, version::Kind};
    let bytes = || Bytes::from(vec![1; 100]);
    let version = Version {
        value: bytes(),
        kind: Some(Kind::Inline(bytes())),
        previous: Some(Box::new(Version { kind: Some(Kind::Dependency(nested::Dependency { key: bytes() })), ..Default::default() })),
    };
    let record = nested::Record {
        r#type: bytes(),
        maybe: Some(bytes()),
        list: vec![bytes(), bytes()],
        map: [("a".to_owned(), bytes())].into(),
        versions: [(1, version.clone())].into(),
        dependencies: vec![nested::Dependency { key: bytes() }],
        latest: Some(version),
        ..Default::default()
    };
    let buffer = encoded(&nested::ServerMessage::from(record.clone()));
    let nested::ServerMessage::Record(mut decoded) = nested::ServerMessage::decode(buffer.clone()).unwrap();
    assert!(!buffer.is_unique());
    decoded.detach_bytes();
    assert!(buffer.is_unique(), "something still shares the receive buffer");
    assert_eq!(decoded, record);
}

#[test]
fn metadata_names_the_messages() {
    fn name<M: dkvf_core::Metadata>(message: M::ClientMessage) -> &'static str {
        message.name()
    }
    assert_eq!(name::<Metadata>(ClientMessage::from(put())), "Put");
    assert_eq!(name::<nested::Metadata>(nested::Plain::default().into()), "Plain");
}
