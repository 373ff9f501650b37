//! Errors of a simulation.

use core::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_policy::job::Membership;

use crate::scenario::{Scenario, WorkerLink};

/// An incomplete scenario, or a run that cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The scenario lacks a worker's link.
    #[error(
        "nothing is said about the link of worker {0}: give --link {0}.delay=TIME, or --link \
         all.delay=0ms for links without delay"
    )]
    Link(WorkerId),
    /// The scenario lacks a worker's computing time.
    #[error(
        "nothing is said about how long worker {0} computes: give --compute TIME, or --compute \
         measured for this machine's own speed"
    )]
    Compute(WorkerId),
    /// A worker's messages take so long that it is lost before the first has come.
    #[error(
        "link: a message of worker {worker} or to it takes {delay:?}, and lease = {lease:?} \
         without a message is a lost connection: raise the lease above the delay, or lower the \
         delay"
    )]
    Slow {
        /// The worker.
        worker: WorkerId,
        /// The longer delay of the two directions.
        delay: Duration,
        /// The lease of the job.
        lease: Duration,
    },
    /// A worker computes at the speed of this machine, which was not measured.
    #[error("worker {0} computes as fast as this machine, but that was not measured")]
    Measured(WorkerId),
    /// The job allows no standby.
    #[error("there can be no standby for this job")]
    Standby,
    /// No event is left, but the server has not finished.
    #[error("at {at} nothing is under way any more, but the run is not over")]
    Stuck {
        /// The virtual time.
        at: Time,
    },
}

impl SimulationError {
    /// Checks that the scenario has for each worker a computing time, and a link that is fast
    /// enough for the lease.
    ///
    /// # Errors
    /// [`SimulationError`] names the first worker without.
    pub fn check(scenario: &Scenario, membership: &Membership) -> Result<(), Self> {
        let lease = membership.lease;
        (0..membership.workers).map(WorkerId).try_for_each(|worker| {
            let WorkerLink { up, down } = scenario.links.of(worker).ok_or(Self::Link(worker))?;
            scenario.compute.of(worker).ok_or(Self::Compute(worker))?;
            match up.delay.max(down.delay) {
                delay if delay >= lease => Err(Self::Slow { worker, delay, lease }),
                _ => Ok(()),
            }
        })
    }
}
