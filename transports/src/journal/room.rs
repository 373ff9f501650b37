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
    /// No more than the next checkpoint may need: the log must wait for it.
    Least,
    /// Not enough for a checkpoint either.
    Nothing,
}

/// Bytes that are taken and free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// All logs that are on the disk.
    pub(super) logs: u64,
    /// A checkpoint; 0 if that is not known.
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
        } else if free > state {
            Left::Least
        } else {
            Left::Nothing
        };
    }

    /// Whether a checkpoint is due.
    pub(super) fn is_tight(&self) -> bool {
        self.left != Left::Enough
    }

    /// Whether the log must wait for the next checkpoint.
    pub(super) const fn waits(&self) -> bool {
        matches!(self.left, Left::Least | Left::Nothing)
    }

    /// Whether a checkpoint may fit.
    pub(super) fn fits(&self) -> bool {
        self.left != Left::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: u64 = 100_000;

    /// How a room stands whose logs have taken all but `free` bytes.
    fn with(logs: u64, free: u64) -> Room {
        let mut room = Room::default();
        room.note(logs, Some(Usage { logs, state: STATE, free }));
        room
    }

    #[test]
    fn the_log_waits_before_it_takes_the_room_that_a_checkpoint_needs() {
        let size = 2_000_000;
        let rooms = (0..size).step_by(1000).map(|logs| (size - logs, with(logs, size - logs)));
        let (mut tight, mut waiting) = (Vec::new(), Vec::new());
        for (free, room) in rooms {
            tight.extend(room.is_tight().then_some(free));
            waiting.extend(room.waits().then_some((free, room.fits())));
        }
        let ((last, _), most) = (waiting[0], tight[0]);
        assert!(last > 2 * STATE && last < most && most < size / 2 + LEAST_LOGS, "{last} {most}");
        assert_eq!(waiting.len() as u64, last / 1000, "with less room it waits, too");
        assert!(waiting.iter().all(|&(free, fits)| fits == (free > STATE)), "{waiting:?}");
    }

    #[test]
    fn logs_that_no_checkpoint_would_shorten_do_not_wait_for_one() {
        let room = with(STATE, 0);
        assert!(!room.is_tight() && !room.waits());
    }
}
