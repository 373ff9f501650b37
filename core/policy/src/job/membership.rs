//! The workers of a run, what the loss of one causes, and the lease, from which all time limits
//! derive.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::JobError;
use pstrain_compute::id::MAX_WORKERS;
use pstrain_compute::named;
use pstrain_compute::named::Word;

/// The shortest lease: below it, an ordinary scheduling delay looks like a crash.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(100);
/// The longest lease.
pub const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);

/// The workers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Number of worker ids of the job, which is also the number of partitions; at least 1.
    pub workers: u32,
    /// The run starts with this many workers and pauses below it. If `None`, it starts with all
    /// workers and pauses only when none is left.
    pub min_workers: Option<u32>,
    /// The consequence of a lost worker.
    pub on_loss: OnLoss,
    /// How long a silent worker counts as alive. All other time limits derive from it.
    pub lease: Duration,
    /// How long an all-reduce waits for gradients once the first is there: the update is made
    /// without the late ones, which become part of a later update. If `None`, it waits for all.
    pub partial_after: Option<Duration>,
}

/// Reaction of the server when a worker is lost: its lease expired, it was turned away, or it left
/// before its share was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// Continues with the other workers; the lost worker may come back.
    #[default]
    Continue,
    /// Keeps its worker slot until it comes back, or [`Membership::patience`] expires.
    Wait,
    /// Ends the run.
    Stop,
    /// Continues with the other workers, which do the lost worker's share of each epoch until it
    /// comes back. This requires that every worker has all data.
    Reassign,
}

impl Membership {
    /// Number of workers that must be ready before the first update.
    #[must_use]
    pub fn needed_to_start(&self) -> u32 {
        self.min_workers.unwrap_or(self.workers)
    }

    /// Number of workers below which the run pauses.
    #[must_use]
    pub fn needed_to_run(&self) -> u32 {
        self.min_workers.unwrap_or(1)
    }

    /// Time between two heartbeats of a worker.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        heartbeat(self.lease)
    }

    /// How long a disconnected worker tries to reconnect, and how long a run with a lost worker
    /// that it waits for, or with too few workers, waits before it ends.
    #[must_use]
    pub fn patience(&self) -> Duration {
        patience(self.lease)
    }

    /// How long a server waits for a worker's evaluation before it asks another worker.
    #[must_use]
    pub fn evaluation_patience(&self) -> Duration {
        self.start_patience()
    }

    /// How long the server waits for the workers that it needs to start.
    #[must_use]
    pub fn start_patience(&self) -> Duration {
        start_patience(self.lease)
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), JobError> {
        let Self { workers, min_workers, lease, .. } = *self;
        if workers == 0 || workers > MAX_WORKERS {
            return Err(JobError::Workers(workers));
        }
        if let Some(min) = min_workers
            && (min == 0 || min > workers)
        {
            return Err(JobError::MinWorkers { min, workers });
        }
        if lease < SHORTEST_LEASE || lease > LONGEST_LEASE {
            return Err(JobError::Lease(lease));
        }
        Ok(())
    }
}

/// Time between two heartbeats of a worker with this lease.
#[must_use]
pub fn heartbeat(lease: Duration) -> Duration {
    lease / 5
}

/// How long a server whose workers have this lease waits for the workers that it needs to start.
#[must_use]
pub fn start_patience(lease: Duration) -> Duration {
    lease * 120
}

/// How long a disconnected worker with this lease tries to reconnect.
#[must_use]
pub const fn patience(lease: Duration) -> Duration {
    lease.saturating_mul(12)
}

named!(OnLoss: "reaction", ',' {
    Continue = Word::new("continue", &[], "the others continue"),
    Wait = Word::new("wait", &[], "the others wait for it, 12 leases at most"),
    Stop = Word::new("stop", &[], "the run stops"),
    Reassign = Word::new("reassign", &[], "the others compute on its data"),
});
