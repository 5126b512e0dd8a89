//! Where a fault happens: names of servers and links, looked up in a topology.

use dkvf_core::{ServerId, Topology};

use super::fields::{Fields, Problem, quote};
use crate::faults::{Fault, Links, links};

/// The fields that say where.
impl Fields {
    pub(super) fn each_node(
        &mut self,
        topology: &Topology,
        fault: impl Fn(ServerId) -> Fault,
    ) -> Result<Vec<Fault>, Problem> {
        let names = self.required("node", Fields::texts)?;
        let nodes = servers("node", &names, topology)?;
        Ok(nodes.into_iter().map(fault).collect())
    }

    /// The links of a fault, by whichever of the fields says them.
    pub(super) fn links(&mut self, topology: &Topology) -> Result<Links, Problem> {
        const FIELDS: &str = "\"link\", \"node\", \"replica\" or \"sides\"";
        let one_way = self.boolean("one_way")?;
        let mut found: Vec<(&str, Links)> = Vec::new();
        if let Some(names) = self.texts("link")? {
            if one_way {
                return Err(Problem::of_field(
                    "one_way",
                    "a link says it itself: write \"A>B\" for one way, \"A-B\" for both, and leave this field out",
                ));
            }
            found.push(("link", named_links(&names, topology)?));
        }
        if let Some(names) = self.texts("node")? {
            let mut cut = Links::new();
            for node in servers("node", &names, topology)? {
                cut.extend(links::around(&[node], topology, one_way));
            }
            found.push(("node", cut));
        }
        if let Some(replica) = self.integer("replica", 0, i64::from(u16::MAX))? {
            let servers = links::replica(topology, replica as u16);
            if servers.is_empty() {
                return Err(Problem::of_field(
                    "replica",
                    format!(
                        "there is no replica {replica}; there are 0 to {}",
                        topology.replicas().saturating_sub(1)
                    ),
                ));
            }
            found.push(("replica", links::around(&servers, topology, one_way)));
        }
        if let Some(names) = self.lists("sides")? {
            found.push(("sides", links::between(&sides(&names, topology)?, one_way)));
        }
        match found.as_mut_slice() {
            [] => Err(Problem::of_line(format!(
                "it does not say where: add one of {FIELDS}"
            ))),
            [(field, links)] if links.is_empty() => Err(Problem::of_field(
                field,
                "there are no such links: this needs two servers that are not the same",
            )),
            [(_, found)] => Ok(links::normalised(std::mem::take(found))),
            [_, (field, _), ..] => Err(Problem::of_field(
                field,
                format!("it already says where: keep one of {FIELDS}"),
            )),
        }
    }
}

/// The servers with these names, each once.
fn servers(field: &str, names: &[String], topology: &Topology) -> Result<Vec<ServerId>, Problem> {
    let find = |name: &String| {
        topology.find(name).ok_or_else(|| {
            let members = topology.members();
            let shown: Vec<&str> = members
                .iter()
                .take(12)
                .map(|member| member.name.as_str())
                .collect();
            let more = if members.len() > shown.len() {
                ", ..."
            } else {
                ""
            };
            Problem::of_field(
                field,
                format!(
                    "there is no server {}; there are {}{more}",
                    quote(name),
                    shown.join(", ")
                ),
            )
        })
    };
    let mut ids = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Err(Problem::of_field(field, "an empty list: name a server"));
    }
    Ok(ids)
}

fn sides(names: &[Vec<String>], topology: &Topology) -> Result<Vec<Vec<ServerId>>, Problem> {
    let sides = names
        .iter()
        .map(|side| servers("sides", side, topology))
        .collect::<Result<Vec<_>, _>>()?;
    let mut all = sides.concat();
    all.sort_unstable();
    let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
    match twice {
        Some(pair) => Err(Problem::of_field(
            "sides",
            format!(
                "{} is on two sides: name it once",
                topology.member(pair[0]).name
            ),
        )),
        None if sides.len() < 2 => Err(Problem::of_field(
            "sides",
            "give at least two, such as [[\"0_0\"],[\"1_0\"]]",
        )),
        None => Ok(sides),
    }
}

fn named_links(names: &[String], topology: &Topology) -> Result<Links, Problem> {
    let mut links = Links::new();
    for name in names {
        if name == "*" {
            links.extend(links::all(topology));
        } else {
            links.extend(named_link(name, topology)?);
        }
    }
    Ok(links)
}

/// `A>B`, or `A-B` and `A<>B` for both directions. Names may contain `-` themselves.
fn named_link(name: &str, topology: &Topology) -> Result<Links, Problem> {
    let both_ways = |from, to| vec![(from, to), (to, from)];
    let ends =
        |(from, to): (&str, &str)| Some((topology.find(from.trim())?, topology.find(to.trim())?));
    let mut readings: Vec<Links> = Vec::new();
    if let Some(split) = name.split_once("<>") {
        readings.extend(ends(split).map(|(from, to)| both_ways(from, to)));
    } else if let Some(split) = name.split_once('>') {
        readings.extend(ends(split).map(|link| vec![link]));
    } else {
        let splits = name
            .match_indices('-')
            .map(|(at, _)| (&name[..at], &name[at + 1..]));
        readings.extend(
            splits
                .filter_map(ends)
                .map(|(from, to)| both_ways(from, to)),
        );
    }
    match readings.as_slice() {
        [link] if link[0].0 == link[0].1 => Err(Problem::of_field(
            "link",
            format!(
                "{} leads from a server to itself: name two servers",
                quote(name)
            ),
        )),
        [link] => Ok(link.clone()),
        [] => {
            let example = topology
                .members()
                .iter()
                .take(2)
                .map(|member| member.name.as_str());
            Err(Problem::of_field(
                "link",
                format!(
                    "{} is no link between two servers; write A-B for both directions, A>B for one, or * for all links, with names such as {}",
                    quote(name),
                    example.collect::<Vec<_>>().join(", ")
                ),
            ))
        }
        _ => Err(Problem::of_field(
            "link",
            format!("{} can be read in several ways; write A<>B", quote(name)),
        )),
    }
}
