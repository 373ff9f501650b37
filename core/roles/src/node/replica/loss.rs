//! A primary that its standby has lost.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::grace;
use pstrain_compute::time::Time;

/// Since when no server leads, as far as a standby knows, and what it does about that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loss {
    pub(super) since: Time,
    /// Why the primary is gone, in words.
    pub(super) why: String,
    pub(super) search: Search,
}

/// Where a standby looks for a server that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Search {
    /// It still has the connection, on which the primary is silent and may speak again.
    Listens,
    /// It dials the primary.
    Dials,
    /// It has been at an elector, where they do not come to it, and goes round since.
    GoesRound,
}

impl Loss {
    pub(super) const fn new(since: Time, why: String, search: Search) -> Self {
        Self { since, why, search }
    }

    /// When it goes to the electors. The primary, which may have noticed a heartbeat later, asks a
    /// grace after that: if it is there, it asks first, and goes on.
    pub(super) fn goes_at(&self, lease: Duration) -> Time {
        self.since + 2 * grace(lease)
    }
}
