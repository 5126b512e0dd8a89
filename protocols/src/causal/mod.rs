//! What the causal protocols share: the order of versions, the hybrid logical clock, the stabiliser, and the
//! coordinator's part of read-only transactions (docs/protocols/README.md).

mod hlc;
mod read_only;
mod stabiliser;

use dkvf_core::{Code, Context, Server, ServerId, Step, VersionKey};

pub use hlc::{Hlc, refuse_hostile};
pub use read_only::{KEYS_MAX, ReadOnly, in_order};
pub use stabiliser::{CutOff, Stabiliser, covers, intervals};

/// The order of versions: last writer wins, by stamp, ties by origin (0.5). Equal identities are one version.
pub(crate) fn last_writer_wins(ts: u64, origin: u32) -> VersionKey {
    VersionKey::stamped(ts, u64::from(origin))
}

/// The replica that `server` belongs to.
pub(crate) fn replica_of<S: Server>(cx: &Context<S>, server: ServerId) -> usize {
    usize::from(cx.topology().member(server).replica)
}

/// Refuses a list from outside that is longer than `max`.
///
/// # Errors
/// [`Code::Malformed`].
pub fn refuse_longer<S: Server, T>(cx: &mut Context<S>, list: &[T], max: usize) -> Step {
    if list.len() > max { cx.refuse(Code::Malformed) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_a_total_order_by_stamp_and_then_origin() {
        let ordered = [(0, 0), (0, 1), (1, 0), (1, 65_535), (2, 0), (u64::MAX, 1)];
        for (i, (ts, origin)) in ordered.iter().enumerate() {
            for (j, (other_ts, other_origin)) in ordered.iter().enumerate() {
                assert_eq!(last_writer_wins(*ts, *origin).cmp(&last_writer_wins(*other_ts, *other_origin)), i.cmp(&j));
            }
        }
    }
}
