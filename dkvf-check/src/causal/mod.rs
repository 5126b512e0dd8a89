//! Causal consistency and its relatives, from what clients saw (VERIFICATION, sections 3.1 and 3.2; Bouajjani et al.,
//! POPL 2017; Biswas and Enea, OOPSLA 2019).

mod clocks;
mod explain;
mod forced;
mod judge;
mod memory;
mod order;
mod path;
mod saturate;

pub(crate) use clocks::{Clocks, Visit};
pub(crate) use explain::{Explainer, Visible};
pub(crate) use forced::Forced;
pub(crate) use judge::{check, cyclic_causality};
pub(crate) use order::CausalOrder;
pub(crate) use path::{Along, Route, shortest};
pub(crate) use saturate::{by_key, missed};
