//! Values of the next version at some keys, before the gradients of its update are whole.
//!
//! They are computed as the update computes them, with a copy of the state that this changes. So
//! they are the update's values, to the bit, if the update is made of the same gradients.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::combination::Combination;
use super::weighted_sum::{self, blocks};
use super::{Aggregator, Gradient, change};
use crate::rules::{Closing, ParticipationSpec, StalenessSpec};
use pstrain_compute::id::Version;
use pstrain_compute::optim::{Step, Updater};

/// An update of which some values are known.
#[derive(Debug)]
pub(super) struct Foreseen {
    learning_rate: f32,
    updater: Updater,
}

impl Aggregator {
    /// True if each value of an update follows from values of the same key alone, and from nothing
    /// that earlier updates had for it but the optimizer's state.
    #[must_use]
    pub fn is_by_key(&self) -> bool {
        let mode = &self.settings.mode;
        mode.staleness == StalenessSpec::Plain
            && mode.participation == ParticipationSpec::Plain
            && matches!(self.combination, Combination::Round)
            && !self.updater.clips()
            && !self.settings.aggregation.is_robust()
            && !self.combined.is_cut()
    }

    /// Returns the values at `keys` that an update of version `version` with these gradients will
    /// have. The gradients need values at `keys` only, and so do the `parameters`; both have the
    /// length of the aggregator's. Call it once for a key of an update.
    pub fn foresee<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        version: Version,
        keys: Range<usize>,
    ) -> Vec<f32> {
        let mut foreseen = self.foreseen.take().unwrap_or_else(|| {
            let mut updater = self.updater.copy();
            Box::new(Foreseen { learning_rate: updater.begin(version), updater })
        });
        let Foreseen { learning_rate, updater } = &mut *foreseen;
        let Self { settings, correction, combination, memory, .. } = self;
        let (sizes, mut weighting) = ((&*settings, self.parameters), self.weighting.clone());
        weighting.plan(sizes, combination, gradients.clone(), Closing::Everything);
        let first = keys.start;
        let mut values = parameters[keys.clone()].to_vec();
        for block in blocks(keys.len()) {
            let (params, len) = (&mut values[block.clone()], block.len());
            let first = first + block.start;
            let room = (&mut memory.sum[..len], &mut memory.corrected[..len]);
            let (gradient, scale) = weighted_sum::combine(
                (correction, combination),
                &weighting.plan,
                gradients.clone(),
                (first, &*params),
                room,
            );
            let step =
                Step { first, gradient, curvature: &[], scale, learning_rate: *learning_rate };
            change((updater, correction), params, step, &mut memory.before);
        }
        self.foreseen = Some(foreseen);
        values
    }
}
