//! Entity groups: keys that a protocol keeps together.

use std::collections::BTreeMap;

use crate::history::History;

/// Which group each key belongs to. Within a group, parallel snapshot isolation is then asked to be snapshot isolation;
/// across groups it remains what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    names: Vec<String>,
    /// By key: a place in `names`.
    of: BTreeMap<Vec<u8>, u32>,
}

impl Groups {
    /// Puts `key` into the group called `group`; a key is in one group, the last one given. Takes time linear in the
    /// number of groups.
    ///
    /// # Panics
    ///
    /// When there are 2^32 groups.
    pub fn insert(&mut self, key: &[u8], group: &str) {
        let known = self.names.iter().position(|name| name == group);
        let index = known.unwrap_or_else(|| {
            self.names.push(group.to_owned());
            self.names.len() - 1
        });
        let index = u32::try_from(index).expect("fewer than 2^32 groups");
        self.of.insert(key.to_vec(), index);
    }

    /// The names of the groups, in the order of their first mention.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The group of each key of a history, by its number; the first key that has none otherwise.
    pub(crate) fn of_keys(&self, history: &History) -> Result<Vec<u32>, String> {
        let group = |key| {
            let group = self.of.get(history.key(key)).copied();
            group.ok_or_else(|| history.key_text(key))
        };
        history.keys().map(group).collect()
    }
}
