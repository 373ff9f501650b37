//! Checks of a job's aggregation against its other settings.

use super::{Job, Redundancy};
use crate::consistency::ConsistencySpec;
use crate::mode::Mode;
use crate::rules::{
    Aggregation, AggregationError, MOST_COMPARED, ParticipationSpec, StalenessSpec,
};

impl Job {
    /// Checks that the aggregation is compatible with `mode` and the other settings.
    ///
    /// # Errors
    /// [`AggregationError`] names the conflict.
    pub fn check_aggregation(&self, mode: &Mode) -> Result<(), AggregationError> {
        check_rounds(self.aggregation, mode, self.membership.workers, self.redundancy)?;
        if self.update.clip_contribution.is_some() && self.redundancy != Redundancy::None {
            let (aggregation, needs) = (
                self.aggregation,
                "redundancy = none if clip-contribution is set: what is sent is no gradient",
            );
            return Err(AggregationError::Needs { aggregation, needs });
        }
        Ok(())
    }
}

/// Checks that `aggregation` is compatible with the rounds of a job with `workers` workers.
fn check_rounds(
    aggregation: Aggregation,
    mode: &Mode,
    workers: u32,
    redundancy: Redundancy,
) -> Result<(), AggregationError> {
    if !aggregation.is_robust() {
        return Ok(());
    }
    let error = |needs| AggregationError::Needs { aggregation, needs };
    let contributors = match mode.consistency {
        ConsistencySpec::Bsp | ConsistencySpec::Delay { .. } => workers,
        ConsistencySpec::KSync { workers } => workers,
        ConsistencySpec::Backup { workers: spare } => workers.saturating_sub(spare),
        _ => {
            return Err(error(
                "rounds with one gradient of each worker: consistency = bsp, delay:D, k-sync:K \
                 or backup:B",
            ));
        }
    };
    if mode.staleness != StalenessSpec::Plain || mode.participation != ParticipationSpec::Plain {
        return Err(error("staleness = plain and participation = plain: all count the same"));
    }
    if redundancy != Redundancy::None {
        return Err(error("redundancy = none: it looks at the gradients of single workers"));
    }
    if matches!(aggregation, Aggregation::Krum { .. }) && contributors > MOST_COMPARED {
        return Err(error("at most 500 workers in a round: it compares each two of them"));
    }
    let least = aggregation.least_contributors();
    if contributors < least {
        return Err(AggregationError::Few { aggregation, contributors, least });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn robust_aggregations_need_rounds_of_enough_workers() {
        let check = |aggregation: &str, consistency, workers| {
            let mode = Mode::of(consistency);
            let aggregation: Aggregation = aggregation.parse().unwrap();
            check_rounds(aggregation, &mode, workers, Redundancy::None)
                .map_err(|error| error.to_string())
        };
        let bsp = ConsistencySpec::Bsp;
        for (aggregation, least) in
            [("median", 3), ("trimmed:2", 5), ("krum:2", 7), ("krum:1,9", 10)]
        {
            assert_eq!(check(aggregation, bsp, least), Ok(()));
            let error = check(aggregation, bsp, least - 1).unwrap_err();
            assert!(error.contains(aggregation) && error.contains("at least"), "{error}");
            for one in [ConsistencySpec::Asp, ConsistencySpec::Ssp { slack: 3 }] {
                assert!(check(aggregation, one, 20).unwrap_err().contains("rounds"));
            }
        }
        assert!(check("median", ConsistencySpec::KSync { workers: 2 }, 9).is_err());
        assert!(check("median", ConsistencySpec::Backup { workers: 7 }, 9).is_err());
        assert_eq!(check("sum", ConsistencySpec::Asp, 1), Ok(()));
    }
}
