//! Which item an operation is about, and how long values and scans are.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::naming::{fnv1a_64, java_abs};

/// Zipf's law over `n` ranks: rank `k` (from 0) has a probability proportional
/// to `(k + 1)^-theta`.
///
/// Sampling is exact for every `theta >= 0` and every `n`, which may differ from
/// sample to sample: rejection-inversion (W. Hörmann and G. Derflinger, *Rejection-
/// inversion to generate variates from monotone discrete distributions*, ACM
/// TOMACS 6(3), 1996) takes constant time, on average less than two tries, and
/// needs no sum over the ranks.
///
/// The method: `h(x) = x^-theta` bounds the probabilities, its integral `H` can
/// be inverted, so `H^-1` of a uniform variate has density `h`. Its nearest
/// integer `k` is accepted if the variate lies in the last `h(k)` of the part of
/// `H` that belongs to `k`.
#[derive(Clone, Debug)]
pub struct Zipf {
    theta: f64,
    /// The variate starts here: all of `h(1)` belongs to the first rank.
    low: f64,
    /// Numbers that are rounded up by at most this are accepted without `H`.
    shortcut: f64,
    /// `H(n + 1/2)` for the `n` of the last sample.
    items: u64,
    high: f64,
}

impl Zipf {
    /// Zipf's law with exponent `theta`, a finite number that is not negative. 0
    /// is the uniform distribution, 0.99 the custom of benchmarks.
    pub fn new(theta: f64) -> Self {
        let mut zipf = Zipf {
            theta,
            low: 0.0,
            shortcut: 0.0,
            items: 0,
            high: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.shortcut = 2.0 - zipf.inverse_integral(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank below `items`, which is at least 1. Constant time.
    pub fn sample(&mut self, items: u64, rng: &mut Pcg64Mcg) -> u64 {
        if self.items != items {
            self.items = items;
            self.high = self.integral(items as f64 + 0.5);
        }
        loop {
            let variate = self.high + rng.random::<f64>() * (self.low - self.high);
            let x = self.inverse_integral(variate);
            let rank = ((x + 0.5) as u64).clamp(1, items);
            let k = rank as f64;
            if k - x <= self.shortcut || variate >= self.integral(k + 0.5) - self.density(k) {
                return rank - 1;
            }
        }
    }

    /// `h(x) = x^-theta`.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// `H(x) = (x^(1-theta) - 1) / (1-theta)`, which is `ln x` for theta = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        log * expm1_ratio((1.0 - self.theta) * log)
    }

    /// The inverse of [`Zipf::integral`].
    fn inverse_integral(&self, y: f64) -> f64 {
        // Rounding must not leave the domain of the logarithm.
        let t = ((1.0 - self.theta) * y).max(-1.0);
        libm::exp(y * ln1p_ratio(t))
    }
}

/// `(e^t - 1) / t`, continued to 1 at 0.
fn expm1_ratio(t: f64) -> f64 {
    if t.abs() < 1e-8 {
        1.0 + t / 2.0
    } else {
        libm::expm1(t) / t
    }
}

/// `ln(1 + t) / t`, continued to 1 at 0.
fn ln1p_ratio(t: f64) -> f64 {
    if t.abs() < 1e-8 {
        1.0 - t / 2.0
    } else {
        libm::log1p(t) / t
    }
}

/// How requests spread over the items. Items are numbered by age: the first
/// loaded is 0, the one inserted last has the highest number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requests {
    /// Each item alike.
    Uniform,
    /// Zipf's law.
    Zipfian {
        /// Its exponent.
        theta: f64,
        /// Whether hot items are strewn over all items, as YCSB does. The item
        /// of a rank is then the FNV-1a hash of the rank modulo the number of
        /// loaded items: **two ranks may share an item**, some items belong to no
        /// rank, and the hottest item is somewhat hotter than Zipf's law says.
        /// Items inserted during the run stay outside the hash, at the cold
        /// end; were the modulus to grow with them, each insert would move all hot
        /// items. Otherwise item `k` has rank `k`.
        scrambled: bool,
    },
    /// Zipf's law by age, the newest item first.
    Latest {
        /// Its exponent.
        theta: f64,
    },
    /// Some share of the requests goes to the first items, the hot set, the rest
    /// to the others; each alike within its set.
    Hotspot {
        /// Share of the items that are hot.
        data_fraction: f64,
        /// Share of the requests that go to them.
        operation_fraction: f64,
    },
    /// Item after item. Sessions take turns: together they walk through all
    /// items in order, and start again.
    Sequential,
    /// Exponentially fewer requests the older an item is: `share` of them go to
    /// the newest `fraction` of the items. The share is exact; YCSB's own, which
    /// draws again what lies beyond the oldest item, comes out at 0.98 for 0.95.
    Exponential {
        /// Share of the requests, more than `fraction` and less than 1.
        share: f64,
        /// Fraction of the items, more than 0 and less than 1.
        fraction: f64,
    },
}

/// Draws items for one session. The number of items may grow between samples;
/// every sample takes constant time.
#[derive(Clone, Debug)]
pub struct Chooser(Method);

#[derive(Clone, Debug)]
enum Method {
    Uniform,
    Zipfian(Zipf),
    Scrambled { zipf: Zipf, loaded: u64 },
    Latest(Zipf),
    Hotspot { data: f64, operations: f64 },
    Sequential { next: u64, step: u64 },
    Exponential { rate: f64 },
}

impl Chooser {
    /// The chooser of session `session` of `sessions`, over `loaded` items to
    /// begin with.
    pub fn new(requests: Requests, loaded: u64, session: u32, sessions: u32) -> Self {
        Chooser(match requests {
            Requests::Uniform => Method::Uniform,
            Requests::Zipfian { theta, scrambled } => {
                let zipf = Zipf::new(theta);
                if scrambled {
                    Method::Scrambled { zipf, loaded }
                } else {
                    Method::Zipfian(zipf)
                }
            }
            Requests::Latest { theta } => Method::Latest(Zipf::new(theta)),
            Requests::Hotspot {
                data_fraction,
                operation_fraction,
            } => Method::Hotspot {
                data: data_fraction,
                operations: operation_fraction,
            },
            Requests::Sequential => Method::Sequential {
                next: u64::from(session),
                step: u64::from(sessions),
            },
            Requests::Exponential { share, fraction } => Method::Exponential {
                rate: exponential_rate(share, fraction),
            },
        })
    }

    /// An item below `items`.
    ///
    /// # Panics
    ///
    /// When `items` is 0: there is nothing to choose from.
    pub fn sample(&mut self, items: u64, rng: &mut Pcg64Mcg) -> u64 {
        assert!(items > 0, "a chooser needs at least one item");
        let newest = items - 1;
        match &mut self.0 {
            Method::Uniform => rng.random_range(0..items),
            Method::Zipfian(zipf) => zipf.sample(items, rng),
            Method::Scrambled { zipf, loaded } => {
                let rank = zipf.sample(items, rng);
                let hashed = (*loaded).min(items);
                if rank < hashed {
                    java_abs(fnv1a_64(rank)) % hashed
                } else {
                    rank
                }
            }
            Method::Latest(zipf) => newest - zipf.sample(items, rng),
            Method::Hotspot { data, operations } => {
                let hot = ((items as f64 * *data) as u64).min(items);
                let wants_hot = rng.random::<f64>() < *operations;
                if hot > 0 && (wants_hot || hot == items) {
                    rng.random_range(0..hot)
                } else {
                    rng.random_range(hot..items)
                }
            }
            Method::Sequential { next, step } => {
                let item = *next % items;
                *next = item + *step;
                item
            }
            Method::Exponential { rate } => {
                let mass = -libm::expm1(-*rate);
                let age = -libm::log1p(-rng.random::<f64>() * mass) / *rate;
                newest - ((age * items as f64) as u64).min(newest)
            }
        }
    }
}

/// The rate of the exponential distribution, cut off at 1, that has `share` of
/// its mass below `fraction`: the root of an increasing function, by bisection.
fn exponential_rate(share: f64, fraction: f64) -> f64 {
    let mass_below = |rate: f64| libm::expm1(-rate * fraction) / libm::expm1(-rate);
    // Without the cut-off this rate is right; with it, too high.
    let (mut low, mut high) = (0.0, -libm::log1p(-share) / fraction);
    // Each step halves an interval of 53 significant bits.
    for _ in 0..64 {
        let middle = low + (high - low) / 2.0;
        if mass_below(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// How lengths vary: of values, in bytes, or of scans, in records.
#[derive(Clone, Debug)]
pub enum Lengths {
    /// Always the same.
    Constant(u32),
    /// Each length alike.
    Uniform {
        /// The shortest.
        min: u32,
        /// The longest.
        max: u32,
    },
    /// Zipf's law, the shortest first.
    Zipfian {
        /// The shortest.
        min: u32,
        /// The longest.
        max: u32,
        /// The law.
        zipf: Zipf,
    },
}

impl Lengths {
    /// The longest.
    pub fn max(&self) -> u32 {
        match *self {
            Lengths::Constant(max) | Lengths::Uniform { max, .. } => max,
            Lengths::Zipfian { max, .. } => max,
        }
    }

    /// A length. Constant time.
    pub fn sample(&mut self, rng: &mut Pcg64Mcg) -> u32 {
        match self {
            Lengths::Constant(length) => *length,
            Lengths::Uniform { min, max } => rng.random_range(*min..=*max),
            Lengths::Zipfian { min, max, zipf } => {
                let lengths = u64::from(*max - *min) + 1;
                *min + zipf.sample(lengths, rng) as u32
            }
        }
    }
}
