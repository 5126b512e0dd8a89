//! Which elements and attributes a configuration has, checked before anything is read from it.
//! `schemas/Config.xsd` says the same in XML Schema.

use super::error::{Result, quote, remedy};
use super::xml::Element;

/// What an element may hold.
pub(super) struct Shape {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    content: Content,
    many: bool,
}

enum Content {
    /// Nothing between the tags.
    Nothing,
    /// Text, and never blank.
    Text,
    /// Text; blank is as good as absent. DKVF's schema has defaults for these elements, and a
    /// default in XML Schema is what a blank element means.
    TextOrBlank,
    /// Other elements, in any order.
    Children(&'static [Shape]),
}

const fn shape(name: &'static str, content: Content) -> Shape {
    Shape {
        name,
        required: &[],
        optional: &[],
        content,
        many: false,
    }
}

const fn text(name: &'static str) -> Shape {
    shape(name, Content::Text)
}

const fn text_or_blank(name: &'static str) -> Shape {
    shape(name, Content::TextOrBlank)
}

const fn children(name: &'static str, children: &'static [Shape]) -> Shape {
    shape(name, Content::Children(children))
}

/// An element that may occur any number of times and has attributes only.
const fn item(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> Shape {
    Shape {
        name,
        required,
        optional,
        content: Content::Nothing,
        many: true,
    }
}

const fn text_with(name: &'static str, optional: &'static [&'static str]) -> Shape {
    Shape {
        name,
        required: &[],
        optional,
        content: Content::Text,
        many: false,
    }
}

const PROPERTY: Shape = item("property", &["key", "value"], &[]);

/// A node's configuration.
pub(super) const CONFIG: Shape = children(
    "config",
    &[
        text("id"),
        text("protocol"),
        text("replica"),
        text("partition"),
        text("role"),
        text("bind"),
        text_or_blank("client_port"),
        text_or_blank("server_port"),
        text_or_blank("control_port"),
        text("control_token"),
        children(
            "storage",
            &[
                text("engine"),
                text("class_name"),
                text("directory"),
                PROPERTY,
            ],
        ),
        text("durability"),
        text_with("flush", &["us"]),
        text_with("peer_flush", &["us", "bytes"]),
        text_or_blank("connector_sleep_time"),
        text("channel_capacity"),
        text("message_bytes_max"),
        text("request_timeout_ms"),
        text("connections_max"),
        text("sessions_max"),
        text("parked_max"),
        text("idle_timeout_ms"),
        text("clock_skew_us"),
        text("max_drift_ms"),
        children(
            "connect_to",
            &[item(
                "server",
                &["id", "ip", "port"],
                &[
                    "client_port",
                    "control_port",
                    "replica",
                    "partition",
                    "role",
                ],
            )],
        ),
        children(
            "delays",
            &[item("delay", &["from", "to", "ms"], &["jitter_ms"])],
        ),
        text_or_blank("protocol_log_file"),
        text_or_blank("protocol_log_level"),
        text_or_blank("protocol_log_type"),
        text_or_blank("protocol_std_log_level"),
        text_or_blank("framework_log_file"),
        text_or_blank("framework_log_level"),
        text_or_blank("framework_log_type"),
        text_or_blank("framework_std_log_level"),
        text_or_blank("synch_communication"),
        children("protocol_properties", &[PROPERTY]),
    ],
);

/// Checks the root and everything in it.
///
/// # Errors
/// An element or attribute is unknown, missing, given twice or blank, or text stands where none
/// belongs.
pub(super) fn check_root(root: &Element) -> Result<()> {
    if root.name != CONFIG.name {
        return Err(
            root.error("not the root of a node's configuration; write <config>...</config>")
        );
    }
    check(root, &CONFIG)
}

fn check(element: &Element, shape: &Shape) -> Result<()> {
    check_attributes(element, shape)?;
    let (children, text): (&[Shape], bool) = match shape.content {
        Content::Nothing => (&[], false),
        Content::Text | Content::TextOrBlank => (&[], true),
        Content::Children(children) => (children, false),
    };
    if !text && !element.text.is_empty() {
        return Err(element.error(format!(
            "holds the text {}; remove it: no text belongs here",
            quote(&element.text)
        )));
    }
    for (i, child) in element.children.iter().enumerate() {
        let Some(shape) = children.iter().find(|shape| shape.name == child.name) else {
            return Err(child.error(unknown_element(&child.name, element, children)));
        };
        let first = element.children[..i]
            .iter()
            .find(|other| other.name == child.name);
        if let Some(first) = first.filter(|_| !shape.many) {
            return Err(child.error(format!(
                "already given at {}; remove one of them",
                first.origin
            )));
        }
        check(child, shape)?;
    }
    if matches!(shape.content, Content::Text) && element.text.is_empty() {
        return Err(element.error("empty; give it a value or remove it"));
    }
    Ok(())
}

fn check_attributes(element: &Element, shape: &Shape) -> Result<()> {
    let allowed = || shape.required.iter().chain(shape.optional).copied();
    for (name, value) in &element.attributes {
        let schema_reference =
            shape.name == CONFIG.name && (name.starts_with("xmlns:") || name.starts_with("xsi:"));
        if schema_reference {
            continue;
        }
        if !allowed().any(|allowed| allowed == name) {
            let problem = format!(
                "unknown attribute {}; {}",
                quote(name),
                remedy(name, allowed(), str::to_owned)
            );
            return Err(element.error(problem));
        }
        // DKVF files give lists that happen to be empty as properties with a blank value.
        if value.trim().is_empty() && name != "value" {
            return Err(element.error(format!("attribute {name} is empty; give it a value")));
        }
    }
    match shape
        .required
        .iter()
        .find(|name| element.attribute(name).is_none())
    {
        Some(name) => {
            Err(element.error(format!("attribute {name} is missing; add {name}=\"...\"")))
        }
        None => Ok(()),
    }
}

fn unknown_element(name: &str, parent: &Element, children: &[Shape]) -> String {
    let remedy = remedy(name, children.iter().map(|shape| shape.name), |name| {
        format!("<{name}>")
    });
    format!("unknown element in {}; {remedy}", parent.label())
}

/// The names of all elements and attributes.
#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    fn collect(shape: &Shape, names: &mut Vec<&'static str>) {
        names.push(shape.name);
        names.extend(shape.required.iter().chain(shape.optional));
        if let Content::Children(children) = shape.content {
            children.iter().for_each(|child| collect(child, names));
        }
    }
    let mut names = Vec::new();
    collect(&CONFIG, &mut names);
    names
}
