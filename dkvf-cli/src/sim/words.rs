//! Values as the options of `dkvf sim` write them, both ways.

use std::path::Path;
use std::sync::Arc;

use dkvf_sim::{CpuModel, Durability, Latency, LatencyError, Matrix, Ntp};

use super::files;
use crate::usage;

/// The word for the absence of something.
pub const NONE: &str = "none";
/// Longest time that can be given, in milliseconds: a day.
const MS_MAX: f64 = 86_400_000.0;

/// A number from 1 to `most`.
///
/// # Errors
/// It is not.
pub fn within<T: Copy + PartialOrd + Default + std::fmt::Display>(
    option: &str,
    value: Option<T>,
    most: T,
) -> anyhow::Result<Option<T>> {
    match value {
        Some(value) if value <= T::default() || value > most => {
            Err(usage(format!("{option} {value}: from 1 to {most}")))
        }
        value => Ok(value),
    }
}

/// Reads a value that may be `none`.
pub fn optional<T>(
    option: &str,
    text: Option<&str>,
    form: &str,
    read: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<Option<Option<T>>> {
    match text {
        None => Ok(None),
        Some(NONE) => Ok(Some(None)),
        Some(text) => match read(text) {
            Some(value) => Ok(Some(Some(value))),
            None => Err(usage(format!("{option} {text}: write {form}, or none"))),
        },
    }
}

pub fn milliseconds(text: &str) -> Option<u64> {
    text.trim().parse().ok().and_then(microseconds)
}

pub fn microseconds(ms: f64) -> Option<u64> {
    (0.0..=MS_MAX)
        .contains(&ms)
        .then(|| (ms * 1_000.0).round() as u64)
}

pub fn positive_ms(option: &str, ms: f64) -> anyhow::Result<u64> {
    microseconds(ms).ok_or_else(|| usage(format!("{option} {ms}: milliseconds from 0 to {MS_MAX}")))
}

/// Microseconds as milliseconds, with the digits that are needed.
pub fn ms(us: u64) -> String {
    let text = format!("{}.{:03}", us / 1_000, us % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub fn latency(option: &str, text: &str) -> anyhow::Result<Latency> {
    match Latency::parse(text) {
        Ok(latency) => Ok(latency),
        Err(LatencyError::Unknown(_)) if Path::new(text).exists() => {
            let content = files::read(option, text)?;
            Ok(Latency::Matrix(Arc::new(
                Matrix::parse(text, &content).map_err(usage)?,
            )))
        }
        Err(error) => Err(usage(format!("{option}: {error}"))),
    }
}

pub fn latency_word(latency: &Latency, original: Option<&str>) -> String {
    match latency {
        Latency::Constant(us) => format!("constant:{}", ms(*us)),
        Latency::Uniform { mean_us, spread_us } => {
            format!("uniform:{}:{}", ms(*mean_us), ms(*spread_us))
        }
        Latency::Normal {
            mean_us,
            deviation_us,
        } => format!("normal:{}:{}", ms(*mean_us), ms(*deviation_us)),
        Latency::Matrix(_) => original.unwrap_or(NONE).to_owned(),
    }
}

pub fn ntp(text: &str) -> Option<Ntp> {
    let (interval, error) = text.split_once(':')?;
    let interval_us = milliseconds(interval).filter(|us| *us >= 1_000)?;
    Some(Ntp {
        interval_us,
        error_us: milliseconds(error)?,
    })
}

pub fn cpu(file: &str) -> anyhow::Result<CpuModel> {
    if file == NONE {
        return Ok(CpuModel::default());
    }
    let text = files::read("--cpu", file)?;
    crate::calibrate::read(&text).map_err(|error| {
        usage(format!(
            "--cpu {file}: {error}; `dkvf calibrate --out FILE` writes such a file"
        ))
    })
}

pub fn storage(name: &str) -> anyhow::Result<String> {
    if name == "memory" {
        return Ok(name.to_owned());
    }
    Err(usage(format!(
        "--storage {name}: cannot be simulated, its files and threads are real; use memory here, and `dkvf compare --storage {name}` for real runs"
    )))
}

const DURABILITIES: [(&str, Durability); 4] = [
    ("none", Durability::None),
    ("async", Durability::Async),
    ("group", Durability::Group),
    ("sync", Durability::Sync),
];

pub fn durability(name: &str) -> anyhow::Result<Durability> {
    let known = DURABILITIES.iter().find(|(known, _)| *known == name);
    known.map(|(_, durability)| *durability).ok_or_else(|| {
        usage(format!(
            "--durability {name}: one of none, async, group, sync"
        ))
    })
}

pub fn durability_word(durability: Durability) -> &'static str {
    let known = DURABILITIES.iter().find(|(_, known)| *known == durability);
    known.map_or(NONE, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_the_digits_they_need() {
        for (us, text) in [
            (0, "0"),
            (250, "0.25"),
            (1_000, "1"),
            (1_234_567, "1234.567"),
            (10_000, "10"),
        ] {
            assert_eq!(ms(us), text);
            assert_eq!(milliseconds(text), Some(us));
        }
    }

    #[test]
    fn latencies_are_read_as_they_are_written() {
        for latency in [
            Latency::Constant(7_500),
            Latency::Uniform {
                mean_us: 10_000,
                spread_us: 5_000,
            },
            Latency::Normal {
                mean_us: 40_000,
                deviation_us: 1,
            },
        ] {
            assert_eq!(Latency::parse(&latency_word(&latency, None)), Ok(latency));
        }
    }
}
