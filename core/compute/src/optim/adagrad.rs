//! AdaGrad.

use alloc::vec;
use alloc::vec::Vec;

use super::{Optimizer, Step, sqrt};
use crate::named::{Limits, Number, Word};
use crate::saved::{Archive, SavedError};
use crate::simd::widely;

pub(super) const WORD: Word = Word::new(
    "adagrad",
    &[Number::real("EPSILON", Limits::POSITIVE).usual("1e-10")],
    "steps over the root of the sum of squared gradients",
);

/// `s += g^2; p -= rate * g / (sqrt(s) + epsilon)`, with `s` 0 before the first step.
#[derive(Debug)]
pub(super) struct AdaGrad {
    epsilon: f32,
    squares: Vec<f32>,
}

impl AdaGrad {
    pub(super) fn new(epsilon: f32, parameters: usize) -> Self {
        Self { epsilon, squares: vec![0.0; parameters] }
    }
}

impl Optimizer for AdaGrad {
    fn step(&mut self, params: &mut [f32], step: &Step<'_>) {
        let &Step { gradient, scale, learning_rate, .. } = step;
        let values = params.iter_mut().zip(gradient).zip(step.of(&mut self.squares));
        let epsilon = self.epsilon;
        widely(|| {
            for ((param, gradient), squares) in values {
                let gradient = scale * gradient;
                *squares += gradient * gradient;
                *param -= learning_rate * gradient / (sqrt(*squares) + epsilon);
            }
        });
    }

    fn rescale(&mut self, factor: f32) {
        self.squares.iter_mut().for_each(|square| *square *= factor * factor);
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.own("squares", &mut self.squares)
    }
}
