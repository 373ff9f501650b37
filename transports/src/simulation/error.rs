//! Errors of a simulation.

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;

use crate::scenario::Scenario;

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
    /// Checks that the scenario has a link and a computing time for each worker.
    ///
    /// # Errors
    /// [`SimulationError`] names the first worker without.
    pub fn check(scenario: &Scenario, workers: u32) -> Result<(), Self> {
        (0..workers).map(WorkerId).try_for_each(|worker| {
            scenario.links.of(worker).ok_or(Self::Link(worker))?;
            scenario.compute.of(worker).ok_or(Self::Compute(worker))?;
            Ok(())
        })
    }
}
