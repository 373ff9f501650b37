//! Errors of a simulation.

use std::fmt;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;

use crate::scenario::Scenario;

/// An incomplete scenario, or a run that cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimulationError {
    /// The scenario lacks a worker's link.
    Link(WorkerId),
    /// The scenario lacks a worker's computing time.
    Compute(WorkerId),
    /// A worker computes at the speed of this machine, which was not measured.
    Measured(WorkerId),
    /// The job allows no standby.
    Standby,
    /// No event is left, but the server has not finished.
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

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(worker) => write!(
                f,
                "nothing is said about the link of worker {worker}: give --link \
                 {worker}.delay=TIME, or --link all.delay=0ms for links without delay"
            ),
            Self::Compute(worker) => write!(
                f,
                "nothing is said about how long worker {worker} computes: give --compute TIME, or \
                 --compute measured for this machine's own speed"
            ),
            Self::Measured(worker) => write!(
                f,
                "worker {worker} computes as fast as this machine, but that was not measured"
            ),
            Self::Standby => f.write_str("there can be no standby for this job"),
            Self::Stuck { at } => {
                write!(f, "at {at} nothing is under way any more, but the run is not over")
            }
        }
    }
}

impl std::error::Error for SimulationError {}
