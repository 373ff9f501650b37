//! Gradients that have values for some keys only, added up on all keys, or on those of a block.

use alloc::vec::Vec;
use core::ops::Range;

use super::Gradient;
use super::plan::{Plan, Term};
use pstrain_compute::id::Version;
use pstrain_compute::params::{Cut, KeyList, KeyRange};

/// Where gradients are added up, and how much the loss can bend there.
#[derive(Debug)]
pub(super) struct Scattered {
    /// The blocks of updates; none if each is of all keys.
    cut: Option<Cut>,
    /// The keys that the update changes.
    pub(super) range: Range<usize>,
    /// For each of all keys, if the gradients' lists say of it; those outside of the range are of
    /// earlier updates.
    pub(super) curvature: Vec<f32>,
    parameters: usize,
}

impl Scattered {
    /// For updates of all of so many keys.
    pub(super) const fn new(parameters: usize) -> Self {
        Self { cut: None, range: 0..parameters, curvature: Vec::new(), parameters }
    }

    /// From now on each update is of a block.
    pub(super) const fn cut(&mut self, cut: Cut) {
        self.cut = Some(cut);
    }

    /// Whether each update is of a block.
    pub(super) const fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// The next update is that of `version`: what was added up for the one before is gone from
    /// `sum`.
    pub(super) fn begin(&mut self, version: Version, sum: &mut [f32]) {
        let Some(cut) = &self.cut else { return };
        if let Some(before) = sum.get_mut(self.range.clone()) {
            before.fill(0.0);
        }
        self.range = cut.at(version);
    }

    /// Adds gradients up in `sum`, as `plan` says. A job whose updates are no such sums is refused.
    pub(super) fn add<'a>(
        &self,
        plan: &Plan,
        gradients: impl Iterator<Item = Gradient<'a>>,
        sum: &mut [f32],
    ) {
        scatter(plan, gradients, &self.range, |gradient, _| gradient.values, sum);
    }

    /// Adds up as well how much the loss can bend, for whoever steps by that.
    pub(super) fn bend<'a>(&mut self, plan: &Plan, gradients: impl Iterator<Item = Gradient<'a>>) {
        self.curvature.resize(self.parameters, 0.0);
        let bounds = |_: &_, list: &'a KeyList| list.curvature().unwrap_or_default();
        scatter(plan, gradients, &self.range, bounds, &mut self.curvature);
    }
}

/// Adds up, at the keys in `range`, what `of` says of gradients and their lists, a value for each
/// key of the list.
fn scatter<'a>(
    plan: &Plan,
    gradients: impl Iterator<Item = Gradient<'a>>,
    range: &Range<usize>,
    of: impl Fn(&Gradient<'a>, &'a KeyList) -> &'a [f32],
    sum: &mut [f32],
) {
    sum[range.clone()].fill(0.0);
    let Ok(keys) = KeyRange::new(range.start as u64, range.end as u64) else { return };
    for (gradient, planned) in gradients.zip(&plan.gradients) {
        let (Term::Add(factor), Some(list)) = (planned.term, gradient.keys) else { continue };
        let places = list.places(keys);
        let values = of(&gradient, list).get(places.clone()).unwrap_or_default();
        for (&key, value) in list.keys()[places].iter().zip(values) {
            sum[key as usize] += factor * value;
        }
    }
}
