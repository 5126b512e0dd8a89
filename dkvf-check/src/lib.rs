//! Histories of client operations and the checkers that judge them.
//!
//! A [`History`] says what clients asked, what they were answered and when;
//! it knows nothing of the protocol that answered. [`Model::check`] decides
//! whether a history is one that a consistency model allows and returns a
//! [`Verdict`]: satisfied, violated with a counterexample that can be read, or
//! unknown with the reason. [`native`] stores histories as JSON lines.
//!
//! The crate depends on no other crate of the workspace, reads no clock and
//! draws no random number, so a verdict is a function of the history alone.

mod convergence;
mod history;
mod intern;
mod key_view;
pub mod native;
mod sessions;
mod verdict;

pub use convergence::convergence;
pub use history::{About, History, KeyId, Kind, OpId, Operation, Outcome, SiteId, ValueId};
pub use sessions::{Evidence, monotonic_reads, read_your_writes};
pub use verdict::{Anomaly, AnomalyKind, Model, UnknownModel, Verdict};
