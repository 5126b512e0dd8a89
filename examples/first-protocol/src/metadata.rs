//! The messages, generated from `primary.proto`.

include!(concat!(env!("OUT_DIR"), "/primary.rs"));
