//! Work: the mini-batches that a worker computes its gradients from.
//!
//! A [`Task`] names them. It is sent with the parameters and returned with the gradient, and a
//! gradient is a function of its task and its parameters alone, independent of the worker. By
//! default each worker goes through its own partition; otherwise an [`Assigner`] assigns tasks.
//! Like a consistency policy it answers the server's questions, and the server has no branch on its
//! kind.

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
use pstrain_compute::id::{PartId, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;

/// Assigner of mini-batches, for jobs in which workers do not just go through their own partitions.
pub trait Assigner: Debug + Send {
    /// Assigns the next task of `worker`, on parameters of `version`. Returns `None`, without a
    /// state change, if it has nothing to do before the next update.
    fn assign(&mut self, worker: WorkerId, version: Version) -> Option<Task>;

    /// Announces the version of the update that the next assigned gradient belongs to.
    fn due(&mut self, _update: Version) {}

    /// Returns the task that replaces `task`, which `worker` has not answered, now that it receives
    /// `version`; `None` if the task stays.
    fn renew(&mut self, _worker: WorkerId, _task: Task, _version: Version) -> Option<Task> {
        None
    }

    /// Returns true if a gradient for `task`, on parameters of the current `version`, adds anything
    /// to the open round.
    fn wants(&self, _worker: WorkerId, _task: Task, _version: Version) -> bool {
        true
    }

    /// Records that a gradient of `worker` arrived, accepted or not, and how long it took.
    fn timed(&mut self, _worker: WorkerId, _timed: Timed) {}

    /// Records that a wanted gradient is in the open round.
    fn took(&mut self, _worker: WorkerId, _task: Task) {}

    /// Records that `worker` will not complete `task`, which may have to be assigned again.
    fn put_back(&mut self, worker: WorkerId, task: Task);

    /// Records that the gradient of `task` is not finite. Returns true if the mini-batch is left
    /// out, and false if it has been put back, since an update needs the gradient.
    fn leave_out(&mut self, _worker: WorkerId, _task: Task) -> bool {
        true
    }

    /// Records that `worker`, whose tasks have been put back, is gone.
    fn left(&mut self, _worker: WorkerId) {}

    /// Number of mini-batches of the partition of `worker` that were assigned to others.
    fn reassigned(&self, _worker: WorkerId) -> u64 {
        0
    }

    /// Returns a number that changes whenever there may be a task for a worker that got none,
    /// without an update in between.
    fn gate(&self) -> u64 {
        0
    }

    /// Returns true if the budget is fully assigned: there are no more tasks unless one is put
    /// back.
    fn is_used_up(&self) -> bool {
        false
    }

    /// Raises the budget to this many passes over the data.
    fn extend(&mut self, _epochs: u64) {}

    /// Returns true if the open round has all that an update needs.
    fn is_covered(&self) -> bool {
        false
    }

    /// Returns true if the members and the gradients in the open round cannot cover it.
    fn is_stuck(&self, _members: &Cohort) -> bool {
        false
    }

    /// Sets the sizes of a worker's parts, in examples.
    ///
    /// # Errors
    /// A message, if another worker reported another size of one of them.
    fn set_rows(&mut self, worker: WorkerId, rows: &[u64]) -> Result<(), String>;

    /// Returns the weights of an update's gradients, in order; `None` if the job's aggregation
    /// determines them.
    fn weights(&self, _gradients: &[Share]) -> Option<Weights> {
        None
    }

    /// Records an update, after which `members` continue.
    fn updated(&mut self, _members: &Cohort) {}

    /// Saves or restores the state of the assigner.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not hold this state.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError>;
}

/// Duration of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// When its parameters were given out.
    pub granted: Time,
    /// When it arrived.
    pub now: Time,
    /// The part of that time that was computation, as the worker measured it.
    pub compute: Duration,
    /// Examples it was computed from; at least 1.
    pub samples: u32,
}

/// The properties of a gradient that its weight may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The worker that computed it.
    pub worker: WorkerId,
    /// The task it was computed from.
    pub task: Task,
    /// Number of examples it was computed from.
    pub samples: u32,
}

/// Weights of the gradients of an update.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The factor of each gradient.
    pub factors: Vec<f32>,
    /// Number of distinct examples in the update.
    pub samples: u64,
}

impl Job {
    /// Creates the job's assigner; `None` if each worker goes through its own partition.
    ///
    /// # Errors
    /// [`CodeError`] if the job asks for an impossible gradient code.
    pub fn assigner(&self) -> Result<Option<Box<dyn Assigner>>, CodeError> {
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

/// Sets the size of a part; all workers that have the part must agree on it.
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
