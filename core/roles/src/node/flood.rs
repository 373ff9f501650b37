//! Flood control: limits a worker's messages between two pushes.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;
use pstrain_wire::Message;

/// Messages without a gradient that a worker may send in a lease. A lease has five heartbeats, and
/// a few more where a message takes long; a window that grows at once costs one pull per
/// mini-batch.
const PER_LEASE: u32 = 200 + MOST_IN_FLIGHT;
/// The most messages that it may send at once after it has sent few. Heartbeats of hours wait in
/// the queue of a slow link and arrive at once, behind the last push.
const MOST: u32 = 50 * PER_LEASE;

/// The messages without a gradient that a worker may send now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct FloodControl {
    left: u32,
    /// The begin of the current lease, after the first message.
    since: Option<Time>,
}

impl Default for FloodControl {
    fn default() -> Self {
        Self { left: PER_LEASE, since: None }
    }
}

impl FloodControl {
    /// Counts a message; returns true if the worker is flooding the server.
    pub(super) fn is_flood(&mut self, now: Time, lease: Duration, message: &Message) -> bool {
        let since = *self.since.get_or_insert(now);
        if now >= since + lease {
            let leases = now.since(since).as_nanos() / lease.as_nanos().max(1);
            let leases = u32::try_from(leases).unwrap_or(u32::MAX);
            self.left = leases.saturating_mul(PER_LEASE).saturating_add(self.left).min(MOST);
            self.since = Some(now);
        }
        match message {
            // Each push may be useful; examples are sent only as fast as the worker takes them.
            Message::Push(_) | Message::Reduced(_) => self.left = self.left.max(PER_LEASE),
            Message::PullExamples(_) => {}
            _ => match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => return true,
            },
        }
        false
    }

    /// Allows one message more, which the server has requested.
    pub(super) const fn asked(&mut self) {
        self.left = self.left.saturating_add(1);
    }
}
