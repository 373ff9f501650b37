//! Optimisers: how a server turns gradients into new parameters.
//!
//! An [`UpdateSpec`] is part of the job; the server builds an [`Updater`] from it for its keys. The
//! updater prepares the gradient (clipping, weight decay), takes the learning rate from the
//! [`Schedule`] and calls the [`Optimizer`]. The module does not depend on the source of a gradient
//! or on the clients that pull the result. The update rules are those of PyTorch's `torch.optim`.

mod adagrad;
mod adam;
mod diagonal;
mod error;
mod ftrl;
mod functions;
mod groups;
mod momentum;
mod nesterov;
mod proximal;
mod schedule;
mod sgd;
mod update;

#[cfg(feature = "std")]
extern crate std;

use alloc::boxed::Box;
use core::fmt;

use serde::{Deserialize, Serialize};

use self::adagrad::AdaGrad;
use self::adam::Adam;
use self::diagonal::Diagonal;
use self::ftrl::Ftrl;
use self::momentum::Momentum;
use self::nesterov::Nesterov;
use self::sgd::Sgd;

use crate::saved::{Archive, SavedError};

pub use self::error::OptimError;
pub use self::functions::{
    FunctionSpec, Functions, MOST_FUNCTIONS, Registered, ServerFunction, Stepped,
};
pub use self::groups::{GroupSpec, GroupsError, check_groups};
pub use self::proximal::Proximal;
pub use self::schedule::Schedule;
pub use self::update::BLOCK;
pub use self::update::{UpdateSpec, Updater, norm};

/// An update rule, with its state from step to step.
///
/// Every parameter is updated independently of the others, so a step may proceed in blocks of keys,
/// each block exactly once, while the block is in the processor's cache.
pub trait Optimizer: fmt::Debug + Send {
    /// Begins a step over all parameters.
    fn begin(&mut self) {}

    /// True if weight decay does not go into the gradient.
    fn decays_apart(&self) -> bool {
        false
    }

    /// Performs one part of the current step; `params` are the parameters of the part's keys.
    fn step(&mut self, params: &mut [f32], step: &Step<'_>);

    /// Scales the state by `factor`: gradients are that much larger from now on for a reason other
    /// than the loss, so earlier gradients must count as if they had been larger, too.
    fn rescale(&mut self, factor: f32) {
        let _without_memory = factor;
    }

    /// Saves or restores the state, if there is any.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not match the state.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError>;
}

/// One part of an optimiser step: a contiguous range of keys.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The first key; there are as many keys as values in `gradient`.
    pub first: usize,
    /// The values of the gradient.
    pub gradient: &'a [f32],
    /// An upper bound of the second derivative for each key; empty if unknown.
    pub curvature: &'a [f32],
    /// Factor that scales the gradient's values.
    pub scale: f32,
    /// The learning rate.
    pub learning_rate: f32,
}

impl Step<'_> {
    /// Returns the rate of the parameter at index `place` when steps are scaled by curvature: 0
    /// where the loss has no curvature.
    fn rate(&self, place: usize) -> f32 {
        match self.curvature.get(place) {
            Some(&bound) if bound > 0.0 => self.learning_rate / bound,
            _ => 0.0,
        }
    }

    /// Returns the part of the step from key `from` to key `to`.
    fn between(&self, from: usize, to: usize) -> Self {
        let places = from - self.first..to - self.first;
        Self {
            first: from,
            gradient: &self.gradient[places.clone()],
            curvature: self.curvature.get(places).unwrap_or_default(),
            ..*self
        }
    }

    /// Returns the section of per-parameter `state` that belongs to these keys.
    fn of<'s>(&self, state: &'s mut [f32]) -> &'s mut [f32] {
        &mut state[self.first..self.first + self.gradient.len()]
    }
}

/// The optimiser of a job, with its settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerSpec {
    /// Stochastic gradient descent.
    #[default]
    Sgd,
    /// Gradient descent with a decaying sum of gradients (Polyak 1964).
    Momentum {
        /// The share of the sum that is kept at each step, in [0, 1).
        momentum: f32,
    },
    /// Momentum that looks one step ahead (Nesterov 1983, as Sutskever et al. 2013 write it).
    Nesterov {
        /// The share of the sum that is kept at each step, in [0, 1).
        momentum: f32,
    },
    /// Steps scaled by the root of the sum of squared gradients (Duchi et al. 2011).
    AdaGrad {
        /// Added to the root, above 0.
        epsilon: f32,
    },
    /// Adaptive moment estimation with bias correction (Kingma and Ba 2015).
    Adam {
        /// The share of the mean gradient that is kept at each step, in [0, 1).
        beta1: f32,
        /// The share of the mean squared gradient that is kept at each step, in [0, 1).
        beta2: f32,
        /// Added to the root of the mean squared gradient, above 0.
        epsilon: f32,
    },
    /// Adam whose weight decay is apart from the gradients: a step first takes the rate times the
    /// decay off each parameter (Loshchilov and Hutter 2019, algorithm 2).
    AdamW {
        /// As [`Self::Adam`].
        beta1: f32,
        /// As [`Self::Adam`].
        beta2: f32,
        /// As [`Self::Adam`].
        epsilon: f32,
    },
    /// Steps over a bound of each parameter's second derivative (Li et al. 2014, algorithm 3).
    Diagonal,
    /// Follow the regularised leader, for models in which most parameters should be 0 (McMahan et
    /// al., KDD 2013). The paper's alpha is the learning rate, which must be constant.
    Ftrl {
        /// Added to the root of the sum of squared gradients, 0 or more.
        beta: f32,
        /// The strength of the penalty on magnitudes, 0 or more.
        l1: f32,
        /// The strength of the penalty on squares, 0 or more.
        l2: f32,
    },
}

impl OptimizerSpec {
    /// Momentum with the usual setting, 0.9.
    pub const MOMENTUM: Self = Self::Momentum { momentum: 0.9 };
    /// Nesterov's momentum with the usual setting, 0.9.
    pub const NESTEROV: Self = Self::Nesterov { momentum: 0.9 };
    /// AdaGrad with PyTorch's setting.
    pub const ADAGRAD: Self = Self::AdaGrad { epsilon: 1e-10 };
    /// Adam with the settings its authors recommend.
    pub const ADAM: Self = Self::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

    /// FTRL-Proximal with the beta its authors recommend, and without penalties.
    pub const FTRL: Self = Self::Ftrl { beta: 1.0, l1: 0.0, l2: 0.0 };

    /// Builds the optimiser for `parameters` values, before its first step.
    fn build(&self, parameters: usize) -> Box<dyn Optimizer> {
        match *self {
            Self::Sgd => Box::new(Sgd),
            Self::Diagonal => Box::new(Diagonal),
            Self::Momentum { momentum } => Box::new(Momentum::new(momentum, parameters)),
            Self::Nesterov { momentum } => Box::new(Nesterov::new(momentum, parameters)),
            Self::AdaGrad { epsilon } => Box::new(AdaGrad::new(epsilon, parameters)),
            Self::Adam { beta1, beta2, epsilon } => {
                Box::new(Adam::new(beta1, beta2, epsilon, parameters))
            }
            Self::AdamW { beta1, beta2, epsilon } => {
                Box::new(Adam::with_decay_apart(beta1, beta2, epsilon, parameters))
            }
            Self::Ftrl { beta, l1, l2 } => Box::new(Ftrl::new(beta, l1, l2, parameters)),
        }
    }
}

named!(OptimizerSpec: "optimizer", ',' {
    Sgd = sgd::WORD,
    Momentum { momentum } = momentum::WORD,
    Nesterov { momentum } = nesterov::WORD,
    AdaGrad { epsilon } = adagrad::WORD,
    Adam { beta1, beta2, epsilon } = adam::WORD,
    AdamW { beta1, beta2, epsilon } = adam::WORD_APART,
    Ftrl { beta, l1, l2 } = ftrl::WORD,
    Diagonal = diagonal::WORD,
});

/// The correctly rounded square root. The result is the same with and without `std`, but the
/// compiler can vectorise only the `std` version.
#[inline(always)]
pub fn sqrt(value: f32) -> f32 {
    #[cfg(feature = "std")]
    let root = value.sqrt();
    #[cfg(not(feature = "std"))]
    let root = libm::sqrtf(value);
    root
}

#[cfg(test)]
mod tests;
