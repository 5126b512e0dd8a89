//! The simulator's side of histories: making one, and hashing it.

use std::io::{self, BufWriter, Write};

use dkvf_check::{About, History, native};
use dkvf_core::Protocol;
use dkvf_workload::{Recorder, Workload};
use xxhash_rust::xxh3::Xxh3;

/// The history of a run.
pub(crate) fn history<P: Protocol>(
    recorder: &Recorder,
    workload: &Workload,
    replicas: usize,
    seed: u64,
) -> History {
    let sites: Vec<String> = (0..replicas)
        .map(|replica| format!("dc{replica}"))
        .collect();
    let about = About {
        workload: workload.spec().name.clone(),
        clock: "virtual".to_owned(),
        claims: P::claims()
            .models
            .iter()
            .map(|model| (*model).to_owned())
            .collect(),
        seed: Some(seed),
    };
    Recorder::history([recorder], workload, &sites, about)
}

/// The native format is written in small pieces, and a hash likes large ones.
const BUFFER_BYTES: usize = 1 << 14;

/// A hash of the history's native form.
pub(crate) fn hash(history: &History) -> u64 {
    let mut hash = HashWriter(Xxh3::new());
    native::write(history, BufWriter::with_capacity(BUFFER_BYTES, &mut hash))
        .expect("invariant: a hash takes everything, and writing ends with a flush");
    hash.0.digest()
}

struct HashWriter(Xxh3);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
