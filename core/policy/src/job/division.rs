//! Names of the divisions of work and of the kinds of redundancy.

use serde::{Deserialize, Serialize};

use pstrain_compute::named;
use pstrain_compute::named::{Number, Word};

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
    /// True if workers send coded sums of the gradients of several parts.
    #[must_use]
    pub const fn is_coded(self) -> bool {
        matches!(self, Self::Fractional { .. } | Self::Cyclic { .. })
    }

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

named!(Redundancy: "redundancy", ',' {
    None = Word::new("none", &[], "one worker computes each part"),
    Fractional { tolerance } = Word::new("fractional", &[Number::whole("S", 0..=u32::MAX as u64)],
        "gradient coding by groups: S workers may be missing from a round"),
    Cyclic { tolerance } = Word::new("cyclic", &[Number::whole("S", 0..=u32::MAX as u64)],
        "gradient coding by neighbors: S workers may be missing from a round"),
    Partial { tasks } = Word::new("partial", &[Number::whole("R", 1..=u32::MAX as u64)],
        "each worker computes up to R parts of a round and sends them one by one"),
});

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

named!(WorkSpec: "division of work", ',' {
    Equal = Word::new("equal", &[],
        "each worker goes through its part in mini-batches of batch-size examples"),
    Speed = Word::new("speed", &[],
        "slow workers have smaller mini-batches, so that all are ready at once"),
    Shards { count } = Word::new("shards", &[Number::whole("COUNT", 1..=MOST_SHARDS as u64)],
        "all workers have all data, and a free one takes the next of COUNT shards"),
});

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
        for text in ["fast", "equal:1", "speed:", "shards", "shards:-1"] {
            let error = text.parse::<WorkSpec>().unwrap_err().to_string();
            let wanted = "is no division of work: use equal, speed or shards:COUNT";
            assert_eq!(error, format!("{text:?} {wanted}"));
        }
        for text in ["shards:0", "shards:4097"] {
            let error = text.parse::<WorkSpec>().unwrap_err().to_string();
            assert_eq!(error, format!("{text}: COUNT must be 1 to 4096"));
        }
    }

    #[test]
    fn redundancy_is_named_by_one_word() {
        for text in ["none", "fractional:1", "cyclic:0", "cyclic:3", "partial:2"] {
            assert_eq!(text.parse::<Redundancy>().unwrap().to_string(), text);
        }
        let told = |text: &str| text.parse::<Redundancy>().unwrap_err().to_string();
        for text in ["", "none:1", "cyclic", "cyclic:", "cyclic:-1", "coded:1"] {
            assert!(told(text).contains("cyclic:S or partial:R"), "{}", told(text));
        }
        assert_eq!(told("partial:0"), "partial:0: R must be 1 to 4294967295");
        assert_eq!(told("cyclic:5000000000"), "cyclic:5000000000: S must be 0 to 4294967295");
    }
}
