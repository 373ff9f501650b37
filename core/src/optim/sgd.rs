//! Stochastic gradient descent.

use super::Optimizer;

/// `p -= rate * g`.
#[derive(Debug)]
pub(super) struct Sgd;

impl Optimizer for Sgd {
    fn step(&mut self, params: &mut [f32], gradient: &[f32], learning_rate: f32) {
        for (param, gradient) in params.iter_mut().zip(gradient) {
            *param -= learning_rate * gradient;
        }
    }
}
