//! Histories of client operations and the checkers that judge them.
//!
//! A [`History`] says what clients asked, what they were answered and when;
//! it knows nothing of the protocol that answered. [`Model::check`] decides
//! whether a history is one that a consistency model allows and returns a
//! [`Verdict`]: satisfied, violated with a counterexample that can be read, or
//! unknown with the reason. [`formats`] reads and writes them.
//!
//! The crate depends on no other crate of the workspace, reads no clock and
//! draws no random number, so a verdict is a function of the history alone.

mod causal;
mod check;
mod convergence;
pub mod formats;
mod graph;
mod groups;
mod history;
mod intern;
mod key_view;
mod ladder;
mod linear;
mod minimise;
mod model;
pub mod picture;
mod prepass;
mod sessions;
mod solve;
mod verdict;

pub use check::{Budget, Evidence, IsOver, Options};
pub use formats::native;
pub use groups::Groups;
pub use history::{
    About, Action, History, KeyId, ListId, OpId, Operation, Outcome, Scan, ScanId, SiteId, Stamps,
    Transaction, TxnId, ValueId,
};
pub use ladder::Ladder;
pub use linear::{DataType, UnknownDataType};
pub use minimise::{Minimal, minimise};
pub use model::{Model, Order, UnknownModel, UnknownOrder};
pub use verdict::{Anomaly, AnomalyKind, Edge, EdgeKind, Verdict};
