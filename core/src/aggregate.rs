//! From the gradients of an update to the next version of the parameters: what the server does when
//! a round closes, and what a replay of the run does again.
//!
//! Knows gradients and the update rule; who sent them, and why they belong together, it does not.

use alloc::vec::Vec;

use crate::id::Version;
use crate::job::Aggregation;
use crate::optim::{OptimError, UpdateSpec, Updater, norm};

/// Combines gradients and updates parameters with the result, with all that has to be remembered
/// from update to update.
#[derive(Debug)]
pub struct Aggregator {
    aggregation: Aggregation,
    updater: Updater,
    /// The combined gradient; kept between updates for its memory.
    combined: Vec<f32>,
}

impl Aggregator {
    /// An aggregator for `parameters` values, before its first update.
    ///
    /// # Errors
    /// [`OptimError`] if `update` is not valid.
    pub fn new(
        aggregation: Aggregation,
        update: &UpdateSpec,
        parameters: usize,
    ) -> Result<Self, OptimError> {
        let updater = Updater::new(update, parameters)?;
        Ok(Self { aggregation, updater, combined: Vec::new() })
    }

    /// Combines gradients, each with the number of examples it is the mean of, in the order given:
    /// sums of floating-point numbers depend on it.
    pub fn combine<'a>(&mut self, gradients: impl Iterator<Item = (u32, &'a [f32])> + Clone) {
        let all: u64 = gradients.clone().map(|(samples, _)| u64::from(samples)).sum();
        let weight = |samples: u32| match self.aggregation {
            Aggregation::Mean => (f64::from(samples) / all as f64) as f32,
            Aggregation::Sum => 1.0,
        };
        self.combined.clear();
        for (number, (samples, gradient)) in gradients.enumerate() {
            let factor = weight(samples);
            if number == 0 {
                self.combined.extend(gradient.iter().map(|value| factor * value));
                continue;
            }
            for (sum, value) in self.combined.iter_mut().zip(gradient) {
                *sum += factor * value;
            }
        }
    }

    /// The L2 norm of the combined gradient, before it is clipped.
    #[must_use]
    pub fn norm(&self) -> f64 {
        norm(&self.combined)
    }

    /// Makes version `version` of `parameters` the next one with the combined gradient, which is
    /// used up.
    ///
    /// # Panics
    /// If the parameters, or the gradients combined before, are not as many values as the
    /// aggregator was made for.
    pub fn apply(&mut self, parameters: &mut [f32], version: Version) {
        self.updater.apply(parameters, &mut self.combined, version);
    }
}

#[cfg(test)]
mod tests {
    use super::Aggregator;
    use crate::id::Version;
    use crate::job::Aggregation;
    use crate::optim::{OptimizerSpec, Schedule, UpdateSpec};

    fn aggregator(aggregation: Aggregation) -> Aggregator {
        let update = UpdateSpec {
            optimizer: OptimizerSpec::Sgd,
            learning_rate: 1.0,
            schedule: Schedule::Constant,
            weight_decay: 0.0,
            clip_norm: None,
        };
        Aggregator::new(aggregation, &update, 2).unwrap()
    }

    #[test]
    fn means_weigh_by_examples_and_sums_do_not() {
        let gradients = [(3, &[4.0, 0.0][..]), (1, &[0.0, 16.0])];
        for (aggregation, expected) in
            [(Aggregation::Mean, [-3.0, -4.0]), (Aggregation::Sum, [-4.0, -16.0])]
        {
            let mut aggregator = aggregator(aggregation);
            let mut parameters = [0.0; 2];
            aggregator.combine(gradients.into_iter());
            aggregator.apply(&mut parameters, Version(0));
            assert_eq!(parameters, expected, "{aggregation}");
        }
    }

    #[test]
    fn each_update_is_made_of_its_own_gradients_only() {
        let mut aggregator = aggregator(Aggregation::Sum);
        aggregator.combine([(1, &[8.0, 8.0][..]), (1, &[1.0, 1.0])].into_iter());
        aggregator.combine([(1, &[3.0, 4.0][..])].into_iter());
        assert_eq!(aggregator.norm(), 5.0);
        let mut parameters = [1.0, 1.0];
        aggregator.apply(&mut parameters, Version(0));
        assert_eq!(parameters, [-2.0, -3.0]);
    }
}
