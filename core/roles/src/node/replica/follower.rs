//! The primary's view of its standby.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::silence;
use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_policy::job::heartbeat;

/// The standby of a primary.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Follower {
    pub(super) id: u64,
    /// The address at which workers reach it.
    pub(super) address: String,
    /// True if it has the whole state, so that effects wait for it.
    pub(super) paired: bool,
    pub(super) link: Link,
}

/// The connection to a standby.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Link {
    Up { peer: PeerId, heard: Time, beat_at: Time },
    Down { since: Time, why: String },
}

impl Link {
    /// A connection that has just been opened or heard.
    pub(super) fn up(now: Time, peer: PeerId, lease: Duration) -> Self {
        Self::Up { peer, heard: now, beat_at: now + heartbeat(lease) }
    }

    /// The connection, while there is one.
    pub(super) const fn peer(&self) -> Option<PeerId> {
        match self {
            Self::Up { peer, .. } => Some(*peer),
            Self::Down { .. } => None,
        }
    }

    /// Records a sign of life.
    pub(super) const fn hear(&mut self, now: Time) {
        if let Self::Up { heard, .. } = self {
            *heard = now;
        }
    }

    /// Records a sent message, which postpones the next heartbeat.
    pub(super) fn sent(&mut self, now: Time, lease: Duration) {
        if let Self::Up { beat_at, .. } = self {
            *beat_at = now + heartbeat(lease);
        }
    }

    /// How long the standby has been silent, if that is too long.
    pub(super) fn silent(&self, now: Time, lease: Duration) -> Option<Duration> {
        match self {
            Self::Up { heard, .. } => Some(now.since(*heard)).filter(|it| *it >= silence(lease)),
            Self::Down { .. } => None,
        }
    }

    /// True if a heartbeat is due.
    pub(super) fn wants_beat(&self, now: Time) -> bool {
        matches!(self, Self::Up { beat_at, .. } if now >= *beat_at)
    }

    /// When a heartbeat is due, or the standby has been silent for too long.
    pub(super) fn deadline(&self, lease: Duration) -> Option<Time> {
        match self {
            Self::Up { heard, beat_at, .. } => Some((*beat_at).min(*heard + silence(lease))),
            Self::Down { .. } => None,
        }
    }
}
