//! Rows of different lengths in one array.

use std::ops::Range;

/// Rows of different lengths, end to end in one array: four bytes a row beside the items.
#[derive(Clone, Debug)]
pub(crate) struct Rows<T> {
    /// Where row `i` starts; one entry more than there are rows.
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Rows {
            starts: vec![0],
            items: Vec::new(),
        }
    }
}

impl<T: Copy> Rows<T> {
    /// Distributes pairs of row and item to `rows` rows; the items of a row keep their order. Takes linear time.
    pub(crate) fn new(rows: usize, pairs: &[(u32, T)]) -> Self {
        let mut starts = vec![0; rows + 1];
        for &(row, _) in pairs {
            starts[row as usize + 1] += 1;
        }
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut items = pairs
            .first()
            .map_or_else(Vec::new, |&(_, any)| vec![any; pairs.len()]);
        for &(row, item) in pairs {
            let place = &mut next[row as usize];
            items[*place as usize] = item;
            *place += 1;
        }
        Rows { starts, items }
    }

    /// Ends the last row with `items` and adds it.
    pub(crate) fn push(&mut self, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
        self.starts.push(self.items.len() as u32);
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The items of a row.
    pub(crate) fn row(&self, row: usize) -> &[T] {
        &self.items[self.range(row)]
    }

    /// The items of a row.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [T] {
        let range = self.range(row);
        &mut self.items[range]
    }

    /// All rows, the first one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[T]> {
        (0..self.len()).map(|row| self.row(row))
    }

    /// Where the items of a row lie among those of all rows.
    pub(crate) fn range(&self, row: usize) -> Range<usize> {
        self.starts[row] as usize..self.starts[row + 1] as usize
    }

    /// An item by its place among those of all rows.
    pub(crate) fn item(&self, place: usize) -> T {
        self.items[place]
    }

    /// How many items there are in all rows.
    pub(crate) fn item_count(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_the_order_of_their_items() {
        let mut rows = Rows::new(3, &[(2, 'a'), (0, 'b'), (2, 'c')]);
        assert_eq!(
            rows.iter().collect::<Vec<_>>(),
            [&['b'][..], &[], &['a', 'c']]
        );
        rows.push(['d']);
        rows.row_mut(3)[0] = 'e';
        assert_eq!((rows.len(), rows.row(3)), (4, &['e'][..]));
        assert_eq!(Rows::<u32>::default().len(), 0);
    }
}
