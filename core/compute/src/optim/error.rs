//! Validation errors of the optimiser settings.

use super::{FunctionSpec, OptimizerSpec, Proximal, Schedule};
use crate::named::Number;

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    /// A number is not in its range, or not finite.
    #[error("{field} {value}: must be {allowed}")]
    Real {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: f32,
        /// The allowed range, in words.
        allowed: &'static str,
    },
    /// A number of the optimiser is out of its range.
    #[error("optimizer = {}: {}", .0, .1.must())]
    Optimizer(OptimizerSpec, Number),
    /// A number of the schedule is out of its range.
    #[error("schedule = {}: {}", .0, .1.must())]
    Schedule(Schedule, Number),
    /// A number of the proximal step is out of its range.
    #[error("proximal = {}: {}", .0, .1.must())]
    Proximal(Proximal, Number),
    /// A number of a server function is out of its range.
    #[error("server-functions = {}: {}", .0, .1.must())]
    Function(FunctionSpec, Number),
    /// A schedule other than constant with FTRL, which works at one learning rate only.
    #[error("optimizer ftrl sets the rate of each parameter by itself: schedule must be constant")]
    ConstantRate,
}

/// Refuses `value` unless it is finite and `fits`.
pub(super) fn check(
    field: &'static str,
    value: f32,
    allowed: &'static str,
    fits: bool,
) -> Result<(), OptimError> {
    if value.is_finite() && fits { Ok(()) } else { Err(OptimError::Real { field, value, allowed }) }
}

/// Refuses `value` unless it is above 0.
pub(super) fn check_positive(field: &'static str, value: f32) -> Result<(), OptimError> {
    check(field, value, "finite and above 0", value > 0.0)
}

/// Refuses `value` unless it is 0 or more.
pub(super) fn check_not_negative(field: &'static str, value: f32) -> Result<(), OptimError> {
    check(field, value, "finite and at least 0", value >= 0.0)
}
