//! The words that select what becomes of stale gradients and of unequal participation.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// What becomes of a gradient that was computed on an earlier version, as the job names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum StalenessSpec {
    /// Nothing: it counts as if it were fresh.
    #[default]
    Plain,
}

/// What is done about workers that contribute more often than others, as the job names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParticipationSpec {
    /// Nothing: whoever contributes more often counts more.
    #[default]
    Plain,
}

impl fmt::Display for StalenessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
        }
    }
}

impl fmt::Display for ParticipationSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
        }
    }
}

/// Text that names no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRule {
    text: String,
    known: &'static str,
}

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is none of {}", self.text, self.known)
    }
}

impl core::error::Error for UnknownRule {}

impl FromStr for StalenessSpec {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        match text {
            "plain" => Ok(Self::Plain),
            _ => Err(UnknownRule { text: text.into(), known: "plain" }),
        }
    }
}

impl FromStr for ParticipationSpec {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        match text {
            "plain" => Ok(Self::Plain),
            _ => Err(UnknownRule { text: text.into(), known: "plain" }),
        }
    }
}
