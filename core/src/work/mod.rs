//! Work: which mini-batches a worker computes its gradients from.
//!
//! A [`Task`] names them. It goes out with the parameters and comes back with the gradient, and a
//! gradient is a function of its task and its parameters alone, whoever computes it. Ordinarily each
//! worker goes through its own partition; otherwise a [`Dealer`] hands tasks out. Like a consistency
//! policy it answers the server's questions, and the server has no branch on which it is.

mod coded;
mod error;
mod level;
#[cfg(test)]
mod once;
mod partial;
mod parts;
mod reassigned;
mod shards;
mod spec;
mod speed;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::WorkError;
pub use spec::{MOST_SHARDS, Redundancy, UnknownWork, WorkSpec};

use self::coded::Coded;
use self::partial::Partial;
use self::reassigned::Reassigned;
use self::shards::Shards;
use self::speed::BySpeed;
use crate::coding::{Code, CodeError, Piece};
use crate::consistency::{Cohort, Consistency, Redundant};
use crate::id::{BatchId, PartId, Version, WorkerId};
use crate::job::{Job, OnLoss};
use crate::saved::{Archive, SavedError};
use crate::time::Time;

/// What one gradient is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Task {
    /// The part of the data; under gradient coding the first of those that are combined.
    pub part: PartId,
    /// The mini-batch of that part. Where it has a size of its own, the number of its first example
    /// in the sequence of the passes over the part.
    pub batch: BatchId,
    /// Its examples, of which there are fewer where a pass ends before; 0 for the job's batch size.
    pub examples: u32,
}

impl Task {
    /// Mini-batch `batch` of the worker's own partition.
    #[must_use]
    pub const fn own(worker: WorkerId, batch: BatchId) -> Self {
        Self { part: PartId(worker.0), batch, examples: 0 }
    }
}

/// Who is given which mini-batches, where that is not each worker its own, one after another.
pub trait Dealer: Debug + Send {
    /// What `worker` is to compute next, on parameters of `version`. None if there is nothing for
    /// it to do before the next update; nothing has changed then.
    fn deal(&mut self, worker: WorkerId, version: Version) -> Option<Task>;

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
    /// Parts that the training data are cut into.
    #[must_use]
    pub const fn parts(&self) -> u32 {
        self.work.parts(self.membership.workers)
    }

    /// The parts that `worker` must have.
    #[must_use]
    pub fn parts_of(&self, worker: WorkerId) -> Vec<PartId> {
        let workers = self.membership.workers;
        if let WorkSpec::Shards { count } = self.work {
            return (0..count).map(PartId).collect();
        }
        match (self.pieces_of(worker), self.redundancy) {
            (Some(pieces), _) => pieces.into_iter().map(|piece| piece.part).collect(),
            (None, Redundancy::Partial { tasks }) => {
                (0..tasks).map(|number| PartId((worker.0 + number) % workers)).collect()
            }
            // Its own first.
            _ if self.membership.on_loss == OnLoss::Reassign => {
                (0..workers).map(|number| PartId((worker.0 + number) % workers)).collect()
            }
            _ => alloc::vec![PartId(worker.0)],
        }
    }

    /// Examples that count as a worker's own, whose parts have `rows`: those of the first, or all
    /// where the parts are everybody's.
    #[must_use]
    pub fn own_rows(&self, rows: &[u64]) -> u64 {
        let own = if matches!(self.work, WorkSpec::Shards { .. }) { rows.len() } else { 1 };
        rows.iter().take(own).sum()
    }

    /// What `worker` combines into each gradient; none where nothing is combined.
    #[must_use]
    pub fn pieces_of(&self, worker: WorkerId) -> Option<Vec<Piece>> {
        Some(self.code().ok()??.pieces(worker))
    }

    /// The most examples that a gradient of `task` is computed from.
    #[must_use]
    pub fn most_samples(&self, task: Task) -> u32 {
        let parts = self.redundancy.parts_combined();
        if task.examples > 0 { task.examples } else { self.batch_size.saturating_mul(parts) }
    }

    /// How much a gradient of `task` is to compute, in ordinary mini-batches.
    #[must_use]
    pub fn amount(&self, task: Task) -> f64 {
        f64::from(self.most_samples(task)) / f64::from(self.batch_size)
    }

    /// The gradient code, if there is one.
    ///
    /// # Errors
    /// [`CodeError`] if there cannot be such a code for so many workers.
    pub(crate) fn code(&self) -> Result<Option<Code>, CodeError> {
        let workers = self.membership.workers;
        match self.redundancy {
            Redundancy::Fractional { tolerance } => Code::fractional(workers, tolerance).map(Some),
            Redundancy::Cyclic { tolerance } => Code::cyclic(workers, tolerance).map(Some),
            Redundancy::None | Redundancy::Partial { .. } => Ok(None),
        }
    }

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
            (None, _, WorkSpec::Equal) => None,
        })
    }

    /// When gradients are applied and workers go on.
    #[must_use]
    pub fn policy(&self) -> Box<dyn Consistency> {
        match self.redundancy {
            Redundancy::None => self.mode.consistency.build(),
            Redundancy::Partial { tasks } => Box::new(Redundant::new(tasks)),
            Redundancy::Fractional { .. } | Redundancy::Cyclic { .. } => {
                Box::new(Redundant::new(1))
            }
        }
    }

    /// Mini-batches of one worker that may be under way, unless the run changes it.
    #[must_use]
    pub fn window(&self) -> u32 {
        match self.redundancy {
            Redundancy::None => self.mode.window(),
            _ => self.policy().window(),
        }
    }

    /// The task after `task`, where a worker is given several at once.
    #[must_use]
    pub const fn following(&self, task: Task) -> Task {
        let Task { part, batch, examples } = task;
        match self.redundancy {
            Redundancy::Partial { .. } => {
                let next = part.0.saturating_add(1);
                let part = if next < self.membership.workers { next } else { 0 };
                Task { part: PartId(part), batch, examples }
            }
            _ => {
                let step = if examples > 0 { examples as u64 } else { 1 };
                Task { part, batch: BatchId(batch.0.saturating_add(step)), examples }
            }
        }
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
