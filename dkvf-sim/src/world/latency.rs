//! How long messages take between replicas and within one.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::matrix::Matrix;
use super::regions::{AWS, GCP};

/// Longest latency, in milliseconds: a day is beyond every network.
const LATENCY_MS_MAX: f64 = 86_400_000.0;
/// No message is faster, so that time passes whatever protocols do.
const LATENCY_US_MIN: u64 = 1;

/// One-way latency of messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Latency {
    /// Always the same, in microseconds.
    Constant(u64),
    /// Evenly spread over `mean_us ± spread_us`.
    Uniform {
        /// The middle, in microseconds.
        mean_us: u64,
        /// Half the width, in microseconds.
        spread_us: u64,
    },
    /// Normally distributed; what would be under a tenth of the mean is that.
    Normal {
        /// The mean, in microseconds.
        mean_us: u64,
        /// The standard deviation, in microseconds.
        deviation_us: u64,
    },
    /// By sender's and receiver's replica.
    Matrix(Arc<Matrix>),
}

/// A latency that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatencyError {
    /// A word that is none of the forms.
    #[error(
        "latency {0:?}: write constant:MS, uniform:MS[:SPREAD], normal:MS:DEVIATION, aws, gcp, or name a matrix file"
    )]
    Unknown(String),
    /// A number that makes no sense.
    #[error(
        "latency {0:?}: times are numbers of milliseconds from 0 to a day, and a spread is at most its mean"
    )]
    Number(String),
    /// A matrix file with a mistake.
    #[error("{file}:{line}: {reason}")]
    Matrix {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// More replicas than the matrix has.
    #[error("the latency matrix has {regions} replicas, the cluster {replicas}")]
    TooFew {
        /// Rows of the matrix.
        regions: usize,
        /// Replicas of the cluster.
        replicas: usize,
    },
}

impl Latency {
    /// Reads `constant:MS`, `uniform:MS[:SPREAD]` (spread: half of the mean), `normal:MS:DEVIATION`, `aws` or `gcp`.
    ///
    /// # Errors
    /// [`LatencyError::Unknown`] for any other word: it may be the name of a [matrix file](Matrix::parse).
    pub fn parse(word: &str) -> Result<Self, LatencyError> {
        let mut parts = word.split(':');
        let kind = parts.next().unwrap_or_default();
        let numbers: Vec<&str> = parts.collect();
        let us = |number: &str| {
            milliseconds(number).ok_or_else(|| LatencyError::Number(word.to_owned()))
        };
        match (kind, numbers.as_slice()) {
            ("aws", []) => Ok(Latency::Matrix(Arc::new(Matrix::of(&AWS)))),
            ("gcp", []) => Ok(Latency::Matrix(Arc::new(Matrix::of(&GCP)))),
            ("constant", [mean]) => Ok(Latency::Constant(us(mean)?)),
            ("uniform", [mean]) => {
                let mean_us = us(mean)?;
                Ok(Latency::Uniform {
                    mean_us,
                    spread_us: mean_us / 2,
                })
            }
            ("uniform", [mean, spread]) => {
                let (mean_us, spread_us) = (us(mean)?, us(spread)?);
                if spread_us > mean_us {
                    return Err(LatencyError::Number(word.to_owned()));
                }
                Ok(Latency::Uniform { mean_us, spread_us })
            }
            ("normal", [mean, deviation]) => Ok(Latency::Normal {
                mean_us: us(mean)?,
                deviation_us: us(deviation)?,
            }),
            _ => Err(LatencyError::Unknown(word.to_owned())),
        }
    }

    /// Whether it says something about every pair of `replicas`.
    ///
    /// # Errors
    /// [`LatencyError::TooFew`].
    pub fn check(&self, replicas: usize) -> Result<(), LatencyError> {
        match self {
            Latency::Matrix(matrix) if matrix.replicas() < replicas => Err(LatencyError::TooFew {
                regions: matrix.replicas(),
                replicas,
            }),
            _ => Ok(()),
        }
    }

    /// The latency of one message from replica `from` to replica `to`, in microseconds, at least one.
    #[inline]
    pub fn sample(&self, from: usize, to: usize, random: &mut Pcg64Mcg) -> u64 {
        let us = match self {
            Latency::Constant(us) => *us,
            Latency::Uniform {
                mean_us,
                spread_us: 0,
            } => *mean_us,
            Latency::Uniform { mean_us, spread_us } => {
                mean_us.saturating_sub(*spread_us) + random.random_range(0..=2 * spread_us)
            }
            Latency::Normal {
                mean_us,
                deviation_us,
            } => {
                let sample = *mean_us as f64 + *deviation_us as f64 * standard_normal(random);
                (sample as u64).max(mean_us / 10)
            }
            Latency::Matrix(matrix) => matrix.one_way_us(from, to),
        };
        us.max(LATENCY_US_MIN)
    }

    /// The mean from replica `from` to replica `to`, in microseconds.
    pub fn mean_us(&self, from: usize, to: usize) -> u64 {
        match self {
            Latency::Constant(us) => *us,
            Latency::Uniform { mean_us, .. } | Latency::Normal { mean_us, .. } => *mean_us,
            Latency::Matrix(matrix) => matrix.one_way_us(from, to),
        }
    }
}

/// The polar form of Box and Muller draws a varying number of times; this one draws twice. `libm`'s functions are the
/// same on every machine, the standard library's are not.
fn standard_normal(random: &mut Pcg64Mcg) -> f64 {
    let (u, v): (f64, f64) = (random.random(), random.random());
    libm::sqrt(-2.0 * libm::log(1.0 - u)) * libm::cos(std::f64::consts::TAU * v)
}

/// Microseconds of a number of milliseconds from 0 to a day.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let ms: f64 = text.parse().ok()?;
    (0.0..=LATENCY_MS_MAX)
        .contains(&ms)
        .then(|| libm::round(ms * 1_000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    fn samples(latency: &Latency) -> Vec<u64> {
        let mut random = stream(1, "latency", 0);
        (0..20_000)
            .map(|_| latency.sample(0, 1, &mut random))
            .collect()
    }

    fn mean(samples: &[u64]) -> f64 {
        samples.iter().sum::<u64>() as f64 / samples.len() as f64
    }

    #[test]
    fn a_constant_is_constant_and_at_least_a_microsecond() {
        assert!(samples(&Latency::Constant(70)).iter().all(|us| *us == 70));
        assert!(samples(&Latency::Constant(0)).iter().all(|us| *us == 1));
    }

    #[test]
    fn a_uniform_latency_fills_its_range() {
        let samples = samples(&Latency::Uniform {
            mean_us: 1_000,
            spread_us: 300,
        });
        assert_eq!(
            (samples.iter().min(), samples.iter().max()),
            (Some(&700), Some(&1_300))
        );
        assert!((mean(&samples) - 1_000.0).abs() < 5.0);
    }

    #[test]
    fn a_normal_latency_has_its_mean_and_deviation_and_a_lower_bound() {
        let normal = samples(&Latency::Normal {
            mean_us: 1_000,
            deviation_us: 100,
        });
        let mean_us = mean(&normal);
        assert!((mean_us - 1_000.0).abs() < 5.0);
        let variance = normal
            .iter()
            .map(|us| (*us as f64 - mean_us) * (*us as f64 - mean_us))
            .sum::<f64>()
            / 20_000.0;
        assert!((variance.sqrt() - 100.0).abs() < 3.0);
        let wide = samples(&Latency::Normal {
            mean_us: 1_000,
            deviation_us: 1_000,
        });
        assert_eq!(wide.iter().min(), Some(&100));
    }

    #[test]
    fn words_become_latencies() {
        assert_eq!(Latency::parse("constant:1.5"), Ok(Latency::Constant(1_500)));
        assert_eq!(
            Latency::parse("uniform:10"),
            Ok(Latency::Uniform {
                mean_us: 10_000,
                spread_us: 5_000
            })
        );
        assert_eq!(
            Latency::parse("uniform:10:2"),
            Ok(Latency::Uniform {
                mean_us: 10_000,
                spread_us: 2_000
            })
        );
        assert_eq!(
            Latency::parse("normal:10:0.5"),
            Ok(Latency::Normal {
                mean_us: 10_000,
                deviation_us: 500
            })
        );
        for unknown in ["", "fast", "constant", "normal:3", "aws:1", "uniform:1:2:3"] {
            assert_eq!(
                Latency::parse(unknown),
                Err(LatencyError::Unknown(unknown.to_owned()))
            );
        }
        for wrong in [
            "constant:-1",
            "constant:NaN",
            "constant:x",
            "uniform:1:2",
            "constant:1e99",
        ] {
            assert_eq!(
                Latency::parse(wrong),
                Err(LatencyError::Number(wrong.to_owned()))
            );
        }
    }
}
