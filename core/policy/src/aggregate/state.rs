//! State besides the parameters: its changes, which come with the gradients of an update, are
//! combined without weights and added without optimiser.
//!
//! A gradient that waits keeps the sum of the changes that were merged into it. A robust rule
//! combines changes as it combines gradients, so that no worker leads the state astray.

use super::merging::Merging;
use super::weighted_sum::{add, scale};
use super::{Aggregator, Gradient};
use alloc::vec::Vec;
use core::ops::Range;
use pstrain_compute::params::{Combine, StateRun};

/// The keys of state in the parameter vector: those from `trained` on.
#[derive(Debug)]
pub(super) struct StateKeys {
    /// The number of parameters.
    pub(super) trained: usize,
    runs: Vec<StateRun>,
}

/// Changes of one update, to be averaged.
struct Changes<'a> {
    values: Vec<&'a [f32]>,
    /// The number of changes, with those merged into the values of others.
    count: usize,
}

impl StateKeys {
    /// All `parameters` keys are parameters.
    pub(super) const fn none(parameters: usize) -> Self {
        Self { trained: parameters, runs: Vec::new() }
    }

    /// The change of each key of state in an update of these gradients.
    fn changes<'a>(
        &self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        merging: Merging,
    ) -> Vec<f32> {
        let mut means = Vec::new();
        if self.runs.is_empty() {
            return means;
        }
        let all = Changes::of(gradients.clone(), merging);
        // By part, so that the result does not depend on which worker computed it.
        let place = |gradient: &Gradient<'_>| (gradient.part, gradient.worker);
        let first = gradients.clone().next().as_ref().map(place);
        let of_first = |gradient: &Gradient<'_>| Some(place(gradient)) == first;
        let firsts = Changes::of(gradients.take_while(of_first), merging);
        for StateRun { keys, combine, whole } in &self.runs {
            let changes = match combine {
                Combine::Mean => &all,
                Combine::First => &firsts,
            };
            let begin = means.len();
            means.resize(begin + keys.len(), 0.0);
            changes.mean(keys, &mut means[begin..]);
            if *whole {
                round(&mut means[begin..]);
            }
        }
        means
    }

    /// Rounds the whole numbers among values of all keys.
    pub(super) fn round(&self, values: &mut [f32]) {
        for StateRun { keys, .. } in self.runs.iter().filter(|run| run.whole) {
            round(values.get_mut(keys.clone()).unwrap_or_default());
        }
    }
}

impl<'a> Changes<'a> {
    fn of(gradients: impl Iterator<Item = Gradient<'a>>, merging: Merging) -> Self {
        let mut found = Self { values: Vec::new(), count: 0 };
        for gradient in gradients {
            let is_merged = gradient.values.is_empty();
            // Where the latest gradient alone counts, earlier changes were dropped with theirs.
            found.count += usize::from(!is_merged || merging == Merging::Sum);
            if !is_merged {
                found.values.push(gradient.values);
            }
        }
        found
    }

    /// Writes the mean to `mean`: the same sum as without a server, to the bit.
    fn mean(&self, keys: &Range<usize>, mean: &mut [f32]) {
        let factor = share(self.count.max(1));
        for (place, values) in self.values.iter().enumerate() {
            match place {
                0 => scale(mean, factor, &values[keys.clone()]),
                _ => add(mean, factor, &values[keys.clone()]),
            }
        }
    }
}

/// The factor of a change that is one of `count` in a mean.
fn share(count: usize) -> f32 {
    (1.0 / count as f64) as f32
}

fn scale_by(factor: f32, values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value *= factor);
}

fn round(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = libm::roundf(*value));
}

impl Aggregator {
    /// Treats the keys of `runs`, which are all keys from some key on, as state.
    #[must_use]
    pub fn with_state(self, runs: impl Iterator<Item = StateRun>) -> Self {
        let runs: Vec<_> = runs.collect();
        let trained = runs.first().map_or(self.parameters, |run| run.keys.start);
        Self { state: StateKeys { trained, runs }, ..self }
    }

    /// The number of keys that are parameters, and not state.
    #[must_use]
    pub const fn trained(&self) -> usize {
        self.state.trained
    }

    /// The values of `gradient` that belong to parameters, and not to state. A sparse gradient has
    /// values for some keys only, and no state.
    #[must_use]
    pub fn parameters_of<'g>(&self, gradient: &'g mut [f32]) -> &'g mut [f32] {
        let trained = self.state.trained.min(gradient.len());
        &mut gradient[..trained]
    }

    /// Sets the combined gradient at the keys of state to their change in an update.
    pub(super) fn combine_state<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
    ) {
        let merging = self.merging();
        let changes = self.state.changes(gradients, merging);
        self.combined.values[self.state.trained..][..changes.len()].copy_from_slice(&changes);
    }

    /// Adds to `parameters` the change of the state in an update.
    pub(super) fn add_state<'a>(
        &self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &mut [f32],
    ) {
        let changes = self.state.changes(gradients, self.merging());
        add(&mut parameters[self.state.trained..][..changes.len()], 1.0, &changes);
    }

    /// Adds to `parameters` the change of the state in the combined gradient. Whole numbers stay
    /// whole where the sum, or an average of parameters before, is none.
    pub(super) fn add_combined_state(&self, parameters: &mut [f32]) {
        let keys = self.state.trained..self.parameters;
        add(&mut parameters[keys.clone()], 1.0, &self.combined.values[keys]);
        self.state.round(parameters);
    }

    /// Scales the changes of the state in a gradient, number `place` of `count` in an update, so
    /// that the sum of all gradients, each times its `factor`, has the changes of an update.
    pub fn share_state(&self, gradient: &mut [f32], factor: f32, (place, count): (usize, usize)) {
        for StateRun { keys, combine, .. } in &self.state.runs {
            let wanted = match combine {
                Combine::Mean => share(count),
                Combine::First => f32::from(place == 0),
            };
            if wanted.to_bits() != factor.to_bits() {
                scale_by(wanted / factor, &mut gradient[keys.clone()]);
            }
        }
    }

    /// Makes the sum of such gradients one of `here` gradients instead of `count`.
    pub fn correct(&self, sum: &mut [f32], correction: f32, (here, count): (usize, usize)) {
        let (values, _) = sum.split_at_mut(self.state.trained);
        if correction.to_bits() != 1_f32.to_bits() {
            scale_by(correction, values);
        }
        let means = self.state.runs.iter().filter(|run| run.combine == Combine::Mean);
        if (1..count).contains(&here) {
            let factor = (count as f64 / here as f64) as f32;
            means.for_each(|run| scale_by(factor, &mut sum[run.keys.clone()]));
        }
    }
}
