//! A short notation for histories.

use dkvf_check::{History, Kind, OpId, Operation, Outcome};

/// Builds a history whose operations follow one another in time, 10 us apart.
#[derive(Default)]
pub struct Script {
    pub history: History,
}

impl Script {
    /// An acknowledged operation of `session`, which is bound to `site`. The
    /// value `""` is the initial version.
    pub fn op(&mut self, session: u32, site: &str, kind: Kind, key: &str, value: &str) -> OpId {
        let id = self.history.operations().len();
        let invoke_us = 10 * id as u64;
        let operation = Operation {
            process: session,
            session,
            site: self.history.site_id(site),
            kind,
            key: self.history.key_id(key.as_bytes()),
            value: (!value.is_empty()).then(|| self.history.value_id(value.as_bytes())),
            version: None,
            invoke_us,
            complete_us: Some(invoke_us + 5),
            outcome: Outcome::Ok,
        };
        self.history.push(operation)
    }

    /// `session` wrote `value` to `x`.
    pub fn w(&mut self, session: u32, value: &str) -> OpId {
        self.op(session, "", Kind::Write, "x", value)
    }

    /// `session` read `value` from `x`.
    pub fn r(&mut self, session: u32, value: &str) -> OpId {
        self.op(session, "", Kind::Read, "x", value)
    }
}

/// The same history with each operation passed through `change`.
pub fn changed(history: &History, change: impl Fn(OpId, &mut Operation)) -> History {
    let mut result = History::new(history.about.clone());
    for site in history.sites() {
        result.site_id(site);
    }
    for (id, op) in history.operations().iter().enumerate() {
        let mut op = *op;
        op.key = result.key_id(history.key(op.key));
        op.value = op.value.map(|value| result.value_id(history.value(value)));
        change(id, &mut op);
        result.push(op);
    }
    result
}
