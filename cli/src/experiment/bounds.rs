//! Interval arithmetic for numbers of which only bounds may be known.
//!
//! A run that never reached an accuracy only tells that it would have taken longer. Conclusions may
//! be certain all the same: more than 100 epochs against 9 is more than 3 times.

use std::fmt;
use std::str::FromStr;

/// Bounds of a number: it lies between `low` and `high`, both included. A truth value is 1 or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

const ANYTHING: Bounds = Bounds { low: f64::NEG_INFINITY, high: f64::INFINITY };
/// The result of an undefined operation, such as 1 / 0.
const UNDEFINED: Bounds = Bounds::exactly(f64::NAN);
const TRUE: Bounds = Bounds::exactly(1.0);
const FALSE: Bounds = Bounds::exactly(0.0);
const EITHER: Bounds = Bounds { low: 0.0, high: 1.0 };

impl Bounds {
    pub(crate) const fn exactly(value: f64) -> Self {
        Self { low: value, high: value }
    }

    pub(crate) const fn at_least(low: f64) -> Self {
        Self { low, high: f64::INFINITY }
    }

    /// True if the number does not exist, as opposed to a number that is unknown.
    pub(crate) const fn is_no_number(self) -> bool {
        self.low.is_nan() || self.high.is_nan()
    }

    /// The bounds, or `UNDEFINED` if no finite number lies between them.
    fn between(low: f64, high: f64) -> Self {
        let bounds = Self { low, high };
        let too_large = low == f64::INFINITY || high == f64::NEG_INFINITY;
        if bounds.is_no_number() || too_large { UNDEFINED } else { bounds }
    }

    /// The number itself, if it is known.
    pub(crate) fn exact(self) -> Option<f64> {
        (self.low == self.high && self.low.is_finite()).then_some(self.low)
    }

    /// The truth value, if it is known.
    pub(crate) fn truth(self) -> Option<bool> {
        if self.low > 0.0 || self.high < 0.0 {
            Some(true)
        } else if self == FALSE {
            Some(false)
        } else {
            None
        }
    }

    fn hull(values: [f64; 4]) -> Self {
        if values.iter().all(|value| value.is_nan()) {
            return UNDEFINED;
        }
        if values.iter().any(|value| value.is_nan()) {
            return ANYTHING;
        }
        let low = values.into_iter().fold(f64::INFINITY, f64::min);
        Self::between(low, values.into_iter().fold(f64::NEG_INFINITY, f64::max))
    }

    fn corners(self, other: Self, apply: impl Fn(f64, f64) -> f64) -> Self {
        if self.is_no_number() || other.is_no_number() {
            return UNDEFINED;
        }
        Self::hull([
            apply(self.low, other.low),
            apply(self.low, other.high),
            apply(self.high, other.low),
            apply(self.high, other.high),
        ])
    }

    /// The image under a nondecreasing function.
    fn rising(self, apply: impl Fn(f64) -> f64) -> Self {
        self.corners(self, |value, _| apply(value))
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self::between(self.low + other.low, self.high + other.high)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(other.negated())
    }

    pub(super) fn negated(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }

    pub(super) fn times(self, other: Self) -> Self {
        // Zero times an infinite bound is zero, not NaN.
        self.corners(other, |a, b| if a == 0.0 || b == 0.0 { 0.0 } else { a * b })
    }

    pub(super) fn over(self, other: Self) -> Self {
        if self.is_no_number() || other == FALSE {
            return UNDEFINED;
        }
        if other.low <= 0.0 && other.high >= 0.0 {
            return ANYTHING;
        }
        self.times(Self { low: 1.0 / other.high, high: 1.0 / other.low })
    }

    pub(super) fn to_the(self, exponent: Self) -> Self {
        if self.low < 0.0 && self.exact().is_none() && !exponent.is_no_number() {
            return ANYTHING;
        }
        self.corners(exponent, f64::powf)
    }

    pub(super) fn abs(self) -> Self {
        if self.low >= 0.0 || self.is_no_number() {
            self
        } else if self.high <= 0.0 {
            self.negated()
        } else {
            Self { low: 0.0, high: self.high.max(-self.low) }
        }
    }

    pub(super) fn sqrt(self) -> Self {
        self.rising(f64::sqrt)
    }

    pub(super) fn ln(self) -> Self {
        self.rising(f64::ln)
    }

    pub(super) fn exp(self) -> Self {
        self.rising(f64::exp)
    }

    pub(super) fn lesser(self, other: Self) -> Self {
        if self.is_no_number() || other.is_no_number() {
            return UNDEFINED;
        }
        Self { low: self.low.min(other.low), high: self.high.min(other.high) }
    }

    pub(super) fn greater(self, other: Self) -> Self {
        if self.is_no_number() || other.is_no_number() {
            return UNDEFINED;
        }
        Self { low: self.low.max(other.low), high: self.high.max(other.high) }
    }

    pub(super) fn below(self, other: Self) -> Self {
        if self.is_no_number() || other.is_no_number() {
            UNDEFINED
        } else if self.high < other.low {
            TRUE
        } else if self.low >= other.high {
            FALSE
        } else {
            EITHER
        }
    }

    pub(super) fn at_most(self, other: Self) -> Self {
        other.below(self).not()
    }

    pub(super) fn not(self) -> Self {
        match self.truth() {
            Some(true) => FALSE,
            Some(false) => TRUE,
            None if self.is_no_number() => UNDEFINED,
            None => EITHER,
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        match (self.truth(), other.truth()) {
            (Some(false), _) | (_, Some(false)) => FALSE,
            (Some(true), Some(true)) => TRUE,
            _ if self.is_no_number() || other.is_no_number() => UNDEFINED,
            _ => EITHER,
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number
            .map(Self::exactly)
            .ok_or_else(|| format!("{text} is no number, or too large for one"))
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_no_number() {
            return f.write_str("no number");
        }
        match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) if self.low == self.high => f.write_str(&readable(self.low)),
            (true, true) => write!(f, "{} to {}", readable(self.low), readable(self.high)),
            (true, false) => write!(f, "> {}", readable(self.low)),
            (false, true) => write!(f, "< {}", readable(self.high)),
            (false, false) => f.write_str("unknown"),
        }
    }
}

/// A number with four significant digits.
pub(crate) fn readable(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    let digits = (3 - size.log10().floor() as i32).clamp(0, 7) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_follows_from_a_lower_bound_is_still_told() {
        let ratio = Bounds::at_least(100.0).over(Bounds::exactly(8.0));
        assert_eq!(ratio, Bounds::at_least(12.5));
        assert_eq!(Bounds::exactly(3.0).at_most(ratio).truth(), Some(true));
        assert_eq!(ratio.below(Bounds::exactly(12.5)).truth(), Some(false));
        assert_eq!(ratio.below(Bounds::exactly(20.0)).truth(), None);
        assert_eq!(ratio.below(Bounds::exactly(20.0)).and(FALSE).truth(), Some(false));
        assert_eq!(ratio.below(Bounds::exactly(20.0)).or(TRUE).truth(), Some(true));
        assert_eq!(Bounds::exactly(1.0).over(Bounds { low: -1.0, high: 1.0 }), ANYTHING);
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let (zero, one) = (FALSE, TRUE);
        let none = one.over(zero);
        let large = Bounds::exactly(1e300);
        for bounds in [
            none,
            one.negated().sqrt(),
            zero.ln(),
            large.times(large),
            large.exp(),
            none.plus(one),
            one.minus(none),
            zero.times(none),
            none.over(one),
            none.abs(),
            none.lesser(one),
            one.greater(none),
            one.to_the(none),
            none.below(one),
            one.at_most(none).not(),
            none.and(one),
            none.or(zero),
        ] {
            assert!(bounds.is_no_number(), "{bounds}");
            assert_eq!((bounds.truth(), bounds.exact()), (None, None));
            assert_eq!(bounds.to_string(), "no number");
        }
        assert_eq!(none.and(zero).truth(), Some(false));
        assert_eq!(none.or(one).truth(), Some(true));
        assert!("9e999".parse::<Bounds>().unwrap_err().contains("too large"));
    }

    #[test]
    fn numbers_are_printed_with_the_digits_that_matter() {
        for (value, text) in [
            (Bounds::exactly(0.952_380_9), "0.9524"),
            (Bounds::exactly(386.27), "386.3"),
            (Bounds::exactly(38612.4), "38612"),
            (Bounds::exactly(10.0), "10"),
            (Bounds::exactly(-0.000_01), "-1.000e-5"),
            (Bounds::at_least(100.0), "> 100"),
            (Bounds { low: 1.0, high: 2.5 }, "1 to 2.5"),
            (ANYTHING, "unknown"),
        ] {
            assert_eq!(value.to_string(), text);
        }
    }

    fn bounds() -> impl Strategy<Value = (Bounds, f64)> {
        (-1e3_f64..1e3, -1e3_f64..1e3, 0.0_f64..=1.0).prop_map(|(a, b, at)| {
            let (low, high) = (a.min(b), a.max(b));
            (Bounds { low, high }, (low + at * (high - low)).clamp(low, high))
        })
    }

    proptest! {
        #[test]
        fn a_number_within_its_bounds_stays_within_them((a, x) in bounds(), (b, y) in bounds()) {
            let within = |bounds: Bounds, value: f64| {
                value.is_nan() || bounds.low <= value && value <= bounds.high
            };
            prop_assert!(within(a.plus(b), x + y));
            prop_assert!(within(a.minus(b), x - y));
            prop_assert!(within(a.times(b), x * y));
            let quotient = a.over(b);
            let slack = 1e-9 * (x / y).abs();
            let quotient = Bounds { low: quotient.low - slack, high: quotient.high + slack };
            prop_assert!(within(quotient, x / y));
            prop_assert!(within(a.abs(), x.abs()));
            prop_assert!(within(a.sqrt(), x.sqrt()));
            prop_assert!(within(a.lesser(b), x.min(y)));
            prop_assert!(within(a.greater(b), x.max(y)));
            prop_assert!(a.below(b).truth().is_none_or(|truth| truth == (x < y)));
            prop_assert!(a.at_most(b).truth().is_none_or(|truth| truth == (x <= y)));
        }
    }
}
