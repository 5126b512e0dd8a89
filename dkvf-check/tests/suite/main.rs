//! Tests of the public interface, one file per subject.

mod anomalies;
mod brute_force;
mod causal;
mod causal_brute_force;
mod causal_oracle;
mod common;
mod drafts;
mod entity_groups;
mod formats;
mod history_format;
mod levels;
mod linearizable;
mod metamorphic;
mod minimising;
mod native_format;
mod oracle;
mod pictures;
mod transactions;
