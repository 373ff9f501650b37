//! Validation errors of the optimiser settings.

use core::fmt;

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptimError {
    /// A number is not in its range, or not finite.
    Real {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: f32,
        /// The allowed range, in words.
        allowed: &'static str,
    },
    /// A count that must be 1 or more is 0.
    Zero {
        /// The setting.
        field: &'static str,
    },
    /// A schedule other than constant with FTRL, which works at one learning rate only.
    ConstantRate,
}

impl fmt::Display for OptimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Real { field, value, allowed } => write!(f, "{field} {value}: must be {allowed}"),
            Self::Zero { field } => write!(f, "{field} 0: must be 1 or more"),
            Self::ConstantRate => f.write_str(
                "optimizer ftrl sets the rate of each parameter by itself: schedule must be \
                 constant",
            ),
        }
    }
}

impl core::error::Error for OptimError {}

/// Refuses `value` unless it is finite and `fits`.
pub(super) fn check(
    field: &'static str,
    value: f32,
    allowed: &'static str,
    fits: bool,
) -> Result<(), OptimError> {
    if value.is_finite() && fits { Ok(()) } else { Err(OptimError::Real { field, value, allowed }) }
}

/// Refuses `value` unless it is in [0, 1).
pub(super) fn check_share(field: &'static str, value: f32) -> Result<(), OptimError> {
    check(field, value, "at least 0 and below 1", (0.0..1.0).contains(&value))
}

/// Refuses `value` unless it is above 0.
pub(super) fn check_positive(field: &'static str, value: f32) -> Result<(), OptimError> {
    check(field, value, "finite and above 0", value > 0.0)
}

/// Refuses `value` unless it is 0 or more.
pub(super) fn check_not_negative(field: &'static str, value: f32) -> Result<(), OptimError> {
    check(field, value, "finite and at least 0", value >= 0.0)
}
