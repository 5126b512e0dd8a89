//! Tests of the public interface, one file per subject.

mod distributions;
mod driving;
mod measurements;
mod recording;
mod sessions;
mod specs;
