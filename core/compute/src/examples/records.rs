//! Rows of values, one-hot indices and a label, each in one piece of memory: a mini-batch is drawn
//! from anywhere in the data, and what takes time there is how many cache lines its rows lie on.

use alloc::vec::Vec;

use bytemuck::{cast_slice, cast_slice_mut};

/// Rows of one form, each a *record* of words of 32 bits: the dense values, then the one-hot
/// indices and the label, two to a word.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Records {
    dense: usize,
    hot: usize,
    words: Vec<u32>,
}

impl Records {
    /// No rows yet, of so many values and one-hot indices each.
    pub(crate) const fn new(dense: usize, hot: usize) -> Self {
        Self { dense, hot, words: Vec::new() }
    }

    /// The words of a record.
    pub(crate) const fn stride(&self) -> usize {
        self.dense + (self.hot + 1).div_ceil(2)
    }

    /// The number of rows.
    pub(crate) const fn len(&self) -> usize {
        // Never by 0: every form has a label.
        self.words.len() / self.stride()
    }

    /// Makes room for `rows` more.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.words.reserve_exact(rows * self.stride());
    }

    /// Adds a row, which must be of the form.
    pub(super) fn push(&mut self, dense: &[f32], hot: &[u16], label: u16) {
        let end = self.words.len();
        self.words.extend(dense.iter().map(|value| value.to_bits()));
        self.words.resize(end + self.stride(), 0);
        let halves: &mut [u16] = cast_slice_mut(&mut self.words[end + self.dense..]);
        halves[..self.hot].copy_from_slice(hot);
        halves[self.hot] = label;
    }

    /// Becomes what the records `rows` of `all` are.
    pub(crate) fn gather(&mut self, all: &Self, rows: impl ExactSizeIterator<Item = usize>) {
        let stride = all.stride();
        (self.dense, self.hot) = (all.dense, all.hot);
        self.words.resize(rows.len() * stride, 0);
        for (to, row) in self.words.chunks_exact_mut(stride).zip(rows) {
            to.copy_from_slice(&all.words[row * stride..][..stride]);
        }
    }

    /// Takes rows, whose numbers ascend, out, and gives back the room they had.
    pub(super) fn extract(&mut self, rows: &[u32]) -> Self {
        let stride = self.stride();
        let mut taken = Self::new(self.dense, self.hot);
        taken.reserve(rows.len());
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
    #[inline(always)]
    pub(crate) fn label(&self, row: usize) -> u16 {
        self.halves(row)[self.hot]
    }

    /// The one-hot indices of a row, and its label behind them.
    #[inline(always)]
    fn halves(&self, row: usize) -> &[u16] {
        let stride = self.stride();
        cast_slice(&self.words[row * stride..][self.dense..stride])
    }

    /// All records, as the values that they begin with.
    pub(crate) fn values(&self) -> &[f32] {
        cast_slice(&self.words)
    }

    /// The dense values of each row, to be changed.
    pub(super) fn dense_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (stride, dense) = (self.stride(), self.dense);
        self.words.chunks_exact_mut(stride).map(move |record| cast_slice_mut(&mut record[..dense]))
    }
}
