//! The `dkvf` command: every command explains itself with `--help`.

mod anomalies;
mod calibrate;
mod check;
mod client;
mod compare;
mod library;
mod logging;
mod output;
mod server;
mod signals;
mod sim;
mod subject;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Write a replication protocol once; run it as a real cluster, check it, compare it.
#[derive(Parser)]
#[command(version, about, max_term_width = 110)]
#[command(after_help = "Examples:
  dkvf compare eventual cops --workload b      two protocols, side by side, on loopback TCP
  dkvf protocols                               the library")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the library of protocols.
    Protocols(library::Arguments),
    /// Runs protocols as real clusters on this machine under a workload, and prints one table.
    Compare(Box<compare::Arguments>),
    /// Judges a recorded history.
    Check(Box<check::Arguments>),
    /// Runs one server.
    Server(server::Arguments),
    /// Talks to a running cluster.
    Client(client::Arguments),
    /// Simulates a protocol in virtual time, with faults, and judges what it did.
    Sim(Box<sim::Arguments>),
    /// Prints which anomalies protocols let happen.
    Anomalies(anomalies::Arguments),
    /// Measures what work costs on this machine, for the simulator.
    Calibrate(calibrate::Arguments),
}

/// How a command ended. Exit status: 0, 1, 2.
pub enum Ending {
    /// Done, or the property holds.
    Done,
    /// The property is violated, or something failed and was reported.
    Violated,
    /// Nobody can tell, or not all was done.
    Unknown,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A server's configuration says where it logs.
    if !matches!(arguments.command, Command::Server(_)) {
        logging::to_stderr();
    }
    let ending = match arguments.command {
        Command::Protocols(arguments) => library::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Server(arguments) => server::run(&arguments),
        Command::Client(arguments) => client::run(arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Anomalies(arguments) => anomalies::run(&arguments),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
    };
    match ending {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Violated) => ExitCode::from(1),
        Ok(Ending::Unknown) => ExitCode::from(2),
        Err(error) => {
            eprintln!("dkvf: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// The command line or a file says something that cannot be done.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of usage.
pub fn usage(problem: impl std::fmt::Display) -> anyhow::Error {
    Usage(problem.to_string()).into()
}

/// The error for a protocol that is not in the library.
pub fn no_such_protocol(name: &str) -> anyhow::Error {
    usage(format!(
        "there is no protocol {name:?}; the library has: {}",
        dkvf_protocols::NAMES.join(", ")
    ))
}
