//! Compiles a protocol's metadata, a `.proto` file, into the message types that its handlers match on.
//!
//! A protocol describes its data in four messages: `Record` is what it stores under a key; `ClientMessage`,
//! `ServerMessage` and `ClientReply` are envelopes, each holding exactly one `oneof` of messages.
//!
//! ```proto
//! syntax = "proto3";
//!
//! message Record { bytes value = 1; uint64 ut = 2; }
//!
//! message GetMessage { bytes key = 1; }
//! message PutMessage { bytes key = 1; bytes value = 2; }
//! message Replicate { bytes key = 1; Record record = 2; }
//! message GetReply { optional bytes value = 1; }
//! message PutReply {}
//!
//! message ClientMessage { oneof message { GetMessage get = 1; PutMessage put = 2; } }
//! message ServerMessage { oneof message { Replicate replicate = 1; } }
//! message ClientReply { oneof message { GetReply get = 1; PutReply put = 2; } }
//! ```
//!
//! `build.rs` compiles it. Nobody installs protoc: the compiler is a Rust library.
//!
//! ```no_run
//! fn main() -> anyhow::Result<()> {
//!     dkvf_build::compile(&["src/eventual/eventual.proto"])
//! }
//! ```
//!
//! The protocol includes the result, in a module of its own, so that two protocols may use the same names:
//!
//! ```ignore
//! pub mod metadata {
//!     #![expect(missing_docs, reason = "generated from eventual.proto")]
//!     include!(concat!(env!("OUT_DIR"), "/eventual.rs"));
//! }
//! ```
//!
//! # What is generated
//!
//! - A struct per message, by prost, with the comments of the `.proto`, serde's `Serialize` and `Deserialize`,
//!   `Bytes` for `bytes` and `BTreeMap` for maps: encoding is deterministic, and decoding from `Bytes` copies nothing.
//! - An enum per envelope, which implements `dkvf_core::Message`. A variant is named after its field, without a trailing
//!   `_message` or `_reply`, so handlers read `ClientMessage::Get(GetMessage { key }) => …`.
//! - `From<GetReply> for ClientReply`, and `TryFrom<ClientReply> for GetReply`, whose error is the unexpected reply.
//! - `Record::detach_bytes`, which copies every `bytes` field, at any depth, out of the receive buffer that it would
//!   otherwise keep alive.
//! - `Metadata`, the type that ties the four together as a `dkvf_core::Metadata`.
//!
//! The including crate depends on `dkvf-core`, `prost` and `serde`.
//!
//! # What a metadata file may not do
//!
//! It is proto3 and complete in itself: no imports, so no `google.protobuf` types. Envelopes are not fields of other
//! messages. Every error names the file, the line, the offender and the remedy.

mod detach;
mod envelope;
mod proto;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use prost_build::Module;

use crate::envelope::Envelope;
use crate::proto::{Message, Proto};

/// The message a protocol stores under a key.
const RECORD: &str = "Record";

/// The messages that hold a `oneof` of everything sent in one direction.
const ENVELOPES: [&str; 3] = ["ClientMessage", "ServerMessage", "ClientReply"];

/// The generated type that ties the four messages together.
const METADATA: &str = "Metadata";

/// Compiles each `.proto` into `$OUT_DIR/<stem>.rs`, with the default [`Config`].
///
/// # Errors
///
/// See [`Config::compile`].
pub fn compile(protos: &[impl AsRef<Path>]) -> Result<()> {
    Config::new().compile(protos)
}

/// How to compile metadata, for the rare build that [`compile`] does not fit.
#[derive(Clone, Debug)]
pub struct Config {
    core_path: String,
    out_dir: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// The configuration of [`compile`].
    pub fn new() -> Self {
        Self {
            core_path: "::dkvf_core".to_owned(),
            out_dir: None,
        }
    }

    /// Sets the path under which generated code finds the traits `Message` and `Metadata`; `::dkvf_core` by default.
    #[must_use]
    pub fn core_path(mut self, path: impl Into<String>) -> Self {
        self.core_path = path.into();
        self
    }

    /// Sets the folder to write to; `$OUT_DIR` by default.
    #[must_use]
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// Compiles each `.proto` into `<stem>.rs` and tells cargo to rerun the build script when one changes.
    ///
    /// # Errors
    ///
    /// A file cannot be read or written, does not parse or is not a protocol's metadata, or two share a stem.
    pub fn compile(&self, protos: &[impl AsRef<Path>]) -> Result<()> {
        let out_dir = match &self.out_dir {
            Some(folder) => folder.clone(),
            None => env::var_os("OUT_DIR")
                .context("OUT_DIR is not set; call dkvf_build from a build script")?
                .into(),
        };
        for (stem, proto) in by_stem(protos)? {
            println!("cargo:rerun-if-changed={}", proto.display());
            let output = out_dir.join(stem).with_added_extension("rs");
            fs::write(&output, self.generate(proto)?)
                .with_context(|| format!("cannot write {}", output.display()))?;
        }
        Ok(())
    }

    /// The Rust source for one `.proto`.
    fn generate(&self, path: &Path) -> Result<String> {
        let proto = Proto::load(path)?;
        let messages = proto.messages();
        check_names(&proto, &messages)?;
        let envelopes = Envelope::find(&proto, &messages)?;

        let mut code = messages_by_prost(&proto)?;
        for envelope in &envelopes {
            envelope.generate(&proto, &self.core_path, &mut code);
        }
        detach::generate(&messages, &mut code);
        self.generate_metadata(&mut code);
        Ok(code)
    }

    /// Appends the type that ties the four messages together.
    ///
    /// It has no documentation, so that a module's `#![expect(missing_docs)]` is met however well its `.proto` is documented.
    fn generate_metadata(&self, code: &mut String) {
        let core = &self.core_path;
        *code += &format!(
            "
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct {METADATA};

impl {core}::Metadata for {METADATA} {{
"
        );
        for name in [RECORD].into_iter().chain(ENVELOPES) {
            *code += &format!("    type {name} = {name};\n");
        }
        *code += "}\n";
    }
}

/// The files by the stem of their name, which is the name of their output.
fn by_stem(protos: &[impl AsRef<Path>]) -> Result<BTreeMap<&OsStr, &Path>> {
    let mut stems = BTreeMap::new();
    for proto in protos.iter().map(AsRef::as_ref) {
        let stem = proto
            .file_stem()
            .with_context(|| format!("{} is not a file's name", proto.display()))?;
        if let Some(other) = stems.insert(stem, proto) {
            bail!(
                "{} and {} would both be compiled to {}.rs; rename one",
                other.display(),
                proto.display(),
                stem.display()
            );
        }
    }
    Ok(stems)
}

/// Checks that the four messages are there, and that no other takes the name of what is generated beside them.
fn check_names(proto: &Proto, messages: &[Message]) -> Result<()> {
    let find = |name| messages.iter().find(|message| message.is_top_level(name));
    if let Some(name) = [RECORD]
        .into_iter()
        .chain(ENVELOPES)
        .find(|name| find(name).is_none())
    {
        let every = "every protocol has Record, ClientMessage, ServerMessage and ClientReply";
        return Err(proto.error(&[], &format!("message `{name}` is missing; {every}")));
    }
    if let Some(taken) = find(METADATA) {
        let problem = "message `Metadata` takes the name of a generated type; rename it";
        return Err(proto.error(&taken.location, problem));
    }
    Ok(())
}

/// The structs of all messages except the envelopes, for which prost would generate a struct around an `Option`.
fn messages_by_prost(proto: &Proto) -> Result<String> {
    let mut config = prost_build::Config::new();
    config
        .bytes(["."])
        .btree_map(["."])
        .type_attribute(".", "#[derive(::serde::Serialize, ::serde::Deserialize)]");
    for name in ENVELOPES {
        config.extern_path(proto.full_name(name), name);
    }
    let module = Module::from_protobuf_package_name(proto.file.package());
    let mut modules = config.generate(vec![(module.clone(), proto.file.clone())])?;
    Ok(modules
        .remove(&module)
        .expect("prost generates the module it was asked for"))
}
