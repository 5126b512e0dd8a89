//! How long messages take between replicas and within one.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::regions::{AWS, GCP, Regions};

/// Most bytes of a matrix file.
const FILE_BYTES_MAX: usize = 1 << 20;
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

/// One-way latencies between replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    names: Vec<String>,
    /// `one_way_us[from * replicas + to]`.
    one_way_us: Vec<u64>,
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
            Latency::Matrix(matrix) if matrix.names.len() < replicas => Err(LatencyError::TooFew {
                regions: matrix.names.len(),
                replicas,
            }),
            _ => Ok(()),
        }
    }

    /// The latency of one message from replica `from` to replica `to`, in microseconds, at least one.
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

fn milliseconds(text: &str) -> Option<u64> {
    let ms: f64 = text.parse().ok()?;
    (0.0..=LATENCY_MS_MAX)
        .contains(&ms)
        .then(|| libm::round(ms * 1_000.0) as u64)
}

impl Matrix {
    /// Half of the round-trip times between regions.
    fn of(regions: &Regions) -> Self {
        let count = regions.names.len();
        let mut one_way_us = vec![0; count * count];
        for (from, row) in regions.rtt_ms.iter().enumerate() {
            for (to, rtt_ms) in row.iter().enumerate() {
                let us = libm::round(rtt_ms * 500.0) as u64;
                one_way_us[from * count + to] = us;
                one_way_us[to * count + from] = us;
            }
        }
        Matrix {
            names: regions
                .names
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
            one_way_us,
        }
    }

    /// Reads a matrix file. `file` is its name in messages.
    ///
    /// The first line says what the numbers are: `one-way` or `rtt` (halved), in milliseconds. Then comes a line per
    /// replica, in order, with a number per replica, separated by blanks or commas: row = sender, column = receiver.
    /// The diagonal is not used: latency within a replica is an option of its own. Blank lines and what follows a `#`
    /// are passed over.
    ///
    /// # Errors
    /// [`LatencyError::Matrix`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, LatencyError> {
        let wrong = |line: usize, reason: String| LatencyError::Matrix {
            file: file.to_owned(),
            line,
            reason,
        };
        if text.len() > FILE_BYTES_MAX {
            return Err(wrong(
                1,
                format!("a matrix file has at most {FILE_BYTES_MAX} bytes"),
            ));
        }
        let mut lines = text.lines().enumerate().filter_map(|(index, line)| {
            let line = line.split('#').next().unwrap_or_default().trim();
            (!line.is_empty()).then_some((index + 1, line))
        });
        let share = match lines.next() {
            Some((_, "one-way")) => 1.0,
            Some((_, "rtt")) => 0.5,
            other => {
                let line = other.map_or(1, |(line, _)| line);
                return Err(wrong(
                    line,
                    "the first line says `one-way` or `rtt`: what the milliseconds below are"
                        .to_owned(),
                ));
            }
        };
        let mut rows: Vec<(usize, Vec<u64>)> = Vec::new();
        for (line, text) in lines {
            let words = text
                .split(|c: char| c == ',' || c.is_whitespace())
                .filter(|word| !word.is_empty());
            let row: Result<Vec<u64>, LatencyError> = words
                .map(|word| {
                    let us = milliseconds(word).map(|us| libm::round(us as f64 * share) as u64);
                    us.ok_or_else(|| {
                        wrong(
                            line,
                            format!("{word:?} is no number of milliseconds from 0 to a day"),
                        )
                    })
                })
                .collect();
            rows.push((line, row?));
        }
        let replicas = rows.len();
        if replicas == 0 {
            return Err(wrong(1, "there are no rows: one per replica".to_owned()));
        }
        if let Some((line, row)) = rows.iter().find(|(_, row)| row.len() != replicas) {
            return Err(wrong(
                *line,
                format!(
                    "{} numbers, but there are {replicas} rows: as many columns as rows",
                    row.len()
                ),
            ));
        }
        Ok(Matrix {
            names: (0..replicas)
                .map(|replica| format!("dc{replica}"))
                .collect(),
            one_way_us: rows.into_iter().flat_map(|(_, row)| row).collect(),
        })
    }

    /// Names of the replicas or regions.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn one_way_us(&self, from: usize, to: usize) -> u64 {
        self.one_way_us[from * self.names.len() + to]
    }
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

    #[test]
    fn the_matrices_of_clouds_are_whole_and_symmetric() {
        for word in ["aws", "gcp"] {
            let latency = Latency::parse(word).expect("it is built in");
            let Latency::Matrix(matrix) = &latency else {
                panic!("{word} is a matrix")
            };
            let regions = matrix.names().len();
            assert_eq!(latency.check(regions), Ok(()));
            assert_eq!(
                latency.check(regions + 1),
                Err(LatencyError::TooFew {
                    regions,
                    replicas: regions + 1
                })
            );
            for from in 0..regions {
                for to in 0..regions {
                    assert_eq!(matrix.one_way_us(from, to), matrix.one_way_us(to, from));
                    assert_eq!(
                        from != to,
                        matrix.one_way_us(from, to) > 3_000,
                        "{word} {from} {to}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_matrix_file_says_whether_it_counts_one_way_or_both() {
        let one_way =
            Matrix::parse("m", "# ours\none-way\n0 10\n20, 0 # asymmetric\n").expect("a matrix");
        assert_eq!(
            (one_way.one_way_us(0, 1), one_way.one_way_us(1, 0)),
            (10_000, 20_000)
        );
        let rtt = Matrix::parse("m", "rtt\n0 10\n20 0").expect("a matrix");
        assert_eq!(
            (rtt.one_way_us(0, 1), rtt.one_way_us(1, 0)),
            (5_000, 10_000)
        );
    }

    #[test]
    fn mistakes_in_a_matrix_file_name_their_line() {
        for (text, line, part) in [
            ("", 1, "`one-way` or `rtt`"),
            ("\n0 1\n1 0", 2, "`one-way` or `rtt`"),
            ("rtt\n", 1, "no rows"),
            ("rtt\n0 1\n1 x", 3, "\"x\""),
            ("rtt\n0 1\n1 -1", 3, "\"-1\""),
            ("rtt\n0 1\n1", 3, "1 numbers, but there are 2 rows"),
            ("rtt\n0 1 2\n1 0", 2, "3 numbers"),
        ] {
            let error = Matrix::parse("m.txt", text)
                .expect_err("it has a mistake")
                .to_string();
            assert!(
                error.starts_with(&format!("m.txt:{line}: ")) && error.contains(part),
                "{text:?}: {error}"
            );
        }
    }
}
