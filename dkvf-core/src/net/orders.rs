//! What a server can be told over its control port: to have something wrong with its links and its clock on purpose.

use serde::{Deserialize, Serialize};

/// Longest delay and largest step of a clock, in microseconds (one day).
pub const ORDERED_US_MAX: u64 = 86_400_000_000;

/// The body of `POST /links`: all that is wrong with the links between this server and another, which takes the place of
/// what was. What is not mentioned is in order.
///
/// A link that was cut resumes where it stopped: nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkOrder {
    /// The other server.
    pub peer: String,
    /// No connection to it: nothing that this server sends gets there.
    #[serde(default)]
    pub cut_to: bool,
    /// No connection from it: nothing that it sends is taken.
    #[serde(default)]
    pub cut_from: bool,
    /// What this server sends stays here until this ends, while the connection stays.
    #[serde(default)]
    pub hold: bool,
    /// What this server sends takes so much longer, in microseconds.
    #[serde(default)]
    pub delay_us: u64,
    /// And up to so much more, at random, in microseconds.
    #[serde(default)]
    pub jitter_us: u64,
}

impl LinkOrder {
    /// Nothing is wrong with the links to and from this server.
    pub fn mended(peer: &str) -> Self {
        LinkOrder {
            peer: peer.to_owned(),
            ..LinkOrder::default()
        }
    }

    /// # Errors
    /// A time is longer than [`ORDERED_US_MAX`].
    pub(crate) fn validate(&self) -> Result<(), String> {
        match [self.delay_us, self.jitter_us].into_iter().max() {
            Some(us) if us > ORDERED_US_MAX => Err(format!(
                "delay_us and jitter_us: {us} is more than {ORDERED_US_MAX}"
            )),
            _ => Ok(()),
        }
    }
}

/// The body of `POST /clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockOrder {
    /// The server's physical clock jumps by so many microseconds, back if negative.
    pub step_us: i64,
}

impl ClockOrder {
    /// # Errors
    /// The step is larger than [`ORDERED_US_MAX`].
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.step_us.unsigned_abs() > ORDERED_US_MAX {
            return Err(format!(
                "step_us: {} is more than {ORDERED_US_MAX} either way",
                self.step_us
            ));
        }
        Ok(())
    }
}
