//! Tests of the public interface, one file per subject.

mod anomalies;
mod brute_force;
mod causal;
mod causal_brute_force;
mod causal_oracle;
mod common;
mod drafts;
mod formats;
mod linearizable;
mod minimising;
mod native_format;
mod pictures;
