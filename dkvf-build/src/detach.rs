//! `detach_bytes`, which copies what a record shares with the buffer it was decoded from.

use std::collections::BTreeMap;

use heck::ToUpperCamelCase;
use prost_types::FieldDescriptorProto;
use prost_types::field_descriptor_proto::{Label, Type};

use crate::RECORD;
use crate::proto::{Message, raw_snake_case};

/// The messages of the file by full name.
type Messages<'a> = BTreeMap<&'a str, &'a Message<'a>>;

/// Appends `detach_bytes` for `Record`, and privately for the messages inside it.
pub fn generate(messages: &[Message], code: &mut String) {
    let by_name = messages
        .iter()
        .map(|message| (message.full_name.as_str(), message))
        .collect();
    for message in inside_record(messages, &by_name) {
        if message.is_map_entry() {
            continue;
        }
        let visibility = if message.is_top_level(RECORD) {
            "pub "
        } else {
            ""
        };
        let fields = message.descriptor.field.iter();
        let statements: String = fields
            .filter_map(|field| detach(message, field, &by_name))
            .collect();
        *code += &format!(
            "
impl {} {{
    /// Copies every `bytes` field, so that the buffer that the message was decoded from can be freed.
    {visibility}fn detach_bytes(&mut self) {{
{statements}    }}
}}
",
            message.rust_path
        );
    }
}

/// `Record` and the messages it may hold, at any depth.
fn inside_record<'a>(messages: &'a [Message], by_name: &Messages<'a>) -> Vec<&'a Message<'a>> {
    let mut found: Vec<_> = messages
        .iter()
        .filter(|message| message.is_top_level(RECORD))
        .collect();
    let mut visited = 0;
    while let Some(message) = found.get(visited).copied() {
        visited += 1;
        for field in &message.descriptor.field {
            if let Some(inner) = by_name.get(field.type_name())
                && !found.iter().any(|known| known.full_name == inner.full_name)
            {
                found.push(inner);
            }
        }
    }
    found
}

/// The statement that detaches one field of `message`, if it can hold bytes.
fn detach(message: &Message, field: &FieldDescriptorProto, by_name: &Messages) -> Option<String> {
    let map_entry = by_name
        .get(field.type_name())
        .filter(|inner| inner.is_map_entry());
    let value_type = map_entry
        .map_or(field, |entry| &entry.descriptor.field[1])
        .r#type();
    let detach = match value_type {
        Type::Bytes => "*value = ::prost::bytes::Bytes::copy_from_slice(value)",
        Type::Message => "value.detach_bytes()",
        _ => return None,
    };
    let name = format!("self.{}", raw_snake_case(field.name()));
    if let Some(oneof) = message.oneof(field) {
        let module = message.rust_module();
        let (r#enum, variant) = (
            oneof.to_upper_camel_case(),
            field.name().to_upper_camel_case(),
        );
        let oneof = raw_snake_case(oneof);
        return Some(format!(
            "        if let Some({module}::{enum}::{variant}(value)) = &mut self.{oneof} {{
            {detach};
        }}
"
        ));
    }
    let plain = field.label() == Label::Optional && !field.proto3_optional();
    if plain && value_type == Type::Bytes {
        return Some(format!(
            "        {name} = ::prost::bytes::Bytes::copy_from_slice(&{name});\n"
        ));
    }
    let values = if map_entry.is_some() {
        "values_mut"
    } else {
        "iter_mut"
    };
    Some(format!(
        "        for value in {name}.{values}() {{
            {detach};
        }}
"
    ))
}
