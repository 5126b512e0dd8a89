//! `dkvf check`: verdicts on a recorded history.

mod explain;
mod input;
mod judge;
mod report;

use clap::Args;
use dkvf_check::{DataType, Evidence, Model, Order};

use crate::{Ending, output, usage};

/// Judges a recorded history, ours or somebody else's.
///
/// `--model all` goes from the weakest model to the strongest. One that includes a violated one is not judged: it falls
/// with it. Models of single operations are left out for transactions.
#[derive(Args)]
#[command(
    after_help = "Exit status: 0 all models hold; 1 one is violated; 2 nobody can tell, or the file is malformed.

Examples:
  dkvf check history.jsonl --model causal,convergence --explain counterexample.html
  dkvf check jepsen/history.edn --format jepsen-edn --model all --time-limit 60 --json verdict.json"
)]
pub struct Arguments {
    /// The file of the history, or `-` for standard input.
    #[arg(value_name = "HISTORY")]
    history: String,
    /// Models, separated by commas, or all [default: those that the history claims].
    #[arg(long, value_name = "M", value_delimiter = ',')]
    model: Vec<String>,
    /// Which order beside the data the models include: none, session or realtime [default: each model's usual one].
    #[arg(long, value_name = "ORDER")]
    order: Option<Order>,
    /// What keys hold, for linearizable: register, cas-register, multi-register, kv, mutex or list-append [default: the
    /// simplest that fits].
    #[arg(long, value_name = "TYPE")]
    datatype: Option<DataType>,
    /// What keys hold in the beginning, for linearizable.
    #[arg(long, value_name = "VALUE")]
    initial: Option<String>,
    /// The format of the history: auto, or one that --export knows.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    format: String,
    /// Entity groups for psi: lines of a key, a tab and the name of its group.
    #[arg(long, value_name = "FILE")]
    groups: Option<String>,
    /// Whether the order that the protocol reported counts: auto (where it is complete), on, or off.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    white_box: String,
    /// Write the counterexample to a file: .svg, .html, .txt, .dot or .mmd.
    #[arg(long, value_name = "FILE")]
    explain: Option<String>,
    /// Give up after so many seconds; the verdict is then unknown.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    time_limit: Option<f64>,
    /// Give up if the tables of a check need more MiB than this.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory_limit: usize,
    /// Write the history to a file in another format, and say what that loses.
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"])]
    export: Option<Vec<String>>,
    /// Write JSON to this file, or to standard output for `-`.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The arguments or the history are malformed, or a result cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let drawing = arguments.explain.as_deref().map(explain::Drawing::of);
    let drawing = drawing.transpose()?;
    let asked = models(&arguments.model)?;
    let evidence = evidence(&arguments.white_box)?;
    let limits = judge::Limits::new(arguments.time_limit, arguments.memory_limit)?;
    let groups = arguments.groups.as_deref().map(input::groups).transpose()?;
    let history = input::read(&arguments.history, &arguments.format)?;
    if let Some([format, target]) = arguments.export.as_deref() {
        input::export(&history, format, target)?;
        if asked.is_none() {
            return Ok(Ending::Done);
        }
    }
    let mut asked = match asked {
        Some(asked) => asked,
        None => claimed(&history)?,
    };
    if asked.all && !history.is_single() {
        asked
            .models
            .retain(|model| !matches!(model, Model::Sequential | Model::CausalMemory));
    }
    let question = judge::Question {
        evidence,
        order: arguments.order,
        datatype: arguments.datatype,
        initial: arguments.initial.clone().map(String::into_bytes),
        groups,
    };
    let judged = judge::judge(&history, &asked, &question, &limits)?;
    if let (Some(drawing), Some(target)) = (drawing, &arguments.explain) {
        explain::write(&history, &judged, drawing, target)?;
    }
    if let Some(target) = &arguments.json {
        output::write_json(target, &report::json(&arguments.history, &history, &judged))?;
    }
    if arguments.json.as_deref() != Some("-") {
        output::print(&report::text(&history, &judged))?;
    }
    Ok(judged.ending())
}

/// The models to judge, from the weakest to the strongest if all are asked for.
#[derive(Debug)]
struct Asked {
    models: Vec<Model>,
    all: bool,
}

/// The models of the command line; `None` if it names none.
fn models(names: &[String]) -> anyhow::Result<Option<Asked>> {
    if names.iter().any(|name| name == "all") {
        return Ok(Some(Asked {
            models: weakest_first(),
            all: true,
        }));
    }
    let models = names.iter().map(|name| name.trim().parse::<Model>());
    let models = models
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| usage(format!("--model: {error}, all")))?;
    Ok((!models.is_empty()).then_some(Asked { models, all: false }))
}

/// Every model after those that it includes.
fn weakest_first() -> Vec<Model> {
    let below = |model: Model| {
        Model::ALL
            .into_iter()
            .filter(|&weaker| model.implies(weaker))
            .count()
    };
    let mut models = Model::ALL.to_vec();
    models.sort_by_key(|&model| below(model));
    models
}

/// The models that the history itself claims.
fn claimed(history: &dkvf_check::History) -> anyhow::Result<Asked> {
    let claims = history.about.claims.iter();
    let models: Vec<Model> = claims.filter_map(|claim| claim.parse().ok()).collect();
    if models.is_empty() {
        return Err(usage(
            "the history claims no model that can be checked; name one with --model, or all",
        ));
    }
    Ok(Asked { models, all: false })
}

fn evidence(how: &str) -> anyhow::Result<Evidence> {
    match how {
        "auto" => Ok(Evidence::Auto),
        "on" => Ok(Evidence::WhiteBox),
        "off" => Ok(Evidence::BlackBox),
        other => Err(usage(format!("--white-box {other}: auto, on or off"))),
    }
}
