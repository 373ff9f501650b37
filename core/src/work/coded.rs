//! Gradient coding: everybody computes more than their share, so that some may be late.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{Dealer, Share, Task, Weights, batch_samples};
use crate::coding::{Code, CodeError, Decoder};
use crate::consistency::Cohort;
use crate::id::{BatchId, PartId, Version, WorkerId};
use crate::job::{Aggregation, Job};

/// In round `r` every worker combines mini-batches `r` of its partitions. The round is covered
/// once those who came can be decoded; whoever comes later comes in vain.
///
/// The mini-batch is that of the round whoever contributed to those before, since all replicas of
/// a partition must compute the same gradient.
#[derive(Debug)]
pub(super) struct Coded {
    decoder: Decoder,
    aggregation: Aggregation,
    batch_size: u32,
    /// Examples of each partition; 0 where nobody has said.
    rows: Vec<u64>,
    /// The version on which each worker was last given its task.
    given: Vec<Option<Version>>,
    /// Whose gradients are in the open round.
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

    /// Whether what `worker` computes is in the open round already.
    fn is_there(&self, worker: WorkerId) -> bool {
        match self.decoder.code().group(worker) {
            None => self.present.contains(&worker),
            Some(group) => {
                self.present.iter().any(|&other| self.decoder.code().group(other) == Some(group))
            }
        }
    }
}

impl Dealer for Coded {
    fn deal(&mut self, worker: WorkerId, version: Version, _next: BatchId) -> Option<Task> {
        if !self.has(worker, version) {
            return None;
        }
        *self.given.get_mut(worker.0 as usize)? = Some(version);
        Some(Task::own(worker, BatchId(version.0)))
    }

    fn has(&self, worker: WorkerId, version: Version) -> bool {
        self.given.get(worker.0 as usize).is_some_and(|given| *given != Some(version))
            && !self.is_there(worker)
    }

    fn wants(&self, worker: WorkerId, _task: Task) -> bool {
        !self.is_there(worker)
    }

    fn took(&mut self, worker: WorkerId, _task: Task) {
        self.present.insert(worker);
    }

    fn left(&mut self, worker: WorkerId) {
        if let Some(given) = self.given.get_mut(worker.0 as usize) {
            *given = None;
        }
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
        let sizes = self.rows.iter().map(|&rows| batch_samples(rows, batch, self.batch_size));
        let samples = sizes.sum::<u64>();
        // A worker sends the mean over its examples, so that numbers keep an ordinary size.
        let factor = |(weight, share): (f64, &Share)| match self.aggregation {
            Aggregation::Mean => (weight * f64::from(share.samples) / samples as f64) as f32,
            Aggregation::Sum => weight as f32,
        };
        Some(Weights { factors: weights.into_iter().zip(gradients).map(factor).collect(), samples })
    }

    fn updated(&mut self) {
        self.present.clear();
    }
}

/// Notes the size of a part, which all who have it must agree on.
pub(super) fn set_rows(known: &mut [u64], part: PartId, rows: u64) -> Result<(), String> {
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
