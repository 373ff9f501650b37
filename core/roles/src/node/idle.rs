//! Messages of a worker that bring no gradient: how many are too many.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;
use pstrain_wire::Message;

/// The most messages without a gradient that a worker may send in a row within a lease. Heartbeats
/// are five a lease, and a few more where a message takes long; a window that grows at once is
/// asked for one mini-batch at a time.
const MOST: u32 = 200 + MOST_IN_FLIGHT;

/// Messages without a gradient since a worker's last push, or since a time within the last lease.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Idle {
    since: Time,
    count: u32,
}

impl Idle {
    /// Takes note of a message; whether far more have come than a worker has to say.
    pub(super) fn is_flood(&mut self, now: Time, lease: Duration, message: &Message) -> bool {
        match message {
            // A push is as long as it may be useful, and rows are sent as fast as they are taken.
            Message::Push(_) => self.count = 0,
            Message::PullExamples(_) => {}
            _ if now >= self.since + lease => (self.since, self.count) = (now, 1),
            _ => self.count += 1,
        }
        self.count > MOST
    }

    /// It was asked for one of them.
    pub(super) const fn asked(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}
