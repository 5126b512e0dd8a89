//! What is generated for a protocol. That it compiles and decodes without copying is tested where it is used.

use std::fs;

const PROTOCOL: &str = r#"syntax = "proto3";
package any.name;

// What is stored under a key.
message Record {
  message Version {
    oneof kind { bytes inline = 1; Plain plain = 2; uint32 size = 3; }
    Version previous = 4;
  }
  bytes type = 1;
  optional bytes maybe = 2;
  repeated bytes list = 3;
  map<uint32, bytes> map = 4;
  map<uint32, Version> versions = 5;
  Version latest = 6;
  map<uint32, uint32> counts = 7;
}
message Plain {}
message GetMessage { bytes key = 1; }
message PutMessage { bytes key = 1; }
message GetReply { bytes value = 1; }

// What a client asks.
message ClientMessage {
  oneof any_name {
    // Reads a key.
    GetMessage get_message = 1;
    PutMessage conditional_put = 9;
  }
}
message ServerMessage { oneof any_name { Plain plain = 1; } }
message ClientReply { oneof any_name { GetReply get_reply = 1; } }
"#;

/// The code generated for [`PROTOCOL`].
fn generated(config: dkvf_build::Config) -> String {
    let folder = tempfile::tempdir().unwrap();
    let proto = folder.path().join("eventual.proto");
    fs::write(&proto, PROTOCOL).unwrap();
    config.out_dir(folder.path()).compile(&[proto]).unwrap();
    fs::read_to_string(folder.path().join("eventual.rs")).unwrap()
}

#[track_caller]
fn assert_contains(code: &str, expected: &str) {
    assert!(code.contains(expected), "no\n{expected}\nin\n{code}");
}

#[test]
fn messages_are_prost_structs_with_serde_and_their_comments() {
    let code = generated(dkvf_build::Config::new());
    assert_contains(
        &code,
        "/// What is stored under a key.
#[derive(::serde::Serialize, ::serde::Deserialize)]
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Record {",
    );
    assert_contains(
        &code,
        "pub list: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,",
    );
    assert_contains(
        &code,
        "pub counts: ::prost::alloc::collections::BTreeMap<u32, u32>,",
    );
}

#[test]
fn envelopes_are_enums_and_never_structs() {
    let code = generated(dkvf_build::Config::new());
    assert_contains(
        &code,
        "pub enum ClientMessage {
    /// Reads a key.
    #[prost(message, tag = \"1\")]
    Get(GetMessage),
    #[prost(message, tag = \"9\")]
    ConditionalPut(PutMessage),
}",
    );
    for envelope in ["ClientMessage", "ServerMessage", "ClientReply"] {
        assert!(!code.contains(&format!("struct {envelope}")));
        assert_contains(
            &code,
            &format!("impl ::dkvf_core::Message for {envelope} {{"),
        );
    }
    assert_contains(&code, "Self::ConditionalPut(_) => \"ConditionalPut\",");
}

#[test]
fn payloads_convert_to_and_from_their_envelope() {
    let code = generated(dkvf_build::Config::new());
    for (payload, envelope) in [
        ("GetMessage", "ClientMessage"),
        ("PutMessage", "ClientMessage"),
        ("Plain", "ServerMessage"),
        ("GetReply", "ClientReply"),
    ] {
        assert_contains(
            &code,
            &format!("impl ::core::convert::From<{payload}> for {envelope} {{"),
        );
        assert_contains(
            &code,
            &format!("impl ::core::convert::TryFrom<{envelope}> for {payload} {{"),
        );
    }
    // An arm for other variants is only reachable where there are any.
    assert_eq!(code.matches("other => Err(other)").count(), 2);
}

#[test]
fn records_detach_bytes_at_any_depth() {
    let code = generated(dkvf_build::Config::new());
    assert_contains(
        &code,
        "    pub fn detach_bytes(&mut self) {
        self.r#type = ::prost::bytes::Bytes::copy_from_slice(&self.r#type);
        for value in self.r#maybe.iter_mut() {
            *value = ::prost::bytes::Bytes::copy_from_slice(value);
        }
        for value in self.r#list.iter_mut() {
            *value = ::prost::bytes::Bytes::copy_from_slice(value);
        }
        for value in self.r#map.values_mut() {
            *value = ::prost::bytes::Bytes::copy_from_slice(value);
        }
        for value in self.r#versions.values_mut() {
            value.detach_bytes();
        }
        for value in self.r#latest.iter_mut() {
            value.detach_bytes();
        }
    }
",
    );
    assert_contains(
        &code,
        "    fn detach_bytes(&mut self) {
        if let Some(r#record::r#version::Kind::Inline(value)) = &mut self.r#kind {
            *value = ::prost::bytes::Bytes::copy_from_slice(value);
        }
        if let Some(r#record::r#version::Kind::Plain(value)) = &mut self.r#kind {
            value.detach_bytes();
        }
        for value in self.r#previous.iter_mut() {
            value.detach_bytes();
        }
    }
",
    );
    assert_eq!(
        code.matches("fn detach_bytes").count(),
        3,
        "Record, Version and Plain"
    );
}

#[test]
fn metadata_names_the_four_messages_under_the_configured_path() {
    let code = generated(dkvf_build::Config::new().core_path("crate::shim"));
    assert_contains(
        &code,
        "impl crate::shim::Metadata for Metadata {
    type Record = Record;
    type ClientMessage = ClientMessage;
    type ServerMessage = ServerMessage;
    type ClientReply = ClientReply;
}",
    );
    assert_contains(&code, "impl crate::shim::Message for ClientMessage {");
    assert!(!code.contains("dkvf_core"));
}

#[test]
fn generation_is_deterministic() {
    assert_eq!(
        generated(dkvf_build::Config::new()),
        generated(dkvf_build::Config::new())
    );
}
