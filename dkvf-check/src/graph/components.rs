//! Strongly connected components.

/// The strongly connected components of a graph with vertices `0..count` that have more than one vertex, each
/// ascending. `successor(v, i)` is the `i`-th edge of `v`: `None` past the last one, `Some(None)` for an edge that does
/// not count. There must be no edge from a vertex to itself that counts.
///
/// Tarjan's algorithm (SIAM J. Comput. 1972) without recursion: time is linear in vertices and edges.
pub(crate) fn components(
    count: usize,
    successor: impl Fn(u32, u32) -> Option<Option<u32>>,
) -> Vec<Vec<u32>> {
    let mut tarjan = Tarjan {
        index: vec![0; count],
        low: vec![0; count],
        next_index: 1,
        open: Vec::new(),
        path: Vec::new(),
        found: Vec::new(),
    };
    for root in 0..count as u32 {
        if tarjan.index[root as usize] == 0 {
            tarjan.explore(root, &successor);
        }
    }
    tarjan.found
}

/// What `low` is once the component of a vertex is complete.
const CLOSED: u32 = u32::MAX;

struct Tarjan {
    /// In which order vertices were discovered, from 1; 0 if not yet.
    index: Vec<u32>,
    /// The least index known to be reachable within the open components.
    low: Vec<u32>,
    next_index: u32,
    /// Vertices of components that are not complete.
    open: Vec<u32>,
    /// The path from the root, with the number of the next edge of each vertex.
    path: Vec<(u32, u32)>,
    found: Vec<Vec<u32>>,
}

impl Tarjan {
    fn explore(&mut self, root: u32, successor: &impl Fn(u32, u32) -> Option<Option<u32>>) {
        self.discover(root);
        while let Some((vertex, edge)) = self.path.last_mut() {
            let v = *vertex as usize;
            let next = successor(*vertex, *edge);
            *edge += 1;
            match next {
                Some(Some(to)) if self.index[to as usize] == 0 => self.discover(to),
                // A closed vertex has the greatest low.
                Some(Some(to)) if self.low[to as usize] != CLOSED => {
                    self.low[v] = self.low[v].min(self.index[to as usize]);
                }
                Some(_) => {}
                None => self.leave(),
            }
        }
    }

    fn discover(&mut self, vertex: u32) {
        self.index[vertex as usize] = self.next_index;
        self.low[vertex as usize] = self.next_index;
        self.next_index += 1;
        self.open.push(vertex);
        self.path.push((vertex, 0));
    }

    fn leave(&mut self) {
        let Some((vertex, _)) = self.path.pop() else {
            return;
        };
        let v = vertex as usize;
        let low = self.low[v];
        if let Some(&(parent, _)) = self.path.last() {
            let parent = parent as usize;
            self.low[parent] = self.low[parent].min(low);
        }
        if low == self.index[v] {
            let start = self
                .open
                .iter()
                .rposition(|&open| open == vertex)
                .unwrap_or(0);
            let mut component = self.open.split_off(start);
            for &member in &component {
                self.low[member as usize] = CLOSED;
            }
            if component.len() > 1 {
                component.sort_unstable();
                self.found.push(component);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(edges: &[(u32, u32)], count: usize) -> Vec<Vec<u32>> {
        components(count, |v, i| {
            let mut of_v = edges.iter().filter(|edge| edge.0 == v);
            of_v.nth(i as usize).map(|edge| Some(edge.1))
        })
    }

    #[test]
    fn components_are_the_sets_of_vertices_that_reach_each_other() {
        let edges = [
            (0, 1),
            (1, 2),
            (2, 0),
            (2, 3),
            (3, 4),
            (4, 3),
            (4, 5),
            (1, 5),
        ];
        assert_eq!(of(&edges, 6), [vec![3, 4], vec![0, 1, 2]]);
        assert_eq!(of(&edges[3..5], 6), Vec::<Vec<u32>>::new());
    }
}
