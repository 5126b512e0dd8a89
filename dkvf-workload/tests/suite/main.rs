//! Tests of the public interface, one file per subject.

mod distributions;
mod measurements;
mod recording;
mod sessions;
mod specs;
