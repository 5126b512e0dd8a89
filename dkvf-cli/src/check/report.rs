//! What is printed, and what scripts get.

use std::fmt::Write as _;

use dkvf_check::picture::Diagram;
use dkvf_check::{Anomaly, History, Verdict};
use serde::Serialize;

use super::judge::{Judged, Judgement, Outcome};
use crate::output::{table, thousands};

/// A reader needs few counterexamples.
const EXPLAINED_MAX: usize = 3;

/// A table of verdicts, then the counterexamples.
pub fn text(history: &History, judgement: &Judgement) -> String {
    let mut verdicts = table(&["model", "order", "verdict", ""]);
    for column in verdicts.column_iter_mut() {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for result in &judgement.results {
        let order = result.order.to_string();
        verdicts.add_row([
            result.model.to_string(),
            order,
            result.name().to_owned(),
            remark(history, result),
        ]);
    }
    let mut text = format!("{verdicts}\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}", size(history, judgement));
    if judgement.all {
        text += &ladder(judgement);
    }
    for (result, diagram) in diagrams(history, judgement).take(EXPLAINED_MAX) {
        let _ = write!(text, "\n{}", diagram.to_text());
        if let Some(part) = part_of(history, result) {
            let _ = writeln!(text, "{part}");
        }
    }
    text
}

/// A picture of the counterexample to every model that has one; those that fall together have one.
pub fn diagrams<'a>(
    history: &'a History,
    judgement: &'a Judgement,
) -> impl Iterator<Item = (&'a Judged, Diagram)> {
    judgement.results.iter().filter_map(move |result| {
        let (found_in, anomaly) = result.counterexample(history)?;
        let mut diagram = Diagram::of_anomaly(found_in, anomaly);
        let ladder = &judgement.ladder;
        let found = (found_in, anomaly);
        diagram.verdict = ladder.summary(result.model, result.order, found, history);
        Some((result, diagram))
    })
}

/// Where the numbers of a counterexample are not those of the whole history.
fn part_of(history: &History, result: &Judged) -> Option<String> {
    let (found_in, _) = result.counterexample(history)?;
    (!std::ptr::eq(found_in, history)).then(|| {
        format!(
            "Numbers are those of the part of the history that suffices: {} of {} operations.",
            found_in.operations().len(),
            history.operations().len()
        )
    })
}

fn remark(history: &History, result: &Judged) -> String {
    match &result.outcome {
        Outcome::FallsWith(weaker) => format!("falls with {weaker}"),
        Outcome::Judged(Verdict::Satisfied) => String::new(),
        Outcome::Judged(Verdict::Unknown(reason)) => reason.clone(),
        Outcome::Judged(Verdict::Violated(_)) => {
            let counterexample = result.counterexample(history);
            counterexample.map_or(String::new(), |(_, anomaly)| {
                format!("{} on key {}", anomaly.kind.name(), anomaly.key)
            })
        }
    }
}

fn size(history: &History, judgement: &Judgement) -> String {
    let operations = thousands(history.operations().len() as u64);
    let seconds = judgement.took.as_secs_f64();
    if history.is_single() {
        return format!("{operations} operations, {seconds:.2} s");
    }
    let transactions = thousands(history.transactions().len() as u64);
    format!("{operations} operations in {transactions} transactions, {seconds:.2} s")
}

/// What holds and what does not, in two lines.
fn ladder(judgement: &Judgement) -> String {
    let names = |models: Vec<dkvf_check::Model>| {
        let names: Vec<&str> = models.into_iter().map(dkvf_check::Model::name).collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    format!(
        "strongest that hold: {}\nweakest refuted: {}\n",
        names(judgement.ladder.strongest_held()),
        names(judgement.ladder.weakest_refuted())
    )
}

/// The verdicts as scripts get them.
#[derive(Serialize)]
pub struct Json<'a> {
    file: &'a str,
    results: Vec<JsonResult<'a>>,
    operations: usize,
    transactions: usize,
    seconds: f64,
}

#[derive(Serialize)]
struct JsonResult<'a> {
    model: &'static str,
    order: &'static str,
    verdict: &'static str,
    /// What is wrong; numbers are those of the history.
    anomalies: &'a [Anomaly],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    falls_with: Option<&'static str>,
    /// The smallest part of the history that violates the model: its operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    minimal: Option<&'a [usize]>,
}

/// The verdicts for scripts.
pub fn json<'a>(file: &'a str, history: &History, judgement: &'a Judgement) -> Json<'a> {
    Json {
        file,
        results: judgement.results.iter().map(json_result).collect(),
        operations: history.operations().len(),
        transactions: history.transactions().len(),
        seconds: judgement.took.as_secs_f64(),
    }
}

fn json_result(result: &Judged) -> JsonResult<'_> {
    let (anomalies, reason, falls_with): (&[Anomaly], _, _) = match &result.outcome {
        Outcome::Judged(Verdict::Satisfied) => (&[], None, None),
        Outcome::Judged(Verdict::Violated(anomalies)) => (anomalies, None, None),
        Outcome::Judged(Verdict::Unknown(reason)) => (&[], Some(reason.as_str()), None),
        Outcome::FallsWith(weaker) => (&[], None, Some(weaker.name())),
    };
    JsonResult {
        model: result.model.name(),
        order: result.order.name(),
        verdict: result.name(),
        anomalies,
        reason,
        falls_with,
        minimal: result
            .minimal
            .as_ref()
            .map(|part| part.operations.as_slice()),
    }
}
