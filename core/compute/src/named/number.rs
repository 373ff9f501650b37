//! Numbers of words: their names, limits, defaults and values.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// A number of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The name in forms and errors, in capitals.
    pub name: &'static str,
    /// The allowed values.
    pub limits: Limits,
    /// Where a text may omit the number.
    pub presence: Presence,
}

/// Where a text may omit a number. Defaults are as a user would write them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Presence {
    /// Nowhere.
    Required,
    /// Together with all numbers that follow.
    Usual(&'static str),
    /// As `Usual`, and not printed if it has its default.
    Implied(&'static str),
    /// Together with the number before it.
    Joined(&'static str),
    /// One or more numbers; the last of its word.
    Repeated,
}

/// The allowed values of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limits {
    /// Whole numbers from the first to the second.
    Whole(u64, u64),
    /// Whole numbers and the word `inf`.
    WholeOrInf,
    /// Finite numbers from the first to the second, either of which may be infinite.
    Real(f64, f64),
    /// Finite numbers above the first and up to the second.
    Above(f64, f64),
    /// Numbers from the first to below the second.
    Below(f64, f64),
}

impl Limits {
    /// All finite numbers.
    pub const FINITE: Self = Self::Real(f64::NEG_INFINITY, f64::INFINITY);
    /// Numbers above 0.
    pub const POSITIVE: Self = Self::Above(0.0, f64::INFINITY);
    /// Numbers from 0 up.
    pub const NOT_NEGATIVE: Self = Self::Real(0.0, f64::INFINITY);
    /// A share that is not empty.
    pub const SHARE: Self = Self::Above(0.0, 1.0);
    /// A share that is not everything.
    pub const PART: Self = Self::Below(0.0, 1.0);

    /// True if `value` is allowed.
    #[must_use]
    pub fn contain(&self, value: Value) -> bool {
        let real = match value {
            Value::Whole(_) | Value::Inf => f64::NAN,
            Value::Single(value) => value.into(),
            Value::Double(value) => value,
        };
        match (*self, value) {
            (Self::Whole(least, most), Value::Whole(value)) => (least..=most).contains(&value),
            (Self::WholeOrInf, Value::Whole(_) | Value::Inf) => true,
            (Self::Whole(..) | Self::WholeOrInf, _) => false,
            (Self::Real(least, most), _) => real.is_finite() && least <= real && real <= most,
            (Self::Above(least, most), _) => real.is_finite() && least < real && real <= most,
            (Self::Below(least, most), _) => least <= real && real < most,
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole(least, u64::MAX) => write!(f, "{least} to 2^64 - 1"),
            Self::Whole(least, most) => write!(f, "{least} to {most}"),
            Self::WholeOrInf => f.write_str("0 to 2^64 - 1, or inf"),
            Self::Real(f64::NEG_INFINITY, _) => f.write_str("finite"),
            Self::Real(least, f64::INFINITY) => write!(f, "finite and at least {least}"),
            Self::Real(least, most) => write!(f, "from {least} to {most}"),
            Self::Above(least, f64::INFINITY) => write!(f, "finite and above {least}"),
            Self::Above(least, most) => write!(f, "above {least} and up to {most}"),
            Self::Below(least, most) => write!(f, "at least {least} and below {most}"),
        }
    }
}

impl Number {
    /// A whole number that a text must contain.
    #[must_use]
    pub const fn whole(name: &'static str, limits: RangeInclusive<u64>) -> Self {
        Self::real(name, Limits::Whole(*limits.start(), *limits.end()))
    }

    /// A whole number without limits that a text must contain.
    #[must_use]
    pub const fn any(name: &'static str) -> Self {
        Self::whole(name, 0..=u64::MAX)
    }

    /// A number that a text must contain.
    #[must_use]
    pub const fn real(name: &'static str, limits: Limits) -> Self {
        Self { name, limits, presence: Presence::Required }
    }

    /// The same with a default.
    #[must_use]
    pub const fn usual(self, text: &'static str) -> Self {
        self.with(Presence::Usual(text))
    }

    /// The same with another presence.
    #[must_use]
    pub const fn with(self, presence: Presence) -> Self {
        Self { presence, ..self }
    }

    /// The default, as a user would write it.
    #[must_use]
    pub const fn default(&self) -> Option<&'static str> {
        match self.presence {
            Presence::Required | Presence::Repeated => None,
            Presence::Usual(text) | Presence::Implied(text) | Presence::Joined(text) => Some(text),
        }
    }

    /// Returns an error's last words: the name and the allowed values.
    #[must_use]
    pub fn must(&self) -> String {
        format!("{} must be {}", self.name, self.limits)
    }
}

/// The values of a word's numbers.
pub type Values = Vec<Value>;

/// A value of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// A number of single precision.
    Single(f32),
    /// A number of double precision.
    Double(f64),
    /// No limit.
    Inf,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Single(value) => value.fmt(f),
            Self::Double(value) => value.fmt(f),
            Self::Inf => f.write_str("inf"),
        }
    }
}
