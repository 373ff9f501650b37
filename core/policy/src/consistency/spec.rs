//! Names of the consistency policies.

use alloc::boxed::Box;
use core::fmt;
use core::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::dssp::WIDEST;
use super::{
    Asp, Bsp, Buffered, Consistency, Delay, Dssp, KAsync, KBatchSync, KSync, Malenia, Quorum,
    Ringleader, Ringmaster, RoundRobin, Ssp,
};
use super::{
    asp, bsp, delay, dssp, k_batch_sync, k_sync, malenia, ringleader, ringmaster, round_robin, ssp,
};
use pstrain_compute::counted::counted;
use pstrain_compute::id::MAX_WORKERS;
use pstrain_compute::named;
use pstrain_compute::named::{Word, out_of_range};

/// A consistency policy as the job names it: `bsp`, `ssp:3`, `asp`.
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
    /// Bounded delay.
    Delay {
        /// Iterations that a worker may be ahead of the oldest that is not applied; `None`: no
        /// bound.
        bound: Option<u64>,
    },
    /// Dynamic stale-synchronous.
    Dssp {
        /// The smallest slack.
        low: u64,
        /// The largest slack; at least `low`.
        high: u64,
    },
    /// Updates of the first fresh gradients of K different workers.
    KSync {
        /// Number of workers, K.
        workers: u32,
    },
    /// Updates of the first fresh gradients of all workers but B.
    Backup {
        /// Number of workers that an update does not wait for, B.
        workers: u32,
    },
    /// Updates of K fresh gradients.
    KBatchSync {
        /// Number of gradients, K.
        gradients: u32,
    },
    /// Updates of the gradients of K different workers, of any staleness.
    KAsync {
        /// Number of workers, K.
        workers: u32,
    },
    /// Updates of K gradients, of any staleness.
    Buffered {
        /// Number of gradients, K.
        gradients: u32,
    },
    /// Malenia SGD.
    Malenia {
        /// S: number of gradients that an update is worth.
        gradients: u32,
    },
    /// Ringmaster ASGD.
    Ringmaster {
        /// The smallest staleness at which gradients are dropped.
        staleness: u64,
    },
    /// Ringleader ASGD.
    Ringleader,
    /// Asynchronous, in turns.
    RoundRobin,
    /// Chosen and changed during training ([`Auto`](crate::auto::Auto)).
    Auto,
}

/// Largest number of gradients that an update may gather: all are kept until then.
pub const MOST_GATHERED: u32 = MAX_WORKERS;
pub(super) const GATHERED: RangeInclusive<u64> = 1..=MOST_GATHERED as u64;

impl ConsistencySpec {
    /// Returns true if a worker may have more than one mini-batch under way.
    #[must_use]
    pub const fn pipelines(self) -> bool {
        matches!(
            self,
            Self::Asp
                | Self::Ssp { slack: 1.. }
                | Self::Delay { bound: None | Some(1..) }
                | Self::KBatchSync { .. }
                | Self::Malenia { .. }
                | Self::Buffered { .. }
                | Self::Ringmaster { .. }
                | Self::Auto
        )
    }

    /// Builds the policy. SSP and bounded delay without slack are BSP (Ho et al. 2013: slack 0 is
    /// the barrier; Li et al. 2014: delay 0 is sequential), and DSSP with one slack is SSP.
    #[must_use]
    pub fn build(self) -> Box<dyn Consistency> {
        match self {
            Self::Bsp | Self::Ssp { slack: 0 } | Self::Delay { bound: Some(0) } => Box::new(Bsp),
            Self::Ssp { slack } => Box::new(Ssp::new(slack)),
            Self::Asp => Box::new(Asp),
            Self::Delay { bound } => Box::new(Delay::new(bound)),
            Self::Dssp { low, high } if low == high => Self::Ssp { slack: low }.build(),
            Self::Dssp { low, high } => Box::new(Dssp::new(low, high)),
            Self::KSync { workers } => Box::new(KSync::new(Quorum::Of(workers))),
            Self::Backup { workers } => Box::new(KSync::new(Quorum::AllBut(workers))),
            Self::KBatchSync { gradients } => Box::new(KBatchSync::new(gradients)),
            Self::KAsync { workers } => Box::new(KAsync::new(workers)),
            Self::Buffered { gradients } => Box::new(Buffered::new(gradients)),
            Self::Malenia { gradients } => Box::new(Malenia::new(gradients)),
            Self::Ringmaster { staleness } => Box::new(Ringmaster::new(staleness)),
            Self::Ringleader => Box::new(Ringleader::default()),
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::Auto => Self::Asp.build(), // the policy that `auto` starts with
        }
    }

    /// Returns who waits for whom: the reason why a worker is given no parameters.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Bsp | Self::Ssp { slack: 0 } | Self::Delay { bound: Some(0) } => {
                "a round closes once every worker's gradient has come"
            }
            Self::Ssp { .. } | Self::Dssp { .. } => {
                "a worker too many iterations ahead waits for the slowest"
            }
            Self::Asp | Self::KBatchSync { .. } | Self::Buffered { .. } => {
                "no worker waits for another"
            }
            Self::Ringmaster { .. } => {
                "no worker waits for another; too stale gradients are dropped"
            }
            Self::Delay { bound: Some(_) } => {
                "a worker too many iterations ahead of the oldest open one waits for it"
            }
            Self::Delay { bound: None } => "a worker a whole pass over its data ahead waits",
            Self::KSync { .. } | Self::KAsync { .. } | Self::Backup { .. } => {
                "a worker that has contributed waits until enough others have"
            }
            Self::Malenia { .. } | Self::Ringleader => {
                "a worker that gave a whole pass over its data waits for workers that gave nothing"
            }
            Self::RoundRobin => "each worker waits for its turn",
            Self::Auto => "as the mode that was chosen says",
        }
    }

    /// Number of gradients of an update in a job with `workers` workers; 1 where it is not known
    /// before.
    pub(crate) fn gathered(self, workers: u32) -> u32 {
        let gradients = match self {
            Self::Bsp | Self::Delay { .. } | Self::Malenia { .. } => workers,
            Self::Ssp { slack: 0 } | Self::Dssp { low: 0, high: 0 } => workers,
            Self::KSync { workers: wanted } | Self::KAsync { workers: wanted } => {
                wanted.min(workers)
            }
            Self::Backup { workers: spare } => workers.saturating_sub(spare),
            Self::KBatchSync { gradients } | Self::Buffered { gradients } => gradients,
            _ => 1,
        };
        gradients.max(1)
    }

    /// Checks that the policy is possible with `workers` workers.
    ///
    /// # Errors
    /// [`ImpossibleConsistency`] if its number is out of range; the text names the range.
    pub fn check(self, workers: u32) -> Result<(), ImpossibleConsistency> {
        let fits = match self {
            Self::KSync { workers: wanted } | Self::KAsync { workers: wanted } => wanted <= workers,
            Self::Backup { workers: spare } => spare < workers,
            Self::Dssp { low, high } => (low..=low.saturating_add(WIDEST)).contains(&high),
            _ => true,
        };
        if fits && out_of_range(&self).is_none() {
            Ok(())
        } else {
            Err(ImpossibleConsistency { consistency: self, workers })
        }
    }
}

named!(ConsistencySpec: "consistency", ',' {
    Bsp = bsp::WORD,
    Ssp { slack } = ssp::WORD,
    Dssp { low, high } = dssp::WORD,
    Delay { bound } = delay::WORD,
    Asp = asp::WORD,
    RoundRobin = round_robin::WORD,
    KSync { workers } = k_sync::K_SYNC,
    Backup { workers } = k_sync::BACKUP,
    KBatchSync { gradients } = k_batch_sync::K_BATCH_SYNC,
    KAsync { workers } = k_sync::K_ASYNC,
    Buffered { gradients } = k_batch_sync::BUFFERED,
    Ringmaster { staleness } = ringmaster::WORD,
    Malenia { gradients } = malenia::WORD,
    Ringleader = ringleader::WORD,
    Auto = Word::new("auto", &[], "chooses and changes the consistency while training"),
});

/// A policy whose number is impossible for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpossibleConsistency {
    consistency: ConsistencySpec,
    workers: u32,
}

impl fmt::Display for ImpossibleConsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consistency, workers } = self;
        write!(f, "consistency = {consistency}: ")?;
        match consistency {
            ConsistencySpec::Backup { .. } => write!(
                f,
                "must be 0 to {}, so that one of {} is waited for",
                workers.saturating_sub(1),
                counted(*workers, "worker")
            ),
            ConsistencySpec::Dssp { .. } => write!(
                f,
                "the second slack must be the first or more, and {WIDEST} above it at most"
            ),
            ConsistencySpec::KSync { .. } | ConsistencySpec::KAsync { .. } => {
                write!(f, "must be 1 to the {} of the job", counted(*workers, "worker"))
            }
            _ => match out_of_range(consistency) {
                Some(number) => f.write_str(&number.must()),
                None => Ok(()),
            },
        }
    }
}

impl core::error::Error for ImpossibleConsistency {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn policies_are_named_by_one_word() {
        for text in [
            "bsp",
            "asp",
            "ssp:0",
            "ssp:17",
            "delay:0",
            "delay:4",
            "delay:inf",
            "dssp:3,15",
            "k-sync:2",
            "backup:0",
            "k-batch-sync:8",
            "k-async:3",
            "buffered:1",
            "malenia:9",
            "ringmaster:5",
            "ringleader",
            "round-robin",
            "auto",
        ] {
            assert_eq!(text.parse::<ConsistencySpec>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "BSP",
            "bsp:1",
            "ssp",
            "ssp:",
            "ssp:-1",
            "ssp:x",
            "tau",
            "delay",
            "delay:infinite",
            "dssp:3",
            "dssp:3,",
            "k-sync:1.5",
            "ringleader:2",
            "k-sync",
            "ssp:inf",
        ] {
            let error = text.parse::<ConsistencySpec>().unwrap_err().to_string();
            for word in ["ssp:SLACK", "delay:D|inf", "dssp:LOW,HIGH", "ringmaster:R", "round-robin"]
            {
                assert!(error.contains(word), "{error}");
            }
        }
    }

    #[test]
    fn numbers_beyond_all_bounds_are_told_the_bound() {
        let told = |text: &str| text.parse::<ConsistencySpec>().unwrap_err().to_string();
        for (text, says) in [
            ("ssp:99999999999999999999", "SLACK must be 0 to 2^64 - 1"),
            ("delay:18446744073709551616", "D must be 0 to 2^64 - 1, or inf"),
            ("dssp:1,99999999999999999999", "HIGH must be 0 to 2^64 - 1"),
            ("ringmaster:99999999999999999999", "R must be 1 to 2^64 - 1"),
        ] {
            assert_eq!(told(text), alloc::format!("{text}: {says}"));
        }
        for word in ["k-sync", "k-batch-sync", "k-async", "malenia", "buffered"] {
            let error = told(&alloc::format!("{word}:5000000000"));
            assert!(error.contains(word) && error.ends_with("must be 1 to 65536"), "{error}");
        }
        assert!(told("backup:5000000000").ends_with("B must be 0 to 65536"));
        for text in ["bsp:99999999999999999999", "dssp:99999999999999999999", "ssp:1e30"] {
            assert!(told(text).contains("no consistency"), "{text}");
        }
    }

    #[test]
    fn numbers_that_make_no_sense_are_named() {
        let check = |text: &str| {
            let read = text.parse::<ConsistencySpec>().map_err(|error| error.to_string())?;
            read.check(4).map_err(|error| error.to_string())
        };
        for text in [
            "k-sync:1",
            "k-sync:4",
            "k-async:4",
            "backup:0",
            "backup:3",
            "buffered:1",
            "k-batch-sync:65536",
            "malenia:1",
            "ringmaster:1",
            "dssp:3,3",
            "dssp:0,1000",
            "ssp:0",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, says) in [
            ("k-sync:0", "K must be 1 to 65536"),
            ("k-sync:5", "must be 1 to the 4 workers"),
            ("k-async:5", "must be 1 to the 4 workers"),
            ("backup:4", "must be 0 to 3"),
            ("buffered:0", "must be 1 to 65536"),
            ("k-batch-sync:65537", "must be 1 to 65536"),
            ("k-batch-sync:0", "must be 1 to 65536"),
            ("malenia:0", "must be 1 to 65536"),
            ("ringmaster:0", "R must be 1 to 2^64 - 1"),
            ("dssp:4,3", "the second slack must be the first or more"),
            ("dssp:0,1001", "1000 above it at most"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(says) && error.contains(text), "{error}");
        }
        let dropped = ConsistencySpec::Ringmaster { staleness: 0 }.check(4).unwrap_err();
        assert_eq!(dropped.to_string(), "consistency = ringmaster:0: R must be 1 to 2^64 - 1");
    }
}
