//! Counterexamples and traces as pictures.
//!
//! A [`Diagram`] says what is to be seen: lanes, bars, arrows, marks and messages. It can be made by hand, or
//! [of an anomaly](Diagram::of_anomaly), and be written as SVG, as a page, as text and as a graph. No picture refers to
//! anything outside of itself, and all text in it is escaped, so that a history may contain whatever it likes.

mod anomaly;
mod arrange;
mod diagram;
mod graph;
mod layout;
mod page;
mod style;
mod svg;
mod text;
mod timeline;
mod words;

pub use diagram::{Arrow, Bar, Diagram, Lane, Mark, Message, Place, Step};
pub use page::to_html;

use crate::verdict::EdgeKind;

impl Diagram {
    /// A space-time diagram as SVG: self-contained, with tooltips, readable on light and dark paper.
    ///
    /// Texts do not overlap: that of a message is left out where there is no room for it.
    pub fn to_svg(&self) -> String {
        svg::svg(&self.drawable())
    }

    /// The diagram as text: a line for each lane, then the arrows and the argument.
    pub fn to_text(&self) -> String {
        text::text(&self.drawable())
    }

    /// The bars and arrows as a graph in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        graph::dot(&self.drawable())
    }

    /// The bars and arrows as a flowchart in the language of Mermaid.
    pub fn to_mermaid(&self) -> String {
        graph::mermaid(&self.drawable())
    }
}
