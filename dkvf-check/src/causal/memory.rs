//! Causal memory: each session has one order of all it knows that explains all its reads (Ahamad et al. 1995;
//! Bouajjani et al., POPL 2017).

use crate::check::Budget;
use crate::history::KeyId;
use crate::prepass::{INIT, Node, Undecided};

use super::forced::Forced;
use super::order::CausalOrder;

/// A session that no order explains.
pub(super) struct Unexplained {
    pub(super) session: usize,
    /// What its reads force, each given those before it and causality; the last one contradicts the rest.
    pub(super) forced: Vec<Forced>,
}

/// The first session that no order explains. The order must include that of sessions.
pub(super) fn unexplained(
    order: &CausalOrder,
    budget: &Budget,
) -> Result<Option<Unexplained>, Undecided> {
    for (session, nodes) in order.committed.sessions().enumerate() {
        let last_read = nodes
            .clone()
            .rev()
            .find(|&node| !order.committed.reads(node).is_empty());
        let Some(last) = last_read else {
            continue;
        };
        let mut knowledge = Knowledge::new(order, last, budget)?;
        if !knowledge.saturate(nodes.start..last + 1)? {
            return Ok(Some(Unexplained {
                session,
                forced: knowledge.forced,
            }));
        }
    }
    Ok(None)
}

/// The happened-before order of what a session knows, as bit sets.
struct Knowledge<'k, 'o, 'a, 'h> {
    order: &'o CausalOrder<'a, 'h>,
    budget: &'k Budget<'k>,
    /// By number: its node; causes have smaller numbers.
    nodes: Vec<Node>,
    /// By node: its number plus one; 0 if it is not known.
    numbers: Vec<u32>,
    /// By number: what happened before it, `words` words for each.
    before: Vec<u64>,
    words: usize,
    forced: Vec<Forced>,
}

impl<'k, 'o, 'a, 'h> Knowledge<'k, 'o, 'a, 'h> {
    /// What causality says about `last` and its past.
    fn new(
        order: &'o CausalOrder<'a, 'h>,
        last: Node,
        budget: &'k Budget,
    ) -> Result<Self, Undecided> {
        let mut numbers = vec![0; order.committed.node_count()];
        let mut unvisited = vec![last];
        numbers[last as usize] = 1;
        while let Some(node) = unvisited.pop() {
            for cause in causes(order, node) {
                if numbers[cause as usize] == 0 {
                    numbers[cause as usize] = 1;
                    unvisited.push(cause);
                }
            }
        }
        let is_known = |&node: &Node| numbers[node as usize] > 0;
        let nodes: Vec<Node> = order.sorted().iter().copied().filter(is_known).collect();
        for (number, &node) in (1..).zip(&nodes) {
            numbers[node as usize] = number;
        }
        let words = nodes.len().div_ceil(64);
        budget.reserve(nodes.len() * words * 8)?;
        let mut knowledge = Knowledge {
            order,
            budget,
            before: vec![0; nodes.len() * words],
            nodes,
            numbers,
            words,
            forced: Vec::new(),
        };
        for number in 0..knowledge.nodes.len() {
            for cause in causes(order, knowledge.nodes[number]) {
                let cause = knowledge
                    .number(cause)
                    .expect("invariant: causes of what is known are known");
                knowledge.follow(number, cause)?;
            }
        }
        Ok(knowledge)
    }

    fn number(&self, node: Node) -> Option<usize> {
        (self.numbers[node as usize] as usize).checked_sub(1)
    }

    fn is_before(&self, earlier: usize, later: usize) -> bool {
        self.before[later * self.words + earlier / 64] >> (earlier % 64) & 1 == 1
    }

    /// Puts `earlier`, and what is before it, before `later`.
    fn follow(&mut self, later: usize, earlier: usize) -> Result<(), Undecided> {
        for word in 0..self.words {
            self.before[later * self.words + word] |= self.before[earlier * self.words + word];
        }
        self.before[later * self.words + earlier / 64] |= 1 << (earlier % 64);
        Ok(self.budget.spend(1 + self.words / 8)?)
    }

    /// Adds what the reads of the session force until nothing more follows; whether that is still an order.
    fn saturate(&mut self, session: std::ops::Range<Node>) -> Result<bool, Undecided> {
        loop {
            let known = self.forced.len();
            for node in session.clone() {
                let committed = self.order.committed;
                for read in committed.reads(node) {
                    for older in committed.writers(read.key) {
                        if !self.force(node, older.node, read.from, read.key)? {
                            return Ok(false);
                        }
                    }
                }
            }
            if self.forced.len() == known {
                return Ok(true);
            }
        }
    }

    /// If `reader`, who read `key` from `newer`, sees what `older` wrote, then that came first; whether it can have.
    fn force(
        &mut self,
        reader: Node,
        older: Node,
        newer: Node,
        key: KeyId,
    ) -> Result<bool, Undecided> {
        self.budget.spend(1)?;
        let (Some(reader), Some(earlier)) = (self.number(reader), self.number(older)) else {
            return Ok(true);
        };
        if older == newer || !self.is_before(earlier, reader) {
            return Ok(true);
        }
        let forced = Forced { older, newer, key };
        if newer == INIT {
            self.forced.push(forced);
            return Ok(false);
        }
        let later = self
            .number(newer)
            .expect("invariant: what was read is known");
        if self.is_before(earlier, later) {
            return Ok(true);
        }
        self.forced.push(forced);
        if self.is_before(later, earlier) {
            return Ok(false);
        }
        for number in 0..self.nodes.len() {
            if number == later || self.is_before(later, number) {
                self.follow(number, earlier)?;
            }
        }
        Ok(true)
    }
}

/// The direct causes of a node.
fn causes(order: &CausalOrder, node: Node) -> impl Iterator<Item = Node> {
    let sources = order.committed.reads(node).iter().map(|read| read.from);
    let sources = sources.filter(|&from| from != INIT);
    sources.chain(order.previous(node))
}
