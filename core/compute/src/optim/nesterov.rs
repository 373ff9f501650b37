//! Gradient descent with Nesterov's momentum.

use alloc::vec;
use alloc::vec::Vec;

use super::{Optimizer, Step};
use crate::named::{Limits, Number, Word};
use crate::saved::{Archive, SavedError};

pub(super) const WORD: Word = Word::new(
    "nesterov",
    &[Number::real("MU", Limits::PART).usual("0.9")],
    "momentum that looks one step ahead",
);

/// `v = momentum * v + g; p -= rate * (g + momentum * v)`, with `v` 0 before the first step.
#[derive(Debug)]
pub(super) struct Nesterov {
    momentum: f32,
    velocity: Vec<f32>,
}

impl Nesterov {
    pub(super) fn new(momentum: f32, parameters: usize) -> Self {
        Self { momentum, velocity: vec![0.0; parameters] }
    }
}

impl Optimizer for Nesterov {
    fn step(&mut self, params: &mut [f32], step: &Step<'_>) {
        let &Step { gradient, scale, learning_rate, .. } = step;
        let values = params.iter_mut().zip(gradient).zip(step.of(&mut self.velocity));
        for ((param, gradient), velocity) in values {
            let gradient = scale * gradient;
            *velocity = self.momentum * *velocity + gradient;
            *param -= learning_rate * (gradient + self.momentum * *velocity);
        }
    }

    fn rescale(&mut self, factor: f32) {
        self.velocity.iter_mut().for_each(|velocity| *velocity *= factor);
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.own("velocity", &mut self.velocity)
    }
}
