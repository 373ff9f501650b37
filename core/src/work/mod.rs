//! Work: which mini-batches a worker computes its gradients from.
//!
//! A [`Task`] names them. It goes out with the parameters and comes back with the gradient, and a
//! gradient is a function of its task and its parameters alone, whoever computes it. A [`Dealer`]
//! hands tasks out; like a consistency policy it answers the server's questions, and the server has
//! no branch on which it is.

mod coded;
mod own;
mod partial;
mod spec;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;

use serde::{Deserialize, Serialize};

pub use spec::{Redundancy, UnknownWork};

use self::coded::Coded;
use self::own::Own;
use self::partial::Partial;
use crate::coding::{Code, CodeError, Piece};
use crate::consistency::Cohort;
use crate::id::{BatchId, PartId, Version, WorkerId};
use crate::job::Job;

/// What one gradient is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Task {
    /// The part of the data; under gradient coding the first of those that are combined.
    pub part: PartId,
    /// The mini-batch of that part.
    pub batch: BatchId,
}

impl Task {
    /// Mini-batch `batch` of the worker's own partition.
    #[must_use]
    pub const fn own(worker: WorkerId, batch: BatchId) -> Self {
        Self { part: PartId(worker.0), batch }
    }
}

/// Who is given which mini-batches: the questions the server asks.
pub trait Dealer: Debug + Send {
    /// What `worker` is to compute next, on parameters of `version`; `next` is the mini-batch that
    /// follows those of its partition that are done. None if there is nothing for it to do before
    /// the next update; nothing has changed then.
    fn deal(&mut self, worker: WorkerId, version: Version, next: BatchId) -> Option<Task>;

    /// Whether [`Self::deal`] has something.
    fn has(&self, worker: WorkerId, version: Version) -> bool {
        let _all = (worker, version);
        true
    }

    /// Whether a gradient of `worker` for `task`, on the current parameters, adds anything to what
    /// is in the open round.
    fn wants(&self, worker: WorkerId, task: Task) -> bool {
        let _all = (worker, task);
        true
    }

    /// Takes note that such a gradient is in the open round.
    fn took(&mut self, worker: WorkerId, task: Task) {
        let _unheeded = (worker, task);
    }

    /// Takes note that whatever `worker` was given and has not brought is lost.
    fn left(&mut self, worker: WorkerId) {
        let _unheeded = worker;
    }

    /// Whether the open round has all that an update needs, where that is not a question of who
    /// contributes.
    fn is_covered(&self) -> bool {
        true
    }

    /// Whether the members and what is in the open round are too few to cover it.
    fn is_stuck(&self, members: &Cohort) -> bool {
        let _whoever = members;
        false
    }

    /// Takes note that a worker's parts have so many examples.
    ///
    /// # Errors
    /// In words, if another worker said otherwise of one of them.
    fn set_rows(&mut self, worker: WorkerId, rows: &[u64]) -> Result<(), String> {
        let _unheeded = (worker, rows);
        Ok(())
    }

    /// What the gradients of an update count, given their workers and examples, in order; none
    /// if each counts what the job's aggregation says.
    fn weights(&self, gradients: &[Share]) -> Option<Weights> {
        let _all = gradients;
        None
    }

    /// Takes note of an update.
    fn updated(&mut self) {}
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
        self.membership.workers
    }

    /// The parts that `worker` must have.
    #[must_use]
    pub fn parts_of(&self, worker: WorkerId) -> Vec<PartId> {
        let workers = self.membership.workers;
        match (self.pieces_of(worker), self.redundancy) {
            (Some(pieces), _) => pieces.into_iter().map(|piece| piece.part).collect(),
            (None, Redundancy::Partial { tasks }) => {
                (0..tasks).map(|number| PartId((worker.0 + number) % workers)).collect()
            }
            _ => alloc::vec![PartId(worker.0)],
        }
    }

    /// What `worker` combines into each gradient; none where nothing is combined.
    #[must_use]
    pub fn pieces_of(&self, worker: WorkerId) -> Option<Vec<Piece>> {
        Some(self.code().ok()??.pieces(worker))
    }

    /// The most examples that one gradient of the job is computed from.
    #[must_use]
    pub fn most_samples(&self) -> u32 {
        let parts = self.redundancy.parts_combined();
        self.batch_size.saturating_mul(parts)
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

    /// Whoever hands out the tasks of the job.
    ///
    /// # Errors
    /// [`CodeError`] if the job asks for a gradient code that cannot be.
    pub fn dealer(&self) -> Result<Box<dyn Dealer>, CodeError> {
        Ok(match (self.code()?, self.redundancy) {
            (Some(code), _) => Box::new(Coded::new(self, code)?),
            (None, Redundancy::Partial { tasks }) => {
                Box::new(Partial::new(self.membership.workers, tasks))
            }
            _ => Box::new(Own),
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
