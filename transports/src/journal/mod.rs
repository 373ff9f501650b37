//! Durable state of a server: checkpoints and a log of the inputs since.
//!
//! A server is a function of its inputs. A [`Log`] holds each input before an effect of it becomes
//! visible, so replaying the log after a restart restores the server's state, and no worker has
//! received a message that the server does not know. With [`Checkpoints`] the replay need not start
//! from the first input. With checkpoints alone a restart is a new run from the last checkpoint:
//! everything after it is lost as a whole.

mod checkpoint_file;
mod checkpoints;
mod checkpoints_only;
mod disk;
mod disk_space;
mod folder;
mod inputs;
mod log;
mod recovery;
mod sealed;

use std::thread;

use pstrain_compute::time::Time;
use pstrain_roles::node::{Durable, Input};

pub use checkpoint_file::{Checkpoint, CheckpointError, Lineage};
pub use checkpoints::{Checkpoints, Companion, Companions, Taken};
pub use checkpoints_only::CheckpointsOnly;
pub use disk::{Disk, Files, Space, ordinary, replace};
pub use folder::{FolderError, Found, GroupCheckpoints, StateFolder};
pub use log::{Log, LogError, Opened};
pub use recovery::{Recovered, goes_on, recover};
pub use sealed::{UNSEALED, is_sealed, seal};

use crate::driver::{Journal, JournalError};
use inputs::{Inputs, PAUSE, WRITTEN_AGAIN};

/// Keeps a server's inputs in a log, and starts a new log with each checkpoint.
#[derive(Debug)]
pub struct InputLog {
    inputs: Inputs,
    checkpoints: Checkpoints,
}

impl InputLog {
    /// Returns a journal that keeps inputs in `log`. Calls `warn` once when the log cannot be
    /// written, and once when it can be written again.
    #[must_use]
    pub fn new(log: Log, checkpoints: Checkpoints, warn: fn(&str)) -> Self {
        Self { inputs: Inputs::new(log, warn), checkpoints }
    }

    /// Sets a condition: once it `is_over`, the journal gives up a log that cannot be written.
    #[must_use]
    pub fn until(mut self, is_over: impl Fn() -> bool + Send + 'static) -> Self {
        self.inputs.is_over = Box::new(is_over);
        self
    }

    /// Returns the checkpoints.
    pub const fn checkpoints(&mut self) -> &mut Checkpoints {
        &mut self.checkpoints
    }

    /// Once a checkpoint has failed, keeps the log from growing into the space that the next one
    /// needs. Nothing is acknowledged until the next checkpoint is written or more space is free.
    fn hold(&mut self, now: Time, server: &mut dyn Durable) {
        let Self { inputs, checkpoints } = self;
        let (mut waited, mut taken) = (false, None);
        while checkpoints.holds_log()
            && server.can_save()
            && !(inputs.is_over)()
            && inputs.commit().is_ok()
            && !checkpoints.retry(now, server, &mut inputs.log, &mut taken)
        {
            if !std::mem::replace(&mut waited, true) {
                let folder = checkpoints.folder().path().display();
                (inputs.warn)(&format!(
                    "{folder} has too little room for the next checkpoint; nothing is acknowledged \
                     until it has more"
                ));
            }
            thread::sleep(PAUSE);
            checkpoints.measure(&inputs.log);
        }
        if waited && !(inputs.is_over)() {
            (inputs.warn)(WRITTEN_AGAIN);
        }
    }
}

impl Journal for InputLog {
    fn append(&mut self, now: Time, input: &Input) {
        self.inputs.append(now, input);
    }

    fn pause(&mut self) {
        self.inputs.pause();
    }

    fn commit(&mut self) -> Result<(), JournalError> {
        self.inputs.commit()
    }

    fn rest(&mut self, now: Time, server: &mut dyn Durable) -> Option<Input> {
        if self.inputs.is_paused {
            return None;
        }
        self.checkpoints.look(now, &self.inputs.log);
        // Inputs without effects may still be uncommitted; a checkpoint must come after them. If
        // they cannot be written, the next commit reports it.
        if self.checkpoints.is_due(now, Some(&self.inputs.log))
            && server.can_save()
            && self.inputs.commit().is_ok()
        {
            self.checkpoints.rest(now, server, Some(&mut self.inputs.log));
        }
        self.hold(now, server);
        None
    }

    fn end(&mut self, now: Time, _server: &mut dyn Durable) {
        self.checkpoints.settle(now);
    }
}
