//! Judging within limits, with progress.

use std::cell::Cell;
use std::time::{Duration, Instant};

use dkvf_check::{
    Anomaly, Budget, DataType, Evidence, Groups, History, IsOver, Ladder, Minimal, Model, Options,
    Order, Verdict, minimise,
};
use indicatif::ProgressBar;

use super::Asked;
use crate::output::{self, Shape};
use crate::signals::Interrupt;
use crate::{Ending, usage};

/// What the models are asked.
pub struct Question {
    /// Whether the order that the protocol reported counts.
    pub evidence: Evidence,
    /// The order beside the data, if not each model's usual one.
    pub order: Option<Order>,
    /// What keys hold, if not the simplest that fits.
    pub datatype: Option<DataType>,
    /// What keys hold in the beginning.
    pub initial: Option<Vec<u8>>,
    /// Keys that belong together.
    pub groups: Option<Groups>,
}

/// What a judgement may take.
pub struct Limits {
    time: Option<Duration>,
    memory_bytes: usize,
}

impl Limits {
    /// From the arguments, which users give.
    ///
    /// # Errors
    /// There is no such time.
    pub fn new(seconds: Option<f64>, memory_mib: usize) -> anyhow::Result<Self> {
        let time = seconds.map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|error| usage(format!("--time-limit {seconds}: {error}")))
        });
        Ok(Limits {
            time: time.transpose()?,
            memory_bytes: memory_mib.saturating_mul(1 << 20),
        })
    }
}

/// How a model fared.
pub enum Outcome {
    /// It was judged.
    Judged(Verdict),
    /// It includes this model, which is violated.
    FallsWith(Model),
}

/// A model and how it fared.
pub struct Judged {
    /// The model.
    pub model: Model,
    /// The order beside the data that was included.
    pub order: Order,
    /// How it fared.
    pub outcome: Outcome,
    /// The smallest part of the history that violates it, if one was found.
    pub minimal: Option<Minimal>,
}

impl Judged {
    /// What refutes it, and the history that this was found in: the part that suffices, if that is smaller than what the
    /// anomaly names.
    pub fn counterexample<'a>(&'a self, whole: &'a History) -> Option<(&'a History, &'a Anomaly)> {
        let Outcome::Judged(Verdict::Violated(anomalies)) = &self.outcome else {
            return None;
        };
        let anomaly = anomalies.first()?;
        match &self.minimal {
            Some(part) if part.operations.len() < anomaly.operations.len() => {
                Some((&part.history, &part.anomaly))
            }
            _ => Some((whole, anomaly)),
        }
    }

    /// `satisfied`, `violated` or `unknown`.
    pub fn name(&self) -> &'static str {
        match &self.outcome {
            Outcome::Judged(verdict) => verdict.name(),
            Outcome::FallsWith(_) => "violated",
        }
    }
}

/// How all models fared.
pub struct Judgement {
    /// By model, in the order in which they were judged.
    pub results: Vec<Judged>,
    /// The verdicts that were not inferred from others.
    pub ladder: Ladder,
    /// Whether all models were asked for.
    pub all: bool,
    /// How long it took.
    pub took: Duration,
}

impl Judgement {
    /// The exit status.
    pub fn ending(&self) -> Ending {
        let any = |name| self.results.iter().any(|result| result.name() == name);
        match (any("violated"), any("unknown")) {
            (true, _) => Ending::Violated,
            (false, true) => Ending::Unknown,
            (false, false) => Ending::Done,
        }
    }
}

/// Judges `history` by all models that are asked for.
///
/// # Errors
/// The system gives no thread to listen for Ctrl-C.
pub fn judge(
    history: &History,
    asked: &Asked,
    question: &Question,
    limits: &Limits,
) -> anyhow::Result<Judgement> {
    let clock = Clock::new(limits)?;
    let options = Options {
        evidence: question.evidence,
        order: question.order,
        datatype: question.datatype,
        initial: question.initial.clone(),
        groups: question.groups.as_ref(),
        budget: Budget::new(Some(&clock), limits.memory_bytes),
    };
    let mut ladder = Ladder::default();
    let mut results = Vec::with_capacity(asked.models.len());
    for &model in &asked.models {
        let fallen = ladder.refuted_by(model).filter(|_| asked.all);
        let (outcome, minimal) = match fallen {
            Some(weaker) => (Outcome::FallsWith(weaker), None),
            None => {
                clock.begin(model);
                let verdict = clock.verdict(|| model.check(history, &options));
                let minimal = shrink(history, model, &options, &verdict);
                ladder.add(model, verdict.clone());
                (Outcome::Judged(verdict), minimal)
            }
        };
        results.push(Judged {
            model,
            order: included(model, options.order),
            outcome,
            minimal,
        });
    }
    clock.bar.finish_and_clear();
    Ok(Judgement {
        results,
        ladder,
        all: asked.all,
        took: clock.start.elapsed(),
    })
}

/// The order that a check includes: some models are defined with theirs and have no other.
fn included(model: Model, asked: Option<Order>) -> Order {
    let usual = model.usual_order();
    match model {
        Model::Convergence | Model::StrictSerializable | Model::Linearizable => usual,
        _ => asked.unwrap_or(usual),
    }
}

fn shrink(
    history: &History,
    model: Model,
    options: &Options,
    verdict: &Verdict,
) -> Option<Minimal> {
    let Verdict::Violated(anomalies) = verdict else {
        return None;
    };
    minimise(history, model, options, anomalies.first()?)
}

/// Says when time is up, and shows on the way what is being done.
struct Clock {
    start: Instant,
    limit: Option<Duration>,
    interrupt: Interrupt,
    bar: ProgressBar,
    model: Cell<Model>,
    shown: Cell<u64>,
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Clock {
    fn new(limits: &Limits) -> anyhow::Result<Self> {
        Ok(Clock {
            start: Instant::now(),
            limit: limits.time,
            // The first Ctrl-C ends the check and prints what is known, the second one ends everything.
            interrupt: Interrupt::listen(2)?,
            bar: output::progress_bar().with_style(Shape::Wait.style()),
            model: Cell::new(Model::Convergence),
            shown: Cell::new(0),
        })
    }

    fn begin(&self, model: Model) {
        self.model.set(model);
        self.show();
    }

    /// Shows which check has taken how long, once that is a second and then every second.
    fn show(&self) {
        let seconds = self.start.elapsed().as_secs();
        if self.shown.replace(seconds) != seconds {
            self.bar
                .set_message(format!("{}, {seconds} s", self.model.get()));
            self.bar.tick();
        }
    }

    /// The verdict of `check`, which says in its own words if it was cut short.
    fn verdict(&self, check: impl FnOnce() -> Verdict) -> Verdict {
        let verdict = if self.is_over() {
            Verdict::Unknown("the time limit was reached".to_owned())
        } else {
            check()
        };
        match verdict {
            Verdict::Unknown(_) if self.interrupt.count() > 0 => {
                Verdict::Unknown("interrupted".to_owned())
            }
            verdict => verdict,
        }
    }
}

impl IsOver for Clock {
    fn is_over(&self) -> bool {
        self.show();
        let spent = self.start.elapsed();
        self.interrupt.count() > 0 || self.limit.is_some_and(|limit| spent >= limit)
    }
}
