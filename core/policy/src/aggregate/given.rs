//! An update of which the combined gradient is given: it was combined elsewhere, of the same
//! gradients.
//!
//! Whoever has that needs no values of the gradients, as long as nothing else is remembered of
//! them.

use core::ops::Range;

use super::merging::kept;
use super::{Aggregator, Combination, Gradient, is_scattered};
use crate::rules::Closing;

impl Aggregator {
    /// Whether all that comes of the values of gradients is what they are combined to.
    #[must_use]
    pub fn is_known_by_sum(&self) -> bool {
        let is_sum = matches!(self.combination, Combination::Round | Combination::ByWorker);
        is_sum && !self.correction.remembers_gradients() && !self.wants_distances()
    }

    /// The keys that the update changes, counted from the first.
    #[must_use]
    pub const fn changes(&self) -> &Range<usize> {
        &self.scattered.range
    }

    /// What its gradients were combined to there.
    #[must_use]
    pub fn combined(&self) -> &[f32] {
        self.combined.get(self.scattered.range.clone()).unwrap_or_default()
    }

    /// Does what [`Self::combine`] does, but for the values: whose gradients they are is
    /// remembered, and what they are combined to is to be [given](Self::give).
    pub fn note<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) {
        if self.is_robust() {
            return; // it remembers nobody
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
        if self.updater.bends() && is_scattered(gradients.clone()) {
            self.scattered.bend(&self.plan, gradients);
        }
    }

    /// Takes `values` for what the gradients of the update are combined to, at the keys that it
    /// changes.
    ///
    /// # Panics
    /// If they are not as many.
    pub fn give(&mut self, values: &[f32]) {
        self.combined.resize(self.parameters, 0.0);
        self.combined[self.scattered.range.clone()].copy_from_slice(values);
    }
}
