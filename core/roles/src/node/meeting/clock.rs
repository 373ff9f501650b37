//! The training time of a run without a server.

use core::time::Duration;

use pstrain_compute::time::Time;
use serde::{Deserialize, Serialize};

/// Training time up to the last update. It begins with the first gradient, without the time for
/// which that had to wait until workers were connected: the start of the group is no training.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TrainingClock {
    /// Training time before the run was resumed.
    before: Duration,
    /// When training began or was resumed, once there was an update since.
    since: Option<Time>,
    /// The last update.
    last: Time,
}

impl TrainingClock {
    /// The training time.
    pub(super) fn time(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| self.last.since(since))
    }

    /// When the last update was made.
    pub(super) const fn last(&self) -> Time {
        self.last
    }

    /// Records an update; the gradients of the first one since the start were begun at `begun`.
    pub(super) fn updated(&mut self, now: Time, begun: Time) {
        self.since.get_or_insert(begun);
        self.last = now;
    }

    /// The run is resumed: the time without workers is no training time.
    pub(super) fn resume(&mut self) {
        *self = Self { before: self.time(), ..Self::default() };
    }
}
