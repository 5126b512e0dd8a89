//! What is in the causal past of each transaction, as vector clocks.

use std::ops::Range;

use crate::check::Budget;
use crate::prepass::{INIT, Node, Undecided};

use super::order::CausalOrder;

/// Some of the transactions, divided into sequences in which each one is a cause of the next: sessions, cut where a
/// `u16` would not do.
pub(crate) struct Chains {
    /// By node; means nothing for a node that is not a member.
    chain: Vec<u32>,
    /// By node: its place in its chain, the first one is 1; 0 for a node that is not a member.
    place: Vec<u16>,
    count: usize,
}

impl Chains {
    fn new(order: &CausalOrder, is_member: impl Fn(Node) -> bool) -> Self {
        let nodes = order.committed.node_count();
        let mut chains = Chains {
            chain: vec![0; nodes],
            place: vec![0; nodes],
            count: 0,
        };
        let mut length = 0;
        for node in order.committed.nodes() {
            if order.previous(node).is_none() {
                length = 0;
            }
            if !is_member(node) {
                continue;
            }
            if length == 0 || length == u16::MAX {
                chains.count += 1;
                length = 0;
            }
            length += 1;
            chains.chain[node as usize] = chains.count as u32 - 1;
            chains.place[node as usize] = length;
        }
        chains
    }

    /// The chain of a member. Chains are ascending in the order of nodes.
    pub(crate) fn chain(&self, member: Node) -> u32 {
        self.chain[member as usize]
    }

    /// The place of a member in its chain, from 1; 0 for other nodes.
    pub(crate) fn place(&self, node: Node) -> u16 {
        self.place[node as usize]
    }
}

/// How many members of each of some chains are in a causal past: always the first ones.
pub(crate) struct Past<'p> {
    chains: &'p Range<u32>,
    counts: &'p [u16],
}

impl Past<'_> {
    /// How many members of a chain; 0 for a chain of another pass.
    pub(crate) fn count(&self, chain: u32) -> u16 {
        let index = chain.wrapping_sub(self.chains.start);
        self.counts.get(index as usize).copied().unwrap_or(0)
    }
}

/// What a visitor of [`Clocks::visit`] is shown.
pub(crate) struct Visit<'p> {
    /// The chains of this pass.
    pub(crate) chains: &'p Range<u32>,
    pub(crate) node: Node,
    /// What is in its causal past, without itself.
    pub(crate) past: Past<'p>,
    slots: &'p Slots,
}

impl<'p> Visit<'p> {
    /// The causal past of a transaction that this one read from, with that transaction itself; that of [`INIT`] is
    /// empty.
    pub(crate) fn past_of_source(&self, source: Node) -> Past<'p> {
        Past {
            chains: self.chains,
            counts: self.slots.get(source),
        }
    }
}

/// The vector clocks of all transactions.
///
/// With n transactions and k chains, all of them take O(n k) time. Only the clocks that are still needed are in memory,
/// and if they are too many, each of several passes looks at a part of the chains.
pub(crate) struct Clocks<'o, 'a, 'h> {
    order: &'o CausalOrder<'a, 'h>,
    pub(crate) chains: Chains,
    /// By node: by how many reads and session successors its clock is needed.
    needed: Vec<u32>,
    /// How many chains a pass looks at.
    width: usize,
}

impl<'o, 'a, 'h> Clocks<'o, 'a, 'h> {
    /// The clocks of an acyclic order, which count the nodes that are `is_member`.
    pub(crate) fn new(
        order: &'o CausalOrder<'a, 'h>,
        is_member: impl Fn(Node) -> bool,
        budget: &Budget,
    ) -> Result<Self, Undecided> {
        /// Larger tables would not make it faster.
        const TABLE_BYTES_MAX: usize = 512 << 20;
        let needed: Vec<u32> = (0..order.committed.node_count() as Node)
            .map(|node| match node {
                INIT => 0,
                _ => order.readers(node).len() as u32 + u32::from(order.next(node).is_some()),
            })
            .collect();
        let chains = Chains::new(order, is_member);
        let table = TABLE_BYTES_MAX.min(budget.memory_bytes / 2);
        let clocks = peak(order, &needed) + 2;
        let width = (table / (clocks * size_of::<u16>())).clamp(1, chains.count.max(1));
        budget.reserve(clocks * width * size_of::<u16>())?;
        Ok(Clocks {
            order,
            chains,
            needed,
            width,
        })
    }

    /// Shows the causal past of every node, causes first, once for each part of the chains.
    pub(crate) fn visit(
        &self,
        budget: &Budget,
        mut visitor: impl FnMut(Visit) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        let mut start = 0;
        while start < self.chains.count {
            let end = (start + self.width).min(self.chains.count);
            self.pass(start as u32..end as u32, budget, &mut visitor)?;
            start = end;
        }
        Ok(())
    }

    fn pass(
        &self,
        chains: Range<u32>,
        budget: &Budget,
        visitor: &mut impl FnMut(Visit) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        let committed = self.order.committed;
        let mut slots = Slots::new(&self.needed, chains.len());
        for &node in self.order.sorted() {
            let mut counts = slots.inherit(self.order.previous(node));
            let reads = committed.reads(node);
            for from in reads
                .iter()
                .map(|read| read.from)
                .filter(|&from| from != INIT)
            {
                budget.spend(1 + chains.len() / 64)?;
                let past = Past {
                    chains: &chains,
                    counts: &counts,
                };
                // Who knows a member knows its past.
                let place = self.chains.place(from);
                if place == 0 || past.count(self.chains.chain(from)) < place {
                    join(&mut counts, slots.get(from));
                }
            }
            let past = Past {
                chains: &chains,
                counts: &counts,
            };
            visitor(Visit {
                chains: &chains,
                node,
                past,
                slots: &slots,
            })?;
            for from in reads
                .iter()
                .map(|read| read.from)
                .filter(|&from| from != INIT)
            {
                slots.release(from);
            }
            let (chain, place) = (self.chains.chain(node), self.chains.place(node));
            if place > 0 && chains.contains(&chain) {
                counts[(chain - chains.start) as usize] = place;
            }
            slots.put(node, counts);
        }
        Ok(())
    }
}

fn join(counts: &mut [u16], others: &[u16]) {
    for (count, &other) in counts.iter_mut().zip(others) {
        *count = (*count).max(other);
    }
}

/// How many clocks are needed at once.
fn peak(order: &CausalOrder, needed: &[u32]) -> usize {
    let mut needed = needed.to_vec();
    let (mut live, mut peak) = (0_usize, 0);
    for &node in order.sorted() {
        live += 1;
        peak = peak.max(live);
        let sources = order.committed.reads(node).iter().map(|read| read.from);
        for from in sources
            .filter(|&from| from != INIT)
            .chain(order.previous(node))
        {
            needed[from as usize] -= 1;
            live -= usize::from(needed[from as usize] == 0);
        }
        live -= usize::from(needed[node as usize] == 0);
    }
    peak
}

/// The clocks that are still needed, and room for others.
struct Slots {
    needed: Vec<u32>,
    /// By node: its slot, if its clock is needed.
    slot_of: Vec<u32>,
    clocks: Vec<Vec<u16>>,
    /// Slots without a clock.
    free: Vec<u32>,
    /// Clocks that nobody needs, to be used again.
    spare: Vec<Vec<u16>>,
    width: usize,
}

impl Slots {
    fn new(needed: &[u32], width: usize) -> Self {
        Slots {
            needed: needed.to_vec(),
            slot_of: vec![0; needed.len()],
            clocks: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            width,
        }
    }

    /// The clock of a node; of [`INIT`] an empty one.
    fn get(&self, node: Node) -> &[u16] {
        match node {
            INIT => &[],
            _ => &self.clocks[self.slot_of[node as usize] as usize],
        }
    }

    /// The clock of a node that follows `previous` in its session; that of `previous` itself if nobody else needs it.
    fn inherit(&mut self, previous: Option<Node>) -> Vec<u16> {
        let Some(previous) = previous else {
            let mut clock = self.any();
            clock.fill(0);
            return clock;
        };
        let needed = &mut self.needed[previous as usize];
        *needed -= 1;
        let slot = self.slot_of[previous as usize];
        if *needed == 0 {
            self.free.push(slot);
            return std::mem::take(&mut self.clocks[slot as usize]);
        }
        let mut clock = self.any();
        clock.copy_from_slice(&self.clocks[slot as usize]);
        clock
    }

    /// A clock with any content.
    fn any(&mut self) -> Vec<u16> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.width])
    }

    fn put(&mut self, node: Node, clock: Vec<u16>) {
        if self.needed[node as usize] == 0 {
            self.spare.push(clock);
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.clocks.push(Vec::new());
            self.clocks.len() as u32 - 1
        });
        self.clocks[slot as usize] = clock;
        self.slot_of[node as usize] = slot;
    }

    /// One read less needs the clock of a node.
    fn release(&mut self, node: Node) {
        let needed = &mut self.needed[node as usize];
        *needed -= 1;
        if *needed == 0 {
            let slot = self.slot_of[node as usize];
            self.spare
                .push(std::mem::take(&mut self.clocks[slot as usize]));
            self.free.push(slot);
        }
    }
}
