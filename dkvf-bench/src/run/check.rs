//! The check of a run: what was recorded, and what every replica has at the end.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::{Context as _, bail};
use dkvf_check::{About, History, Model, Options, Verdict, native};
use dkvf_core::Protocol;
use dkvf_workload::{NamedKey, Recorder};

use super::load::Load;
use super::loading::{read_unrecorded, select};
use super::patience::{LOOK_EVERY, Patience, Pauses, wait_until_drained};
use super::{Interrupted, Observer, RunOptions};
use crate::report::CheckReport;

/// Reads everything everywhere until all replicas agree or time is up, then judges the history. Under faults that the
/// protocol does not tolerate it claims nothing, so that there is nothing to wait for or to judge.
pub(super) fn check<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
    not_tolerated: &[&str],
    patience: &Patience,
    notes: &mut Vec<String>,
) -> anyhow::Result<CheckReport> {
    let written = written_keys(load, options)?;
    if not_tolerated.is_empty() {
        load.observer.phase("settling", written.len() as u64);
        settle(load, &written, patience)?;
    }
    let reads = written.len() * load.target.topology().replicas();
    load.observer.phase("final reads", reads as u64);
    let answers = load.read_everywhere(&written, patience, &|read| load.observer.done(read))?;
    let unanswered = answers
        .iter()
        .flatten()
        .filter(|answer| answer.is_err())
        .count();
    let mut recorders = Vec::new();
    for worker in 0..load.drivers.len() {
        recorders.extend(load.with_driver(worker, |local| local.driver.take_recorder())?);
    }
    let start = Instant::now();
    let topology = load.target.topology();
    let sites: Vec<String> = (0..topology.replicas())
        .map(|replica| format!("replica {replica}"))
        .collect();
    let claimed = P::claims().models;
    let about = About {
        workload: options.workload.name.clone(),
        clock: "monotonic".to_owned(),
        claims: claimed.iter().map(|model| (*model).to_owned()).collect(),
        seed: Some(options.seed),
    };
    let history = Arc::new(Recorder::history(&recorders, &load.workload, &sites, about));
    drop(recorders);
    let models = claimed_models::<P>();
    let unchecked: Vec<&str> = claimed
        .iter()
        .filter(|name| !models.iter().any(|model| model.name() == **name))
        .copied()
        .collect();
    if !unchecked.is_empty() {
        notes.push(format!(
            "also claimed, and not checked yet: {}",
            unchecked.join(", ")
        ));
    }
    if !options.faults.faults.is_empty() {
        let tolerated: Vec<&str> = P::claims()
            .tolerates
            .iter()
            .map(|fault| fault.name())
            .collect();
        notes.push(format!("claimed under {}", tolerated.join(", ")));
    }
    if options.workload.mix.scan > 0.0 {
        notes.push("scans are not part of the checked history".to_owned());
    }
    let written_to = options
        .history
        .as_deref()
        .map(|directory| write_history::<P>(&history, directory, &options.servers.storage))
        .transpose()?;
    load.observer.phase("checking", models.len() as u64);
    let mut report = CheckReport {
        unchecked: unchecked.iter().map(|name| (*name).to_owned()).collect(),
        operations: history.operations().len(),
        history: written_to,
        ..CheckReport::unknown(&models, "")
    };
    if !not_tolerated.is_empty() {
        report.not_claimed_under = not_tolerated
            .iter()
            .map(|fault| (*fault).to_owned())
            .collect();
        return Ok(report);
    }
    match judge(&history, &models, load.observer, patience) {
        Ok(verdict) => {
            verdict.name().clone_into(&mut report.verdict);
            if !matches!(verdict, Verdict::Satisfied) {
                report.explanation = verdict.explain(&history).to_string();
            } else if unanswered > 0 {
                "unknown".clone_into(&mut report.verdict);
                report.explanation = format!(
                    "{unanswered} of the final reads, which show whether the replicas agree, were not answered"
                );
            }
        }
        Err(error) if error.is::<Interrupted>() => {
            "interrupted before the check had ended".clone_into(&mut report.explanation)
        }
        Err(error) => return Err(error),
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// The claims of a protocol that there is a checker for.
pub(super) fn claimed_models<P: Protocol>() -> Vec<Model> {
    let claimed = P::claims().models;
    Model::ALL
        .into_iter()
        .filter(|model| claimed.contains(&model.name()))
        .collect()
}

/// The worst verdict of several models, found on a thread of its own, which is left alone after an interrupt.
fn judge(
    history: &Arc<History>,
    models: &[Model],
    observer: &dyn Observer,
    patience: &Patience,
) -> anyhow::Result<Verdict> {
    let (sender, verdicts) = mpsc::channel();
    let (history, models, mut left) = (history.clone(), models.to_vec(), models.len());
    std::thread::Builder::new()
        .name("dkvf-check".to_owned())
        .spawn(move || {
            for model in models {
                // Nobody listens after an interrupt.
                let _ = sender.send(model.check(&history, &Options::default()));
            }
        })?;
    let mut found = Vec::new();
    while left > 0 {
        match verdicts.recv_timeout(LOOK_EVERY) {
            Ok(verdict) => {
                found.push(verdict);
                left -= 1;
                observer.done(found.len() as u64);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => patience.look()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                bail!("the thread of the checker has died")
            }
        }
    }
    Ok(Verdict::worst(found))
}

/// Every record that a recorded operation touched.
fn written_keys<P: Protocol>(
    load: &Load<P>,
    options: &RunOptions,
) -> anyhow::Result<Vec<NamedKey>> {
    let mut indexes = Vec::new();
    for worker in 0..load.drivers.len() {
        indexes.extend(load.with_driver(worker, |local| local.driver.recorded_keys())?);
    }
    indexes.sort_unstable();
    indexes.dedup();
    let naming = options.workload.naming;
    Ok(indexes
        .into_iter()
        .map(|index| NamedKey {
            index,
            bytes: naming.name(index),
        })
        .collect())
}

/// Waits until all replicas answer alike, or no further keys come to do so: what then still differs is a finding.
fn settle<P: Protocol>(
    load: &Load<P>,
    keys: &[NamedKey],
    patience: &Patience,
) -> anyhow::Result<()> {
    wait_until_drained(load.target, patience)?;
    let mut deadline = Instant::now() + patience.patience;
    let mut pauses = Pauses::new();
    let mut differing = keys.to_vec();
    loop {
        let answers = read_unrecorded(load, &differing, patience)?;
        let before = differing.len();
        differing = select(differing, |place| {
            answers
                .iter()
                .any(|replica| replica[place].is_err() || replica[place] != answers[0][place])
        });
        if differing.is_empty() {
            return Ok(());
        }
        load.observer.done((keys.len() - differing.len()) as u64);
        if differing.len() < before {
            deadline = Instant::now() + patience.patience;
        } else if Instant::now() > deadline {
            return Ok(());
        }
        patience.look()?;
        pauses.pause();
    }
}

fn write_history<P: Protocol>(
    history: &History,
    directory: &std::path::Path,
    storage: &str,
) -> anyhow::Result<String> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(format!("{}-{storage}.jsonl", P::NAME));
    let file = std::fs::File::create(&path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    native::write(history, std::io::BufWriter::new(file))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}
