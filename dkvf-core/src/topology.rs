//! Who is in the cluster, and which server holds which key.

use std::sync::Arc;

pub use dkvf_storage::ServerId;

pub use crate::config::Role;
use crate::config::{NodeConfig, ServerEntry};

/// One node as the descriptor names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name people use.
    pub name: String,
    /// The copy of the data this node belongs to (a data centre in most papers).
    pub replica: u16,
    /// The part of the key space it holds.
    pub partition: u16,
    /// Its role.
    pub role: Role,
}

/// The cluster as all its nodes and clients know it: the same everywhere, and fixed for a run.
///
/// A [`ServerId`] is the index of a member in descriptor order. `(replica, partition)` is an attribute of a
/// member with [`Role::Server`], and the helpers here are the vocabulary of papers that think in these pairs.
#[derive(Clone, Debug)]
pub struct Topology(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    members: Vec<Member>,
    replicas: u16,
    partitions: u16,
    /// `grid[replica * partitions + partition]`.
    grid: Vec<ServerId>,
    /// Per member: the same partition elsewhere; the other partitions here.
    peers: Vec<Arc<[ServerId]>>,
    siblings: Vec<Arc<[ServerId]>>,
}

/// Ids by value, so that sending to each of them can borrow the context.
#[derive(Clone, Debug)]
pub struct Ids {
    ids: Arc<[ServerId]>,
    next: usize,
}

impl Ids {
    fn new(ids: &Arc<[ServerId]>) -> Self {
        Ids {
            ids: ids.clone(),
            next: 0,
        }
    }
}

impl Iterator for Ids {
    type Item = ServerId;
    fn next(&mut self) -> Option<ServerId> {
        let id = self.ids.get(self.next).copied();
        self.next += 1;
        id
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.ids.len().saturating_sub(self.next);
        (left, Some(left))
    }
}
impl ExactSizeIterator for Ids {}

impl Topology {
    /// Builds the topology from its members in descriptor order.
    ///
    /// # Errors
    /// Too many members, two servers with one `(replica, partition)`, or a replica that lacks a partition.
    pub fn new(members: Vec<Member>) -> anyhow::Result<Self> {
        anyhow::ensure!(
            members.len() <= usize::from(u16::MAX),
            "a cluster has at most {} nodes, this one has {}",
            u16::MAX,
            members.len()
        );
        let servers = || {
            members
                .iter()
                .enumerate()
                .filter(|(_, member)| member.role == Role::Server)
        };
        let replicas = servers().map(|(_, m)| m.replica + 1).max().unwrap_or(0);
        let partitions = servers().map(|(_, m)| m.partition + 1).max().unwrap_or(0);
        let mut grid: Vec<Option<usize>> =
            vec![None; usize::from(replicas) * usize::from(partitions)];
        for (id, member) in servers() {
            let place = &mut grid[usize::from(member.replica) * usize::from(partitions)
                + usize::from(member.partition)];
            if let Some(other) = place {
                anyhow::bail!(
                    "servers {} and {} are both replica {}, partition {}: give one of them another place",
                    members[*other].name,
                    member.name,
                    member.replica,
                    member.partition
                );
            }
            *place = Some(id);
        }
        let missing = grid.iter().position(Option::is_none);
        if let Some(place) = missing {
            let (replica, partition) = (
                place / usize::from(partitions),
                place % usize::from(partitions),
            );
            anyhow::bail!(
                "replica {replica} has no server for partition {partition}: every replica holds all {partitions} partitions"
            );
        }
        let grid: Vec<ServerId> = grid
            .into_iter()
            .flatten()
            .map(|id| ServerId(id as u16))
            .collect();
        let others = |id: usize, related: &dyn Fn(&Member, &Member) -> bool| -> Arc<[ServerId]> {
            servers()
                .filter(|(other, member)| *other != id && related(&members[id], member))
                .map(|(other, _)| ServerId(other as u16))
                .collect()
        };
        let peers = (0..members.len())
            .map(|id| others(id, &|a, b| a.partition == b.partition))
            .collect();
        let siblings = (0..members.len())
            .map(|id| others(id, &|a, b| a.replica == b.replica))
            .collect();
        Ok(Topology(Arc::new(Inner {
            members,
            replicas,
            partitions,
            grid,
            peers,
            siblings,
        })))
    }

    /// `replicas` full copies of `partitions` partitions, with ids `"<replica>_<partition>"`.
    ///
    /// # Panics
    /// If there would be more than 65,535 nodes.
    pub fn grid(replicas: u16, partitions: u16) -> Self {
        let member = |replica, partition| Member {
            name: format!("{replica}_{partition}"),
            replica,
            partition,
            role: Role::Server,
        };
        let members = (0..replicas)
            .flat_map(|r| (0..partitions).map(move |p| member(r, p)))
            .collect();
        Topology::new(members).expect("invariant: a grid has one server per place")
    }

    /// The cluster of a node's configuration: the node itself and its `<connect_to>`, in the same order on every node.
    ///
    /// # Errors
    /// As [`Topology::new`], and what the configuration says against itself.
    pub fn of(config: &NodeConfig) -> anyhow::Result<Self> {
        let member = |server: ServerEntry| -> anyhow::Result<Member> {
            Ok(Member {
                name: server.name,
                replica: u16::try_from(server.replica)?,
                partition: u16::try_from(server.partition)?,
                role: server.role,
            })
        };
        Topology::new(
            config
                .servers()
                .into_iter()
                .map(member)
                .collect::<anyhow::Result<_>>()?,
        )
    }

    /// All members, in descriptor order.
    pub fn members(&self) -> &[Member] {
        &self.0.members
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.0.members.len()).map(|id| ServerId(id as u16))
    }

    /// The member with this id.
    ///
    /// # Panics
    /// If the id is of another cluster.
    pub fn member(&self, id: ServerId) -> &Member {
        &self.0.members[id.index()]
    }

    /// The id of the member with this name.
    pub fn find(&self, name: &str) -> Option<ServerId> {
        self.0
            .members
            .iter()
            .position(|member| member.name == name)
            .map(|id| ServerId(id as u16))
    }

    /// Number of full copies (`M` in the causal papers).
    pub fn replicas(&self) -> usize {
        usize::from(self.0.replicas)
    }

    /// Number of partitions of each copy (`N`).
    pub fn partitions(&self) -> usize {
        usize::from(self.0.partitions)
    }

    /// The server of `(replica, partition)`.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn server(&self, replica: usize, partition: usize) -> ServerId {
        self.0.grid[replica * self.partitions() + partition]
    }

    /// A number that servers with another view of the cluster have not: a hash of all members in order.
    pub fn fingerprint(&self) -> u64 {
        let members: String = self
            .members()
            .iter()
            .map(|member| {
                // A name has no line break.
                format!(
                    "{} {} {} {}\n",
                    member.replica, member.partition, member.role, member.name
                )
            })
            .collect();
        xxhash_rust::xxh3::xxh3_64(members.as_bytes())
    }

    /// The partition of a key: `xxh3_64(key) mod N`.
    pub fn partition_of(&self, key: &[u8]) -> usize {
        (xxhash_rust::xxh3::xxh3_64(key) % u64::from(self.0.partitions)) as usize
    }

    /// The same partition in the other replicas.
    pub fn peers(&self, id: ServerId) -> Ids {
        Ids::new(&self.0.peers[id.index()])
    }

    /// The other partitions of the same replica.
    pub fn siblings(&self, id: ServerId) -> Ids {
        Ids::new(&self.0.siblings[id.index()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_differs_in_order_name_place_and_role() {
        let members = Topology::grid(2, 2).members().to_vec();
        let fingerprint =
            |members: &[Member]| Topology::new(members.to_vec()).map(|view| view.fingerprint());
        let same = fingerprint(&members).expect("a cluster");
        assert_eq!(same, Topology::grid(2, 2).fingerprint());
        let mut others: Vec<Vec<Member>> = vec![members.clone(); 4];
        others[0].swap(0, 1);
        others[1][3].name = "another".to_owned();
        (others[2][0].partition, others[2][1].partition) = (1, 0);
        others[3].push(Member {
            name: "spare".to_owned(),
            role: Role::Spare,
            ..members[0].clone()
        });
        for other in others {
            assert_ne!(fingerprint(&other).expect("a cluster"), same, "{other:?}");
        }
    }
}
