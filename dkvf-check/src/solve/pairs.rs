//! What is not known of the order of versions, as claims about pairs of them.

use crate::check::Budget;
use crate::graph::{Graph, Link, Step, Versions};
use crate::history::KeyId;
use crate::prepass::{Committed, INIT, Node, Rows, Undecided};
use crate::verdict::EdgeKind;

/// That the version of `key` which `first` wrote precedes the one of `second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) key: KeyId,
    pub(super) first: Node,
    pub(super) second: Node,
}

impl Claim {
    pub(super) fn opposite(self) -> Claim {
        Claim {
            first: self.second,
            second: self.first,
            ..self
        }
    }

    /// The claim of this pair that is in [`Pairs::claims`].
    fn canonical(self) -> Claim {
        if self.first < self.second {
            self
        } else {
            self.opposite()
        }
    }
}

/// The pairs of versions whose order is not known.
pub(super) struct Pairs<'a, 'h> {
    committed: &'a Committed<'h>,
    /// One claim for each pair, ascending.
    pub(super) claims: Vec<Claim>,
    /// By [`Committed::writer_index`]: who read the version.
    readers: Rows<Node>,
}

impl<'a, 'h> Pairs<'a, 'h> {
    pub(super) fn new(
        committed: &'a Committed<'h>,
        versions: &Versions,
        budget: &Budget,
    ) -> Result<Self, Undecided> {
        let keys = || committed.history.keys();
        let size = |key| {
            let open = versions.rest(key).len();
            open * open.saturating_sub(1) / 2
        };
        budget.reserve(keys().map(size).sum::<usize>() * 2 * size_of::<Claim>())?;
        let mut claims = Vec::new();
        for key in keys() {
            let rest = versions.rest(key);
            for (place, &first) in rest.iter().enumerate() {
                budget.spend(rest.len())?;
                let later = rest[place + 1..].iter();
                claims.extend(later.map(|&second| Claim { key, first, second }.canonical()));
            }
        }
        claims.sort_unstable();
        let mut reads = Vec::new();
        for node in committed.nodes() {
            for read in committed
                .reads(node)
                .iter()
                .filter(|read| read.from != INIT)
            {
                if let Some(index) = committed.writer_index(read.key, read.from) {
                    reads.push((index as u32, node));
                }
            }
        }
        Ok(Pairs {
            committed,
            claims,
            readers: Rows::new(committed.writer_count(), &reads),
        })
    }

    /// The number of the pair that a claim is about, and whether the claim is the one in [`Pairs::claims`].
    pub(super) fn number(&self, claim: Claim) -> Option<(usize, bool)> {
        let canonical = claim.canonical();
        let number = self.claims.binary_search(&canonical).ok()?;
        Some((number, claim == canonical))
    }

    /// The edges that a claim implies: the order of the two versions, and that whoever read the first one comes before
    /// the writer of the second one.
    pub(super) fn edges(&self, claim: Claim) -> impl Iterator<Item = (u32, Link)> {
        let Claim { key, first, second } = claim;
        let link = move |kind| Link {
            to: second,
            kind,
            key: Some(key),
        };
        let index = self.committed.writer_index(key, first);
        let readers = index.map_or(&[][..], |index| self.readers.row(index));
        let readers = readers.iter().filter(move |&&reader| reader != second);
        std::iter::once((first, link(EdgeKind::VersionOrder)))
            .chain(readers.map(move |&reader| (reader, link(EdgeKind::AntiDependency))))
    }

    /// The claim that an edge of a cycle rests on, if it is not known anyway.
    pub(super) fn claim_of(&self, step: &Step) -> Option<Claim> {
        let key = step.key?;
        let first = match step.kind {
            EdgeKind::VersionOrder => step.from,
            EdgeKind::AntiDependency => {
                let mut reads = self.committed.reads(step.from).iter();
                reads.find(|read| read.key == key)?.from
            }
            _ => return None,
        };
        let second = step.to;
        let claim = Claim { key, first, second };
        self.number(claim).map(|_| claim)
    }

    /// `graph` with the edges of `claims`.
    pub(super) fn graph_with(&self, graph: &Graph, claims: impl Iterator<Item = Claim>) -> Graph {
        let edges: Vec<(u32, Link)> = claims.flat_map(|claim| self.edges(claim)).collect();
        graph.extended(&edges)
    }
}
