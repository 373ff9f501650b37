//! Merging of gradients that wait for an update: one vector per worker.

use alloc::vec::Vec;

use super::combination::Combination;
use super::weighted_sum::{add, blocks, values};
use super::weights::unit;
use super::{Aggregator, Gradient};
use crate::mode::Mode;
use crate::rules::{Aggregation, Closing, StalenessSpec};

/// How gradients of one worker that belong to the same update are kept until then.
///
/// They must be kept apart unless the update is a sum in which the factor of each gradient is known
/// when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Each gradient separately.
    Apart,
    /// As their sum, in units of the first gradient.
    Sum,
    /// Only the latest gradient counts.
    Latest,
}

impl Merging {
    /// Returns how gradients are kept under a mode whose updates take all that have arrived.
    pub(super) const fn of(mode: &Mode, combination: &Combination) -> Self {
        match (combination, mode.staleness) {
            // DynSGD averages per iteration; dc-adaptive's running mean of squares depends on the
            // order.
            (_, StalenessSpec::DynSgd | StalenessSpec::DelayAdaptive { .. }) => Self::Apart,
            // Updates happen while gradients wait, so their final staleness weight is not known
            // yet.
            (Combination::Ringleader(_), StalenessSpec::Plain) => Self::Sum,
            (Combination::Ringleader(_), _) => Self::Apart,
            (Combination::Incremental(_), _) => Self::Latest,
            (Combination::Round | Combination::ByWorker | Combination::Iterations(_), _) => {
                Self::Sum
            }
        }
    }
}

/// A gradient, and the sum that replaces its values if others were merged into it.
type Kept<'a> = (Gradient<'a>, Option<Vec<f32>>);

impl Aggregator {
    /// Returns how gradients of one worker and one part of the data that belong to the same update
    /// are kept until then, if the update takes all gradients that have arrived.
    ///
    /// Gradients of a [`Closing::Oldest`] update are always kept apart.
    #[must_use]
    pub const fn merging(&self) -> Merging {
        if self.combined.is_cut() {
            return Merging::Apart;
        }
        self.settings.merging(&self.combination)
    }

    /// Adds `next`, a gradient that waits for an update, to `sum`, which holds the values of
    /// `first` and of gradients merged with it before. Afterwards `sum` holds the values of
    /// `first`, which must not be corrected again, and `next` has no values of its own.
    /// `parameters` are the current parameters. If gradients are corrected, they must still be the
    /// parameters before the update.
    ///
    /// An update merges unmerged gradients in the same way first: all consecutive gradients of the
    /// same worker and part. The result is therefore the same to the bit.
    ///
    /// # Panics
    /// If the parameters or a gradient have a length other than the aggregator's.
    pub fn merge(
        &mut self,
        sum: &mut [f32],
        first: &Gradient<'_>,
        next: &Gradient<'_>,
        parameters: &[f32],
    ) {
        let aggregation = match self.combination {
            Combination::ByWorker | Combination::Ringleader(_) => Aggregation::Mean,
            _ => self.settings.aggregation,
        };
        let rule = self.settings.mode.staleness;
        let mut counts = |gradient: &Gradient<'_>| {
            unit(aggregation, gradient) * self.weighting.factors.of(&rule, gradient.staleness)
        };
        let ratio = (counts(next) / counts(first)) as f32;
        let mut corrected = core::mem::take(&mut self.memory.corrected);
        // Sparse gradients have fewer values than there are keys, and no state.
        let trained = self.trained().min(sum.len());
        for keys in blocks(trained) {
            let (now, sum) = (&parameters[keys.clone()], &mut sum[keys.clone()]);
            let corrected = &mut corrected[..keys.len()];
            if let Some(base) = first.base.filter(|_| self.correction.corrects()) {
                let moved = [now, &base[keys.clone()]];
                self.correction.correct(keys.start, sum, moved, corrected);
                sum.copy_from_slice(corrected);
            }
            let values = values(&mut self.correction, next, (keys.start, now), corrected);
            add(sum, ratio, values);
        }
        add(&mut sum[trained..], 1.0, &next.values[trained..]);
        self.memory.corrected = corrected;
    }

    /// Merges consecutive gradients of the same worker and part; `None` if there are none to merge.
    pub(super) fn merged<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) -> Option<Vec<Kept<'a>>> {
        let merging = self.merging();
        let pairs = || gradients.clone().zip(gradients.clone().skip(1));
        if merging == Merging::Apart
            || closing != Closing::Everything
            || !pairs().any(|(one, next)| one.merges_with(&next))
        {
            return None;
        }
        let mut merged: Vec<Kept<'a>> = Vec::new();
        let mut first = 0;
        for mut next in gradients {
            let place = merged.len();
            match merged.get_mut(first) {
                Some((kept, sum)) if kept.merges_with(&next) => {
                    if merging == Merging::Latest {
                        (kept.values, kept.base) = (next.values, next.base);
                    } else {
                        let sum = sum.get_or_insert_with(|| kept.values.to_vec());
                        self.merge(sum, kept, &next, parameters);
                        // The sum is corrected already.
                        kept.base = None;
                    }
                    (next.values, next.base) = (&[], None);
                }
                _ => first = place,
            }
            merged.push((next, None));
        }
        Some(merged)
    }
}

impl Gradient<'_> {
    /// Returns true if `next`, the following gradient, must be merged into this one and has not
    /// been.
    fn merges_with(&self, next: &Self) -> bool {
        (self.worker, self.part) == (next.worker, next.part) && !next.values.is_empty()
    }
}

/// The gradients with their merged values.
pub(super) fn kept<'k>(merged: &'k [Kept<'_>]) -> impl Iterator<Item = Gradient<'k>> + Clone {
    merged.iter().map(|(gradient, sum)| Gradient {
        values: sum.as_deref().unwrap_or(gradient.values),
        ..*gradient
    })
}
