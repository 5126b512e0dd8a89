//! The envelopes: messages that hold one `oneof`, for which an enum is generated.

use std::collections::BTreeSet;

use anyhow::Result;
use heck::ToUpperCamelCase;
use prost_types::field_descriptor_proto::Type;

use crate::ENVELOPES;
use crate::proto::{Message, Proto};

/// `ClientMessage`, `ServerMessage` or `ClientReply`.
pub struct Envelope<'a> {
    name: &'a str,
    location: &'a [i32],
    variants: Vec<Variant<'a>>,
}

/// One kind of message that the envelope may hold.
struct Variant<'a> {
    /// The variant's name in Rust.
    name: String,
    /// The field's name in the `.proto`.
    field: &'a str,
    /// The struct of the payload.
    payload: &'a str,
    tag: i32,
    location: Vec<i32>,
}

impl<'a> Envelope<'a> {
    /// Finds the three envelopes and checks their form, and that no other message holds one.
    pub fn find(proto: &Proto, messages: &'a [Message]) -> Result<Vec<Self>> {
        let full_names = ENVELOPES.map(|name| proto.full_name(name));
        for message in messages {
            let mut fields = message.descriptor.field.iter();
            if let Some(index) =
                fields.position(|field| full_names.iter().any(|name| name == field.type_name()))
            {
                return Err(proto.field_error(
                    message,
                    index,
                    "holds an envelope; hold the message inside it instead",
                ));
            }
        }
        messages
            .iter()
            .filter(|message| ENVELOPES.iter().any(|name| message.is_top_level(name)))
            .map(|message| Self::new(proto, message, messages))
            .collect()
    }

    fn new(proto: &Proto, message: &'a Message, messages: &'a [Message]) -> Result<Self> {
        check_form(proto, message)?;
        let mut variants = Vec::<Variant>::new();
        for index in 0..message.descriptor.field.len() {
            let variant = Variant::new(proto, message, index, messages)?;
            if let Some(clash) = variants.iter().find_map(|other| variant.clash(other)) {
                return Err(proto.field_error(message, index, &clash));
            }
            variants.push(variant);
        }
        Ok(Self {
            name: message.descriptor.name(),
            location: &message.location,
            variants,
        })
    }

    /// Appends the enum, its wire format and its conversions.
    pub fn generate(&self, proto: &Proto, core_path: &str, code: &mut String) {
        self.generate_enum(proto, code);
        self.generate_message(core_path, code);
        for variant in &self.variants {
            self.generate_conversions(variant, code);
        }
    }

    fn generate_enum(&self, proto: &Proto, code: &mut String) {
        let name = self.name;
        *code += "\n";
        proto.generate_docs(self.location, 0, code);
        *code += &format!(
            r#"#[derive(Clone, PartialEq, ::prost::Oneof, ::serde::Serialize, ::serde::Deserialize)]
#[allow(clippy::large_enum_variant, reason = "handlers match on payloads, so they are not boxed")]
pub enum {name} {{
"#
        );
        for Variant {
            name,
            payload,
            tag,
            location,
            ..
        } in &self.variants
        {
            proto.generate_docs(location, 1, code);
            *code += &format!("    #[prost(message, tag = \"{tag}\")]\n    {name}({payload}),\n");
        }
        *code += "}\n";
    }

    /// Encoding writes straight to the buffer; decoding needs what prost derives for a struct with the `oneof`.
    fn generate_message(&self, core_path: &str, code: &mut String) {
        let name = self.name;
        let tags: Vec<_> = self
            .variants
            .iter()
            .map(|variant| variant.tag.to_string())
            .collect();
        let tags = tags.join(", ");
        *code += &format!(
            r#"
impl {core_path}::Message for {name} {{
    fn encode(&self, buf: &mut ::prost::bytes::BytesMut) {{
        Self::encode(self, buf);
    }}

    fn encoded_len(&self) -> usize {{
        Self::encoded_len(self)
    }}

    fn decode(buf: ::prost::bytes::Bytes) -> ::core::result::Result<Self, ::prost::DecodeError> {{
        #[derive(Clone, PartialEq, ::prost::Message)]
        struct Envelope {{
            #[prost(oneof = "{name}", tags = "{tags}")]
            variant: ::core::option::Option<{name}>,
        }}
        let envelope = <Envelope as ::prost::Message>::decode(buf)?;
        #[expect(deprecated, reason = "prost has no other constructor of its error")]
        envelope.variant.ok_or_else(|| ::prost::DecodeError::new("{name}: no variant set"))
    }}

    fn name(&self) -> &'static str {{
        match self {{
"#
        );
        for Variant { name, .. } in &self.variants {
            *code += &format!("            Self::{name}(_) => \"{name}\",\n");
        }
        *code += "        }\n    }\n}\n";
    }

    fn generate_conversions(&self, variant: &Variant, code: &mut String) {
        let name = self.name;
        let Variant {
            name: variant,
            payload,
            ..
        } = variant;
        // With a single variant, another arm would be unreachable.
        let other = if self.variants.len() == 1 {
            ""
        } else {
            "\n            other => Err(other),"
        };
        *code += &format!(
            r#"
impl ::core::convert::From<{payload}> for {name} {{
    fn from(payload: {payload}) -> Self {{
        Self::{variant}(payload)
    }}
}}

impl ::core::convert::TryFrom<{name}> for {payload} {{
    type Error = {name};

    fn try_from(message: {name}) -> ::core::result::Result<Self, {name}> {{
        match message {{
            {name}::{variant}(payload) => Ok(payload),{other}
        }}
    }}
}}
"#
        );
    }
}

impl<'a> Variant<'a> {
    fn new(
        proto: &Proto,
        envelope: &'a Message,
        index: usize,
        messages: &'a [Message],
    ) -> Result<Self> {
        let field = &envelope.descriptor.field[index];
        let error = |problem| proto.field_error(envelope, index, problem);
        if field.r#type() != Type::Message {
            return Err(error("is not a message; declare a message that holds it"));
        }
        let payload = messages
            .iter()
            .find(|message| message.full_name == field.type_name());
        let payload = payload
            .filter(|message| message.is_top_level(message.descriptor.name()))
            .ok_or_else(|| {
                error("has the type of a nested message; declare that message at the top level")
            })?;
        Ok(Self {
            name: variant_name(field.name()),
            field: field.name(),
            payload: &payload.rust_path,
            tag: field.number(),
            location: envelope.field_location(index),
        })
    }

    /// Why the two cannot be in one envelope: the conversions need a payload of its own for each variant.
    fn clash(&self, other: &Self) -> Option<String> {
        let Self {
            name,
            field,
            payload,
            ..
        } = other;
        if self.payload == *payload {
            Some(format!(
                "holds `{payload}`, and so does `{field}`; declare a message for each"
            ))
        } else if self.name == *name {
            Some(format!(
                "is variant `{name}`, and so is `{field}`; rename one"
            ))
        } else {
            None
        }
    }
}

/// Checks that a message consists of exactly one `oneof`.
fn check_form(proto: &Proto, message: &Message) -> Result<()> {
    let name = message.descriptor.name();
    let fields = &message.descriptor.field;
    let oneofs: BTreeSet<_> = fields
        .iter()
        .filter_map(|field| message.oneof(field))
        .collect();
    if oneofs.len() != 1 {
        let count = oneofs.len();
        let text = format!(
            "message `{name}` needs exactly one oneof, of the messages it may hold; it has {count}"
        );
        return Err(proto.error(&message.location, &text));
    }
    if let Some(index) = fields
        .iter()
        .position(|field| message.oneof(field).is_none())
    {
        let problem = "is outside the oneof; move it into the messages of the oneof";
        return Err(proto.field_error(message, index, problem));
    }
    Ok(())
}

/// `get`, `get_message` and `get_reply` are variant `Get`.
fn variant_name(field: &str) -> String {
    ["_message", "_reply"]
        .iter()
        .find_map(|suffix| field.strip_suffix(suffix))
        .unwrap_or(field)
        .to_upper_camel_case()
}
