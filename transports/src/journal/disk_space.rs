//! Disk space left by the logs: a checkpoint must end the log before the disk is full.

/// Bytes by which the logs must exceed the state before a checkpoint is worth writing. Also the
/// least growth of the log between two queries of the free space.
const LEAST_LOGS: u64 = 64 * 1024;
/// The log may grow by the free space divided by this, if that is more, before the next query: a
/// query costs about as much as appending a few KiB.
const SHARE: u64 = 64;
/// Space that a checkpoint needs, in sizes of the state: until the older logs are removed, one for
/// itself, one for the next, and two for the growth of the log meanwhile.
const STATES: u64 = 4;
/// Reserve for uncounted bytes: directory entries, and inputs that arrive at once.
const SPARE: u64 = 512 * 1024;

/// Free space relative to the logs.
#[derive(Debug, Default)]
pub(super) struct DiskSpace {
    /// Length of the log at which free space is queried next.
    asks_at: u64,
    left: Left,
}

/// Classes of free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Left {
    #[default]
    Enough,
    /// A checkpoint is due; training may continue meanwhile.
    Little,
    /// No more than the next checkpoint may need: the log must wait for it.
    Least,
    /// Not enough even for a checkpoint.
    Nothing,
}

/// Used and free bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// All logs on the disk.
    pub(super) logs: u64,
    /// A checkpoint; 0 if unknown.
    pub(super) state: u64,
    pub(super) free: u64,
}

impl DiskSpace {
    /// True if free space must be queried, now that the log has `log` bytes.
    pub(super) const fn asks(&self, log: u64) -> bool {
        log >= self.asks_at
    }

    /// Records the result of a query. `None` means that the disk cannot tell: never query again.
    pub(super) fn note(&mut self, log: u64, usage: Option<Usage>) {
        let Some(Usage { logs, state, free }) = usage else {
            (self.asks_at, self.left) = (u64::MAX, Left::Enough);
            return;
        };
        self.asks_at = log + LEAST_LOGS.max(free / SHARE);
        // If the size of the state is unknown, the log may take two thirds of the space.
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

    /// True if a checkpoint is due.
    pub(super) fn is_tight(&self) -> bool {
        self.left != Left::Enough
    }

    /// True if the log must wait for the next checkpoint.
    pub(super) const fn waits(&self) -> bool {
        matches!(self.left, Left::Least | Left::Nothing)
    }

    /// True if a checkpoint may fit.
    pub(super) fn fits(&self) -> bool {
        self.left != Left::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: u64 = 100_000;

    /// Returns the `DiskSpace` after logs of `logs` bytes have left `free` bytes.
    fn with(logs: u64, free: u64) -> DiskSpace {
        let mut space = DiskSpace::default();
        space.note(logs, Some(Usage { logs, state: STATE, free }));
        space
    }

    #[test]
    fn the_log_waits_before_it_takes_the_room_that_a_checkpoint_needs() {
        let size = 2_000_000;
        let spaces = (0..size).step_by(1000).map(|logs| (size - logs, with(logs, size - logs)));
        let (mut tight, mut waiting) = (Vec::new(), Vec::new());
        for (free, space) in spaces {
            tight.extend(space.is_tight().then_some(free));
            waiting.extend(space.waits().then_some((free, space.fits())));
        }
        let ((last, _), most) = (waiting[0], tight[0]);
        assert!(last > 2 * STATE && last < most && most < size / 2 + LEAST_LOGS, "{last} {most}");
        assert_eq!(waiting.len() as u64, last / 1000, "with less space it waits, too");
        assert!(waiting.iter().all(|&(free, fits)| fits == (free > STATE)), "{waiting:?}");
    }

    #[test]
    fn logs_that_no_checkpoint_would_shorten_do_not_wait_for_one() {
        let space = with(STATE, 0);
        assert!(!space.is_tight() && !space.waits());
    }
}
