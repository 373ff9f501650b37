//! The only place that reads a clock, except for the validity of TLS certificates.

use std::time::{Instant, SystemTime};

use pstrain_compute::time::Time;

/// A monotonic clock that starts at zero or at a given time. Copies of one clock agree.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    origin: Instant,
    /// The time that the clock shows at its start.
    from: Time,
}

impl WallClock {
    /// Returns a clock that starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn start() -> Self {
        Self { origin: Instant::now(), from: Time::ZERO }
    }

    /// Returns this clock with its start set to `from`, to continue where an earlier clock stopped.
    #[must_use]
    pub const fn going_on(self, from: Time) -> Self {
        Self { from, ..self }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        self.from + self.origin.elapsed()
    }
}

/// Returns the date and time of day, used only to label results.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is where time enters")]
pub fn calendar_time() -> SystemTime {
    SystemTime::now()
}
