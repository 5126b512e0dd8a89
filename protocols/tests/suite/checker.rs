//! The exact check of causality for last-writer-wins stores (docs/protocols/README.md, 0.8), on what clients say they read and wrote.

use std::collections::BTreeMap;

use dkvf_core::script::{Finished, Operation};
use dkvf_core::{Key, Value, VersionKey};

type Versions = BTreeMap<Key, VersionKey>;

/// The causal past of every session and of every write. Every written value must be different.
#[derive(Default)]
pub struct Checker {
    past: BTreeMap<u32, Versions>,
    /// The writer's past at the write, by value.
    past_of: BTreeMap<Value, Versions>,
    writer_of: BTreeMap<(Key, VersionKey), Value>,
}

impl Checker {
    /// An operation starts.
    pub fn start(&mut self, session: u32, operation: &Operation) {
        if let Operation::Put(_, value) = operation {
            let past = self.past.entry(session).or_default().clone();
            assert!(self.past_of.insert(value.clone(), past).is_none(), "every value is written once");
        }
    }

    /// An operation ended. Says what is wrong with its result.
    pub fn end(&mut self, session: u32, finished: &Finished) -> Result<(), String> {
        let Ok(values) = &finished.outcome else {
            return Ok(());
        };
        let witnesses: Versions = finished.witnesses.iter().cloned().collect();
        match &finished.operation {
            Operation::Put(key, value) => {
                let version = *witnesses.get(key).ok_or("a write without a witness")?;
                self.learn(key, version, value)?;
                raise(self.past.entry(session).or_default(), key, version);
                Ok(())
            }
            Operation::Get(key) => self.read(session, std::slice::from_ref(key), values, &witnesses),
            Operation::ReadOnly(keys) => self.read(session, keys, values, &witnesses),
        }
    }

    /// A version and its writer are known. Versions are unique, and later than what they overwrite.
    fn learn(&mut self, key: &Key, version: VersionKey, value: &Value) -> Result<(), String> {
        let writer = self.writer_of.entry((key.clone(), version)).or_insert_with(|| value.clone());
        if writer != value {
            return Err(format!("{writer:?} and {value:?} are one version of {key:?}"));
        }
        let past = self.past_of.get(value).ok_or_else(|| format!("{value:?} was never written"))?;
        match past.get(key) {
            Some(before) if *before >= version => Err(format!("{value:?} is ordered before a version of {key:?} its writer knew")),
            _ => Ok(()),
        }
    }

    /// `keys` were read as one snapshot: it contains the session's past and that of every version in it.
    fn read(&mut self, session: u32, keys: &[Key], values: &[Option<Value>], witnesses: &Versions) -> Result<(), String> {
        let mut need = self.past.entry(session).or_default().clone();
        let mut got = Versions::new();
        for (key, value) in keys.iter().zip(values) {
            if let Some(value) = value {
                let version = *witnesses.get(key).ok_or("a read without a witness")?;
                self.learn(key, version, value)?;
                self.past_of[value].iter().for_each(|(key, version)| raise(&mut need, key, *version));
                got.insert(key.clone(), version);
            }
        }
        for key in keys {
            if need.get(key) > got.get(key) {
                return Err(format!("session {session} read {:?} of {key:?} in {values:?}, and {:?} is in its past", got.get(key), need[key]));
            }
        }
        got.iter().for_each(|(key, version)| raise(&mut need, key, *version));
        self.past.insert(session, need);
        Ok(())
    }
}

fn raise(versions: &mut Versions, key: &Key, version: VersionKey) {
    let newest = versions.entry(key.clone()).or_default();
    *newest = version.max(*newest);
}

/// The check itself is checked with histories that violate it.
mod tests {
    use super::*;

    fn key(name: &'static str) -> Key {
        Key::from_static(name.as_bytes())
    }

    fn write(checker: &mut Checker, session: u32, name: &'static str, value: &'static str, version: u128) -> Result<(), String> {
        let operation = Operation::Put(key(name), Value::from_static(value.as_bytes()));
        checker.start(session, &operation);
        checker.end(session, &Finished { operation, outcome: Ok(Vec::new()), witnesses: vec![(key(name), VersionKey(version))] })
    }

    fn read(checker: &mut Checker, session: u32, rows: &[(&'static str, Option<(&'static str, u128)>)]) -> Result<(), String> {
        let operation = Operation::ReadOnly(rows.iter().map(|(name, _)| key(name)).collect());
        let values = rows.iter().map(|(_, row)| row.map(|(value, _)| Value::from_static(value.as_bytes()))).collect();
        let witnesses = rows.iter().filter_map(|(name, row)| Some((key(name), VersionKey(row.as_ref()?.1)))).collect();
        checker.end(session, &Finished { operation, outcome: Ok(values), witnesses })
    }

    /// Session 1 writes x, then y.
    fn x_before_y() -> Checker {
        let mut checker = Checker::default();
        write(&mut checker, 1, "x", "x1", 10).unwrap();
        write(&mut checker, 1, "y", "y1", 11).unwrap();
        checker
    }

    #[test]
    fn reading_the_effect_without_its_cause_is_found() {
        let mut checker = x_before_y();
        read(&mut checker, 2, &[("y", Some(("y1", 11)))]).unwrap();
        read(&mut checker, 2, &[("x", None)]).unwrap_err();
    }

    #[test]
    fn a_torn_snapshot_is_found_and_a_whole_one_is_not() {
        read(&mut x_before_y(), 2, &[("x", None), ("y", Some(("y1", 11)))]).unwrap_err();
        read(&mut x_before_y(), 2, &[("x", Some(("x1", 10))), ("y", Some(("y1", 11)))]).unwrap();
        read(&mut x_before_y(), 2, &[("x", Some(("x1", 10))), ("y", None)]).unwrap();
    }

    #[test]
    fn a_lost_own_write_a_repeated_version_and_an_order_against_causality_are_found() {
        read(&mut x_before_y(), 1, &[("x", None)]).unwrap_err();
        write(&mut x_before_y(), 2, "x", "x2", 10).unwrap_err();
        write(&mut x_before_y(), 1, "x", "x2", 9).unwrap_err();
    }
}
