//! The documentation shows code that exists: every block of it stands in a source file, line by line.

use std::path::Path;

/// Documents, the languages of their blocks, and where these stand; from the root of the workspace.
const DOCUMENTS: [(&str, &[&str], &[&str]); 3] = [
    (
        "docs/tutorial.md",
        &["rust", "proto"],
        &[
            "examples/first-protocol/build.rs",
            "examples/first-protocol/src/primary.proto",
            "examples/first-protocol/src/metadata.rs",
            "examples/first-protocol/src/server.rs",
            "examples/first-protocol/src/client.rs",
            "examples/first-protocol/src/lib.rs",
            "examples/first-protocol/src/main.rs",
            "examples/first-protocol/tests/by_hand.rs",
            "examples/first-protocol/tests/conformance.rs",
        ],
    ),
    ("README.md", &["rust"], &["protocols/src/eventual/server.rs"]),
    ("docs/storage.md", &["rust"], &["dkvf-storage/tests/own_engine.rs"]),
];

/// The lines of a file of the workspace.
fn lines(file: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}

/// The blocks in one of these languages, with the number of their first line.
fn blocks(document: &[String], languages: &[&str]) -> Vec<(usize, Vec<String>)> {
    let mut blocks = Vec::new();
    let mut lines = document.iter().zip(1..);
    while let Some((line, number)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block = lines.by_ref().map(|(line, _)| line.clone()).take_while(|line| line != "```").collect();
            if languages.contains(&language) {
                blocks.push((number + 1, block));
            }
        }
    }
    blocks
}

#[test]
fn every_block_of_code_in_the_documentation_stands_in_a_source_file() {
    for (document, languages, files) in DOCUMENTS {
        let sources: Vec<_> = files.iter().map(|file| lines(file)).collect();
        let blocks = blocks(&lines(document), languages);
        assert!(!blocks.is_empty(), "{document} shows no code");
        for (number, block) in blocks {
            let found = sources.iter().any(|source| source.windows(block.len()).any(|lines| lines == block));
            assert!(found, "{document}:{number}: this block stands in none of {files:?}:\n{}", block.join("\n"));
        }
    }
}

#[test]
fn the_tutorial_shows_all_of_the_protocol() {
    let shown = blocks(&lines("docs/tutorial.md"), &["rust", "proto"]);
    for file in ["src/server.rs", "src/client.rs", "src/primary.proto"] {
        for line in lines(&format!("examples/first-protocol/{file}")) {
            let is_effect = line.contains("cx.") || line.starts_with("message");
            assert!(!is_effect || shown.iter().any(|(_, block)| block.contains(&line)), "{file}: not shown: {line}");
        }
    }
}
