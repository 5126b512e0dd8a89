//! The options that say what clients do: the same for every command that runs a workload.

use clap::{ArgAction, Args};
use dkvf_workload::{PropertyError, WorkloadSpec};

use crate::usage;

/// Most records of a run.
const RECORDS_MAX: u64 = 1 << 40;
/// Shortest value, which is its tag for the checkers, and longest, in bytes.
const VALUE_BYTES_MIN: u64 = 16;
const VALUE_BYTES_MAX: u64 = 16 << 20;
/// Most operations per second of an open loop.
const TARGET_MAX: f64 = 1e9;

/// What clients do.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArguments {
    /// a to f, amplified, or a YCSB property file.
    #[arg(long, value_name = "NAME|FILE", default_value = "a")]
    pub workload: String,
    /// Overrides a property of the workload.
    #[arg(short = 'p', value_name = "KEY=VALUE", action = ArgAction::Append)]
    pub properties: Vec<String>,
    /// Records to load [default: the workload's recordcount].
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Bytes of a value, from 16 [default: the workload's fieldcount x fieldlength].
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub value_size: Option<u64>,
    /// Share of reads, from 0 to 1; the rest are updates.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub get_proportion: Option<f64>,
    /// Open loop: operations per second over all clients; latency counts from the intended start.
    #[arg(long, value_name = "OPS", allow_negative_numbers = true)]
    pub target: Option<f64>,
}

impl WorkloadArguments {
    /// Whether `-p` sets this property.
    pub fn sets(&self, key: &str) -> bool {
        let properties = self.properties.iter();
        let mut keys = properties.filter_map(|property| property.split_once('='));
        keys.any(|(set, _)| set.trim() == key)
    }

    /// Whether the workload is one of the built-in ones.
    pub fn is_builtin(&self) -> bool {
        WorkloadSpec::builtin_names().any(|name| name == self.workload)
    }

    /// The workload. `defaults` are properties of the command's own where `-p` does not set them.
    ///
    /// # Errors
    /// A property or its file is wrong.
    pub fn spec(&self, defaults: &[(&str, &str)]) -> anyhow::Result<WorkloadSpec> {
        let mut overrides: Vec<(String, String)> = Vec::new();
        for (key, value) in defaults.iter().filter(|(key, _)| !self.sets(key)) {
            overrides.push(((*key).to_owned(), (*value).to_owned()));
        }
        for property in &self.properties {
            overrides.push(key_value("-p", property)?);
        }
        overrides.extend(self.overrides()?);
        let overrides = overrides.iter();
        let overrides = overrides.map(|(key, value)| (key.as_str(), value.as_str()));
        WorkloadSpec::load(&self.workload, overrides).map_err(|error| match error {
            PropertyError::Io { .. } => {
                let names: Vec<&str> = WorkloadSpec::builtin_names().collect();
                usage(format!(
                    "--workload {}: {error}; give one of {}, or a YCSB property file",
                    self.workload,
                    names.join(", ")
                ))
            }
            error => usage(error),
        })
    }

    /// What the options that are not `-p` set.
    fn overrides(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut overrides = Vec::new();
        let mut set = |key: &str, value: String| overrides.push((key.to_owned(), value));
        if let Some(records) = self.records {
            if records > RECORDS_MAX {
                return Err(usage(format!("--records {records}: at most {RECORDS_MAX}")));
            }
            set("recordcount", records.to_string());
        }
        if let Some(bytes) = self.value_size {
            if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&bytes) {
                return Err(usage(format!(
                    "--value-size {bytes}: from {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} bytes"
                )));
            }
            set("valuesize", bytes.to_string());
        }
        if let Some(share) = self.get_proportion {
            if !(0.0..=1.0).contains(&share) {
                return Err(usage(format!(
                    "--get-proportion {share}: a share is from 0 to 1"
                )));
            }
            for other in [
                "insertproportion",
                "scanproportion",
                "readmodifywriteproportion",
                "ampinsertproportion",
                "rotxproportion",
            ] {
                set(other, "0".to_owned());
            }
            set("readproportion", share.to_string());
            set("updateproportion", (1.0 - share).to_string());
        }
        if let Some(target) = self.target {
            if !target.is_finite() || target <= 0.0 || target > TARGET_MAX {
                return Err(usage(format!(
                    "--target {target}: operations per second, more than 0 and at most {TARGET_MAX}"
                )));
            }
            set("target", target.to_string());
        }
        Ok(overrides)
    }
}

/// The parts of `KEY=VALUE`.
///
/// # Errors
/// There is no `=`, or nothing before it.
pub fn key_value(option: &str, text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(usage(format!("{option} {text}: write KEY=VALUE"))),
    }
}
