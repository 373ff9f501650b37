//! Gradients that wait for an update, of which those of a worker are kept as one vector.

use alloc::vec::Vec;

use super::blocks::{add, blocks, values};
use super::weights::unit;
use super::{Aggregator, Combination, Gradient};
use crate::mode::Mode;
use crate::rules::{Aggregation, Closing, StalenessSpec};

/// How the gradients of a worker that become part of the same update are kept until then.
///
/// They have to wait apart where what they do is not a sum in which each has a factor known when it
/// comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Each for itself.
    Apart,
    /// As their sum, in units of the first.
    Sum,
    /// Only the latest counts.
    Latest,
}

impl Merging {
    /// How they are kept under a mode whose updates take all that has come.
    pub(super) const fn of(mode: &Mode, combination: &Combination) -> Self {
        match (combination, mode.staleness) {
            // Iterations are means of their own; a running mean of squares goes by the order.
            (_, StalenessSpec::DynSgd | StalenessSpec::DelayAdaptive { .. }) => Self::Apart,
            // There are updates while they wait, so that it is not known yet what they count.
            (Combination::Ringleader(_), StalenessSpec::Plain) => Self::Sum,
            (Combination::Ringleader(_), _) => Self::Apart,
            (Combination::Incremental(_), _) => Self::Latest,
            (Combination::Round | Combination::ByWorker | Combination::Iterations(_), _) => {
                Self::Sum
            }
        }
    }
}

/// A gradient, and the sum that is its values if others are merged in it.
type Kept<'a> = (Gradient<'a>, Option<Vec<f32>>);

impl Aggregator {
    /// How the gradients of a worker from the same part of the data that become part of the same
    /// update are kept until then, where an update takes all that has come.
    ///
    /// Those of an update of [`Closing::Oldest`] are always kept apart.
    #[must_use]
    pub const fn merging(&self) -> Merging {
        if self.aggregation.is_robust() || self.scattered.is_cut() {
            return Merging::Apart;
        }
        Merging::of(&self.mode, &self.combination)
    }

    /// Adds `next`, a gradient that waits for an update, to `sum`: so far the values of `first` and
    /// of those that were merged with it before. After that `sum` are the values of `first`, which
    /// is not to be corrected any more, and `next` has none of its own. `parameters` are the
    /// current ones, which must still be those before the update if gradients are corrected.
    ///
    /// An update of gradients that come unmerged merges them in the same way first: of a worker and
    /// part, all that follow upon each other. The result is thus the same to the bit.
    ///
    /// # Panics
    /// If the parameters or a gradient are not as many values as the aggregator was made for.
    pub fn merge(
        &mut self,
        sum: &mut [f32],
        first: &Gradient<'_>,
        next: &Gradient<'_>,
        parameters: &[f32],
    ) {
        let aggregation = match self.combination {
            Combination::ByWorker | Combination::Ringleader(_) => Aggregation::Mean,
            _ => self.aggregation,
        };
        let rule = self.mode.staleness;
        let mut counts = |gradient: &Gradient<'_>| {
            unit(aggregation, gradient) * self.factors.of(&rule, gradient.staleness)
        };
        let ratio = (counts(next) / counts(first)) as f32;
        let mut corrected = core::mem::take(&mut self.scratch.corrected);
        for keys in blocks(sum.len()) {
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
        self.scratch.corrected = corrected;
    }

    /// The gradients of an update with those merged that belong together; none if no two do.
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
            || !pairs().any(|(one, next)| one.is_beside(&next))
        {
            return None;
        }
        let mut merged: Vec<Kept<'a>> = Vec::new();
        let mut first = 0;
        for mut next in gradients {
            let place = merged.len();
            match merged.get_mut(first) {
                Some((kept, sum)) if kept.is_beside(&next) => {
                    if merging == Merging::Latest {
                        (kept.values, kept.base) = (next.values, next.base);
                    } else {
                        let sum = sum.get_or_insert_with(|| kept.values.to_vec());
                        self.merge(sum, kept, &next, parameters);
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
    /// Whether `next`, which comes after it, is to be merged with it and has not been.
    fn is_beside(&self, next: &Self) -> bool {
        (self.worker, self.part) == (next.worker, next.part) && !next.values.is_empty()
    }
}

/// The gradients with the values that are kept.
pub(super) fn kept<'k>(merged: &'k [Kept<'_>]) -> impl Iterator<Item = Gradient<'k>> + Clone {
    merged.iter().map(|(gradient, sum)| Gradient {
        values: sum.as_deref().unwrap_or(gradient.values),
        ..*gradient
    })
}
