//! Work: which mini-batches a worker computes its gradients from.
//!
//! A [`Task`] names them. It goes out with the parameters and comes back with the gradient, and a
//! gradient is a function of its task and its parameters alone, whoever computes it. Ordinarily
//! each worker goes through its own partition; otherwise a [`Dealer`] hands tasks out. Like a
//! consistency policy it answers the server's questions, and the server has no branch on which it
//! is.

mod blocked;
mod coded;
mod level;
#[cfg(test)]
mod once;
mod partial;
mod parts;
mod reassigned;
mod shards;
mod speed;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use self::blocked::Blocked;
use self::coded::Coded;
use self::partial::Partial;
use self::reassigned::Reassigned;
use self::shards::Shards;
use self::speed::BySpeed;
use crate::consistency::Cohort;
use crate::job::{Job, OnLoss, Redundancy, WorkSpec};
use pstrain_compute::coding::CodeError;
use pstrain_compute::id::{BatchId, PartId, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;

/// Who is given which mini-batches, where that is not each worker its own, one after another.
pub trait Dealer: Debug + Send {
    /// What `worker` is to compute next, on parameters of `version`. None if there is nothing for
    /// it to do before the next update; nothing has changed then.
    fn deal(&mut self, worker: WorkerId, version: Version) -> Option<Task>;

    /// Takes note that the gradient dealt next is to become part of the update of this version.
    fn due(&mut self, _update: Version) {}

    /// What `worker`, which was given `task` and has not answered, is to compute instead now that
    /// it is given `version`; none if the task stays.
    fn renew(&mut self, _worker: WorkerId, _task: Task, _version: Version) -> Option<Task> {
        None
    }

    /// Whether a gradient for `task`, on parameters of the current `version`, adds anything to what
    /// is in the open round.
    fn wants(&self, _worker: WorkerId, _task: Task, _version: Version) -> bool {
        true
    }

    /// Takes note that a gradient for `task` came, whatever becomes of it, and how long it took.
    fn timed(&mut self, _worker: WorkerId, _task: Task, _timed: Timed) {}

    /// Takes note that a wanted gradient is in the open round.
    fn took(&mut self, _worker: WorkerId, _task: Task) {}

    /// Takes note that `worker` will not bring what it was given, though it may be needed.
    fn put_back(&mut self, worker: WorkerId, task: Task);

    /// Takes note that `worker`, whose tasks have been put back, is gone.
    fn left(&mut self, _worker: WorkerId) {}

    /// Mini-batches of the partition of `worker` that others were given.
    fn reassigned(&self, _worker: WorkerId) -> u64 {
        0
    }

    /// A number that changes whenever there may be a task for somebody for whom there was none,
    /// though there has been no update.
    fn gate(&self) -> u64 {
        0
    }

    /// Whether all that the budget asks for has been given out: there are no more tasks unless one
    /// is put back.
    fn is_used_up(&self) -> bool {
        false
    }

    /// Whether the open round has all that an update needs.
    fn is_covered(&self) -> bool {
        false
    }

    /// Whether the members and what is in the open round are too few to cover it.
    fn is_stuck(&self, _members: &Cohort) -> bool {
        false
    }

    /// Takes note that a worker's parts have so many examples.
    ///
    /// # Errors
    /// In words, if another worker said otherwise of one of them.
    fn set_rows(&mut self, worker: WorkerId, rows: &[u64]) -> Result<(), String>;

    /// What the gradients of an update count, in order; none if each counts what the job's
    /// aggregation says.
    fn weights(&self, _gradients: &[Share]) -> Option<Weights> {
        None
    }

    /// Takes note of an update, after which `members` go on.
    fn updated(&mut self, _members: &Cohort) {}

    /// Saves or restores what has been dealt, and what it has taken note of.
    ///
    /// # Errors
    /// [`SavedError`] if that is not what was saved.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError>;
}

/// How long a gradient took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// When its parameters were given out.
    pub granted: Time,
    /// When it came.
    pub now: Time,
    /// The part of that time that was computation, as the worker measured it.
    pub compute: Duration,
    /// Examples it was computed from; at least 1.
    pub samples: u32,
}

/// A gradient of an update, as far as its weight depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whose it is.
    pub worker: WorkerId,
    /// What it was computed from.
    pub task: Task,
    /// Examples it was computed from.
    pub samples: u32,
}

/// What the gradients of an update count.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The factor of each.
    pub factors: Vec<f32>,
    /// Different examples that the update is made of.
    pub samples: u64,
}

impl Job {
    /// Whoever hands out the tasks of the job; none if each worker goes through its own partition.
    ///
    /// # Errors
    /// [`CodeError`] if the job asks for a gradient code that cannot be.
    pub fn dealer(&self) -> Result<Option<Box<dyn Dealer>>, CodeError> {
        Ok(match (self.code()?, self.redundancy, self.work) {
            (Some(code), ..) => Some(Box::new(Coded::new(self, code)?)),
            (None, Redundancy::Partial { tasks }, _) => {
                Some(Box::new(Partial::new(self.membership.workers, tasks)))
            }
            (None, _, WorkSpec::Speed) => {
                Some(Box::new(BySpeed::new(self.membership.workers, self.batch_size)))
            }
            (None, _, WorkSpec::Shards { .. }) => Some(Box::new(Shards::new(self))),
            (None, _, WorkSpec::Equal) if self.membership.on_loss == OnLoss::Reassign => {
                Some(Box::new(Reassigned::new(self)))
            }
            (None, _, WorkSpec::Equal) if self.blocks.is_some() => {
                Some(Box::new(Blocked::default()))
            }
            (None, _, WorkSpec::Equal) => None,
        })
    }
}

/// Examples in mini-batch `batch` of a part with `rows` examples: the last of a pass has what is
/// left.
#[must_use]
pub const fn batch_samples(rows: u64, batch: BatchId, batch_size: u32) -> u64 {
    let size = batch_size as u64;
    let batches = rows.div_ceil(size);
    if batches == 0 {
        return 0;
    }
    let left = rows - batch.0 % batches * size;
    if left < size { left } else { size }
}

/// Notes the size of a part, which all who have it must agree on.
fn set_rows(known: &mut [u64], part: PartId, rows: u64) -> Result<(), String> {
    match known.get_mut(part.0 as usize) {
        Some(known) if *known == 0 || *known == rows => {
            *known = rows;
            Ok(())
        }
        Some(known) => Err(alloc::format!(
            "{rows} rows in partition {part}, of which another worker has {known}"
        )),
        None => Err(alloc::format!("partition {part} is none of the job's")),
    }
}
