//! The course of the parameters: whether they swing, and what can be gone back to.
//!
//! Between two looks as many updates are made as there are gradients under way, twice, or an odd
//! number of times that, so that looks do not cost more than updates. Parameters
//! that go downhill move on in the same direction from look to look. Under stale gradients they go
//! too far before they hear of it, and come back: an update that is `tau` others late makes them
//! swing with a half period of about `2 tau` updates once `rate * curvature * tau > 1 / e`, and
//! ever wider from `pi / 2` on. So the cosine between two moves is near 1 while training is far
//! from that, and near -1 while it swings. Noise alone, drawn back to where it came from, gives
//! `-(1 - exp(-2 rate * curvature * tau)) / 2`: never less than -1/2.
//!
//! No learning rate, momentum or curvature has to be known for that, which an optimiser with steps
//! of its own could not tell.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::Version;
use pstrain_compute::sum::ExactSum;

/// The fewest updates between two looks: one costs as much as several updates.
const FEWEST: u64 = 16;
/// The same when nothing has changed for long.
const FEWEST_AT_REST: u64 = 64;
/// Looks that are remembered: two moves.
pub(super) const LOOKS: usize = 3;

/// What was seen of the parameters.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Course {
    /// The versions of the last looks, the oldest first.
    looks: VecDeque<Version>,
    /// Pushes until the next look.
    wait: u64,
    /// The cosines of the last two pairs of moves, the later one first.
    cosines: [Option<f64>; 2],
    /// The version whose gradients were the last to be known as good.
    good: Option<Version>,
}

impl Course {
    /// Takes note of a push; whether it is time for a look.
    pub(super) const fn is_due(&mut self) -> bool {
        self.wait = self.wait.saturating_sub(1);
        self.wait == 0
    }

    /// Updates between two looks: a half swing, or, where that would be too often for one that
    /// rests, an odd number of them.
    pub(super) fn spacing(under_way: u64, rests: bool) -> u64 {
        let half = (2 * under_way).max(FEWEST);
        if rests { half * (FEWEST_AT_REST.div_ceil(half) | 1) } else { half }
    }

    /// Looks at the current parameters, which are `version`; the next time after `wait` pushes. If
    /// the loss was low all the time since the last look but one, what was there before can be gone
    /// back to. Whether it is the first look of a course.
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

    /// Takes note of the sums that belong to the last look, if there were two moves before it.
    pub(super) fn looked(&mut self, sums: &[ExactSum]) {
        if let [product, one, other] = sums {
            self.cosines = [Some(cosine(product, one, other)), self.cosines[0]];
        }
    }

    /// Whether the last move went on where the one before had gone, as far as that is known.
    pub(super) fn goes_on(&self) -> bool {
        self.cosines[0].is_none_or(|cosine| cosine > 0.0)
    }

    /// The mean of the last two cosines, if it is less than noise can make it.
    pub(super) fn swing(&self) -> Option<f64> {
        let [Some(last), Some(before)] = self.cosines else { return None };
        let mean = f64::midpoint(last, before);
        (mean < -0.5).then_some(mean)
    }

    /// Forgets the course, and does not look for so many pushes: they belong to it still.
    pub(super) fn begin_anew(&mut self, pushes: u64) {
        self.looks.clear();
        self.cosines = [None; 2];
        self.wait = pushes;
    }

    /// What to go back to.
    pub(super) const fn good(&self) -> Option<Version> {
        self.good
    }
}

/// The cosine of the angle between two moves, from the sum of their products and those of their
/// squares; 0 if there was none.
fn cosine(product: &ExactSum, one: &ExactSum, other: &ExactSum) -> f64 {
    let norms = one.root() * other.root();
    if norms > 0.0 { product.value() / norms } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::auto::{Look, Looks};

    /// What is seen of `x -> x - step x(tau updates ago)`, after a while.
    fn seen(step: f64, tau: usize) -> Course {
        let mut x = alloc::vec![1.0_f64; tau + 1];
        let (mut course, mut looks) = (Course::default(), Looks::default());
        for _ in 0..40 * (tau + 1) {
            if course.is_due() {
                let values = Arc::new(alloc::vec![*x.last().unwrap() as f32]);
                let anew = course.look(Version(0), 2 * tau as u64, false);
                let look = Look { version: Version(0), anew, approved: false };
                course.looked(&looks.look(look, &values).unwrap_or_default());
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
