//! Trajectory of the parameters: detects a swing, and tracks the version to restore.
//!
//! The number of updates between two looks is twice the number of gradients under way, at least
//! `FEWEST`, or an odd multiple of that, so that looks do not cost more than updates. Parameters
//! that go downhill move in the same direction from look to look. With stale gradients they
//! overshoot before the gradients reflect it, and return: a staleness of `tau` updates makes them
//! swing with a half period of about `2 tau` updates once `rate * curvature * tau > 1 / e`, with
//! growing amplitude from `pi / 2` on. The cosine between two moves is therefore near 1 while
//! training is far from that, and near -1 while it swings. Noise alone, pulled back to its origin,
//! gives `-(1 - exp(-2 rate * curvature * tau)) / 2`: never less than -1/2.
//!
//! The test needs no learning rate, momentum or curvature. An optimizer that scales its own steps
//! could not provide them.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::Version;
use pstrain_compute::sum::ExactSum;

/// Smallest number of updates between two looks: a look costs as much as several updates.
const FEWEST: u64 = 16;
/// The same after a long time without changes.
const FEWEST_AT_REST: u64 = 64;
/// Number of looks that are remembered: two moves.
pub(super) const LOOKS: usize = 3;

/// The trajectory of the parameters.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Trajectory {
    /// The versions of the last looks, oldest first.
    looks: VecDeque<Version>,
    /// Pushes until the next look.
    wait: u64,
    /// The cosines of the last two pairs of moves, latest first.
    cosines: [Option<f64>; 2],
    /// The latest version approved for a restore.
    good: Option<Version>,
}

impl Trajectory {
    /// Counts a push. Returns true if a look is due.
    pub(super) const fn is_due(&mut self) -> bool {
        self.wait = self.wait.saturating_sub(1);
        self.wait == 0
    }

    /// Returns the number of updates between two looks: a half period of a swing, or, if nothing
    /// has changed for long (`rests`) and that is too frequent, an odd multiple of it.
    pub(super) fn spacing(under_way: u64, rests: bool) -> u64 {
        let half = (2 * under_way).max(FEWEST);
        if rests { half * (FEWEST_AT_REST.div_ceil(half) | 1) } else { half }
    }

    /// Records a look at the current parameters, which are `version`, and schedules the next after
    /// `wait` pushes. `approved` states that the loss is low, so that the version of two looks ago
    /// can be restored. Returns true if it is the first look of a trajectory.
    pub(super) fn look(&mut self, version: Version, wait: u64, approved: bool) -> bool {
        let is_first = self.looks.is_empty();
        self.wait = wait;
        self.good.get_or_insert(version);
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(version);
        if approved && self.looks.len() == LOOKS {
            self.good = self.looks.front().copied();
        }
        is_first
    }

    /// Receives the sums of the last look; empty if there were no two moves before it.
    pub(super) fn looked(&mut self, sums: &[ExactSum]) {
        if let [product, one, other] = sums {
            self.cosines = [Some(cosine(product, one, other)), self.cosines[0]];
        }
    }

    /// Returns true if the last move continued in the direction of the previous one, or is unknown.
    pub(super) fn goes_on(&self) -> bool {
        self.cosines[0].is_none_or(|cosine| cosine > 0.0)
    }

    /// Returns the mean of the last two cosines, if it is below the range of noise.
    pub(super) fn swing(&self) -> Option<f64> {
        let [Some(last), Some(before)] = self.cosines else { return None };
        let mean = f64::midpoint(last, before);
        (mean < -0.5).then_some(mean)
    }

    /// Starts a new trajectory after `pushes` more pushes, which still belong to the old one.
    pub(super) fn restart_cohort(&mut self, pushes: u64) {
        self.looks.clear();
        self.cosines = [None; 2];
        self.wait = pushes;
    }

    /// Returns the version to restore.
    pub(super) const fn good(&self) -> Option<Version> {
        self.good
    }
}

/// Returns the cosine of the angle between two moves, from the sum of their products and the sums
/// of their squares; 0 if there was no movement.
fn cosine(product: &ExactSum, one: &ExactSum, other: &ExactSum) -> f64 {
    let norms = one.root() * other.root();
    if norms > 0.0 { product.value() / norms } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::auto::{Look, Snapshots};

    /// The trajectory of `x -> x - step x(tau updates ago)` after many updates.
    fn seen(step: f64, tau: usize) -> Trajectory {
        let mut x = alloc::vec![1.0_f64; tau + 1];
        let (mut course, mut looks) = (Trajectory::default(), Snapshots::default());
        for _ in 0..40 * (tau + 1) {
            if course.is_due() {
                let values = Arc::new(alloc::vec![*x.last().unwrap() as f32]);
                let anew = course.look(Version(0), 2 * tau as u64, false);
                let look = Look { version: Version(0), anew, approved: false };
                course.looked(&looks.look(look, &values, values.len()).unwrap_or_default());
            }
            x.push(x[x.len() - 1] - step * x[x.len() - 1 - tau]);
        }
        course
    }

    #[test]
    fn one_that_goes_down_goes_on_and_one_that_swings_is_known() {
        for tau in [8, 20, 50] {
            let goes_down = seen(0.1 / tau as f64, tau);
            assert!(goes_down.goes_on() && goes_down.swing().is_none(), "{goes_down:?}");
            let swings = seen(1.6 / tau as f64, tau);
            assert!(!swings.goes_on() && swings.swing() < Some(-0.99), "{swings:?}");
        }
    }
}
