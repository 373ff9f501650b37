//! A standby's loss of its primary.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::grace;
use pstrain_compute::time::Time;

/// The time since which no server leads, as far as a standby knows, and its search for a leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loss {
    pub(super) since: Time,
    /// Why the primary is gone, in words.
    pub(super) why: String,
    pub(super) search: Search,
}

/// Where a standby looks for the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Search {
    /// The connection is open; the primary is silent and may speak again.
    Listens,
    /// The standby dials the primary.
    Dials,
    /// The standby has dialled an elector, and dials all in turn since. Only for a shard, whose
    /// electors do not connect to it.
    GoesRound,
}

impl Loss {
    pub(super) const fn new(since: Time, why: String, search: Search) -> Self {
        Self { since, why, search }
    }

    /// When the standby dials the electors. The primary, which may have noticed the loss a
    /// heartbeat later, asks them a grace period after that: if it is alive, it asks first, and
    /// continues.
    pub(super) fn goes_at(&self, lease: Duration) -> Time {
        self.since + 2 * grace(lease)
    }
}
