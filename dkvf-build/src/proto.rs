//! A parsed `.proto` file: its messages, comments and positions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_build::Comments;
use prost_types::source_code_info::Location;
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

/// Field numbers of descriptor.proto, which make up the path of a [`Location`].
mod tag {
    /// `FileDescriptorProto.dependency`
    pub const DEPENDENCY: i32 = 3;
    /// `FileDescriptorProto.message_type`
    pub const MESSAGE: i32 = 4;
    /// `DescriptorProto.field`
    pub const FIELD: i32 = 2;
    /// `DescriptorProto.nested_type`
    pub const NESTED: i32 = 3;
}

/// A `.proto` that compiles and is complete in itself.
pub struct Proto {
    path: PathBuf,
    /// What the file declares.
    pub file: FileDescriptorProto,
}

/// A message of the file, at the top level or nested; entries of maps are nested messages, too.
pub struct Message<'a> {
    /// What the file declares.
    pub descriptor: &'a DescriptorProto,
    /// The name by which fields refer to the message: `.package.Outer.Inner`.
    pub full_name: String,
    /// The struct that prost generates: `outer::Inner`.
    pub rust_path: String,
    /// The message's place in the file.
    pub location: Vec<i32>,
}

impl Proto {
    /// Parses and checks a file.
    pub fn load(path: &Path) -> Result<Self> {
        let proto = Self {
            path: path.to_owned(),
            file: parse(path)?,
        };
        if proto.file.syntax() != "proto3" {
            let problem = "metadata is proto3; begin the file with `syntax = \"proto3\";`";
            return Err(proto.error(&[], problem));
        }
        if let Some(import) = proto.file.dependency.first() {
            let remedy = if import.starts_with("google/protobuf/") {
                "well-known types are not supported in metadata; declare a message with the fields you need"
            } else {
                "imports are not supported in metadata; declare the messages in this file"
            };
            return Err(proto.error(
                &[tag::DEPENDENCY, 0],
                &format!("import \"{import}\": {remedy}"),
            ));
        }
        Ok(proto)
    }

    /// The fully qualified name of a message at the top level.
    pub fn full_name(&self, name: &str) -> String {
        match self.file.package() {
            "" => format!(".{name}"),
            package => format!(".{package}.{name}"),
        }
    }

    /// All messages of the file, outer before inner.
    pub fn messages(&self) -> Vec<Message<'_>> {
        let mut messages = Vec::new();
        for (index, descriptor) in (0..).zip(&self.file.message_type) {
            let top_level = Message {
                descriptor,
                full_name: self.full_name(descriptor.name()),
                rust_path: descriptor.name().to_upper_camel_case(),
                location: vec![tag::MESSAGE, index],
            };
            top_level.push_with_nested(&mut messages);
        }
        messages
    }

    /// An error that begins with the file and the line of the item at `location`; an empty one is the whole file.
    pub fn error(&self, location: &[i32], message: &str) -> Error {
        let path = self.path.display();
        match self.location(location).filter(|_| !location.is_empty()) {
            Some(location) => anyhow!("{path}:{}: {message}", location.span[0] + 1),
            None => anyhow!("{path}: {message}"),
        }
    }

    /// An error that begins with the file, the line and the name of the field of `message` with this index.
    pub fn field_error(&self, message: &Message, index: usize, problem: &str) -> Error {
        let (owner, field) = (
            message.descriptor.name(),
            message.descriptor.field[index].name(),
        );
        self.error(
            &message.field_location(index),
            &format!("field `{field}` of `{owner}` {problem}"),
        )
    }

    /// Appends the comments of the item at `location` as documentation, indented by four spaces a level.
    pub fn generate_docs(&self, location: &[i32], indent: u8, code: &mut String) {
        let Some(location) = self.location(location) else {
            return;
        };
        let lines = |comments: &str| {
            comments
                .lines()
                .map(|line| line.trim_end().to_owned())
                .collect()
        };
        let comments = Comments {
            leading_detached: Vec::new(),
            leading: lines(location.leading_comments()),
            trailing: lines(location.trailing_comments()),
        };
        comments.append_with_indent(indent, code);
    }

    fn location(&self, path: &[i32]) -> Option<&Location> {
        self.file
            .source_code_info
            .as_ref()?
            .location
            .iter()
            .find(|location| location.path == path)
    }
}

impl<'a> Message<'a> {
    /// Whether this is the message `name` of the file, rather than one nested in another message.
    pub fn is_top_level(&self, name: &str) -> bool {
        self.descriptor.name() == name && self.location.len() == 2
    }

    /// Whether this is what protobuf makes of an entry of a `map` field.
    pub fn is_map_entry(&self) -> bool {
        self.descriptor
            .options
            .as_ref()
            .is_some_and(|options| options.map_entry())
    }

    /// The place in the file of the field with this index.
    pub fn field_location(&self, index: usize) -> Vec<i32> {
        let index = i32::try_from(index).expect("protobuf allows fewer fields");
        [&self.location[..], &[tag::FIELD, index]].concat()
    }

    /// The `oneof` that the field belongs to.
    pub fn oneof(&self, field: &FieldDescriptorProto) -> Option<&'a str> {
        // Protobuf wraps every `optional` field into a `oneof` of its own, which nobody wrote.
        let index = field.oneof_index.filter(|_| !field.proto3_optional())?;
        Some(self.descriptor.oneof_decl[usize::try_from(index).ok()?].name())
    }

    /// The Rust module that prost generates for what is nested in this message.
    pub fn rust_module(&self) -> String {
        let module = raw_snake_case(self.descriptor.name());
        match self.rust_path.rsplit_once("::") {
            Some((outer, _)) => format!("{outer}::{module}"),
            None => module,
        }
    }

    fn push_with_nested(self, messages: &mut Vec<Message<'a>>) {
        let nested: Vec<_> = (0..)
            .zip(&self.descriptor.nested_type)
            .map(|(index, descriptor)| Message {
                descriptor,
                full_name: format!("{}.{}", self.full_name, descriptor.name()),
                rust_path: format!(
                    "{}::{}",
                    self.rust_module(),
                    descriptor.name().to_upper_camel_case()
                ),
                location: [&self.location[..], &[tag::NESTED, index]].concat(),
            })
            .collect();
        messages.push(self);
        for message in nested {
            message.push_with_nested(messages);
        }
    }
}

/// The identifier that prost gives a field, in the raw form, so that a field may be called `type`.
pub fn raw_snake_case(name: &str) -> String {
    format!("r#{}", name.to_snake_case())
}

fn parse(path: &Path) -> Result<FileDescriptorProto> {
    fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let descriptors = protox::Compiler::new([folder])
        .and_then(|mut compiler| {
            Ok(compiler
                .include_source_info(true)
                .open_file(path)?
                .file_descriptor_set())
        })
        // Only the debug form of protox's errors has the file and the line.
        .map_err(|error| anyhow!("{error:?}"))
        .with_context(|| format!("cannot compile {}", path.display()))?;
    Ok(descriptors
        .file
        .into_iter()
        .next()
        .expect("protox returns the file it was asked for"))
}
