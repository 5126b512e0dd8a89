//! Published mistakes, made on purpose: each `patches/<name>.patch` is applied to a copy of the protocol it names
//! when this crate is built, and the test suite must catch the result. A patch that no longer applies fails the build.
//!
//! A patch file begins with the story of the bug, for people, and a few fields:
//!
//! ```text
//! A dependency is checked at the server of the dependent key, which never answers.
//!
//! Published: DKVF, COPSServer.java 222-239
//! Faults: none
//! Seed: 1
//! Caught: convergence
//! --- a/cops/server.rs
//! +++ b/cops/server.rs
//! @@ …
//! ```
//!
//! `Faults` and `Seed` are a run of the conformance suite that catches it, `Caught` is what it then says: a model, or
//! `failure`. A bug that random runs find rarely has `Faults: schedule <name>` instead: a directed schedule of
//! `protocols/tests/schedules`. To make a new one: change a protocol, `git diff --relative=protocols/src > patches/<name>.patch`, undo the change,
//! and put the fields above it.

use dkvf_core::Protocol;
use dkvf_sim::Subject;

/// A mistake that somebody made, or could.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// The name of its patch.
    pub name: &'static str,
    /// The protocol it is made in.
    pub protocol: &'static str,
    /// What is wrong, for people.
    pub story: &'static str,
    /// Where it was found.
    pub published: &'static str,
    /// The faults of the run that catches it (`dkvf sim --faults`), or `schedule <name>`.
    pub faults: &'static str,
    /// The seed of that run.
    pub seed: u64,
    /// What that run finds: the violated model, or `failure`.
    pub caught: &'static str,
}

impl Bug {
    /// The directed schedule that catches it, if no run does.
    pub fn schedule(&self) -> Option<&'static str> {
        self.faults.strip_prefix("schedule ")
    }
}

include!(concat!(env!("OUT_DIR"), "/bugs.rs"));

/// The broken protocol of the bug called `name`, for simulations; `None` if there is no such bug. The simulations of all bugs
/// are compiled here, once, and not wherever they are wanted.
pub fn subject(name: &str) -> Option<Subject> {
    struct Erase;
    impl dkvf_protocols::Visitor for Erase {
        type Output = Subject;
        fn visit<P: Protocol>(self) -> Subject {
            Subject::of::<P>()
        }
    }
    visit(name, Erase)
}
