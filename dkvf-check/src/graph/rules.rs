//! What a model forbids, in the whole graph and within groups of keys.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::check::Budget;
use crate::groups::Groups;
use crate::history::{History, KeyId};
use crate::model::{Model, Order};
use crate::prepass::Undecided;

use super::level::Level;
use super::search::{Part, Step};

/// The cycles that a model forbids.
pub(crate) struct Rules<'g> {
    pub(crate) model: Model,
    whole: &'static [Level],
    groups: Option<Membership<'g>>,
}

/// The groups of the keys of a history.
struct Membership<'g> {
    groups: &'g Groups,
    /// By key: its group.
    of: Vec<u32>,
}

/// The keys that a rule is about: those of a group, or all.
pub(crate) type Scope = Option<u32>;

/// A cycle that is forbidden.
pub(crate) struct Forbidden {
    pub(crate) scope: Scope,
    /// The weakest level that contains it.
    pub(crate) level: Level,
    pub(crate) cycle: Vec<Step>,
}

impl<'g> Rules<'g> {
    /// Groups matter only to parallel snapshot isolation. Undecided if a key is in no group.
    pub(crate) fn new(
        model: Model,
        history: &History,
        groups: Option<&'g Groups>,
    ) -> Result<Self, Undecided> {
        let membership = |groups: &'g Groups| match groups.of_keys(history) {
            Ok(of) => Ok(Membership { groups, of }),
            Err(key) => Err(Undecided(format!("key {key} is in no group"))),
        };
        let groups = groups.filter(|_| model == Model::Psi).map(membership);
        Ok(Rules {
            model,
            whole: Level::forbidden(model).expect("invariant: a model of transactions"),
            groups: groups.transpose()?,
        })
    }

    /// What is forbidden in a scope, the worst first.
    pub(crate) fn levels(&self, scope: Scope) -> &'static [Level] {
        match scope {
            None => self.whole,
            Some(_) => Level::forbidden(Model::Si).expect("invariant: a model of transactions"),
        }
    }

    /// The most permissive level of a scope, which contains the others.
    pub(crate) fn last_level(&self, scope: Scope) -> Level {
        let levels = self.levels(scope);
        *levels.last().expect("invariant: a model forbids something")
    }

    /// All levels of all scopes.
    pub(crate) fn all_levels(&self) -> &'static [Level] {
        self.levels(self.groups.as_ref().map(|_| 0))
    }

    /// The scopes that have something to say about some of `keys`: the whole, and their groups.
    pub(crate) fn scopes(&self, keys: impl Iterator<Item = KeyId>) -> Vec<Scope> {
        let groups: BTreeSet<Scope> = match &self.groups {
            None => BTreeSet::new(),
            Some(membership) => keys.map(|key| Some(membership.of[key.index()])).collect(),
        };
        std::iter::once(None).chain(groups).collect()
    }

    /// Whether `key` belongs to a scope.
    pub(crate) fn is_in(&self, scope: Scope, key: KeyId) -> bool {
        match (&self.groups, scope) {
            (Some(membership), Some(group)) => membership.of[key.index()] == group,
            _ => true,
        }
    }

    /// The scope in which a cycle is forbidden.
    pub(crate) fn scope_of(&self, cycle: &[Step]) -> Scope {
        if self
            .last_level(None)
            .contains(cycle.iter().map(|step| step.kind))
        {
            return None;
        }
        let keys = cycle.iter().filter_map(|step| step.key);
        self.scopes(keys).last().copied().flatten()
    }

    /// What people call a scope, if it is not the whole.
    pub(crate) fn name(&self, scope: Scope) -> Option<&'g str> {
        let groups = self.groups.as_ref()?.groups;
        groups.names().get(scope? as usize).map(String::as_str)
    }

    /// The worst cycle of a part that is forbidden.
    pub(crate) fn worst(
        &self,
        part: &Part,
        order: Order,
        budget: &Budget,
    ) -> Result<Option<Forbidden>, Undecided> {
        for scope in self.scopes(part.keys()) {
            let part = self.scoped(part, scope);
            for &level in self.levels(scope) {
                if let Some(cycle) = part.find(level, order, budget)? {
                    return Ok(Some(Forbidden {
                        scope,
                        level,
                        cycle,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Some forbidden cycles of a part, about `count` of each scope.
    pub(crate) fn several(
        &self,
        part: &Part,
        order: Order,
        count: usize,
        budget: &Budget,
    ) -> Result<Vec<Vec<Step>>, Undecided> {
        let mut cycles = Vec::new();
        for scope in self.scopes(part.keys()) {
            let part = self.scoped(part, scope);
            cycles.extend(part.several(self.last_level(scope), order, count, budget)?);
        }
        Ok(cycles)
    }

    fn scoped<'p, 'a>(&self, part: &'p Part<'a>, scope: Scope) -> Cow<'p, Part<'a>> {
        match scope {
            None => Cow::Borrowed(part),
            Some(_) => Cow::Owned(part.only(|key| self.is_in(scope, key))),
        }
    }
}
