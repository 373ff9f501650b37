//! State besides the parameters: its changes, which come with the gradients of an update, are
//! combined without weights and added without optimiser.
//!
//! A gradient that waits keeps the sum of the changes that were merged into it. A robust rule
//! combines changes as it combines gradients, so that no worker leads the state astray.

use super::merging::Merging;
use super::{Aggregator, Gradient};
use alloc::vec::Vec;
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

    /// Calls `change` with each key of state and its change in an update of these gradients.
    fn changes<'a>(
        &self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        merging: Merging,
        mut change: impl FnMut(usize, f32),
    ) {
        if self.runs.is_empty() {
            return;
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
            for key in keys.clone() {
                let mean = changes.mean(key);
                change(key, if *whole { libm::roundf(mean) } else { mean });
            }
        }
    }

    /// Rounds the changes of whole numbers in a combined gradient.
    pub(super) fn round(&self, combined: &mut [f32]) {
        for StateRun { keys, .. } in self.runs.iter().filter(|run| run.whole) {
            let changes = combined.get_mut(keys.clone()).unwrap_or_default();
            changes.iter_mut().for_each(|change| *change = libm::roundf(*change));
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

    fn mean(&self, key: usize) -> f32 {
        let values = self.values.iter().map(|values| f64::from(values[key]));
        (values.sum::<f64>() / self.count.max(1) as f64) as f32
    }
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
        let Self { state, combined, .. } = self;
        state.changes(gradients, merging, |key, change| combined.values[key] = change);
    }

    /// Adds to `parameters` the change of the state in an update.
    pub(super) fn add_state<'a>(
        &self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &mut [f32],
    ) {
        let merging = self.merging();
        self.state.changes(gradients, merging, |key, change| parameters[key] += change);
    }

    /// Adds to `parameters` the change of the state in the combined gradient.
    pub(super) fn add_combined_state(&self, parameters: &mut [f32]) {
        let keys = self.state.trained..self.parameters;
        let changes = parameters[keys.clone()].iter_mut().zip(&self.combined.values[keys]);
        changes.for_each(|(value, change)| *value += change);
    }
}
