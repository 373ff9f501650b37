//! Storage of sparse rows.

use alloc::vec::Vec;

/// Columns and values of sparse rows: compressed sparse rows (CSR) without the first offset.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entries {
    /// The end of each row in `columns` and `values`.
    ends: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl Entries {
    /// Creates an empty set of rows.
    pub(super) const fn new() -> Self {
        Self { ends: Vec::new(), columns: Vec::new(), values: Vec::new() }
    }

    /// Appends a row.
    pub(super) fn push(&mut self, columns: &[u32], values: &[f32]) {
        self.columns.extend_from_slice(columns);
        self.values.extend_from_slice(values);
        self.ends.push(self.columns.len());
    }

    /// Returns the columns and values of row `index`; empty if rows have no entries.
    pub(super) fn row(&self, index: usize) -> (&[u32], &[f32]) {
        let begin = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or_default(),
            None => 0,
        };
        let end = self.ends.get(index).copied().unwrap_or(begin);
        (&self.columns[begin..end], &self.values[begin..end])
    }

    /// Removes the rows with these numbers, which ascend, and returns them.
    pub(super) fn extract(&mut self, rows: &[u32]) -> Self {
        let (mut taken, mut kept) = (Self::new(), Self::new());
        let mut gone = rows.iter().peekable();
        for row in 0..self.ends.len() {
            let is_gone = gone.next_if(|&&index| index as usize == row).is_some();
            let (columns, values) = self.row(row);
            if is_gone { &mut taken } else { &mut kept }.push(columns, values);
        }
        *self = kept;
        taken
    }

    /// All columns, row by row.
    pub(super) fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Replaces every column by `place` of it.
    pub(super) fn relocate(&mut self, place: impl Fn(u32) -> u32) {
        self.columns.iter_mut().for_each(|column| *column = place(*column));
    }
}
