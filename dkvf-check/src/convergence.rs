//! Do all replicas answer alike once writing has stopped?

use crate::check::{Evidence, Options};
use crate::history::{History, SiteId};
use crate::key_view::{INITIAL, KeyView, Kind, Problem, Step, check_keys};
use crate::verdict::{AnomalyKind, Verdict};

/// Judges the final reads of a history.
///
/// The final read of a key at a site is the last successful one that was sent
/// after every write of the whole history had returned. All sites must answer
/// alike; the answer must have been written; it must not be the initial version
/// when a write of the key was acknowledged or read; and where the protocol's
/// own version order is known and `evidence` admits it, it must not be older than
/// any such write.
///
/// Unknown when a site of [`History::sites`] did not answer for a key that
/// occurs in the history. Whether delivery had finished before the final reads
/// is for whoever records them to see to. Time is O(n log n) in the operations.
pub(crate) fn check(history: &History, options: &Options) -> Verdict {
    let quiet_us = history
        .operations()
        .iter()
        .enumerate()
        .filter(|(_, op)| op.action.is_write())
        .map(|(id, _)| history.transaction_of(id))
        .map(|transaction| transaction.complete_us.unwrap_or(transaction.invoke_us))
        .max()
        .unwrap_or(0);
    check_keys(history, |view| check_key(view, quiet_us, options.evidence))
}

fn check_key(view: &KeyView, quiet_us: u64, evidence: Evidence) -> Result<(), Problem> {
    let answers = final_reads(view, quiet_us)?;
    let Some(&(_, first)) = answers.first() else {
        return Ok(());
    };
    if answers.iter().any(|(_, read)| read.node != first.node) {
        let because = answers
            .iter()
            .map(|&(site, read)| {
                format!(
                    "{} answers {} (#{})",
                    view.history.site(site),
                    view.text(read.node),
                    read.op
                )
            })
            .collect();
        let reads = answers.iter().map(|(_, read)| read.op).collect();
        return Err(view.anomaly(AnomalyKind::Divergence, reads, because));
    }
    require_no_lost_write(view, first, evidence)
}

/// The final read at every site, in the order of [`History::sites`].
fn final_reads(view: &KeyView, quiet_us: u64) -> Result<Vec<(SiteId, Step)>, Problem> {
    let mut finals: Vec<Option<Step>> = vec![None; view.history.sites().len()];
    for &step in view.steps() {
        let op = view.history.transaction_of(step.op);
        if step.kind == Kind::Read && op.invoke_us >= quiet_us {
            let last = &mut finals[op.site.index()];
            if last
                .is_none_or(|last| view.history.transaction_of(last.op).invoke_us <= op.invoke_us)
            {
                *last = Some(step);
            }
        }
    }
    let missing = finals.iter().position(Option::is_none);
    if let Some(site) = missing {
        return Err(Problem::Undecided(format!(
            "site {:?} did not answer a read of key {} after the last write",
            view.history.sites()[site],
            view.history.key_text(view.key),
        )));
    }
    Ok(finals
        .into_iter()
        .flatten()
        .map(|read| (view.history.transaction_of(read.op).site, read))
        .collect())
}

fn require_no_lost_write(view: &KeyView, read: Step, evidence: Evidence) -> Result<(), Problem> {
    let order = view.version_order(evidence)?;
    let is_newer = |write: &Step| match &order {
        Some(order) => order[write.node as usize] > order[read.node as usize],
        None => read.node == INITIAL,
    };
    let lost = view
        .steps()
        .iter()
        .find(|step| step.kind == Kind::Write && is_newer(step));
    match lost {
        None => Ok(()),
        Some(write) => Err(view.anomaly(
            AnomalyKind::LostWrite,
            vec![write.op, read.op],
            vec![format!(
                "because every site answers {} (#{}), which is older than {} (#{})",
                view.text(read.node),
                read.op,
                view.text(write.node),
                write.op,
            )],
        )),
    }
}
