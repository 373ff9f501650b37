//! Flood control: limits a worker's messages between two pushes.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;
use pstrain_wire::Message;

/// Limit of messages without a gradient in a row within a lease. A lease has five heartbeats, and a
/// few more where a message takes long; a window that grows at once costs one pull per mini-batch.
const MOST: u32 = 200 + MOST_IN_FLIGHT;

/// Messages without a gradient since a worker's last push, or since a time within the last lease.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct FloodControl {
    since: Time,
    count: u32,
}

impl FloodControl {
    /// Counts a message; returns true if the worker is flooding the server.
    pub(super) fn is_flood(&mut self, now: Time, lease: Duration, message: &Message) -> bool {
        match message {
            // Each push may be useful; examples are sent only as fast as the worker takes them.
            Message::Push(_) => self.count = 0,
            Message::PullExamples(_) => {}
            _ if now >= self.since + lease => (self.since, self.count) = (now, 1),
            _ => self.count += 1,
        }
        self.count > MOST
    }

    /// Discounts one message that the server has requested.
    pub(super) const fn asked(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}
