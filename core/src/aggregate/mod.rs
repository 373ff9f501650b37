//! From the gradients of an update to the next version of the parameters: what the server does when
//! a round closes, and what a replay of the run does again.
//!
//! Knows gradients and the update rule; who sent them, and why they belong together, it does not.

mod spec;

use alloc::vec::Vec;

pub use spec::{ParticipationSpec, StalenessSpec, UnknownRule};

use crate::consistency::Closing;
use crate::id::{Clock, Version, WorkerId};
use crate::job::Aggregation;
use crate::mode::Mode;
use crate::optim::{OptimError, UpdateSpec, Updater, norm};

/// A gradient with what decides how much it counts.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    /// Whose it is.
    pub worker: WorkerId,
    /// The iteration of that worker.
    pub clock: Clock,
    /// Examples it is the mean of.
    pub samples: u32,
    /// Updates since the version it was computed on.
    pub staleness: u64,
    /// The parameters it was computed on, if [`Aggregator::needs_base`].
    pub base: Option<&'a [f32]>,
    /// The values.
    pub values: &'a [f32],
}

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
        mode: &Mode,
        parameters: usize,
    ) -> Result<Self, OptimError> {
        let updater = Updater::new(update, parameters)?;
        let mut aggregator = Self { aggregation, updater, combined: Vec::new() };
        aggregator.set_mode(mode);
        Ok(aggregator)
    }

    /// Goes on under another mode. What was remembered for the one before is forgotten, the state
    /// of the optimiser and the workers' shares are not.
    pub fn set_mode(&mut self, mode: &Mode) {
        let _ = mode;
    }

    /// Notes that the partition of `worker` has `rows` examples.
    pub fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        let _ = (worker, rows);
    }

    /// Whether the parameters that a gradient was computed on are needed with it.
    #[must_use]
    pub fn needs_base(&self) -> bool {
        false
    }

    /// Combines gradients, which `closing` chose, in the order given: sums of floating-point
    /// numbers depend on it. `parameters` are the current ones.
    pub fn combine<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) {
        let _ = (parameters, closing);
        let gradients = gradients.map(|gradient| (gradient.samples, gradient.values));
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
    use super::{Aggregator, Gradient};
    use crate::consistency::Closing;
    use crate::id::{Clock, Version, WorkerId};
    use crate::job::Aggregation;
    use crate::mode::Mode;
    use crate::optim::{OptimizerSpec, Schedule, UpdateSpec};

    fn combine(aggregator: &mut Aggregator, gradients: &[(u32, &[f32])]) {
        let fresh = gradients.iter().zip(0..).map(|(&(samples, values), worker)| Gradient {
            worker: WorkerId(worker),
            clock: Clock(0),
            samples,
            staleness: 0,
            base: None,
            values,
        });
        aggregator.combine(fresh, &[], Closing::Everything);
    }

    fn aggregator(aggregation: Aggregation) -> Aggregator {
        let update = UpdateSpec {
            optimizer: OptimizerSpec::Sgd,
            learning_rate: 1.0,
            schedule: Schedule::Constant,
            weight_decay: 0.0,
            clip_norm: None,
        };
        Aggregator::new(aggregation, &update, &Mode::default(), 2).unwrap()
    }

    #[test]
    fn means_weigh_by_examples_and_sums_do_not() {
        let gradients = [(3, &[4.0, 0.0][..]), (1, &[0.0, 16.0])];
        for (aggregation, expected) in
            [(Aggregation::Mean, [-3.0, -4.0]), (Aggregation::Sum, [-4.0, -16.0])]
        {
            let mut aggregator = aggregator(aggregation);
            let mut parameters = [0.0; 2];
            combine(&mut aggregator, &gradients);
            aggregator.apply(&mut parameters, Version(0));
            assert_eq!(parameters, expected, "{aggregation}");
        }
    }

    #[test]
    fn each_update_is_made_of_its_own_gradients_only() {
        let mut aggregator = aggregator(Aggregation::Sum);
        combine(&mut aggregator, &[(1, &[8.0, 8.0][..]), (1, &[1.0, 1.0])]);
        combine(&mut aggregator, &[(1, &[3.0, 4.0][..])]);
        assert_eq!(aggregator.norm(), 5.0);
        let mut parameters = [1.0, 1.0];
        aggregator.apply(&mut parameters, Version(0));
        assert_eq!(parameters, [-2.0, -3.0]);
    }
}
