//! What can be simulated: the protocols of the library, and the known bugs in copies of them.

use dkvf_core::Protocol;
use dkvf_known_bugs::{BUGS, Bug};
use dkvf_protocols::Visitor;
use dkvf_sim::Subject;

use crate::{no_such_protocol, usage};

/// What the name of a known bug begins with on the command line.
const BUG: &str = "bug:";

/// The known bug that `name` means, if it is one.
///
/// # Errors
/// There is no such bug.
pub fn bug(name: &str) -> anyhow::Result<Option<&'static Bug>> {
    let Some(bug) = name.strip_prefix(BUG) else {
        return Ok(None);
    };
    match BUGS.iter().find(|known| known.name == bug) {
        Some(bug) => Ok(Some(bug)),
        None => Err(no_such_bug(bug)),
    }
}

/// The protocol `name`, or the broken one of `bug:NAME`.
///
/// # Errors
/// There is no such protocol or bug.
pub fn find(name: &str) -> anyhow::Result<Subject> {
    struct Erase;
    impl Visitor for Erase {
        type Output = Subject;
        fn visit<P: Protocol>(self) -> Subject {
            Subject::of::<P>()
        }
    }
    match name.strip_prefix(BUG) {
        Some(bug) => dkvf_known_bugs::subject(bug).ok_or_else(|| no_such_bug(bug)),
        None => dkvf_protocols::visit(name, Erase).ok_or_else(|| no_such_protocol(name)),
    }
}

fn no_such_bug(name: &str) -> anyhow::Error {
    let names: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
    usage(format!(
        "there is no known bug {name:?}; there are:\n  {}",
        names.join("\n  ")
    ))
}
