//! Round-robin.

use super::{Admission, Closing, Cohort, Consistency};
use crate::id::{Version, WorkerId};

/// Round-robin: gradients are applied on arrival, but workers are given parameters in turn, in the
/// order of their ids and then from the first again.
///
/// Worker i may start an iteration once every worker before it has started the same one, and every
/// worker after it the one before. What the server sees of a start is the push before it, so the
/// turn is whose it is among the members in the order of (clock, id): a worker may start if it is
/// level with the hindmost, or one iteration ahead of it and before it in the cycle. A worker that
/// is not there has no turn.
///
/// Invariant: with a fixed membership of N, parameters are given out in the order 1, 2, ..., N, 1,
/// ...; nobody that computes is more than one iteration ahead of anybody; no gradient is staler
/// than 2 (N - 1), and at equal speeds each is exactly N - 1 stale after the first cycle.
///
/// An order without a clock keeps the distances between transfers that there are, and lets nobody
/// catch up with the one before it; it does not make them. Workers that begin at the same moment
/// over links that are shared fairly stay in step, where the authors space them evenly over the
/// cycle.
///
/// Chen et al., INFOCOM 2019 (R2SP).
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl Consistency for RoundRobin {
    fn admit(&self, _cohort: &Cohort, _worker: WorkerId, _base: Version) -> Admission {
        Admission::Contribute
    }

    fn closes(&self, _cohort: &Cohort) -> Closing {
        Closing::Everything
    }

    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        match (cohort.lead(worker) + u64::from(under_way), cohort.hindmost()) {
            (0, _) => true,
            (1, Some((_, hindmost))) => worker < hindmost,
            _ => false,
        }
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        // One more than the number of turns so far, of workers without end.
        cohort.hindmost().map_or(0, |(clock, worker)| {
            clock.0.wrapping_shl(u32::BITS).wrapping_add(u64::from(worker.0)).wrapping_add(1)
        })
    }

    fn in_rounds(&self) -> bool {
        false
    }
}
