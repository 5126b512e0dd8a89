//! Latencies of each pair of replicas: those of clouds, and those of a file.

use super::latency::{LatencyError, milliseconds};
use super::regions::Regions;

/// Most bytes of a matrix file.
const FILE_BYTES_MAX: usize = 1 << 20;

/// One-way latencies between replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    names: Vec<String>,
    /// `one_way_us[from * replicas + to]`.
    one_way_us: Vec<u64>,
}

impl Matrix {
    /// Half of the round-trip times between regions.
    pub(super) fn of(regions: &Regions) -> Self {
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

    /// How many replicas it has.
    pub(super) fn replicas(&self) -> usize {
        self.names.len()
    }

    #[inline]
    pub(super) fn one_way_us(&self, from: usize, to: usize) -> u64 {
        self.one_way_us[from * self.names.len() + to]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Latency;

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
