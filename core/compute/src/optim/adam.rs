//! Adam.

use alloc::vec;
use alloc::vec::Vec;

use super::{Optimizer, Step, sqrt};
use crate::named::{Limits, Number, Presence, Word};
use crate::saved::{Archive, SavedError};
use crate::simd::widely;

const NUMBERS: &[Number] = &[
    Number::real("BETA1", Limits::PART).usual("0.9"),
    Number::real("BETA2", Limits::PART).with(Presence::Joined("0.999")),
    Number::real("EPSILON", Limits::POSITIVE).usual("1e-8"),
];
pub(super) const WORD: Word = Word::new(
    "adam",
    NUMBERS,
    "steps by the mean gradient over the root of the mean squared gradient",
);
pub(super) const WORD_APART: Word =
    Word::new("adamw", NUMBERS, "adam with weight decay apart from the gradients");

/// `m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2`, both 0 before the first
/// step, then at step `t`
/// `p -= rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)`.
#[derive(Debug)]
pub(super) struct Adam {
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    /// `beta1^t` and `beta2^t`, in `f64` because rounding errors accumulate over the whole run.
    powers: [f64; 2],
    decays_apart: bool,
    mean: Vec<f32>,
    squares: Vec<f32>,
}

impl Adam {
    pub(super) fn new(beta1: f32, beta2: f32, epsilon: f32, parameters: usize) -> Self {
        let (mean, squares) = (vec![0.0; parameters], vec![0.0; parameters]);
        Self { beta1, beta2, epsilon, powers: [1.0; 2], decays_apart: false, mean, squares }
    }

    pub(super) fn with_decay_apart(
        beta1: f32,
        beta2: f32,
        epsilon: f32,
        parameters: usize,
    ) -> Self {
        Self { decays_apart: true, ..Self::new(beta1, beta2, epsilon, parameters) }
    }
}

impl Optimizer for Adam {
    fn begin(&mut self) {
        self.powers[0] *= f64::from(self.beta1);
        self.powers[1] *= f64::from(self.beta2);
    }

    fn decays_apart(&self) -> bool {
        self.decays_apart
    }

    fn step(&mut self, params: &mut [f32], step: &Step<'_>) {
        let &Step { gradient, scale: given, learning_rate, .. } = step;
        let [first, second] = self.powers.map(|power| 1.0 - power);
        let rate = (f64::from(learning_rate) / first) as f32;
        let scale = (1.0 / libm::sqrt(second)) as f32;
        let (beta1, beta2, epsilon) = (self.beta1, self.beta2, self.epsilon);
        let state = step.of(&mut self.mean).iter_mut().zip(step.of(&mut self.squares));
        let values = params.iter_mut().zip(gradient).zip(state);
        widely(|| {
            for ((param, gradient), (mean, squares)) in values {
                let gradient = given * gradient;
                *mean += (gradient - *mean) * (1.0 - beta1);
                *squares = beta2 * *squares + (1.0 - beta2) * gradient * gradient;
                *param -= rate * *mean / (sqrt(*squares) * scale + epsilon);
            }
        });
    }

    fn rescale(&mut self, factor: f32) {
        self.mean.iter_mut().for_each(|mean| *mean *= factor);
        self.squares.iter_mut().for_each(|square| *square *= factor * factor);
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.powers)?;
        archive.own("mean", &mut self.mean)?;
        archive.own("squares", &mut self.squares)
    }
}
