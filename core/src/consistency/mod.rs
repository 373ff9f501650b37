//! Consistency: when a gradient is applied, and when a worker may go on.
//!
//! A policy answers questions about the [`Cohort`]: it decides, the server obeys, and the server
//! has no branch on which policy it is. Each policy is a file of its own and states its
//! invariant; a property test over random schedules holds it to that.

mod asp;
mod bsp;
mod cohort;
mod spec;
mod ssp;

use core::fmt::Debug;

use serde::{Deserialize, Serialize};

pub use asp::Asp;
pub use bsp::Bsp;
pub use cohort::Cohort;
pub use spec::{ConsistencySpec, UnknownConsistency};
pub use ssp::Ssp;

use crate::id::{Version, WorkerId};

/// A consistency policy: the questions the server asks.
pub trait Consistency: Debug + Send {
    /// What happens to a gradient of `worker` that was computed on version `base`.
    fn admit(&self, cohort: &Cohort, worker: WorkerId, base: Version) -> Admission;

    /// Whether the contributions gathered so far become an update now.
    ///
    /// Asked only when there is at least one.
    fn closes(&self, cohort: &Cohort) -> bool;

    /// Whether `worker`, which has no batch to compute, may be given the current parameters.
    fn may_start(&self, cohort: &Cohort, worker: WorkerId) -> bool;

    /// A number that changes whenever somebody who may not start now may start: while it and the
    /// membership stay, nobody who was made to wait needs to be looked at again.
    fn gate(&self, cohort: &Cohort) -> u64;

    /// Whether an update gathers the gradients of several workers in a round. A worker that joins
    /// then waits for the next round to count, and a round is not closed while too few workers
    /// are there. Otherwise each gradient is an update of its own, whatever happens.
    fn in_rounds(&self) -> bool;
}

/// What happens to a pushed gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It becomes part of the next update.
    Contribute,
    /// It is thrown away, and its mini-batch computed again.
    Drop(DropReason),
}

/// Why a gradient was thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DropReason {
    /// It was computed on parameters that are no longer the current ones.
    Stale,
    /// The run was over when it came.
    Over,
}
