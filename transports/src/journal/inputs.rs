//! Log of all inputs of a node, from the first on.

use std::fmt;
use std::thread;
use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_roles::node::{Input, encode_input};

use super::log::Log;
use crate::driver::JournalError;

/// Delay before a failed commit is repeated.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const WRITTEN_AGAIN: &str = "the log can be written again";

/// Keeps a node's inputs in a log.
pub(super) struct Inputs {
    pub(super) log: Log,
    head: Vec<u8>,
    /// Called once when the log cannot be written, and once when it can be written again.
    pub(super) warn: fn(&str),
    /// True once the journal must no longer wait for a log that cannot be written.
    pub(super) is_over: Box<dyn Fn() -> bool + Send>,
    /// Nothing more is kept.
    pub(super) is_paused: bool,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Inputs {
    /// Returns a journal that keeps inputs in `log`.
    #[must_use]
    pub(super) fn new(log: Log, warn: fn(&str)) -> Self {
        Self { log, head: Vec::new(), warn, is_over: Box::new(|| false), is_paused: false }
    }

    pub(super) fn append(&mut self, now: Time, input: &Input) {
        if self.is_paused {
            return;
        }
        self.head.clear();
        if let Some(tail) = encode_input(now, input, &mut self.head) {
            let [payload, checksum] = tail.parts();
            self.log.append(&[&self.head, payload, checksum]);
        }
    }

    pub(super) fn pause(&mut self) {
        if !std::mem::replace(&mut self.is_paused, true) {
            self.log.withdraw();
        }
    }

    /// Waits while the disk is full: nothing is acknowledged, and no more input is read.
    pub(super) fn commit(&mut self) -> Result<(), JournalError> {
        let mut failed = false;
        while let Err(error) = self.log.commit() {
            if failed && (self.is_over)() {
                return Err(JournalError(error.to_string()));
            }
            if !failed {
                (self.warn)(&format!("{error}; nothing is acknowledged until it can be"));
            }
            failed = true;
            thread::sleep(PAUSE);
        }
        if failed {
            (self.warn)(WRITTEN_AGAIN);
        }
        Ok(())
    }
}
