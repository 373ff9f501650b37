//! Names of the divisions of work and of the kinds of redundancy.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Redundant computation, so that a round need not wait for all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redundancy {
    /// No redundancy.
    #[default]
    None,
    /// Gradient coding by groups of workers that compute the same gradient.
    Fractional {
        /// Number of workers that may be missing, no matter which.
        tolerance: u32,
    },
    /// Gradient coding by neighbors with overlapping partitions.
    Cyclic {
        /// Number of workers that may be missing, no matter which.
        tolerance: u32,
    },
    /// Partial gradients: each worker computes several partitions and sends them one by one.
    Partial {
        /// Number of partitions that each worker computes in a round, unless all arrive earlier.
        tasks: u32,
    },
}

impl Redundancy {
    /// Number of parts whose gradients one worker combines into one.
    #[must_use]
    pub const fn parts_combined(self) -> u32 {
        match self {
            Self::Fractional { tolerance } | Self::Cyclic { tolerance } => {
                tolerance.saturating_add(1)
            }
            Self::None | Self::Partial { .. } => 1,
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Fractional { tolerance } => write!(f, "fractional:{tolerance}"),
            Self::Cyclic { tolerance } => write!(f, "cyclic:{tolerance}"),
            Self::Partial { tasks } => write!(f, "partial:{tasks}"),
        }
    }
}

/// Division of the work among the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkSpec {
    /// All workers have mini-batches of the same size.
    #[default]
    Equal,
    /// Mini-batch sizes are proportional to the workers' measured speeds.
    Speed,
    /// Every worker has all data, and takes the next of many shards when it is free.
    Shards {
        /// Number of shards that the training data are divided into.
        count: u32,
    },
}

/// Largest number of shards.
pub const MOST_SHARDS: u32 = 4096;

impl WorkSpec {
    /// Number of parts that the training data are divided into for `workers` workers.
    #[must_use]
    pub const fn parts(self, workers: u32) -> u32 {
        match self {
            Self::Equal | Self::Speed => workers,
            Self::Shards { count } => count,
        }
    }
}

impl fmt::Display for WorkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => f.write_str("equal"),
            Self::Speed => f.write_str("speed"),
            Self::Shards { count } => write!(f, "shards:{count}"),
        }
    }
}

impl FromStr for WorkSpec {
    type Err = UnknownWork;

    fn from_str(text: &str) -> Result<Self, UnknownWork> {
        let known = "equal, speed, or shards:COUNT (1 to 4096 shards of the data)";
        let (word, number) = match text.split_once(':') {
            Some((word, number)) => (word, number.parse::<u32>().ok()),
            None => (text, None),
        };
        match (word, number) {
            ("equal", None) if text == word => Ok(Self::Equal),
            ("speed", None) if text == word => Ok(Self::Speed),
            ("shards", Some(count @ 1..=MOST_SHARDS)) => Ok(Self::Shards { count }),
            _ => Err(UnknownWork { text: text.into(), known }),
        }
    }
}

/// A text that names no division of work or redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWork {
    text: String,
    known: &'static str,
}

impl fmt::Display for UnknownWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is none of {}", self.text, self.known)
    }
}

impl core::error::Error for UnknownWork {}

impl FromStr for Redundancy {
    type Err = UnknownWork;

    fn from_str(text: &str) -> Result<Self, UnknownWork> {
        let known = "none, fractional:S or cyclic:S (S workers that may be missing: from 0 to all \
                     but one), or partial:R (R partitions computed by each worker: from 1 to as \
                     many as there are workers)";
        let (word, number) = match text.split_once(':') {
            Some((word, number)) => (word, number.parse::<u32>().ok()),
            None => (text, None),
        };
        match (word, number) {
            ("none", None) if text == word => Ok(Self::None),
            ("fractional", Some(tolerance)) => Ok(Self::Fractional { tolerance }),
            ("cyclic", Some(tolerance)) => Ok(Self::Cyclic { tolerance }),
            ("partial", Some(tasks)) if tasks > 0 => Ok(Self::Partial { tasks }),
            _ => Err(UnknownWork { text: text.into(), known }),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn work_is_named_by_one_word() {
        for text in ["equal", "speed", "shards:1", "shards:4096"] {
            assert_eq!(text.parse::<WorkSpec>().unwrap().to_string(), text);
        }
        for text in ["fast", "equal:1", "speed:", "shards", "shards:0", "shards:4097", "shards:-1"]
        {
            let error = text.parse::<WorkSpec>().unwrap_err().to_string();
            let wanted = "is none of equal, speed, or shards:COUNT (1 to 4096 shards of the data)";
            assert_eq!(error, format!("{text:?} {wanted}"));
        }
    }

    #[test]
    fn redundancy_is_named_by_one_word() {
        for text in ["none", "fractional:1", "cyclic:0", "cyclic:3", "partial:2"] {
            assert_eq!(text.parse::<Redundancy>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "none:1",
            "cyclic",
            "cyclic:",
            "cyclic:-1",
            "partial:0",
            "coded:1",
            "cyclic:5000000000",
        ] {
            let error = text.parse::<Redundancy>().unwrap_err();
            assert!(error.to_string().contains("partial:R"), "{error}");
        }
    }
}
