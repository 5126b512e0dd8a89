//! The order of the versions of each key: what the protocol reports, or what clients could see.

use crate::check::{Budget, Evidence};
use crate::history::{KeyId, OpId};
use crate::prepass::{Committed, INIT, Node, Rows, Undecided};

/// Where the order of the versions of a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// At most one transaction wrote it.
    Only,
    /// The protocol reports versions.
    Reported,
    /// The protocol reports commit stamps.
    Stamps,
    /// Clients read it as a list.
    List,
    /// Each transaction that wrote it had read the version before.
    Chain,
    /// Nobody told: the order is a hypothesis, or unknown.
    Open,
}

/// The versions of each key in order, as far as it is known.
pub(crate) struct Versions {
    /// By key: the writers in order, without [`INIT`], which is the first.
    orders: Rows<Node>,
    /// By key: writers that come after all those in the order, nobody knows in which order.
    rest: Rows<Node>,
    /// By [`Committed::writer_index`]: the place in the order, the first one is 1; `NO_PLACE` in the rest.
    places: Vec<u32>,
    sources: Vec<Source>,
}

const NO_PLACE: u32 = u32::MAX;

impl Versions {
    /// Under [`Evidence::WhiteBox`] undecided if the protocol does not report the order of each key; otherwise what it
    /// does not report is what clients saw.
    pub(crate) fn new(
        committed: &Committed,
        evidence: Evidence,
        budget: &Budget,
    ) -> Result<Self, Undecided> {
        let history = committed.history;
        budget.reserve(committed.writer_count() * 48 + history.key_count() * 12)?;
        let mut collector = Collector {
            committed,
            reports: match evidence {
                Evidence::BlackBox => None,
                Evidence::Auto | Evidence::WhiteBox => Some(Reports::new(committed)),
            },
            strict: evidence == Evidence::WhiteBox,
            versions: Versions {
                orders: Rows::default(),
                rest: Rows::default(),
                places: vec![NO_PLACE; committed.writer_count()],
                sources: Vec::with_capacity(history.key_count()),
            },
        };
        for key in history.keys() {
            budget.spend(committed.writers(key).len() + 1)?;
            collector.key(key)?;
        }
        Ok(collector.versions)
    }

    /// The known part of the order of a key, without [`INIT`].
    pub(crate) fn order(&self, key: KeyId) -> &[Node] {
        self.orders.row(key.index())
    }

    /// Writers that come after all those of [`Versions::order`], nobody knows in which order; none or at least two.
    pub(crate) fn rest(&self, key: KeyId) -> &[Node] {
        self.rest.row(key.index())
    }

    /// Whether the order of every key is known.
    pub(crate) fn is_complete(&self) -> bool {
        self.rest.item_count() == 0
    }

    /// The place of a writer in the order of a key: 0 for [`INIT`], `None` in the rest.
    pub(crate) fn place(&self, committed: &Committed, key: KeyId, node: Node) -> Option<u32> {
        if node == INIT {
            return Some(0);
        }
        let place = self.places[committed.writer_index(key, node)?];
        (place != NO_PLACE).then_some(place)
    }

    /// The writer of the version that directly follows the one that `node` wrote, if that is known.
    pub(crate) fn next(&self, committed: &Committed, key: KeyId, node: Node) -> Option<Node> {
        let place = self.place(committed, key, node)?;
        self.order(key).get(place as usize).copied()
    }

    /// Where the order of a key comes from.
    pub(crate) fn source(&self, key: KeyId) -> Source {
        self.sources[key.index()]
    }

    /// The same for models to which reads mean nothing: what follows from them is not known.
    pub(crate) fn without_chains(self, committed: &Committed) -> Versions {
        let mut result = Versions {
            orders: Rows::default(),
            rest: Rows::default(),
            places: vec![NO_PLACE; self.places.len()],
            sources: Vec::new(),
        };
        for key in committed.history.keys() {
            let (order, rest) = (self.order(key).to_vec(), self.rest(key).to_vec());
            match self.source(key) {
                Source::Chain => result.add(committed, key, (Source::Open, Vec::new(), order)),
                source => result.add(committed, key, (source, order, rest)),
            }
        }
        result
    }

    /// Adds the next key: where its order comes from, the known order, and the rest.
    fn add(
        &mut self,
        committed: &Committed,
        key: KeyId,
        (source, order, rest): (Source, Vec<Node>, Vec<Node>),
    ) {
        self.set_places(committed, key, &order);
        self.orders.push(order);
        self.rest.push(rest);
        self.sources.push(source);
    }

    fn set_places(&mut self, committed: &Committed, key: KeyId, order: &[Node]) {
        for (place, &node) in (1..).zip(order) {
            if let Some(index) = committed.writer_index(key, node) {
                self.places[index] = place;
            }
        }
    }
}

/// What the protocol reports about versions.
struct Reports {
    /// By [`Committed::writer_index`]: the version, and the operation that first reported it.
    versions: Vec<Option<(u128, u32)>>,
    /// The first contradiction of each key that has one.
    contradictions: std::collections::BTreeMap<KeyId, String>,
    /// By key: the greatest version reported for the initial one.
    initial: std::collections::BTreeMap<KeyId, u128>,
}

impl Reports {
    fn new(committed: &Committed) -> Self {
        let mut reports = Reports {
            versions: vec![None; committed.writer_count()],
            contradictions: Default::default(),
            initial: Default::default(),
        };
        for node in committed.nodes() {
            for write in committed.writes(node) {
                reports.add(committed, write.key, node, write.op());
            }
        }
        for node in committed.nodes() {
            for read in committed.reads(node) {
                reports.add(committed, read.key, read.from, read.op());
            }
        }
        reports
    }

    /// `op` read or wrote the version of `key` that `node` wrote.
    fn add(&mut self, committed: &Committed, key: KeyId, node: Node, op: OpId) {
        let history = committed.history;
        let Some(version) = history.operations()[op].version else {
            return;
        };
        if node == INIT {
            let initial = self.initial.entry(key).or_insert(version);
            *initial = (*initial).max(version);
            return;
        }
        // A read of an intermediate version has no writer here.
        let Some(index) = committed.writer_index(key, node) else {
            return;
        };
        match self.versions[index] {
            None => self.versions[index] = Some((version, op as u32)),
            Some((before, first)) if before != version => {
                self.contradictions.entry(key).or_insert_with(|| {
                    format!(
                        "one version of key {} is reported as {before:#x} (#{first}) and as {version:#x} (#{op})",
                        history.key_text(key),
                    )
                });
            }
            Some(_) => {}
        }
    }
}

struct Collector<'a, 'h> {
    committed: &'a Committed<'h>,
    reports: Option<Reports>,
    /// Whether the protocol must report the order.
    strict: bool,
    versions: Versions,
}

impl Collector<'_, '_> {
    fn key(&mut self, key: KeyId) -> Result<(), Undecided> {
        let order = self.order(key)?;
        self.versions.add(self.committed, key, order);
        Ok(())
    }

    /// The known order of a key, where it comes from, and the rest.
    fn order(&self, key: KeyId) -> Result<(Source, Vec<Node>, Vec<Node>), Undecided> {
        let writers: Vec<Node> = self
            .committed
            .writers(key)
            .iter()
            .map(|write| write.node)
            .collect();
        if writers.len() < 2 {
            return Ok((Source::Only, writers, Vec::new()));
        }
        if let Some(reports) = &self.reports {
            let reported = self.reported(reports, key);
            match (reported, self.by_stamps(&writers)) {
                (Ok(order), _) => return Ok((Source::Reported, order, Vec::new())),
                (Err(_), Some(order)) => return Ok((Source::Stamps, order, Vec::new())),
                (Err(reason), None) if self.strict => return Err(Undecided(reason)),
                (Err(_), None) => {}
            }
        }
        if self.committed.is_list(key) {
            return Ok(self.by_list(key, &writers));
        }
        Ok(match self.by_chain(key) {
            Some(order) => (Source::Chain, order, Vec::new()),
            None => (Source::Open, Vec::new(), writers),
        })
    }

    fn reported(&self, reports: &Reports, key: KeyId) -> Result<Vec<Node>, String> {
        if let Some(contradiction) = reports.contradictions.get(&key) {
            return Err(contradiction.clone());
        }
        let history = self.committed.history;
        let text = history.key_text(key);
        let mut versions = Vec::new();
        for write in self.committed.writers(key) {
            let index = self.committed.writer_index(key, write.node);
            let version = index.and_then(|index| reports.versions[index]);
            let Some((version, _)) = version else {
                return Err(format!(
                    "the version of key {text} that #{} wrote is not known",
                    write.op()
                ));
            };
            versions.push((version, write.node, write.op()));
        }
        versions.sort_unstable();
        if let Some(pair) = versions.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (version, first, second) = (pair[0].0, pair[0].2, pair[1].2);
            return Err(format!(
                "two values of key {text} are reported with the same version {version:#x} (#{first} and #{second})"
            ));
        }
        match (reports.initial.get(&key), versions.first()) {
            (Some(initial), Some((first, _, op))) if initial >= first => Err(format!(
                "the initial version of key {text} is reported as {initial:#x}, which is not less than {first:#x} (#{op})"
            )),
            _ => Ok(versions.into_iter().map(|(_, node, _)| node).collect()),
        }
    }

    /// The order of the commit stamps, if they are in one.
    fn by_stamps(&self, writers: &[Node]) -> Option<Vec<Node>> {
        let history = self.committed.history;
        let mut stamps = Vec::new();
        for &node in writers {
            let stamp = history.stamps(self.committed.transaction(node)?)?;
            if stamp.commit.is_empty() {
                return None;
            }
            stamps.push((&stamp.commit[..], node));
        }
        stamps.sort_unstable();
        let is_less = |a: &[u64], b: &[u64]| {
            a.len() == b.len() && a != b && a.iter().zip(b).all(|(a, b)| a <= b)
        };
        stamps
            .windows(2)
            .all(|pair| is_less(pair[0].0, pair[1].0))
            .then(|| stamps.iter().map(|&(_, node)| node).collect())
    }

    /// What was read of a list is its beginning.
    fn by_list(&self, key: KeyId, writers: &[Node]) -> (Source, Vec<Node>, Vec<Node>) {
        let mut order = self.committed.list_order(key).to_vec();
        let mut seen = order.clone();
        seen.sort_unstable();
        let mut rest: Vec<Node> = writers
            .iter()
            .copied()
            .filter(|node| seen.binary_search(node).is_err())
            .collect();
        if rest.len() == 1 {
            order.append(&mut rest);
        }
        (Source::List, order, rest)
    }

    /// If each writer read the version before its own and no two read the same one, that is the order.
    fn by_chain(&self, key: KeyId) -> Option<Vec<Node>> {
        let mut successors = Vec::new();
        for write in self.committed.writers(key) {
            let mut reads = self.committed.reads(write.node).iter();
            successors.push((reads.find(|read| read.key == key)?.from, write.node));
        }
        successors.sort_unstable();
        let mut order = Vec::new();
        let mut last = INIT;
        while let Ok(place) = successors.binary_search_by_key(&last, |&(from, _)| from) {
            last = successors[place].1;
            order.push(last);
            if order.len() > successors.len() {
                return None;
            }
        }
        (order.len() == successors.len()).then_some(order)
    }
}
