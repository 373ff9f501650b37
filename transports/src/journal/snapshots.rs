//! A node whose checkpoints are all that is kept: effects wait for nothing, and what came after a
//! checkpoint is lost as a whole.

use std::sync::Arc;

use pstrain_compute::time::Time;
use pstrain_roles::node::{self, Durable, Input};

use super::checkpoints::{Beside, Checkpoints, PAUSE, Taken};
use super::disk::Disk;
use crate::driver::{Journal, Unkept};

/// Keeps checkpoints of a server and no inputs.
#[derive(Debug)]
pub struct Snapshots<B, D> {
    checkpoints: Checkpoints<B, D>,
    /// Whether it says itself when one is due.
    leads: bool,
    /// One that is not being written.
    taken: Option<Arc<Taken>>,
    /// When it is to be written; not before that is asked for.
    writes_at: Option<Time>,
}

impl<B, D> Snapshots<B, D> {
    /// Keeps these, and says when one is due.
    #[must_use]
    pub const fn new(checkpoints: Checkpoints<B, D>) -> Self {
        Self { checkpoints, leads: true, taken: None, writes_at: None }
    }

    /// Keeps these, of a server that another tells when one is due.
    #[must_use]
    pub const fn following(checkpoints: Checkpoints<B, D>) -> Self {
        Self { checkpoints, leads: false, taken: None, writes_at: None }
    }

    /// The checkpoints.
    pub const fn checkpoints(&mut self) -> &mut Checkpoints<B, D> {
        &mut self.checkpoints
    }
}

impl<B: FnMut() -> Beside, D: Disk> Snapshots<B, D> {
    /// Waits until what is being written is; what the node is to be told of that.
    fn settle(&mut self, now: Time) -> Option<Input> {
        match self.checkpoints.settle(now)? {
            Ok(number) => Some(Input::Written(number)),
            Err(taken) => {
                // The others have theirs, so it must be this one and no later.
                (self.taken, self.writes_at) = (Some(taken), Some(now + PAUSE));
                None
            }
        }
    }
}

impl<N: Durable, B: FnMut() -> Beside, D: Disk> Journal<N> for Snapshots<B, D> {
    const KEEPS: bool = false;

    fn append(&mut self, _now: Time, _input: &Input) {}

    fn commit(&mut self) -> Result<(), Unkept> {
        Ok(())
    }

    fn take(&mut self, now: Time, checkpoint: node::Checkpoint) {
        self.taken = Some(Arc::new(self.checkpoints.of_node(now, checkpoint)));
        self.writes_at = None;
    }

    fn write(&mut self, now: Time) {
        self.writes_at = Some(now);
    }

    fn rest(&mut self, now: Time, _node: &mut N) -> Option<Input> {
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

    /// How a run ended is worth keeping whatever the time.
    fn end(&mut self, now: Time, node: &mut N) {
        let _written = self.settle(now);
        if self.leads && node.is_over() {
            self.checkpoints.take_now(now, node);
        }
    }
}
