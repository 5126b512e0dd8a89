//! The documentation of the formats says what is true.

use dkvf_check::formats::{Format, read, read_any};

const DOCUMENT: &str = include_str!("../../../docs/history-format.md");

/// The section of a format, and its examples: language and text.
fn section(format: Format) -> (&'static str, Vec<(&'static str, &'static str)>) {
    let heading = format!("### `{format}`\n");
    let (_, rest) = DOCUMENT
        .split_once(&heading)
        .unwrap_or_else(|| panic!("no section on {format}"));
    let text = rest.split("\n## ").next().unwrap_or_default();
    let text = text.split("\n### ").next().unwrap_or_default();
    let blocks = text.split("```").skip(1).step_by(2);
    (
        text,
        blocks.filter_map(|block| block.split_once('\n')).collect(),
    )
}

#[test]
fn every_format_is_documented_by_examples_that_are_read() {
    for format in Format::ALL {
        let (text, examples) = section(format);
        assert!(!text.trim().is_empty(), "{format}");
        assert!(!examples.is_empty(), "{format} has no example");
        for (language, example) in examples {
            if language == "layout" {
                continue;
            }
            let (detected, history) = read_any(example.as_bytes(), "")
                .unwrap_or_else(|error| panic!("{format}: {error}\n{example}"));
            assert_eq!(detected, format, "{example}");
            assert!(!history.transactions().is_empty(), "{format}");
        }
    }
}

#[test]
fn every_field_of_the_native_example_is_explained() {
    let (text, examples) = section(Format::Native);
    let (_, example) = examples[0];
    assert_eq!(
        read(Format::Native, example.as_bytes())
            .unwrap()
            .transactions()
            .len(),
        3
    );
    let explained = text.replace(example, "");
    for line in example.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        for field in value.as_object().unwrap().keys() {
            assert!(
                explained.contains(&format!("`{field}`")),
                "{field} is not explained"
            );
        }
        for element in value["value"].as_array().into_iter().flatten() {
            if let Some(f) = element.get(0).and_then(serde_json::Value::as_str) {
                assert!(
                    explained.contains(&format!("`[\"{f}\", ")),
                    "{f} is not explained"
                );
            }
        }
    }
}
