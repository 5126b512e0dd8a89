//! What can be simulated: the protocols of the library, and the known bugs in copies of them.

use dkvf_known_bugs::{BUGS, Bug};
use dkvf_protocols::Visitor;

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

/// Hands the protocol `name`, or the broken one of `bug:NAME`, to `visitor`.
///
/// # Errors
/// There is no such protocol or bug.
pub fn visit<V: Visitor>(name: &str, visitor: V) -> anyhow::Result<V::Output> {
    match name.strip_prefix(BUG) {
        Some(bug) => dkvf_known_bugs::visit(bug, visitor).ok_or_else(|| no_such_bug(bug)),
        None => dkvf_protocols::visit(name, visitor).ok_or_else(|| no_such_protocol(name)),
    }
}

fn no_such_bug(name: &str) -> anyhow::Error {
    let names: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
    usage(format!(
        "there is no known bug {name:?}; there are:\n  {}",
        names.join("\n  ")
    ))
}
