//! From measured runs to a cost model: least squares without negative costs.

use serde::Serialize;

/// What one operation of a run asked of the servers, and what it cost them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Messages that servers received.
    pub messages: f64,
    /// Bytes of these.
    pub bytes: f64,
    /// Reads and writes of stores.
    pub accesses: f64,
    /// CPU time of the servers, in nanoseconds.
    pub cpu_ns: f64,
}

/// Costs in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Per message, byte and access.
    pub costs_ns: [f64; 3],
    /// The mean of what the model is wrong by in a run, as a share of what was measured.
    pub residual: f64,
}

impl Sample {
    fn row(&self) -> [f64; 3] {
        [self.messages, self.bytes, self.accesses]
    }
}

/// The costs, none of them negative, with the least sum of squared relative errors: the best fit among those of all subsets
/// of the costs, the others being zero.
pub fn fit(samples: &[Sample]) -> Fit {
    let candidates = (0..8_u8).filter_map(|used| {
        let costs_ns = solve(samples, [used & 1 != 0, used & 2 != 0, used & 4 != 0])?;
        let is_possible = costs_ns.iter().all(|cost| *cost >= 0.0);
        is_possible.then(|| (squared_error(samples, costs_ns), costs_ns))
    });
    let best = candidates.min_by(|(a, _), (b, _)| a.total_cmp(b));
    let costs_ns = best.map_or([0.0; 3], |(_, costs_ns)| costs_ns);
    let errors = samples
        .iter()
        .map(|sample| relative_error(sample, costs_ns).abs());
    Fit {
        costs_ns,
        residual: errors.sum::<f64>() / samples.len().max(1) as f64,
    }
}

fn relative_error(sample: &Sample, costs_ns: [f64; 3]) -> f64 {
    let predicted: f64 = sample
        .row()
        .iter()
        .zip(costs_ns)
        .map(|(count, cost)| count * cost)
        .sum();
    (predicted - sample.cpu_ns) / sample.cpu_ns
}

fn squared_error(samples: &[Sample], costs_ns: [f64; 3]) -> f64 {
    samples
        .iter()
        .map(|sample| relative_error(sample, costs_ns).powi(2))
        .sum()
}

/// The least squares with only the `used` costs, by the normal equations; `None` if the samples do not determine them.
fn solve(samples: &[Sample], used: [bool; 3]) -> Option<[f64; 3]> {
    // The matrix and, in the last column, the right side. An unused cost has the equation `cost = 0`.
    let mut equations = [[0.0; 4]; 3];
    for (i, equation) in equations.iter_mut().enumerate() {
        if !used[i] {
            equation[i] = 1.0;
            continue;
        }
        for sample in samples {
            let row = sample.row().map(|count| count / sample.cpu_ns);
            for j in (0..3).filter(|j| used[*j]) {
                equation[j] += row[i] * row[j];
            }
            equation[3] += row[i];
        }
    }
    eliminate(equations)
}

/// Gauss and Jordan, with the largest pivot of each column.
fn eliminate(mut equations: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|a, b| {
            equations[*a][column]
                .abs()
                .total_cmp(&equations[*b][column].abs())
        })?;
        equations.swap(column, pivot);
        let pivot = equations[column];
        if pivot[column] == 0.0 {
            return None;
        }
        for (row, equation) in equations.iter_mut().enumerate() {
            if row != column {
                let factor = equation[column] / pivot[column];
                for (value, from) in equation.iter_mut().zip(pivot) {
                    *value -= factor * from;
                }
            }
        }
    }
    let solution = std::array::from_fn(|row| equations[row][3] / equations[row][row]);
    solution
        .iter()
        .all(|cost: &f64| cost.is_finite())
        .then_some(solution)
}

/// The middle of several measurements; of an even number the lower one of the two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: [[f64; 3]; 5] = [
        [1.0, 30.0, 1.0],
        [1.0, 50.0, 2.0],
        [1.0, 4_130.0, 2.0],
        [2.0, 100.0, 3.0],
        [2.0, 8_260.0, 3.0],
    ];

    fn samples(costs: [f64; 3], noise: impl Fn(usize) -> f64) -> Vec<Sample> {
        let rows = COUNTS.iter().enumerate();
        let sample = |(index, [messages, bytes, accesses]): (usize, &[f64; 3])| Sample {
            messages: *messages,
            bytes: *bytes,
            accesses: *accesses,
            cpu_ns: (messages * costs[0] + bytes * costs[1] + accesses * costs[2]) * noise(index),
        };
        rows.map(sample).collect()
    }

    #[test]
    fn exact_measurements_give_the_costs_back() {
        let costs = [3_000.0, 0.8, 250.0];
        let fit = fit(&samples(costs, |_| 1.0));
        for (found, expected) in fit.costs_ns.iter().zip(costs) {
            assert!(
                (found - expected).abs() < 1e-6 * expected,
                "{:?}",
                fit.costs_ns
            );
        }
        assert!(fit.residual < 1e-9);
    }

    #[test]
    fn noise_is_reported_and_no_cost_becomes_negative() {
        let noise = |index: usize| if index == 1 { 0.8 } else { 1.05 };
        let fit = fit(&samples([3_000.0, 0.8, 10.0], noise));
        assert!(
            fit.costs_ns.iter().all(|cost| *cost >= 0.0),
            "{:?}",
            fit.costs_ns
        );
        assert!((0.02..0.3).contains(&fit.residual), "{}", fit.residual);
    }

    #[test]
    fn of_nothing_there_is_nothing_to_learn() {
        assert_eq!(fit(&[]).costs_ns, [0.0; 3]);
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(1.0));
    }
}
