//! Steps by a bound of the second derivatives.

use super::{Optimizer, Step};
use crate::saved::{Archive, SavedError};

/// `p -= (rate / u) * g`, where `u` bounds the second derivative of the loss by `p`: the least
/// point of a parabola that lies above the loss, at rate 1 and if nothing else moved. A parameter
/// that no example touches stays.
///
/// The diagonal of Li et al., OSDI 2014, algorithm 3; with an l1 proximal step of the same rate,
/// `soft(p - g / u, lambda / u)`, it is the step of that algorithm.
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
