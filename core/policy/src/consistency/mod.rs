//! Consistency: when a gradient is applied, and when a worker may go on.
//!
//! A policy answers questions about the [`Cohort`]: it decides, the server obeys, and the server
//! has no branch on which policy it is. Each policy is a file of its own and states its
//! invariant; a property test over random schedules holds it to that.

mod asp;
mod batches;
mod bsp;
mod cohort;
mod delay;
mod distinct;
mod dssp;
mod malenia;
mod redundant;
mod ringleader;
mod ringmaster;
mod round_robin;
mod rule;
mod spec;
mod ssp;

use core::fmt::Debug;

pub use asp::Asp;
pub use batches::{Buffered, KBatchSync};
pub use bsp::Bsp;
pub use cohort::Cohort;
pub use delay::Delay;
pub use distinct::{KAsync, KSync, Quorum};
pub use dssp::Dssp;
pub use malenia::Malenia;
pub use redundant::Redundant;
pub use ringleader::Ringleader;
pub use ringmaster::Ringmaster;
pub use round_robin::RoundRobin;
pub use spec::{ConsistencySpec, ImpossibleConsistency, MOST_GATHERED, UnknownConsistency};
pub use ssp::Ssp;

use crate::rules::Closing;
use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;

/// A consistency policy: the questions the server asks. Unless a policy says otherwise, each
/// gradient is an update of its own on arrival, and nobody waits.
pub trait Consistency: Debug + Send {
    /// What happens to a gradient of `worker` that was computed on version `base`.
    fn admit(&self, cohort: &Cohort, worker: WorkerId, base: Version) -> Admission {
        let _unheeded = (cohort, worker, base);
        Admission::Contribute
    }

    /// Which of the contributions gathered so far become an update now.
    ///
    /// Asked only when there is at least one.
    fn closes(&self, cohort: &Cohort) -> Closing {
        let _unheeded = cohort;
        Closing::Everything
    }

    /// Whether `worker`, which has `under_way` mini-batches that have not come back, may be given
    /// the current parameters and one more.
    ///
    /// Nobody is asked for more than can become part of an update: where any number of gradients
    /// of a worker may gather before one, those who are not waited for stop once what has gathered
    /// is all that the budget asks for.
    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        let _unheeded = (cohort, worker, under_way);
        true
    }

    /// Whether the others, or the next update, may have to wait for `worker`.
    fn awaits(&self, cohort: &Cohort, worker: WorkerId) -> bool {
        !cohort.contributed(worker)
    }

    /// When the next worker may start, where those who may do so one after another. Whoever is
    /// behind the others comes first.
    fn next_turn(&self, cohort: &Cohort) -> Option<Time> {
        let _unheeded = cohort;
        None
    }

    /// A number that changes whenever somebody who may not start now may start: while it and the
    /// membership stay, nobody who was made to wait needs to be looked at again.
    fn gate(&self, cohort: &Cohort) -> u64 {
        let _unheeded = cohort;
        0
    }

    /// Whether an update gathers the gradients of several workers in a round. A worker that joins
    /// then waits for the next round to count, and a round is not closed while too few workers
    /// are there. Otherwise an update waits for nobody who is not there.
    fn in_rounds(&self) -> bool {
        false
    }

    /// Whether a worker that joins does so in front, with the fastest, instead of with the
    /// slowest: where whole iterations are applied in order, those behind would have to wait for
    /// all that it has missed.
    fn joins_in_front(&self) -> bool {
        false
    }

    /// The most mini-batches of one worker that may be under way, at least 1. What a worker is
    /// asked for beyond the first it begins as soon as it has sent the one before.
    fn window(&self) -> u32 {
        1
    }

    /// Whether an update makes the gradients worthless that are still being computed on an earlier
    /// version: those workers are given the new one at once, and begin anew.
    fn cancels(&self) -> bool {
        false
    }

    /// How contributions become updates once no others can come under this policy, as long as there
    /// are any.
    fn flushes(&self) -> Closing {
        Closing::Everything
    }

    /// Takes note that `worker` has been given parameters.
    fn started(&mut self, worker: WorkerId, now: Time) {
        let _unheeded = (worker, now);
    }

    /// Takes note of a contribution of `worker`, which is in `cohort` already.
    fn contributed(&mut self, cohort: &Cohort, worker: WorkerId, now: Time) {
        let _unheeded = (cohort, worker, now);
    }

    /// Takes note of an update from contributions that were chosen by `closing`.
    fn closed(&mut self, cohort: &Cohort, closing: Closing) {
        let _unheeded = (cohort, closing);
    }

    /// Takes note that `worker`, which is not in `cohort` any more, does not count.
    fn left(&mut self, cohort: &Cohort, worker: WorkerId) {
        let _unheeded = (cohort, worker);
    }

    /// Saves or restores what it has taken note of, if anything.
    ///
    /// # Errors
    /// [`SavedError`] if that is not what was saved.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let _without_memory = archive;
        Ok(())
    }
}

/// What happens to a pushed gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It becomes part of the next update.
    Contribute,
    /// It is thrown away, and its mini-batch computed again.
    Drop(DropReason),
}

/// Takes only gradients that were computed on the current version.
fn fresh_only(cohort: &Cohort, base: Version) -> Admission {
    if base == cohort.version() {
        Admission::Contribute
    } else {
        Admission::Drop(DropReason::Stale)
    }
}

#[cfg(test)]
mod model;
