//! Journal of checkpoints only: effects do not wait, and everything after the last checkpoint is
//! lost as a whole.

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_roles::node::{self, Durable, Input};

use super::checkpoints::{Checkpoints, PAUSE, Taken};
use super::folder::StateFolder;
use crate::driver::{Journal, JournalError};

/// Keeps checkpoints of a server, but no inputs.
#[derive(Debug)]
pub struct CheckpointsOnly {
    checkpoints: Checkpoints,
    /// This server decides when a checkpoint is due.
    leads: bool,
    /// State that was taken and is not being written.
    taken: Option<Arc<Taken>>,
    /// When to write `taken`; `None` until the node requests it.
    writes_at: Option<Time>,
}

impl CheckpointsOnly {
    /// Returns a journal that decides itself when a checkpoint is due.
    #[must_use]
    pub const fn new(checkpoints: Checkpoints) -> Self {
        Self { checkpoints, leads: true, taken: None, writes_at: None }
    }

    /// Returns a journal for a server that follows the checkpoints of another.
    #[must_use]
    pub const fn following(checkpoints: Checkpoints) -> Self {
        Self { checkpoints, leads: false, taken: None, writes_at: None }
    }

    /// Returns the checkpoints.
    pub const fn checkpoints(&mut self) -> &mut Checkpoints {
        &mut self.checkpoints
    }

    /// Ends the journal; returns the folder and the period of its checkpoints.
    #[must_use]
    pub fn into_folder(self) -> (StateFolder, Duration) {
        self.checkpoints.into_folder()
    }

    /// Waits until the current write has ended. Returns the node's input about it, if any.
    fn settle(&mut self, now: Time) -> Option<Input> {
        match self.checkpoints.settle(now)? {
            Ok(number) => Some(Input::Written(number)),
            Err(taken) => {
                // The other servers have written this checkpoint, so retry it rather than take a
                // later one.
                (self.taken, self.writes_at) = (Some(taken), Some(now + PAUSE));
                None
            }
        }
    }
}

impl Journal for CheckpointsOnly {
    fn keeps(&self) -> bool {
        false
    }

    fn append(&mut self, _now: Time, _input: &Input) {}

    fn commit(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn take(&mut self, now: Time, checkpoint: node::Checkpoint) {
        self.taken = Some(Arc::new(self.checkpoints.of_node(now, checkpoint)));
        self.writes_at = None;
    }

    fn write(&mut self, now: Time) {
        self.writes_at = Some(now);
    }

    fn rest(&mut self, now: Time, _node: &mut dyn Durable) -> Option<Input> {
        if self.checkpoints.is_writing() {
            return self.checkpoints.is_due(now, None).then(|| self.settle(now)).flatten();
        }
        if self.writes_at.is_some_and(|at| now >= at) {
            self.writes_at = None;
            if let Some(taken) = self.taken.take() {
                self.checkpoints.write(taken);
            }
            return None;
        }
        let is_due = self.leads && self.taken.is_none() && self.checkpoints.is_due(now, None);
        is_due.then(|| Input::Checkpoint(self.checkpoints.begin(now)))
    }

    /// Keeps the final state of the run even if no checkpoint is due.
    fn end(&mut self, now: Time, node: &mut dyn Durable) {
        let _written = self.settle(now);
        if self.leads && node.is_over() {
            self.checkpoints.take_now(now, node);
        }
    }
}
