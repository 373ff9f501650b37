//! Rules that combine the contributions of a round, as the job names them.

use serde::{Deserialize, Serialize};

use pstrain_compute::named;
use pstrain_compute::named::{Number, Presence, Word};

/// Rule that combines the contributions of a round.
///
/// For an update made of one gradient, as with asynchronous parallel, mean and sum are the same.
/// The other rules apply to rounds to which several workers contribute. They weigh each worker
/// equally, no matter how many examples its gradient is from, so that no worker can gain weight by
/// a false count. They hold as long as the number of faulty workers is less than half of the
/// workers (median) or at most the configured number (the others).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aggregation {
    /// The mean over all examples of the update: `sum(B_i g_i) / sum(B_i)`.
    #[default]
    Mean,
    /// The sum of the workers' mean gradients: `sum(g_i)`.
    Sum,
    /// The median of each coordinate (Yin, Chen, Ramchandran and Bartlett, ICML 2018).
    Median,
    /// The mean of each coordinate without its `each` largest and `each` smallest values (Yin et
    /// al. 2018, with a number instead of a share).
    Trimmed {
        /// Number of values left out at each end.
        each: u32,
    },
    /// The mean of the gradients that are nearest to their neighbors: with n workers the score of a
    /// gradient is the sum of its squared distances to the `n - faulty - 2` nearest others
    /// (Blanchard, El Mhamdi, Guerraoui and Stainer, NIPS 2017: Krum, and multi-Krum if `chosen` is
    /// more than one).
    Krum {
        /// f: workers that may send anything.
        faulty: u32,
        /// m: gradients that are averaged.
        chosen: u32,
    },
}

/// Largest number of workers of a round that are compared with each other: one message carries a
/// server's distances of all pairs.
pub const MOST_COMPARED: u32 = 500;

named!(Aggregation: "aggregation", ',' {
    Mean = Word::new("mean", &[], "the mean over all examples"),
    Sum = Word::new("sum", &[], "the sum of the workers' means"),
    Median = Word::new("median", &[], "the median of each coordinate"),
    Trimmed { each } = Word::new("trimmed", &[Number::whole("B", 1..=u32::MAX as u64)],
        "the mean without the B largest and the B smallest values of each coordinate"),
    Krum { faulty, chosen } = Word::new("krum",
        &[Number::whole("F", 1..=u32::MAX as u64),
          Number::whole("M", 1..=u32::MAX as u64).with(Presence::Implied("1"))],
        "the mean of the M gradients nearest to the others, if at most F workers are wrong"),
});

impl Aggregation {
    /// Returns true if it tolerates workers that send arbitrary gradients.
    #[must_use]
    pub const fn is_robust(self) -> bool {
        !matches!(self, Self::Mean | Self::Sum)
    }

    /// Smallest number of workers that must contribute to a round.
    #[must_use]
    pub const fn least_contributors(self) -> u32 {
        match self {
            Self::Mean | Self::Sum => 1,
            Self::Median => 3,
            Self::Trimmed { each } => each.saturating_mul(2).saturating_add(1),
            Self::Krum { faulty, chosen } => {
                // n > 2 f + 2, and at least `chosen` workers must be honest.
                let least = faulty.saturating_mul(2).saturating_add(3);
                let honest = faulty.saturating_add(chosen);
                if least > honest { least } else { honest }
            }
        }
    }
}

/// An aggregation that is incompatible with another setting of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregationError {
    /// Fewer workers contribute to a round than the aggregation needs.
    #[error(
        "aggregation = {aggregation} needs the gradients of at least {least} workers in a round, \
         but {contributors} contribute"
    )]
    Few {
        /// The aggregation.
        aggregation: Aggregation,
        /// Workers that contribute to a round.
        contributors: u32,
        /// Smallest number of workers that must contribute.
        least: u32,
    },
    /// The aggregation needs another value of a setting.
    #[error("aggregation = {aggregation} needs {needs}")]
    Needs {
        /// The aggregation.
        aggregation: Aggregation,
        /// The other setting, its required value, and the reason.
        needs: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn aggregations_are_named_by_a_word_and_numbers() {
        for text in ["mean", "sum", "median", "trimmed:2", "krum:1", "krum:2,3"] {
            assert_eq!(text.parse::<Aggregation>().unwrap().to_string(), text);
        }
        for text in ["", "Mean", "trimmed", "krum:-1", "krum:1,", "median:1"] {
            let error = text.parse::<Aggregation>().unwrap_err().to_string();
            assert!(error.contains("trimmed:B or krum:F[,M]"), "{error}");
        }
        let error = "trimmed:0".parse::<Aggregation>().unwrap_err().to_string();
        assert_eq!(error, "trimmed:0: B must be 1 to 4294967295");
    }
}
