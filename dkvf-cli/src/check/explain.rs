//! Counterexamples as files.

use std::path::Path;

use anyhow::Context as _;
use dkvf_check::History;
use dkvf_check::picture::{Diagram, to_html};

use super::judge::Judgement;
use super::report;
use crate::usage;

/// How a counterexample is written; the name of its file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// A picture.
    Svg,
    /// A page with pictures.
    Html,
    /// Lanes of characters.
    Text,
    /// A graph for Graphviz.
    Dot,
    /// A graph for Mermaid.
    Mermaid,
}

impl Drawing {
    /// The one that suits the file.
    ///
    /// # Errors
    /// The end of its name says nothing.
    pub fn of(file: &str) -> anyhow::Result<Self> {
        let extension = Path::new(file).extension().and_then(|end| end.to_str());
        match extension {
            Some("svg") => Ok(Drawing::Svg),
            Some("html") => Ok(Drawing::Html),
            Some("txt") => Ok(Drawing::Text),
            Some("dot") => Ok(Drawing::Dot),
            Some("mmd") => Ok(Drawing::Mermaid),
            _ => Err(usage(format!(
                "--explain {file}: the name ends in .svg, .html, .txt, .dot or .mmd"
            ))),
        }
    }
}

/// Writes the counterexamples: a page or a text has all of them, the others the first one.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    history: &History,
    judgement: &Judgement,
    drawing: Drawing,
    target: &str,
) -> anyhow::Result<()> {
    let diagrams = report::diagrams(history, judgement);
    let diagrams: Vec<Diagram> = diagrams.map(|(_, diagram)| diagram).collect();
    let Some(first) = diagrams.first() else {
        eprintln!("dkvf: nothing is violated, so {target} was not written");
        return Ok(());
    };
    let content = match drawing {
        Drawing::Svg => first.to_svg(),
        Drawing::Dot => first.to_dot(),
        Drawing::Mermaid => first.to_mermaid(),
        Drawing::Html => to_html("counterexample", &diagrams),
        Drawing::Text => {
            let texts: Vec<String> = diagrams.iter().map(Diagram::to_text).collect();
            texts.join("\n")
        }
    };
    std::fs::write(target, content).with_context(|| format!("cannot write {target}"))
}
