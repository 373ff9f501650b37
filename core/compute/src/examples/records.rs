//! Storage of dense rows: values, one-hot indices and label of a row are contiguous. A mini-batch
//! draws rows from all over the data, and its cost is the number of cache lines that these rows
//! touch.

use alloc::vec::Vec;

use bytemuck::{cast_slice, cast_slice_mut};

use super::{Label, Target};

/// Rows of equal layout, each a *record* of 32-bit words: the dense values, the number to predict
/// if there is one, then the one-hot indices and the class if there is one, two per word.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Records {
    dense: usize,
    hot: usize,
    /// True if the label is a number.
    is_value: bool,
    words: Vec<u32>,
}

impl Records {
    /// Creates an empty set of rows with this many values and one-hot indices each.
    pub(crate) const fn new(dense: usize, hot: usize, target: Target) -> Self {
        Self { dense, hot, is_value: matches!(target, Target::Value), words: Vec::new() }
    }

    /// Words per record.
    pub(crate) const fn stride(&self) -> usize {
        self.halves_at() + (self.hot + !self.is_value as usize).div_ceil(2)
    }

    /// Words of a record before its one-hot indices.
    const fn halves_at(&self) -> usize {
        self.dense + self.is_value as usize
    }

    /// Dense values per row.
    pub(crate) const fn columns(&self) -> usize {
        self.dense
    }

    /// True if rows have one-hot indices.
    pub(crate) const fn has_hot(&self) -> bool {
        self.hot > 0
    }

    /// The number of rows.
    pub(crate) const fn len(&self) -> usize {
        // Never a division by 0: every record has a label.
        self.words.len() / self.stride()
    }

    /// Reserves memory for `rows` more rows.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.words.reserve_exact(rows * self.stride());
    }

    /// Appends a row, which must have the layout.
    pub(super) fn push(&mut self, dense: &[f32], hot: &[u16], label: Label) {
        let end = self.words.len();
        self.words.extend(dense.iter().map(|value| value.to_bits()));
        if let Label::Value(value) = label {
            self.words.push(value.to_bits());
        }
        self.words.resize(end + self.stride(), 0);
        let halves_at = self.halves_at();
        let halves: &mut [u16] = cast_slice_mut(&mut self.words[end + halves_at..]);
        halves[..self.hot].copy_from_slice(hot);
        if let Label::Class(class) = label {
            halves[self.hot] = class;
        }
    }

    /// Replaces the content with the records `rows` of `all`.
    pub(crate) fn gather(&mut self, all: &Self, rows: impl ExactSizeIterator<Item = usize>) {
        let stride = all.stride();
        (self.dense, self.hot, self.is_value) = (all.dense, all.hot, all.is_value);
        self.words.resize(rows.len() * stride, 0);
        for (to, row) in self.words.chunks_exact_mut(stride).zip(rows) {
            to.copy_from_slice(&all.words[row * stride..][..stride]);
        }
    }

    /// Removes the rows with these numbers, which ascend, returns them, and releases their memory.
    pub(super) fn extract(&mut self, rows: &[u32]) -> Self {
        let stride = self.stride();
        let mut taken = Self { words: Vec::new(), ..*self };
        taken.reserve(rows.len());
        // Compacts in place: each run of kept records between two removed ones moves down.
        let (mut kept, mut begin) = (0, 0);
        for gone in rows.iter().map(|&row| row as usize * stride) {
            taken.words.extend_from_slice(&self.words[gone..gone + stride]);
            self.words.copy_within(begin..gone, kept);
            kept += gone - begin;
            begin = gone + stride;
        }
        self.words.copy_within(begin.., kept);
        self.words.truncate(kept + self.words.len() - begin);
        self.words.shrink_to_fit();
        taken
    }

    /// The dense values of a row.
    pub(super) fn dense(&self, row: usize) -> &[f32] {
        cast_slice(&self.words[row * self.stride()..][..self.dense])
    }

    /// The one-hot indices of a row.
    #[inline(always)]
    pub(crate) fn hot(&self, row: usize) -> &[u16] {
        &self.halves(row)[..self.hot]
    }

    /// The label of a row.
    pub(crate) fn label(&self, row: usize) -> Label {
        match self.is_value {
            true => Label::Value(self.value(row)),
            false => Label::Class(self.class(row)),
        }
    }

    /// The class of a row whose label is one.
    #[inline(always)]
    pub(crate) fn class(&self, row: usize) -> u16 {
        self.halves(row)[self.hot]
    }

    /// The number of a row whose label is one.
    #[inline(always)]
    pub(crate) fn value(&self, row: usize) -> f32 {
        f32::from_bits(self.words[row * self.stride() + self.dense])
    }

    /// The one-hot indices of a row, followed by its class.
    #[inline(always)]
    fn halves(&self, row: usize) -> &[u16] {
        let stride = self.stride();
        cast_slice(&self.words[row * stride..][self.halves_at()..stride])
    }

    /// The words of all records as `f32`; the dense values are at the start of each record.
    pub(crate) fn values(&self) -> &[f32] {
        cast_slice(&self.words)
    }

    /// Iterates mutably over the numbers of rows whose labels are numbers.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        let (stride, place) = (self.stride(), self.dense);
        let words: &mut [f32] = cast_slice_mut(&mut self.words);
        words.chunks_exact_mut(stride).map(move |record| &mut record[place])
    }

    /// Iterates mutably over the dense values of each row.
    pub(crate) fn dense_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (stride, dense) = (self.stride(), self.dense);
        self.words.chunks_exact_mut(stride).map(move |record| cast_slice_mut(&mut record[..dense]))
    }
}
