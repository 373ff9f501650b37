//! The standby of a primary, as the primary knows it.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::silence;
use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_policy::job::heartbeat;

/// A standby, while it is one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Follower {
    pub(super) id: u64,
    /// Where workers reach it.
    pub(super) address: String,
    /// Whether it has all, so that nothing has an effect without it.
    pub(super) paired: bool,
    pub(super) link: Link,
}

/// The connection of a standby.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Link {
    Up { peer: PeerId, heard: Time, beat_at: Time },
    Down { since: Time, why: String },
}

impl Link {
    /// A connection that has just been heard.
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

    /// Notes a sign of life.
    pub(super) const fn hear(&mut self, now: Time) {
        if let Self::Up { heard, .. } = self {
            *heard = now;
        }
    }

    /// Notes that something was sent.
    pub(super) fn sent(&mut self, now: Time, lease: Duration) {
        if let Self::Up { beat_at, .. } = self {
            *beat_at = now + heartbeat(lease);
        }
    }

    /// How long it has been silent, if that is too long.
    pub(super) fn silent(&self, now: Time, lease: Duration) -> Option<Duration> {
        match self {
            Self::Up { heard, .. } => Some(now.since(*heard)).filter(|it| *it >= silence(lease)),
            Self::Down { .. } => None,
        }
    }

    /// Whether it wants to be told that this side is alive.
    pub(super) fn wants_beat(&self, now: Time) -> bool {
        matches!(self, Self::Up { beat_at, .. } if now >= *beat_at)
    }

    /// When something is due.
    pub(super) fn deadline(&self, lease: Duration) -> Option<Time> {
        match self {
            Self::Up { heard, beat_at, .. } => Some((*beat_at).min(*heard + silence(lease))),
            Self::Down { .. } => None,
        }
    }
}
