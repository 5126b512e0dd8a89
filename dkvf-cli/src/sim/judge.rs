//! What is right or wrong with a run.

use dkvf_check::{Anomaly, Model, Options, Order, Verdict};
use dkvf_sim::conformance::DefectKind;
use dkvf_sim::{Outcome, Subject};

/// How runs are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judging {
    /// Only what failed by itself is wrong.
    Unchecked,
    /// And what violates a claim, whatever the faults were.
    Claims,
    /// As the conformance suite: claims under the faults they cover, and service afterwards.
    Conformance,
}

/// The judgement on a run.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// `satisfied`, `violated`, `unknown` or `unchecked`.
    pub verdict: &'static str,
    /// What is wrong, if it is violated; what cannot be told, if it is unknown.
    pub defect: Option<DefectKind>,
    /// The same in words.
    pub text: String,
}

impl Judgement {
    /// Judges a run of `subject`.
    pub fn of(subject: Subject, outcome: &Outcome, judging: Judging) -> Self {
        if let Some(failure) = &outcome.failure {
            return Judgement::violated(DefectKind::Failure, failure.to_string());
        }
        match judging {
            Judging::Unchecked => Judgement::sound("unchecked"),
            Judging::Claims => claims(subject, outcome),
            Judging::Conformance => match subject.judge(outcome) {
                Ok(()) => Judgement::sound("satisfied"),
                Err(defect) => match defect.kind {
                    DefectKind::Model(model) => of_model(subject, outcome, model),
                    kind => Judgement::violated(kind, defect.text),
                },
            },
        }
    }

    fn sound(verdict: &'static str) -> Self {
        Judgement {
            verdict,
            defect: None,
            text: String::new(),
        }
    }

    fn violated(kind: DefectKind, text: String) -> Self {
        Judgement {
            verdict: "violated",
            defect: Some(kind),
            text,
        }
    }

    /// Whether something is wrong.
    pub fn is_violated(&self) -> bool {
        self.verdict == "violated"
    }
}

/// The worst judgement on all claimed models; of several violated ones the first.
fn claims(subject: Subject, outcome: &Outcome) -> Judgement {
    let mut worst = Judgement::sound("satisfied");
    for model in claimed_models(subject) {
        let judgement = of_model(subject, outcome, model);
        match judgement.verdict {
            "violated" => return judgement,
            "unknown" => worst = judgement,
            _ => {}
        }
    }
    worst
}

/// The models that a protocol claims, in its order.
fn claimed_models(subject: Subject) -> Vec<Model> {
    let names = subject.claims().models.iter();
    names
        .map(|name| {
            name.parse()
                .expect("invariant: a protocol claims models that exist")
        })
        .collect()
}

fn of_model(subject: Subject, outcome: &Outcome, model: Model) -> Judgement {
    let verdict = check(subject, outcome, model);
    Judgement {
        verdict: verdict.name(),
        defect: (verdict != Verdict::Satisfied).then_some(DefectKind::Model(model)),
        text: match &verdict {
            Verdict::Satisfied => String::new(),
            other => other.explain(&outcome.history).to_string(),
        },
    }
}

fn check(subject: Subject, outcome: &Outcome, model: Model) -> Verdict {
    model.check(&outcome.history, &check_options(subject))
}

/// How the claims of a protocol are to be checked.
pub fn check_options(subject: Subject) -> Options<'static> {
    let order = match subject.claims().order {
        dkvf_core::Order::None => Order::None,
        dkvf_core::Order::Session => Order::Session,
        dkvf_core::Order::RealTime => Order::RealTime,
    };
    Options {
        order: Some(order),
        ..Options::default()
    }
}

/// The first anomaly that refutes `model`.
pub fn first_anomaly(subject: Subject, outcome: &Outcome, model: Model) -> Option<Anomaly> {
    match check(subject, outcome, model) {
        Verdict::Violated(anomalies) => anomalies.into_iter().next(),
        Verdict::Satisfied | Verdict::Unknown(_) => None,
    }
}
