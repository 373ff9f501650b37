//! What a server does to its parameters after each step: the proximal step of a penalty, or the
//! projection onto a box.

use serde::{Deserialize, Serialize};

use super::error::{check, check_positive};
use super::{OptimError, ServerFunction, Stepped};

/// A function of each parameter by itself, applied after the optimiser's step (Parikh and Boyd,
/// Proximal algorithms, 2014). `rate` is the learning rate of the step, of each
/// parameter its own where the optimiser has it so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proximal {
    /// Nothing.
    #[default]
    None,
    /// For a penalty `lambda |p|`: moves `p` by `rate * lambda` towards 0, and no further.
    L1 {
        /// The strength, above 0.
        lambda: f32,
    },
    /// For a penalty `lambda p^2 / 2`: `p / (1 + rate * lambda)`.
    L2 {
        /// The strength, above 0.
        lambda: f32,
    },
    /// The nearest value from `low` to `high`.
    Box {
        /// The least value.
        low: f32,
        /// The greatest value.
        high: f32,
    },
}

impl Proximal {
    pub(super) fn validate(self) -> Result<(), OptimError> {
        match self {
            Self::None => Ok(()),
            Self::L1 { lambda } | Self::L2 { lambda } => check_positive("proximal lambda", lambda),
            Self::Box { low, high } => {
                check("proximal box from", low, "finite", true)?;
                check("proximal box to", high, "finite and not below where it begins", low <= high)
            }
        }
    }
}

impl ServerFunction for Proximal {
    fn apply(&mut self, values: &mut [f32], stepped: &Stepped<'_>) {
        let each = values.iter_mut().zip(stepped.rates);
        match *self {
            Self::None => {}
            Self::L1 { lambda } => each.for_each(|(value, rate)| {
                let left = value.abs() - rate * lambda;
                *value = if left > 0.0 { left.copysign(*value) } else { 0.0 };
            }),
            Self::L2 { lambda } => each.for_each(|(value, rate)| *value /= 1.0 + rate * lambda),
            Self::Box { low, high } => {
                values.iter_mut().for_each(|value| *value = value.clamp(low, high));
            }
        }
    }
}
