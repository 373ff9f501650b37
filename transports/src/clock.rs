//! The only place that reads a clock.

use std::time::{Instant, SystemTime};

use pstrain_compute::time::Time;

/// A monotonic clock that starts at zero, or where it is told. Copies of one clock agree.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    origin: Instant,
    /// The time at its start.
    from: Time,
}

impl WallClock {
    /// A clock that starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn start() -> Self {
        Self { origin: Instant::now(), from: Time::ZERO }
    }

    /// The same clock with its start put at `from`: it goes on where another has stopped.
    #[must_use]
    pub const fn going_on(self, from: Time) -> Self {
        Self { from, ..self }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        self.from + self.origin.elapsed()
    }
}

/// The date and time of day, to say when results were made. Nothing else depends on it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is where time enters")]
pub fn calendar_time() -> SystemTime {
    SystemTime::now()
}
