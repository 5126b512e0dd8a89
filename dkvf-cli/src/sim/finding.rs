//! A violated run: the smallest one that shows it, in words and pictures.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;

use dkvf_check::picture::{Diagram, to_html};
use dkvf_check::{Anomaly, History, minimise};
use dkvf_sim::conformance::DefectKind;
use dkvf_sim::render::{self, View};
use dkvf_sim::shrink::{Limits, Shrunk, Size, shrink, with_drawn_faults};
use dkvf_sim::{Faults, Options, Outcome, Subject};

use super::files;
use super::judge::{self, Judgement, Judging};
use crate::usage;

/// Events that the search for a smaller run may process, in all its runs: seconds of work.
const SHRINK_EVENTS_MAX: u64 = 30_000_000;

/// A violated run, made as small as it gets.
pub struct Finding {
    /// The smallest run.
    pub options: Options,
    /// What came of it.
    pub outcome: Outcome,
    /// What is wrong with it.
    pub defect: DefectKind,
    /// The first anomaly and the history it is in, if a model is violated.
    pub counterexample: Option<Counterexample>,
    /// What is wrong, in words.
    pub explanation: String,
    /// What the search did; `None` if there was none.
    pub search: Option<Search>,
}

/// A few operations that a model forbids.
pub struct Counterexample {
    history: History,
    /// What is wrong.
    pub anomaly: Anomaly,
}

/// How a run was made smaller.
pub struct Search {
    /// Runs that were made.
    pub runs: u64,
    before: Size,
    after: Size,
    is_minimal: bool,
}

impl std::fmt::Display for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Search {
            runs,
            before,
            after,
            is_minimal,
        } = self;
        let rest = if *is_minimal {
            ""
        } else {
            "; the search was ended before nothing more could go"
        };
        write!(f, "shrunk: {before} -> {after}, in {runs} runs{rest}")
    }
}

/// Makes the violated run `options` small, unless `shrinks` is false. `progress` is told of the smallest run so far, and
/// says whether to go on.
///
/// # Errors
/// The run cannot be simulated.
pub fn find(
    subject: Subject,
    options: &Options,
    defect: DefectKind,
    judging: Judging,
    shrinks: bool,
    progress: impl FnMut(&Options, u64) -> ControlFlow<()>,
) -> anyhow::Result<Finding> {
    let (mut options, mut search) = (options.clone(), None);
    if shrinks {
        let fixed = with_drawn_faults(&options, &subject.run(&options)?);
        let shrunk = smallest(subject, &fixed, defect, judging, progress)?;
        if let Some(Shrunk {
            options: smallest,
            runs,
            is_minimal,
        }) = shrunk
        {
            search = Some(Search {
                runs,
                before: Size::of(&fixed),
                after: Size::of(&smallest),
                is_minimal,
            });
            options = smallest;
        }
    }
    options.trace = true;
    let outcome = subject.run(&options)?;
    let counterexample = match defect {
        DefectKind::Model(model) => judge::first_anomaly(subject, &outcome, model).map(|anomaly| {
            let minimal = minimise(
                &outcome.history,
                model,
                &judge::check_options(subject),
                &anomaly,
            );
            match minimal {
                Some(minimal) => Counterexample {
                    history: minimal.history,
                    anomaly: minimal.anomaly,
                },
                None => Counterexample {
                    history: outcome.history.clone(),
                    anomaly,
                },
            }
        }),
        DefectKind::Failure | DefectKind::Service => None,
    };
    let explanation = match &counterexample {
        Some(Counterexample { history, anomaly }) => anomaly.explain(history).to_string(),
        None => Judgement::of(subject, &outcome, judging).text,
    };
    Ok(Finding {
        options,
        outcome,
        defect,
        counterexample,
        explanation,
        search,
    })
}

/// `None` if the run does not fail like that once its faults are written down.
fn smallest(
    subject: Subject,
    options: &Options,
    defect: DefectKind,
    judging: Judging,
    mut progress: impl FnMut(&Options, u64) -> ControlFlow<()>,
) -> anyhow::Result<Option<Shrunk>> {
    let events = Cell::new(0);
    let failure = |options: &Options| {
        let outcome = subject.run(options)?;
        events.set(events.get() + outcome.events);
        let judgement = Judgement::of(subject, &outcome, judging);
        Ok(judgement.defect.filter(|_| judgement.is_violated()))
    };
    if failure(options)? != Some(defect) {
        return Ok(None);
    }
    let progress = |best: &Options, runs| {
        if events.get() > SHRINK_EVENTS_MAX {
            ControlFlow::Break(())
        } else {
            progress(best, runs)
        }
    };
    let limits = match judging {
        // Such a seed draws the workload, too: another seed is another workload, which no option names.
        Judging::Conformance => Limits {
            seeds: 1,
            ..Limits::default()
        },
        Judging::Claims | Judging::Unchecked => Limits::default(),
    };
    shrink(options, &defect, limits, failure, progress).map(Some)
}

impl Finding {
    /// Faults of the smallest run.
    pub fn faults(&self) -> usize {
        match &self.options.faults {
            Faults::Schedule(schedule) => schedule.faults.len(),
            Faults::None | Faults::Random(_) => self.outcome.schedule.faults.len(),
        }
    }

    /// Writes the counterexample in the form that the file's name asks for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_explanation(&self, file: &Path, title: &str) -> anyhow::Result<()> {
        let diagram = match &self.counterexample {
            Some(Counterexample { history, anomaly }) => Diagram::of_anomaly(history, anomaly),
            None => self.trace(title),
        };
        write_picture(file, title, &diagram, || self.explanation.clone() + "\n")
    }

    /// The picture of the run, around what is wrong.
    pub fn trace(&self, title: &str) -> Diagram {
        let view = match &self.counterexample {
            Some(Counterexample { history, anomaly }) => View::of_anomaly(title, history, anomaly),
            None => View {
                title: title.to_owned(),
                verdict: self.explanation.clone(),
                ..View::default()
            },
        };
        render::diagram(&self.outcome.trace, &view)
    }
}

/// Writes a trace as JSON Lines, or a picture of it.
///
/// # Errors
/// The file cannot be written.
pub fn write_trace(
    file: &Path,
    title: &str,
    outcome: &Outcome,
    diagram: impl FnOnce() -> Diagram,
) -> anyhow::Result<()> {
    if extension(file) == Some("jsonl") {
        let mut text = String::new();
        for event in &outcome.trace {
            text += &serde_json::to_string(event)?;
            text.push('\n');
        }
        return files::write(file, &text);
    }
    let diagram = diagram();
    write_picture(file, title, &diagram, || diagram.to_text())
}

fn write_picture(
    file: &Path,
    title: &str,
    diagram: &Diagram,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let content = match extension(file) {
        Some("svg") => diagram.to_svg(),
        Some("html") => to_html(title, std::slice::from_ref(diagram)),
        _ => text(),
    };
    files::write(file, &content)
}

fn extension(file: &Path) -> Option<&str> {
    file.extension()?.to_str()
}

/// Checks before a run that a file can be written in a form its name asks for.
///
/// # Errors
/// It cannot.
pub fn prepare(option: &str, file: Option<&Path>, forms: &[&str]) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    if !extension(file).is_some_and(|extension| forms.contains(&extension)) {
        let names: Vec<String> = forms.iter().map(|form| format!(".{form}")).collect();
        return Err(usage(format!(
            "{option} {}: the name ends with {}",
            file.display(),
            names.join(", ")
        )));
    }
    files::prepare(option, file)
}
