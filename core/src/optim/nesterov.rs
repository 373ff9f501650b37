//! Gradient descent with Nesterov's momentum.

use alloc::vec;
use alloc::vec::Vec;

use super::Optimizer;

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
    fn step(&mut self, params: &mut [f32], gradient: &[f32], learning_rate: f32) {
        let values = params.iter_mut().zip(gradient).zip(&mut self.velocity);
        for ((param, gradient), velocity) in values {
            *velocity = self.momentum * *velocity + gradient;
            *param -= learning_rate * (gradient + self.momentum * *velocity);
        }
    }
}
