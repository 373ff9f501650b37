//! Gradient coding: each worker computes more than its share, so that some workers may be late.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{Assigner, Share, Weights, set_rows};
use crate::consistency::Cohort;
use crate::job::Job;
use crate::rules::Aggregation;
use pstrain_compute::coding::{Code, CodeError, Decoder};
use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::pass::Pass;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;

/// In round `r` every worker combines mini-batches `r` of its partitions. The round is covered once
/// the received gradients can be decoded; later ones are not needed.
///
/// The round alone determines the mini-batch, independent of contributions to earlier rounds,
/// because all replicas of a partition must compute the same gradient.
#[derive(Debug)]
pub(super) struct Coded {
    decoder: Decoder,
    aggregation: Aggregation,
    batch_size: u32,
    /// Examples of each partition; 0 until a worker has reported it.
    rows: Vec<u64>,
    /// The version on which each worker was last assigned its task.
    given: Vec<Option<Version>>,
    /// Workers whose gradients are in the open round.
    present: BTreeSet<WorkerId>,
}

impl Coded {
    pub(super) fn new(job: &Job, code: Code) -> Result<Self, CodeError> {
        let workers = code.workers() as usize;
        Ok(Self {
            decoder: Decoder::new(code)?,
            aggregation: job.aggregation,
            batch_size: job.batch_size,
            rows: vec![0; workers],
            given: vec![None; workers],
            present: BTreeSet::new(),
        })
    }

    /// Returns true if the gradient that `worker` computes is already in the open round.
    fn is_there(&self, worker: WorkerId) -> bool {
        match self.decoder.code().group(worker) {
            None => self.present.contains(&worker),
            Some(group) => {
                self.present.iter().any(|&other| self.decoder.code().group(other) == Some(group))
            }
        }
    }
}

impl Assigner for Coded {
    fn assign(&mut self, worker: WorkerId, version: Version) -> Option<Task> {
        if self.is_there(worker) {
            return None;
        }
        let given = self.given.get_mut(worker.0 as usize)?;
        if given.replace(version) == Some(version) {
            return None;
        }
        Some(Task::own(worker, BatchId(version.0)))
    }

    fn renew(&mut self, worker: WorkerId, task: Task, version: Version) -> Option<Task> {
        if task.batch.0 == version.0 { None } else { self.assign(worker, version) }
    }

    fn wants(&self, worker: WorkerId, task: Task, version: Version) -> bool {
        task.batch.0 == version.0 && !self.is_there(worker)
    }

    fn took(&mut self, worker: WorkerId, _task: Task) {
        self.present.insert(worker);
    }

    fn put_back(&mut self, worker: WorkerId, _task: Task) {
        if let Some(given) = self.given.get_mut(worker.0 as usize) {
            *given = None;
        }
    }

    fn leave_out(&mut self, worker: WorkerId, task: Task) -> bool {
        self.put_back(worker, task);
        false
    }

    fn is_covered(&self) -> bool {
        self.decoder.code().is_enough(self.present.iter().copied())
    }

    fn is_stuck(&self, members: &Cohort) -> bool {
        let within_reach: BTreeSet<WorkerId> =
            members.workers().chain(self.present.iter().copied()).collect();
        !self.decoder.code().is_enough(within_reach.into_iter())
    }

    fn set_rows(&mut self, worker: WorkerId, rows: &[u64]) -> Result<(), String> {
        for (piece, &rows) in self.decoder.code().pieces(worker).iter().zip(rows) {
            set_rows(&mut self.rows, piece.part, rows)?;
        }
        Ok(())
    }

    fn weights(&self, gradients: &[Share]) -> Option<Weights> {
        let present: Vec<WorkerId> = gradients.iter().map(|share| share.worker).collect();
        let weights = self.decoder.weights(&present)?;
        let batch = gradients.first()?.task.batch;
        let sizes = self.rows.iter().map(|&rows| Pass::new(rows, self.batch_size).size(batch));
        let samples = sizes.sum::<u64>();
        // A worker sends the mean over its examples, which keeps values in an ordinary range.
        let factor = |(weight, share): (f64, &Share)| match self.aggregation {
            Aggregation::Sum => weight as f32,
            _ => (weight * f64::from(share.samples) / samples as f64) as f32,
        };
        Some(Weights { factors: weights.into_iter().zip(gradients).map(factor).collect(), samples })
    }

    fn updated(&mut self, _members: &Cohort) {
        self.present.clear();
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let Self { decoder: _, aggregation: _, batch_size: _, rows, given, present } = self;
        archive.small(rows)?;
        archive.small(given)?;
        archive.small(present)
    }
}
