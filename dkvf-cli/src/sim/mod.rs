//! `dkvf sim`: protocols in virtual time, with faults, and what is wrong with what they did.

mod arguments;
mod command;
mod files;
mod finding;
mod judge;
mod plan;
mod report;
mod seeds;
mod words;

use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::{Duration, Instant};

use dkvf_check::native;
use dkvf_sim::conformance::DefectKind;
use dkvf_sim::render::{self, View};
use dkvf_sim::shrink::Size;
use dkvf_sim::{Options, Outcome, Subject};

use self::finding::{Finding, find, write_trace};
use self::judge::{Judgement, Judging};
use self::plan::Plan;
use self::report::{Report, RunReport, Violation};
use self::seeds::Seeds;
use crate::output::{self, Shape};
use crate::signals::Interrupt;
use crate::{Ending, subject, usage};

pub use self::arguments::Arguments;

/// Runs the command.
///
/// # Errors
/// Wrong arguments, or results that cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    if let Some(bug) = subject::bug(&arguments.protocol)? {
        eprintln!("{}: {} ({})", arguments.protocol, bug.story, bug.published);
    }
    let seeds = arguments.runs.seeds()?;
    let subject = subject::find(&arguments.protocol)?;
    let plan = Plan::new(subject, arguments)?;
    prepare(arguments)?;
    let interrupt = Interrupt::listen(2)?;
    Command {
        arguments,
        subject,
        plan: &plan,
        seeds,
        interrupt: &interrupt,
    }
    .run()
}

/// Whatever is wrong with the files is said before the first run and not after the last.
fn prepare(arguments: &Arguments) -> anyhow::Result<()> {
    let output = &arguments.output;
    finding::prepare(
        "--explain",
        output.explain.as_deref(),
        &["svg", "html", "txt"],
    )?;
    finding::prepare(
        "--trace",
        output.trace.as_deref(),
        &["jsonl", "svg", "html"],
    )?;
    if let Some(file) = &output.history {
        files::prepare("--history", file)?;
    }
    if let Some(file) = output.json.as_deref().filter(|file| *file != "-") {
        files::prepare("--json", Path::new(file))?;
    }
    if output.explain.is_some() && !arguments.checks() {
        return Err(usage(
            "--explain: only a checked run can be explained; add --check",
        ));
    }
    Ok(())
}

struct Command<'a> {
    arguments: &'a Arguments,
    subject: Subject,
    plan: &'a Plan,
    seeds: Range<u64>,
    interrupt: &'a Interrupt,
}

/// A run that has ended, of which only figures are kept.
struct Ended {
    report: RunReport,
    judgement: Judgement,
    took: Duration,
}

impl Command<'_> {
    fn run(&self) -> anyhow::Result<Ending> {
        // What cannot be simulated fails here, with one message.
        self.plan.options(self.seeds.start)?;
        let ended = self.run_seeds()?;
        let bad = ended.iter().find(|ended| ended.judgement.is_violated());
        let finding = match bad.and_then(|bad| Some((bad.report.seed, bad.judgement.defect?))) {
            Some((seed, defect)) => Some((seed, self.find(seed, defect)?)),
            None => None,
        };
        self.write_files(finding.as_ref().map(|(_, finding)| finding))?;
        self.print(&ended, finding.as_ref())?;
        let violated = ended.iter().any(|ended| ended.judgement.is_violated());
        let unknown = ended.iter().any(|ended| ended.report.verdict == "unknown");
        // After a violation the seeds beyond it are left out on purpose.
        let is_complete = violated || ended.len() as u64 == self.seeds.end - self.seeds.start;
        if !is_complete {
            eprintln!(
                "dkvf: interrupted: {} of {} runs made",
                ended.len(),
                self.seeds.end - self.seeds.start
            );
        }
        Ok(match (violated, unknown || !is_complete) {
            (true, _) => Ending::Violated,
            (false, true) => Ending::Unknown,
            (false, false) => Ending::Done,
        })
    }

    fn judging(&self) -> Judging {
        match (self.arguments.runs.conformance, self.arguments.runs.check) {
            (true, _) => Judging::Conformance,
            (false, true) => Judging::Claims,
            (false, false) => Judging::Unchecked,
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.count() > 0
    }

    fn run_seeds(&self) -> anyhow::Result<Vec<Ended>> {
        let bar = output::progress_bar();
        bar.set_style(Shape::Speed.style());
        bar.set_length(self.seeds.end - self.seeds.start);
        bar.set_message(format!("{}: simulating", self.arguments.protocol));
        let seeds = Seeds {
            range: self.seeds.clone(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            keep_going: self.arguments.runs.keep_going,
            is_interrupted: &|| self.is_interrupted(),
        };
        let is_bad = |ended: &Ended| ended.judgement.is_violated();
        let ended = seeds.run(|seed| self.run_one(seed), is_bad, |_| bar.inc(1));
        bar.finish_and_clear();
        ended
    }

    fn run_one(&self, seed: u64) -> anyhow::Result<Ended> {
        let options = self.plan.options(seed)?;
        let start = Instant::now();
        let outcome = self.subject.run(&options).map_err(usage)?;
        let took = start.elapsed();
        let judgement = Judgement::of(self.subject, &outcome, self.judging());
        let reproduce = command::command(self.arguments, self.plan, &options);
        Ok(Ended {
            report: RunReport::new(&outcome, &judgement, reproduce),
            judgement,
            took,
        })
    }

    fn find(&self, seed: u64, defect: DefectKind) -> anyhow::Result<Finding> {
        let bar = output::progress_bar();
        bar.set_style(Shape::Wait.style());
        let last = Cell::new(0);
        let progress = |best: &Options, runs: u64| {
            if runs >= last.get() + 10 {
                last.set(runs);
                bar.set_message(format!("shrinking: {}, after {runs} runs", Size::of(best)));
            }
            if self.is_interrupted() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let options = self.plan.options(seed)?;
        let shrinks = !self.arguments.runs.no_shrink;
        let finding = find(
            self.subject,
            &options,
            defect,
            self.judging(),
            shrinks,
            progress,
        );
        bar.finish_and_clear();
        finding
    }

    /// Of the violated run, or the only one.
    fn write_files(&self, finding: Option<&Finding>) -> anyhow::Result<()> {
        let output = &self.arguments.output;
        let title =
            |options: &Options| format!("{}, seed {}", self.arguments.protocol, options.seed);
        if let Some(finding) = finding {
            let title = title(&finding.options);
            if let Some(file) = &output.explain {
                finding.write_explanation(file, &title)?;
            }
            if let Some(file) = &output.trace {
                write_trace(file, &title, &finding.outcome, || finding.trace(&title))?;
            }
            return self.write_history(&finding.outcome);
        }
        if output.explain.is_some() {
            eprintln!("dkvf: --explain: nothing is violated, so there is nothing to explain");
        }
        let is_one = self.seeds.end - self.seeds.start == 1;
        if (output.trace.is_none() && output.history.is_none()) || self.is_interrupted() {
            return Ok(());
        }
        if !is_one {
            eprintln!(
                "dkvf: --trace and --history: nothing is violated, and of several runs none is written"
            );
            return Ok(());
        }
        let options = Options {
            trace: output.trace.is_some(),
            ..self.plan.options(self.seeds.start)?
        };
        let (title, outcome) = (title(&options), self.subject.run(&options)?);
        if let Some(file) = &output.trace {
            let view = View {
                title: title.clone(),
                ..View::default()
            };
            write_trace(file, &title, &outcome, || {
                render::diagram(&outcome.trace, &view)
            })?;
        }
        self.write_history(&outcome)
    }

    fn write_history(&self, outcome: &Outcome) -> anyhow::Result<()> {
        let Some(file) = &self.arguments.output.history else {
            return Ok(());
        };
        let mut text = Vec::new();
        native::write(&outcome.history, &mut text)?;
        files::write(file, &String::from_utf8_lossy(&text))
    }

    fn print(&self, ended: &[Ended], finding: Option<&(u64, Finding)>) -> anyhow::Result<()> {
        let violation = finding.map(|(seed, finding)| self.violation(*seed, finding));
        let target = self.arguments.output.json.as_deref();
        if target != Some("-") {
            let mut text = String::new();
            if let [one] = ended
                && self.arguments.runs.seeds.is_none()
            {
                text += &one.report.describe(&self.plan.options(one.report.seed)?);
            }
            if let (Some(violation), Some((_, finding))) = (&violation, finding) {
                text += &self.describe(violation, finding);
            } else if let Some(unknown) =
                ended.iter().find(|ended| ended.report.verdict == "unknown")
            {
                text += &format!(
                    "seed {}: {}\n\n",
                    unknown.report.seed, unknown.report.explanation
                );
            }
            for one in ended {
                text += &one.report.line();
                text.push('\n');
            }
            output::print(&text)?;
        }
        let Some(target) = target else { return Ok(()) };
        let seconds: f64 = ended.iter().map(|one| one.took.as_secs_f64()).sum();
        let events: u64 = ended.iter().map(|one| one.report.events).sum();
        let report = Report {
            protocol: self.arguments.protocol.clone(),
            runs: ended.iter().map(|one| one.report.clone()).collect(),
            events_per_second: if seconds > 0.0 {
                events as f64 / seconds
            } else {
                0.0
            },
            violation,
            commit: env!("DKVF_COMMIT").to_owned(),
        };
        output::write_json(target, &report)
    }

    fn violation(&self, seed: u64, finding: &Finding) -> Violation {
        let anomaly = finding.counterexample.as_ref();
        Violation {
            seed,
            defect: finding.defect.name(),
            anomaly: anomaly.map(|counterexample| counterexample.anomaly.kind.name()),
            explanation: finding.explanation.clone(),
            clients: finding.options.clients,
            operations: finding.options.operations,
            faults: finding.faults(),
            reproduce: command::command(self.arguments, self.plan, &finding.options),
            shrink_runs: finding.search.as_ref().map_or(0, |search| search.runs),
        }
    }

    fn describe(&self, violation: &Violation, finding: &Finding) -> String {
        let mut text = match finding.defect {
            DefectKind::Model(model) => format!("seed {}: {model} is violated\n", violation.seed),
            DefectKind::Failure => format!("seed {}: the run failed\n", violation.seed),
            DefectKind::Service => format!("seed {}: a replica does not serve\n", violation.seed),
        };
        text += &format!("{}\n\n", violation.explanation);
        if let Some(search) = &finding.search {
            text += &format!("{search}\n");
        }
        let written = [
            ("counterexample", &self.arguments.output.explain),
            ("trace", &self.arguments.output.trace),
            ("history", &self.arguments.output.history),
        ];
        for (what, file) in written {
            if let Some(file) = file {
                text += &format!("{what} in {}\n", file.display());
            }
        }
        text + &format!("reproduce: {}\n\n", violation.reproduce)
    }
}
