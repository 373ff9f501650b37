//! The course of the parameters: whether they swing, and what can be gone back to.
//!
//! Between two looks as many updates are made as there are gradients under way, twice, or an odd number
//! of times that, so that looks do not cost more than updates. Parameters
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
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::id::Version;
use crate::saved::{Archive, SavedError};

/// The fewest updates between two looks: one costs as much as several updates.
const FEWEST: u64 = 16;
/// The same when nothing has changed for long.
const FEWEST_AT_REST: u64 = 64;

/// Parameters that can be gone back to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Their version.
    pub version: Version,
    /// The values.
    #[serde(skip)]
    pub parameters: Arc<Vec<f32>>,
}

/// What was seen of the parameters.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Course {
    /// Those of the last looks, the oldest first.
    looks: VecDeque<Kept>,
    /// Pushes until the next look.
    wait: u64,
    /// The cosines of the last two pairs of moves, the later one first.
    cosines: [Option<f64>; 2],
    /// Those whose gradients were the last to be known as good.
    good: Option<Kept>,
}

impl Course {
    /// Saves or restores the parameters, once serde has been over the rest.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        for kept in self.looks.iter_mut().chain(&mut self.good) {
            archive.shared("kept", &mut kept.parameters)?;
        }
        Ok(())
    }

    /// Takes note of a push; whether it is time for a look.
    pub(super) const fn is_due(&mut self) -> bool {
        self.wait = self.wait.saturating_sub(1);
        self.wait == 0
    }

    /// Updates between two looks: a half swing, or, where that would be too often for one that rests,
    /// an odd number of them.
    pub(super) fn spacing(under_way: u64, rests: bool) -> u64 {
        let half = (2 * under_way).max(FEWEST);
        if rests { half * (FEWEST_AT_REST.div_ceil(half) | 1) } else { half }
    }

    /// Looks at the current parameters; the next time after `wait` pushes.
    pub(super) fn look(&mut self, current: Kept, wait: u64) {
        self.wait = wait;
        self.good.get_or_insert_with(|| current.clone());
        if self.looks.len() == 3 {
            self.looks.pop_front();
        }
        self.looks.push_back(current);
        if let [first, second, third] = self.looks.make_contiguous() {
            let cosine = cosine(&first.parameters, &second.parameters, &third.parameters);
            self.cosines = [Some(cosine), self.cosines[0]];
        }
    }

    /// The loss was low all the time since the last look but one: what was there before can be
    /// gone back to.
    pub(super) fn approve(&mut self) {
        if self.looks.len() == 3 {
            self.good = self.looks.front().cloned();
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
    pub(super) fn good(&self) -> Option<Kept> {
        self.good.clone()
    }
}

/// Keys whose products are added up as they are, before they go to a sum with more digits.
const BLOCK: usize = 512;
/// Sums that are kept at once, in a fixed order.
const LANES: usize = 8;

/// The cosine of the angle between two moves; 0 if there was none.
fn cosine(first: &[f32], second: &[f32], third: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 3];
    let blocks = first.chunks(BLOCK).zip(second.chunks(BLOCK)).zip(third.chunks(BLOCK));
    for ((first, second), third) in blocks {
        let products = products(first, second, third);
        for (sum, lanes) in sums.iter_mut().zip(products) {
            *sum += lanes.into_iter().map(f64::from).sum::<f64>();
        }
    }
    let [product, one, other] = sums;
    let norms = libm::sqrt(one) * libm::sqrt(other);
    if norms > 0.0 { product / norms } else { 0.0 }
}

/// The sums of the products of two moves, of the squares of one, and of the other.
fn products(first: &[f32], second: &[f32], third: &[f32]) -> [[f32; LANES]; 3] {
    let mut sums = [[0.0; LANES]; 3];
    let mut add = |lane: usize, [first, second, third]: [f32; 3]| {
        let (before, after) = (second - first, third - second);
        sums[0][lane] += before * after;
        sums[1][lane] += before * before;
        sums[2][lane] += after * after;
    };
    let ((firsts, a), (seconds, b), (thirds, c)) =
        (first.as_chunks::<LANES>(), second.as_chunks::<LANES>(), third.as_chunks::<LANES>());
    for ((first, second), third) in firsts.iter().zip(seconds).zip(thirds) {
        for lane in 0..LANES {
            add(lane, [first[lane], second[lane], third[lane]]);
        }
    }
    for (lane, ((first, second), third)) in a.iter().zip(b).zip(c).enumerate() {
        add(lane, [*first, *second, *third]);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen of `x -> x - step x(tau updates ago)`, after a while.
    fn seen(step: f64, tau: usize) -> Course {
        let mut x = alloc::vec![1.0_f64; tau + 1];
        let mut course = Course::default();
        for _ in 0..40 * (tau + 1) {
            if course.is_due() {
                let values = Arc::new(alloc::vec![*x.last().unwrap() as f32]);
                course.look(Kept { version: Version(0), parameters: values }, 2 * tau as u64);
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
