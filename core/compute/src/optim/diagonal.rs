//! Optimiser with one step size per parameter, from bounds of the second derivatives.

use super::{Optimizer, Step};
use crate::named::Word;
use crate::saved::{Archive, SavedError};

pub(super) const WORD: Word = Word::new(
    "diagonal",
    &[],
    "steps over a bound of each parameter's second derivative; model = logistic",
);

/// `p -= (rate / u) * g`, where `u` is an upper bound of the second derivative of the loss with
/// respect to `p`. At rate 1 the step ends at the minimum of a parabola that lies above the loss,
/// if no other parameter moves. A parameter that occurs in no example (`u` = 0) keeps its value.
///
/// This is the diagonal scaling of Li et al., OSDI 2014, algorithm 3. With an l1 proximal step at
/// the same rate, `soft(p - g / u, lambda / u)`, it is the step of that algorithm.
#[derive(Debug)]
pub(super) struct Diagonal;

impl Optimizer for Diagonal {
    fn step(&mut self, params: &mut [f32], step: &Step<'_>) {
        for (place, (param, gradient)) in params.iter_mut().zip(step.gradient).enumerate() {
            *param -= step.rate(place) * (step.scale * gradient);
        }
    }

    fn archive(&mut self, _archive: &mut Archive<'_>) -> Result<(), SavedError> {
        Ok(())
    }
}
