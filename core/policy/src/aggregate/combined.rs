//! The combined gradient of an update, of all keys or one block; and sums of sparse gradients,
//! which have values for some keys only.

use alloc::vec::Vec;
use core::ops::Range;

use super::Gradient;
use super::plan::{Plan, Term};
use pstrain_compute::id::Version;
use pstrain_compute::params::{Cut, KeyList, KeyRange};

/// The combined gradient of an update, and the curvature of the loss, at the keys of the update.
#[derive(Debug)]
pub(super) struct Combined {
    /// The values, if the gradient is needed as a whole; kept to reuse the memory.
    pub(super) values: Vec<f32>,
    /// The blocks of the updates; `None` if each update covers all keys.
    cut: Option<Cut>,
    /// The keys that the update changes.
    pub(super) range: Range<usize>,
    /// Curvature bound of each key, if the gradients' key lists have such bounds. Values outside of
    /// `range` are left over from earlier updates.
    pub(super) curvature: Vec<f32>,
    parameters: usize,
}

impl Combined {
    /// Creates the state for updates of all `parameters` keys.
    pub(super) const fn new(parameters: usize) -> Self {
        let range = 0..parameters;
        Self { values: Vec::new(), cut: None, range, curvature: Vec::new(), parameters }
    }

    /// Restricts each later update to one block of `cut`.
    pub(super) const fn cut(&mut self, cut: Cut) {
        self.cut = Some(cut);
    }

    /// Returns true if each update covers one block only.
    pub(super) const fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Starts the update of `version` and clears the previous update's values.
    pub(super) fn begin(&mut self, version: Version) {
        let Some(cut) = &self.cut else { return };
        if let Some(before) = self.values.get_mut(self.range.clone()) {
            before.fill(0.0);
        }
        self.range = cut.at(version);
    }

    /// The values, with room for all keys.
    pub(super) fn room(&mut self) -> &mut [f32] {
        self.values.resize(self.parameters, 0.0);
        &mut self.values
    }

    /// Adds up sparse gradients as `plan` says. A job whose updates are not such sums is rejected.
    pub(super) fn add<'a>(&mut self, plan: &Plan, gradients: impl Iterator<Item = Gradient<'a>>) {
        self.values.resize(self.parameters, 0.0);
        scatter(plan, gradients, &self.range, |gradient, _| gradient.values, &mut self.values);
    }

    /// Adds up the curvature bounds as well, for optimizers that use them.
    pub(super) fn bend<'a>(&mut self, plan: &Plan, gradients: impl Iterator<Item = Gradient<'a>>) {
        self.curvature.resize(self.parameters, 0.0);
        let bounds = |_: &_, list: &'a KeyList| list.curvature().unwrap_or_default();
        scatter(plan, gradients, &self.range, bounds, &mut self.curvature);
    }
}

/// Sums one value per listed key, which `of` returns for a gradient and its key list, at the keys
/// in `range`.
fn scatter<'a>(
    plan: &Plan,
    gradients: impl Iterator<Item = Gradient<'a>>,
    range: &Range<usize>,
    of: impl Fn(&Gradient<'a>, &'a KeyList) -> &'a [f32],
    sum: &mut [f32],
) {
    sum[range.clone()].fill(0.0);
    let Ok(keys) = KeyRange::new(range.start as u64, range.end as u64) else {
        return; // an update of a block whose keys are elsewhere
    };
    for (gradient, planned) in gradients.zip(&plan.gradients) {
        let (Term::Add(factor), Some(list)) = (planned.term, gradient.keys) else { continue };
        let places = list.places(keys);
        let values = of(&gradient, list).get(places.clone()).unwrap_or_default();
        for (&key, value) in list.keys()[places].iter().zip(values) {
            sum[key as usize] += factor * value;
        }
    }
}
