//! Sets of links, by the shape of the partition that they make.

use dkvf_core::{ServerId, Topology};

use super::Links;

/// The links between all servers.
pub fn all(topology: &Topology) -> Links {
    let sides: Vec<Vec<ServerId>> = topology.ids().map(|id| vec![id]).collect();
    between(&sides, false)
}

/// The links from each side to each other side; `one_way`: only those from a side to a later one.
pub fn between(sides: &[Vec<ServerId>], one_way: bool) -> Links {
    let mut links = Links::new();
    for (place, from) in sides.iter().enumerate() {
        let first = if one_way { place + 1 } else { 0 };
        for (other, to) in sides.iter().enumerate().skip(first) {
            if other != place {
                links.extend(
                    from.iter()
                        .flat_map(|from| to.iter().map(|to| (*from, *to))),
                );
            }
        }
    }
    normalised(links)
}

/// The links between some servers and all others; `one_way`: only what leaves them.
pub fn around(servers: &[ServerId], topology: &Topology, one_way: bool) -> Links {
    let others = topology.ids().filter(|id| !servers.contains(id)).collect();
    between(&[servers.to_vec(), others], one_way)
}

/// The members of a replica.
pub fn replica(topology: &Topology, replica: u16) -> Vec<ServerId> {
    topology
        .ids()
        .filter(|id| topology.member(*id).replica == replica)
        .collect()
}

/// In the order of senders and receivers, each once, and none from a server to itself.
pub fn normalised(mut links: Links) -> Links {
    links.retain(|(from, to)| from != to);
    links.sort_unstable();
    links.dedup();
    links
}

/// Two sets of servers between which all links are cut, and no others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sides {
    pub(super) first: Vec<ServerId>,
    pub(super) second: Vec<ServerId>,
    /// Only from the first to the second.
    pub(super) one_way: bool,
}

impl Sides {
    /// The two sides that `links` separate, should it be exactly two. `links` are normalised.
    pub(super) fn of(links: &Links) -> Option<Sides> {
        let receivers = |from: ServerId| -> Vec<ServerId> {
            links
                .iter()
                .filter(|link| link.0 == from)
                .map(|link| link.1)
                .collect()
        };
        let second = receivers(links.first()?.0);
        let both_ways = receivers(*second.first()?);
        let one_way = both_ways.is_empty();
        let first = if one_way {
            let mut senders: Vec<ServerId> = links.iter().map(|link| link.0).collect();
            senders.dedup();
            senders
        } else {
            both_ways
        };
        if first.iter().any(|id| second.contains(id)) {
            return None;
        }
        let sides = [first, second];
        (between(&sides, one_way) == *links).then(|| {
            let [first, second] = sides;
            Sides {
                first,
                second,
                one_way,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u16]) -> Vec<ServerId> {
        ids.iter().map(|id| ServerId(*id)).collect()
    }

    #[test]
    fn sides_are_found_again_and_nothing_else_is_taken_for_them() {
        for one_way in [false, true] {
            let links = between(&[ids(&[0, 3]), ids(&[1, 2, 4])], one_way);
            let sides = Sides::of(&links).expect("two sides");
            assert_eq!((sides.first, sides.second), (ids(&[0, 3]), ids(&[1, 2, 4])));
            assert_eq!(sides.one_way, one_way);
            let mut fewer = links.clone();
            fewer.remove(2);
            assert_eq!(Sides::of(&fewer), None);
        }
        let three = between(&[ids(&[0]), ids(&[1]), ids(&[2])], false);
        assert_eq!(Sides::of(&three), None);
        let in_order = between(&[ids(&[0]), ids(&[1]), ids(&[2])], true);
        assert_eq!(Sides::of(&in_order), None, "1 would be on both sides");
        assert_eq!(Sides::of(&Links::new()), None);
    }

    #[test]
    fn around_a_server_are_its_links_or_those_it_sends_on() {
        let topology = Topology::grid(1, 3);
        let link = |from, to| (ServerId(from), ServerId(to));
        assert_eq!(
            around(&ids(&[1]), &topology, false),
            [link(0, 1), link(1, 0), link(1, 2), link(2, 1)]
        );
        assert_eq!(
            around(&ids(&[1]), &topology, true),
            [link(1, 0), link(1, 2)]
        );
        assert_eq!(all(&topology).len(), 6);
    }
}
