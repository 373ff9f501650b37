//! FTRL-Proximal.

use alloc::vec;
use alloc::vec::Vec;

use super::{Optimizer, Step, sqrt};
use crate::named::{Limits, Number, Presence, Word};
use crate::saved::{Archive, SavedError};

pub(super) const WORD: Word = Word::new(
    "ftrl",
    &[
        Number::real("BETA", Limits::NOT_NEGATIVE).usual("1"),
        Number::real("L1", Limits::NOT_NEGATIVE).with(Presence::Joined("0")),
        Number::real("L2", Limits::NOT_NEGATIVE).with(Presence::Joined("0")),
    ],
    "follow the regularised leader; its alpha is the learning rate",
);

/// Follow the regularised leader, per coordinate (McMahan et al., KDD 2013, algorithm 1):
/// `n' = n + g^2`, `z += g - (sqrt(n') - sqrt(n)) / rate * p`, then `p` is 0 if `|z| <= l1` and
/// `-(z - sign(z) l1) / ((beta + sqrt(n')) / rate + l2)` otherwise. The rate is the paper's alpha.
///
/// The paper starts all parameters at 0. For a parameter with another initial value, `z` starts at
/// the value for which the formula yields that parameter. A parameter whose gradient is 0 does not
/// change.
#[derive(Debug)]
pub(super) struct Ftrl {
    beta: f32,
    l1: f32,
    l2: f32,
    /// `z`.
    sums: Vec<f32>,
    /// `n`.
    squares: Vec<f32>,
}

impl Ftrl {
    pub(super) fn new(beta: f32, l1: f32, l2: f32, parameters: usize) -> Self {
        Self { beta, l1, l2, sums: vec![0.0; parameters], squares: vec![0.0; parameters] }
    }
}

impl Optimizer for Ftrl {
    fn step(&mut self, params: &mut [f32], step: &Step<'_>) {
        let &Step { gradient, scale, learning_rate: rate, .. } = step;
        let (beta, l1, l2) = (self.beta, self.l1, self.l2);
        let state = step.of(&mut self.sums).iter_mut().zip(step.of(&mut self.squares));
        for ((param, gradient), (sum, squares)) in params.iter_mut().zip(gradient).zip(state) {
            let gradient = scale * gradient;
            if gradient == 0.0 {
                continue;
            }
            if *squares == 0.0 && *param != 0.0 {
                // First gradient of a parameter that did not start at 0: derive `z` from the
                // parameter.
                *sum = -*param * (beta / rate + l2) - l1.copysign(*param);
            }
            let before = sqrt(*squares);
            *squares += gradient * gradient;
            let root = sqrt(*squares);
            *sum += gradient - (root - before) / rate * *param;
            *param = if sum.abs() <= l1 {
                0.0
            } else {
                -(*sum - l1.copysign(*sum)) / ((beta + root) / rate + l2)
            };
        }
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.own("sums", &mut self.sums)?;
        archive.own("squares", &mut self.squares)
    }
}
