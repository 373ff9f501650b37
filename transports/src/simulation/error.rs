//! What can keep a simulation from being one.

use std::fmt;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;

use crate::scenario::Scenario;

/// A scenario that does not say enough, or a run that does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimulationError {
    /// Nothing is said about a worker's link.
    Link(WorkerId),
    /// Nothing is said about how long a worker's mini-batches take.
    Compute(WorkerId),
    /// A worker's mini-batches take as long as on this machine, but that was not measured.
    Measured(WorkerId),
    /// There can be no standby of the server.
    Standby,
    /// Nothing will ever happen again, but the server has not finished.
    Stuck {
        /// When that was, in virtual time.
        at: Time,
    },
}

impl SimulationError {
    /// Checks that enough is said of each of so many workers to model it.
    ///
    /// # Errors
    /// [`SimulationError`] that names the first of whom it is not.
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
