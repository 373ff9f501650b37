//! The room that a log leaves on its disk, so that a checkpoint ends the log before the disk is
//! full.

/// Logs take this much more than a state before a checkpoint is worth its writing, ...
const LEAST_LOGS: u64 = 64 * 1024;
/// ... and the disk is asked each time that the log has grown by as much, or by a share of what was
/// free: asking costs about as much as appending a few KiB.
const SHARE: u64 = 64;
/// Until the logs from before it are removed a checkpoint needs room for itself and the next one,
/// and as much again for what the log grows by meanwhile.
const STATES: u64 = 4;
/// Room for what is not counted: names, and inputs that come at once.
const SPARE: u64 = 512 * 1024;

/// How a log and its disk stand.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The length of the log at which the disk is asked next.
    asks_at: u64,
    left: Left,
}

/// How much room the logs leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Left {
    #[default]
    Enough,
    /// A checkpoint is due, and training may go on meanwhile.
    Little,
    /// No more than the checkpoint that is being written may need: the log must wait for it.
    Least,
}

/// Bytes that are taken and free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// All logs that are on the disk.
    pub(super) logs: u64,
    /// The last checkpoint; 0 if that is not known.
    pub(super) state: u64,
    pub(super) free: u64,
}

impl Room {
    /// Whether the disk is to be asked, now that the log has so many bytes.
    pub(super) const fn asks(&self, log: u64) -> bool {
        log >= self.asks_at
    }

    /// The disk has answered; none where it cannot tell.
    pub(super) fn note(&mut self, log: u64, usage: Option<Usage>) {
        let Some(Usage { logs, state, free }) = usage else {
            (self.asks_at, self.left) = (u64::MAX, Left::Enough);
            return;
        };
        self.asks_at = log + LEAST_LOGS.max(free / SHARE);
        // Of a state whose size is not known the log may take two thirds of the room.
        let wanted = state.saturating_mul(STATES).max(log / 2) + SPARE;
        self.left = if logs <= state + LEAST_LOGS || free >= wanted {
            Left::Enough
        } else if free >= state.saturating_mul(STATES / 2) + SPARE / 2 {
            Left::Little
        } else {
            Left::Least
        };
    }

    /// Whether a checkpoint is due.
    pub(super) fn is_tight(&self) -> bool {
        self.left != Left::Enough
    }

    /// Whether the log must wait for a checkpoint that is being written.
    pub(super) fn waits(&self) -> bool {
        self.left == Left::Least
    }
}
