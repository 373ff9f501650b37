//! Proximal step: applies a penalty or a box constraint to the parameters after each optimiser
//! step.

use serde::{Deserialize, Serialize};

use super::error::check;
use super::{OptimError, ServerFunction, Stepped};
use crate::named::{self, Limits, Number, Word};

/// A function of each single parameter, applied after the optimiser's step (Parikh and Boyd,
/// Proximal algorithms, 2014). `rate` is the learning rate of the step, or the parameter's own rate
/// if the optimiser uses one per parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proximal {
    /// No proximal step.
    #[default]
    None,
    /// Penalty `lambda |p|`: moves `p` by `rate * lambda` towards 0, but not past it.
    L1 {
        /// The strength, above 0.
        lambda: f32,
    },
    /// Penalty `lambda p^2 / 2`: `p / (1 + rate * lambda)`.
    L2 {
        /// The strength, above 0.
        lambda: f32,
    },
    /// Clamps each parameter to `low..=high`.
    Box {
        /// The least value.
        low: f32,
        /// The greatest value.
        high: f32,
    },
}

impl Proximal {
    pub(super) fn validate(self) -> Result<(), OptimError> {
        named::check(self, OptimError::Proximal)?;
        match self {
            Self::Box { low, high } => {
                check("proximal box to", high, "finite and not below where it begins", low <= high)
            }
            _ => Ok(()),
        }
    }
}

named!(Proximal: "proximal step", ',' {
    None = Word::new("none", &[], "no step"),
    L1 { lambda } = Word::new("l1", &[Number::real("LAMBDA", Limits::POSITIVE)],
        "soft threshold: towards 0 by the learning rate times LAMBDA"),
    L2 { lambda } = Word::new("l2", &[Number::real("LAMBDA", Limits::POSITIVE)],
        "divided by 1 + the learning rate times LAMBDA"),
    Box { low, high } = Word::new("box",
        &[Number::real("LOW", Limits::FINITE),
          Number::real("HIGH", Limits::FINITE)],
        "clamped to LOW and HIGH"),
});

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
