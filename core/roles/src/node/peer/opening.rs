//! The time for which the values of an update wait for connections to be opened.

use core::time::Duration;

use pstrain_compute::time::Time;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    since: Option<Time>,
    took: Duration,
}

impl Opening {
    /// Notes whether values wait for a connection.
    pub(super) fn note(&mut self, now: Time, waits: bool) {
        if waits {
            self.since.get_or_insert(now);
        } else if let Some(since) = self.since.take() {
            self.took += now.since(since);
        }
    }

    /// How long values waited.
    pub(super) const fn took(&self) -> Duration {
        self.took
    }
}
