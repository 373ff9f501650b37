//! The words that select a policy.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Asp, Bsp, Consistency, Ssp};

/// A policy as the job names it: `bsp`, `ssp:3`, `asp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConsistencySpec {
    /// Bulk-synchronous.
    #[default]
    Bsp,
    /// Stale-synchronous.
    Ssp {
        /// Iterations that a worker may be ahead of the slowest.
        slack: u64,
    },
    /// Asynchronous.
    Asp,
}

impl ConsistencySpec {
    /// Builds the policy. SSP without slack is BSP (Ho et al. 2013: slack 0 is the barrier).
    #[must_use]
    pub fn build(self) -> Box<dyn Consistency> {
        match self {
            Self::Bsp | Self::Ssp { slack: 0 } => Box::new(Bsp),
            Self::Ssp { slack } => Box::new(Ssp::new(slack)),
            Self::Asp => Box::new(Asp),
        }
    }
}

impl fmt::Display for ConsistencySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bsp => f.write_str("bsp"),
            Self::Ssp { slack } => write!(f, "ssp:{slack}"),
            Self::Asp => f.write_str("asp"),
        }
    }
}

/// Text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownConsistency(String);

impl fmt::Display for UnknownConsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no consistency: use bsp, asp or ssp:SLACK with a slack of 0 or more \
             iterations (for example ssp:3)",
            self.0
        )
    }
}

impl core::error::Error for UnknownConsistency {}

impl FromStr for ConsistencySpec {
    type Err = UnknownConsistency;

    fn from_str(text: &str) -> Result<Self, UnknownConsistency> {
        match text {
            "bsp" => Ok(Self::Bsp),
            "asp" => Ok(Self::Asp),
            _ => text
                .strip_prefix("ssp:")
                .and_then(|slack| slack.parse().ok())
                .map(|slack| Self::Ssp { slack })
                .ok_or_else(|| UnknownConsistency(String::from(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn policies_are_named_by_one_word() {
        for text in ["bsp", "asp", "ssp:0", "ssp:17"] {
            assert_eq!(text.parse::<ConsistencySpec>().unwrap().to_string(), text);
        }
        for text in ["", "BSP", "ssp", "ssp:", "ssp:-1", "ssp:x", "tau"] {
            let error = text.parse::<ConsistencySpec>().unwrap_err();
            assert!(error.to_string().contains("ssp:SLACK"), "{error}");
        }
    }
}
