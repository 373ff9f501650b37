//! Updates with a preaggregated gradient, which was combined elsewhere from the same gradients.
//!
//! Such an update does not need the values of the gradients, provided that nothing else derived
//! from them is kept.

use alloc::vec::Vec;
use core::ops::Range;

use super::merging::kept;
use super::{Aggregator, Gradient, is_scattered};
use crate::rules::Closing;

impl Aggregator {
    /// Returns true if the combined gradient is all that updates derive from the gradients' values.
    #[must_use]
    pub fn needs_only_combined(&self) -> bool {
        self.combination.is_sum()
            && !self.correction.remembers_gradients()
            && !self.wants_distances()
    }

    /// The keys that the update changes, counted from the first.
    #[must_use]
    pub const fn changes(&self) -> &Range<usize> {
        &self.combined.range
    }

    /// Returns the combined gradient at these keys.
    #[must_use]
    pub fn combined(&self) -> &[f32] {
        self.combined.values.get(self.combined.range.clone()).unwrap_or_default()
    }

    /// Does the same as [`Self::combine`] except for the values: records whose gradients they are.
    /// The combined gradient is supplied by [`Self::give`].
    pub fn note<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) {
        if self.is_robust() {
            return; // robust rules keep no state per worker
        }
        match self.merged(gradients.clone(), parameters, closing) {
            None => self.note_merged(gradients, closing),
            Some(merged) => self.note_merged(kept(&merged), closing),
        }
    }

    fn note_merged<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        closing: Closing,
    ) {
        self.plan(gradients.clone(), closing);
        if self.updater.uses_curvature() && is_scattered(gradients.clone()) {
            self.combined.bend(&self.weighting.plan, gradients);
        }
    }

    /// Sets the combined gradient of the update to `values` at the keys that it changes.
    ///
    /// # Panics
    /// If the number of values differs from the number of these keys.
    pub fn give(&mut self, values: &[f32]) {
        let range = self.combined.range.clone();
        self.combined.room()[range].copy_from_slice(values);
    }

    /// As [`Self::give`], for an update that changes all keys, without a copy. Returns the memory
    /// of the last combined gradient.
    ///
    /// # Panics
    /// If the update changes some keys only, or the number of values differs from the aggregator's.
    pub fn give_whole(&mut self, values: Vec<f32>) -> Vec<f32> {
        assert_eq!(self.combined.range, 0..self.parameters, "keys of the update");
        assert_eq!(values.len(), self.parameters, "length of the gradient");
        core::mem::replace(&mut self.combined.values, values)
    }
}
