//! Files that are not a protocol's metadata are refused with the file, the line, the offender and the remedy.

use std::fs;

const PROTOCOL: &str = r#"syntax = "proto3";

message Record { bytes value = 1; }
message GetMessage { bytes key = 1; }
message PutMessage { bytes key = 1; }
message Replicate { Record record = 1; }
message GetReply { bytes value = 1; }

message ClientMessage { oneof message { GetMessage get = 1; PutMessage put = 2; } }
message ServerMessage { oneof message { Replicate replicate = 1; } }
message ClientReply { oneof message { GetReply get = 1; } }
"#;

/// Asserts what is reported, without the folder, for a file of this content.
#[track_caller]
fn assert_error(source: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let proto = folder.path().join("eventual.proto");
    fs::write(&proto, source).unwrap();
    let config = dkvf_build::Config::new().out_dir(folder.path());
    let error = format!("{:#}", config.compile(&[proto]).unwrap_err());
    let prefix = format!("{}/", folder.path().display());
    assert_eq!(error.replace(&prefix, ""), expected);
    assert!(!folder.path().join("eventual.rs").exists());
}

/// Asserts what is reported after `from` in the protocol has become `to`.
#[track_caller]
fn assert_error_after(from: &str, to: &str, expected: &str) {
    assert!(PROTOCOL.contains(from), "{from} is not in the protocol");
    assert_error(&PROTOCOL.replace(from, to), expected);
}

#[test]
fn a_missing_message_is_named() {
    let every = "every protocol has Record, ClientMessage, ServerMessage and ClientReply";
    for name in ["Record", "ClientMessage", "ServerMessage", "ClientReply"] {
        assert_error_after(
            name,
            "Other",
            &format!("eventual.proto: message `{name}` is missing; {every}"),
        );
    }
}

#[test]
fn what_protobuf_refuses_has_a_line_and_a_column() {
    assert_error_after(
        "GetReply { bytes value = 1;",
        "GetReply { bytes value 1;",
        "cannot compile eventual.proto: eventual.proto:7:32: expected '=', but found '1'",
    );
    assert_error_after(
        "Record record",
        "Recrod record",
        "cannot compile eventual.proto: eventual.proto:6:21: name 'Recrod' is not defined",
    );
}

#[test]
fn an_envelope_without_a_oneof_is_refused() {
    for field in ["Replicate one = 1;", "optional Replicate one = 1;", ""] {
        assert_error_after(
            "oneof message { Replicate replicate = 1; }",
            field,
            "eventual.proto:10: message `ServerMessage` needs exactly one oneof, of the messages it may hold; it has 0",
        );
    }
}

#[test]
fn an_envelope_with_two_oneofs_is_refused() {
    assert_error_after(
        "PutMessage put = 2;",
        "} oneof other { PutMessage put = 2;",
        "eventual.proto:9: message `ClientMessage` needs exactly one oneof, of the messages it may hold; it has 2",
    );
}

#[test]
fn a_field_beside_the_oneof_is_refused() {
    for field in [
        "uint64 at = 3;",
        "optional uint64 at = 3;",
        "repeated Record at = 3;",
    ] {
        assert_error_after(
            "message ServerMessage {",
            &format!("message ServerMessage {{ {field}"),
            "eventual.proto:10: field `at` of `ServerMessage` is outside the oneof; move it into the messages of the oneof",
        );
    }
}

#[test]
fn a_scalar_variant_is_refused() {
    assert_error_after(
        "PutMessage put = 2;",
        "bytes put = 2;",
        "eventual.proto:9: field `put` of `ClientMessage` is not a message; declare a message that holds it",
    );
}

#[test]
fn a_nested_payload_is_refused() {
    assert_error_after(
        "message ServerMessage {",
        "message ServerMessage { message Replicate {}",
        "eventual.proto:10: field `replicate` of `ServerMessage` has the type of a nested message; \
         declare that message at the top level",
    );
}

#[test]
fn two_variants_with_one_payload_are_refused() {
    assert_error_after(
        "PutMessage put = 2;",
        "GetMessage read = 2;",
        "eventual.proto:9: field `read` of `ClientMessage` holds `GetMessage`, and so does `get`; \
         declare a message for each",
    );
}

#[test]
fn two_variants_with_one_name_are_refused() {
    assert_error_after(
        "PutMessage put = 2;",
        "PutMessage get_message = 2;",
        "eventual.proto:9: field `get_message` of `ClientMessage` is variant `Get`, and so is `get`; rename one",
    );
}

#[test]
fn an_envelope_inside_a_message_is_refused() {
    assert_error_after(
        "Record record",
        "ClientMessage forwarded",
        "eventual.proto:6: field `forwarded` of `Replicate` holds an envelope; hold the message inside it instead",
    );
}

#[test]
fn the_name_of_a_generated_type_is_refused() {
    assert_error_after(
        "message GetMessage",
        "message Metadata {}\nmessage GetMessage",
        "eventual.proto:4: message `Metadata` takes the name of a generated type; rename it",
    );
}

#[test]
fn well_known_types_are_refused() {
    assert_error_after(
        "\n\nmessage Record {",
        "\n\nimport \"google/protobuf/timestamp.proto\";\nmessage Record { google.protobuf.Timestamp at = 2;",
        "eventual.proto:3: import \"google/protobuf/timestamp.proto\": well-known types are not supported in metadata; \
         declare a message with the fields you need",
    );
}

#[test]
fn imports_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("common.proto"), "syntax = \"proto3\";").unwrap();
    let proto = folder.path().join("eventual.proto");
    fs::write(
        &proto,
        PROTOCOL.replacen('\n', "\nimport \"common.proto\";", 1),
    )
    .unwrap();
    let config = dkvf_build::Config::new().out_dir(folder.path());
    assert_eq!(
        config.compile(&[&proto]).unwrap_err().to_string(),
        format!(
            "{}:2: import \"common.proto\": imports are not supported in metadata; declare the messages in this file",
            proto.display()
        )
    );
}

#[test]
fn other_syntaxes_than_proto3_are_refused() {
    for source in [
        "message Record {}",
        "syntax = \"proto2\";\nmessage Record {}",
    ] {
        assert_error(
            source,
            "eventual.proto: metadata is proto3; begin the file with `syntax = \"proto3\";`",
        );
    }
}

#[test]
fn an_absent_file_is_refused() {
    let error = dkvf_build::Config::new()
        .out_dir(".")
        .compile(&["absent/eventual.proto"]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "cannot read absent/eventual.proto"
    );
}

#[test]
fn two_files_with_one_stem_are_refused() {
    let error = dkvf_build::Config::new()
        .out_dir(".")
        .compile(&["a/eventual.proto", "b/eventual.proto"]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "a/eventual.proto and b/eventual.proto would both be compiled to eventual.rs; rename one"
    );
}
