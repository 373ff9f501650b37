//! One update of a server's parameters, from gradient to new version.

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use super::error::{check_not_negative, check_positive};
use super::{OptimError, Optimizer, OptimizerSpec, Schedule};
use crate::id::Version;

/// How gradients become new parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateSpec {
    /// The rule.
    pub optimizer: OptimizerSpec,
    /// The base learning rate, above 0.
    pub learning_rate: f32,
    /// What becomes of the learning rate in the course of the training.
    pub schedule: Schedule,
    /// How much of each parameter is added to its gradient, 0 or more (L2 regularisation; PyTorch's
    /// `weight_decay`).
    pub weight_decay: f32,
    /// The greatest L2 norm of a gradient, above 0; a longer one is shortened to it.
    pub clip_norm: Option<f32>,
}

impl UpdateSpec {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`OptimError`] at the first setting outside its range.
    pub fn validate(&self) -> Result<(), OptimError> {
        self.optimizer.validate()?;
        check_positive("learning rate", self.learning_rate)?;
        self.schedule.validate(self.learning_rate)?;
        check_not_negative("weight decay", self.weight_decay)?;
        self.clip_norm.map_or(Ok(()), |norm| check_positive("clip norm", norm))
    }
}

/// Updates the parameters of one key range, with all that has to be remembered for it.
#[derive(Debug)]
pub struct Updater {
    spec: UpdateSpec,
    parameters: usize,
    optimizer: Box<dyn Optimizer>,
}

impl Updater {
    /// An updater of `parameters` values, before its first update.
    ///
    /// # Errors
    /// [`OptimError`] if `spec` is not valid.
    pub fn new(spec: &UpdateSpec, parameters: usize) -> Result<Self, OptimError> {
        spec.validate()?;
        Ok(Self { spec: *spec, parameters, optimizer: spec.optimizer.build(parameters) })
    }

    /// Forgets what was remembered from update to update.
    pub fn restart(&mut self) {
        self.optimizer = self.spec.optimizer.build(self.parameters);
    }

    /// Makes version `version` of `params` the next one with `gradient`, which is used up: it is
    /// clipped, then weight decay is added, then the optimiser steps at the scheduled rate.
    ///
    /// # Panics
    /// If `params` and `gradient` are not as many values as the updater was made for.
    pub fn apply(&mut self, params: &mut [f32], gradient: &mut [f32], version: Version) {
        assert_eq!(params.len(), self.parameters, "length of the parameters");
        assert_eq!(gradient.len(), self.parameters, "length of the gradient");
        if let Some(most) = self.spec.clip_norm {
            clip(gradient, most);
        }
        let decay = self.spec.weight_decay;
        if decay != 0.0 {
            for (gradient, param) in gradient.iter_mut().zip(&*params) {
                *gradient += decay * param;
            }
        }
        let rate = self.spec.schedule.rate(self.spec.learning_rate, version);
        self.optimizer.step(params, gradient, rate);
    }
}

/// Shortens `gradient` to an L2 norm of `most` if it is longer, as PyTorch's `clip_grad_norm_`
/// does.
fn clip(gradient: &mut [f32], most: f32) {
    let factor = (f64::from(most) / (norm(gradient) + 1e-6)) as f32;
    if factor < 1.0 {
        for value in gradient {
            *value *= factor;
        }
    }
}

/// The L2 norm of `gradient`.
#[must_use]
pub fn norm(gradient: &[f32]) -> f64 {
    // Squares of f32 neither overflow nor vanish in f64. Eight sums at once, in a fixed order.
    let mut sums = [0.0_f64; 8];
    let (whole, rest) = gradient.as_chunks::<8>();
    for values in whole {
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        *sum += f64::from(value) * f64::from(value);
    }
    libm::sqrt(sums.iter().sum())
}
