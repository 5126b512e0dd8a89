//! The load phase, and reads that only wait for something.

use std::time::Instant;

use anyhow::bail;
use dkvf_core::{Outcome, Protocol};
use dkvf_workload::{NamedKey, Tag};

use super::RunOptions;
use super::load::Load;
use super::patience::{Look, Patience, Pauses, wait_until_drained, watch};

/// The load phase, until every replica has what was loaded.
pub(super) fn load_records<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
) -> anyhow::Result<()> {
    load.observer
        .phase("loading", options.workload.insert_count);
    let patience = Patience {
        interrupts: 0,
        ..Patience::from_now(options, load.observer)
    };
    let finished =
        load.start_phase(|driver, sessions, finished| driver.load(&sessions, finished))?;
    watch(load, &finished, || {
        Ok(Look::usual(load.progress.operations()))
    })?;
    patience.look()?;
    if load.progress.is_stopped() {
        let mut reasons = Vec::new();
        for worker in 0..load.drivers.len() {
            reasons.push(load.with_driver(worker, |local| {
                (
                    local.driver.take_report().last_failure,
                    local.pool.last_error(),
                )
            })?);
        }
        let failure = reasons
            .iter()
            .find_map(|(failure, _)| failure.as_deref())
            .unwrap_or("no reason given");
        let connection = reasons
            .iter()
            .find_map(|(_, error)| error.as_deref())
            .map(|error| format!(" ({error})"));
        bail!(
            "the load phase failed: {failure}{}",
            connection.unwrap_or_default()
        );
    }
    wait_until_drained(load.target, &patience)?;
    wait_until_visible(load, options, &patience)
}

/// Waits until all replicas show the records loaded last: replication is FIFO, so then they show the others too.
fn wait_until_visible<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
    patience: &Patience,
) -> anyhow::Result<()> {
    let spec = &options.workload;
    let last = (spec.insert_start..spec.insert_start + spec.insert_count).rev();
    let last = last.take(1000.max(2 * options.clients as usize));
    let mut missing: Vec<NamedKey> = last
        .map(|index| NamedKey {
            index,
            bytes: spec.naming.name(index),
        })
        .collect();
    let all = missing.len();
    load.observer.phase("replicating", all as u64);
    let mut deadline = Instant::now() + patience.patience;
    let mut pauses = Pauses::new();
    while !missing.is_empty() {
        let answers = read_unrecorded(load, &missing, patience)?;
        let before = missing.len();
        missing = select(missing, |place| {
            answers
                .iter()
                .any(|replica| !matches!(replica[place], Ok(Some(_))))
        });
        if missing.is_empty() {
            break;
        }
        load.observer.done((all - missing.len()) as u64);
        if missing.len() < before {
            deadline = Instant::now() + patience.patience;
        } else if Instant::now() > deadline {
            bail!(
                "{} of the loaded records are not visible at every replica, and no more become visible within {:?}",
                missing.len(),
                patience.patience
            );
        }
        patience.look()?;
        pauses.pause();
    }
    Ok(())
}

/// The keys whose places satisfy the predicate.
pub(super) fn select(keys: Vec<NamedKey>, is_wanted: impl Fn(usize) -> bool) -> Vec<NamedKey> {
    keys.into_iter()
        .enumerate()
        .filter(|(place, _)| is_wanted(*place))
        .map(|(_, key)| key)
        .collect()
}

/// Reads that are not part of the history.
pub(super) fn read_unrecorded<P: Protocol>(
    load: &Load<P>,
    keys: &[NamedKey],
    patience: &Patience,
) -> anyhow::Result<Vec<Vec<Outcome<Option<Tag>>>>> {
    for worker in 0..load.drivers.len() {
        load.with_driver(worker, |local| local.driver.pause_recording(true))?;
    }
    let answers = load.read_everywhere(keys, patience, &|_| {});
    for worker in 0..load.drivers.len() {
        load.with_driver(worker, |local| local.driver.pause_recording(false))?;
    }
    answers
}
