//! Tests of the public interface, one file per subject.

mod distributions;
mod driving;
mod fault_files;
mod measurements;
mod nemesis;
mod recording;
mod sessions;
mod specs;
