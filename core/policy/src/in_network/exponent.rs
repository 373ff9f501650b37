//! Values in fixed point.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// 1.5 * 2^52: a sum with it has no bits behind the point. So values below 2^51 are rounded to the
/// nearest integer without a call for each.
const ROUNDS: f64 = 6_755_399_441_055_744.0;

/// The binary exponent of the greatest of some values: none of them exceeds two to its power.
///
/// With an exponent `e` and N workers a value `x` becomes the integer next to `x f`, where
/// `f = (2^31 - N) / (N 2^e)`. The sum of N such integers fits 32 bits, and differs from the sum
/// of the values by `N / (2 f)` at most (Sapio et al., NSDI 2021, section 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Exponent(i16);

impl Default for Exponent {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Exponent {
    /// All values are 0.
    pub const ZERO: Self = Self(i16::MIN);
    /// A value is not finite.
    const NOT_FINITE: Self = Self(i16::MAX);

    /// The exponent of some values.
    #[must_use]
    pub fn of(values: &[f32]) -> Self {
        if values.iter().any(|value| !value.is_finite()) {
            return Self::NOT_FINITE;
        }
        let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        if most == 0.0 {
            return Self::ZERO;
        }
        // `most` is a fraction from one half to below 1, times a power of two.
        let (fraction, exponent) = libm::frexpf(most);
        let exponent = exponent - i32::from(fraction == 0.5);
        Self(exponent as i16)
    }

    /// The factor of fixed point; none if there is nothing to scale.
    fn factor(self, ranks: u32) -> Option<f64> {
        let ranks = f64::from(ranks);
        let is_number = self != Self::ZERO && self != Self::NOT_FINITE;
        is_number.then(|| (2_147_483_648.0 - ranks) / ranks / libm::ldexp(1.0, self.0.into()))
    }

    /// The values in fixed point, for a sum of `ranks` of them.
    #[must_use]
    pub fn to_integers(self, values: &[f32], ranks: u32) -> Vec<i32> {
        // Without a factor the integers say nothing: `to_values` does not look at them.
        let factor = self.factor(ranks).unwrap_or_default();
        let round = |value: f64| value + ROUNDS - ROUNDS;
        values.iter().map(|value| round(f64::from(*value) * factor) as i32).collect()
    }

    /// The values of sums of `ranks` integers; NaN if a summand was not finite.
    pub fn to_values(self, sums: &[i32], ranks: u32) -> impl Iterator<Item = f32> + '_ {
        let absent = if self == Self::NOT_FINITE { f32::NAN } else { 0.0 };
        let factor = self.factor(ranks);
        sums.iter().map(move |sum| match factor {
            Some(factor) => (f64::from(*sum) / factor) as f32,
            None => absent,
        })
    }
}
