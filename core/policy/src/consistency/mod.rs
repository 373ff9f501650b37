//! Consistency: when a gradient is applied, and when a worker may continue.
//!
//! A policy answers questions about the [`Cohort`]: the policy decides, the server obeys, and the
//! server has no branch on the kind of policy. Each policy has its own file and states its
//! invariant; a property test over random schedules checks it.

mod asp;
mod bsp;
mod cohort;
mod delay;
mod dssp;
mod k_batch_sync;
mod k_sync;
mod malenia;
mod redundant;
mod ringleader;
mod ringmaster;
mod round_robin;
mod spec;
mod ssp;

use core::fmt::Debug;

pub use asp::Asp;
pub use bsp::Bsp;
pub use cohort::Cohort;
pub use delay::Delay;
pub use dssp::Dssp;
pub use k_batch_sync::{Buffered, KBatchSync};
pub use k_sync::{KAsync, KSync, Quorum};
pub use malenia::Malenia;
pub use redundant::Redundant;
pub use ringleader::Ringleader;
pub use ringmaster::Ringmaster;
pub use round_robin::RoundRobin;
pub use spec::{ConsistencySpec, ImpossibleConsistency, MOST_GATHERED};
pub use ssp::Ssp;

use crate::rules::Closing;
use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;

/// A consistency policy: the questions the server asks. By default each gradient is an update of
/// its own on arrival, and no worker waits.
pub trait Consistency: Debug + Send {
    /// Decides whether a gradient of `worker` that was computed on version `base` contributes.
    fn admit(&self, cohort: &Cohort, worker: WorkerId, base: Version) -> Admission {
        let _unheeded = (cohort, worker, base);
        Admission::Contribute
    }

    /// Returns which of the contributions gathered so far become an update now.
    ///
    /// Called only if there is at least one.
    fn closes(&self, cohort: &Cohort) -> Closing {
        let _unheeded = cohort;
        Closing::Everything
    }

    /// Returns true if `worker`, which has `under_way` mini-batches that have not come back, may be
    /// given the current parameters and one more mini-batch.
    ///
    /// No worker is asked for more than can become part of an update: if a worker may gather any
    /// number of gradients before an update, workers that are not waited for stop once the gathered
    /// gradients are all that the budget asks for.
    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        let _unheeded = (cohort, worker, under_way);
        true
    }

    /// Returns true if the other workers, or the next update, may have to wait for `worker`.
    fn awaits(&self, cohort: &Cohort, worker: WorkerId) -> bool {
        !cohort.contributed(worker)
    }

    /// Returns when the next worker may start, if workers start one after another. The worker that
    /// is furthest behind comes first.
    fn next_turn(&self, cohort: &Cohort) -> Option<Time> {
        let _unheeded = cohort;
        None
    }

    /// Returns a number that changes whenever a waiting worker may become able to start. While it
    /// and the membership are unchanged, waiting workers need not be checked again.
    fn gate(&self, cohort: &Cohort) -> u64 {
        let _unheeded = cohort;
        0
    }

    /// Returns true if an update gathers the gradients of several workers in a round. A worker that
    /// joins then counts from the next round on, and a round does not close while too few workers
    /// are present. Otherwise an update does not wait for absent workers.
    fn in_rounds(&self) -> bool {
        false
    }

    /// Returns true if a worker that joins starts at the clock of the fastest instead of the
    /// slowest: if whole iterations are applied in order, workers behind would have to wait for all
    /// iterations that it missed.
    fn joins_in_front(&self) -> bool {
        false
    }

    /// The largest number of mini-batches of one worker that may be under way, at least 1. A worker
    /// starts each further mini-batch as soon as it has sent the previous one.
    fn window(&self) -> u32 {
        1
    }

    /// Returns true if an update makes gradients worthless that are still being computed on an
    /// earlier version: the server sends these workers the new version at once, and they start
    /// again.
    fn cancels(&self) -> bool {
        false
    }

    /// Returns how the remaining contributions become updates once no more can arrive under this
    /// policy; applied until none are left.
    fn flushes(&self) -> Closing {
        Closing::Everything
    }

    /// Records that `worker` has been given parameters.
    fn started(&mut self, worker: WorkerId, now: Time) {
        let _unheeded = (worker, now);
    }

    /// Records a contribution of `worker`, which `cohort` already contains.
    fn contributed(&mut self, cohort: &Cohort, worker: WorkerId, now: Time) {
        let _unheeded = (cohort, worker, now);
    }

    /// Records an update from the contributions that `closing` selected.
    fn closed(&mut self, cohort: &Cohort, closing: Closing) {
        let _unheeded = (cohort, closing);
    }

    /// Records that `worker`, which `cohort` no longer contains, has stopped counting.
    fn left(&mut self, cohort: &Cohort, worker: WorkerId) {
        let _unheeded = (cohort, worker);
    }

    /// Saves or restores the state of the policy, if any.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not hold this state.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let _without_memory = archive;
        Ok(())
    }
}

/// Result of admitting a pushed gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It becomes part of the next update.
    Contribute,
    /// It is dropped, and its mini-batch is computed again.
    Drop(DropReason),
}

/// Admits only gradients that were computed on the current version.
fn fresh_only(cohort: &Cohort, base: Version) -> Admission {
    if base == cohort.version() {
        Admission::Contribute
    } else {
        Admission::Drop(DropReason::Stale)
    }
}

#[cfg(test)]
mod reference_model;
