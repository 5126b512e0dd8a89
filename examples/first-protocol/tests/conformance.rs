//! What every protocol is put through.

dkvf_sim::conformance!(first_protocol::Primary);
