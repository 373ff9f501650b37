//! Division of a job's work, and its checks against the other settings.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::consistency::{Consistency, ConsistencySpec, Redundant};
use crate::job::{BudgetKind, Job, OnLoss};
use crate::job::{MOST_SHARDS, Redundancy, WorkSpec};
use crate::mode::Mode;
use crate::rules::ParticipationSpec;
use pstrain_compute::coding::{Code, CodeError, Decoder, Piece};
use pstrain_compute::id::{BatchId, PartId, WorkerId};
use pstrain_compute::task::{MOST_IN_FLIGHT, Task};

/// Work settings that are incompatible with the job.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// An impossible gradient code.
    #[error("redundancy: {0}")]
    Code(CodeError),
    /// Each worker would compute more partitions than exist, or than may be under way.
    #[error("redundancy = partial:{tasks}: must be 1 to {most} here")]
    Partial {
        /// Partitions that each worker computes.
        tasks: u32,
        /// Largest possible number.
        most: u32,
    },
    /// An unequal division of work together with an incompatible setting.
    #[error("work = {work} needs {needs}")]
    Work {
        /// The division.
        work: WorkSpec,
        /// The other setting, its required value, and the reason.
        needs: &'static str,
    },
    /// Reassignment of a lost worker's share together with an incompatible setting.
    #[error("on-worker-loss = reassign needs {needs}")]
    Reassign {
        /// The other setting, its required value, and the reason.
        needs: &'static str,
    },
    /// No shards, or more than allowed, or more than there are examples.
    #[error(
        "work = shards:{count}: must be 1 to {MOST_SHARDS}, and at most the {rows} training rows"
    )]
    Shards {
        /// Shards.
        count: u32,
        /// Training examples.
        rows: u64,
    },
    /// Redundancy together with an incompatible setting.
    #[error("redundancy = {redundancy} needs {needs}")]
    Redundancy {
        /// The redundancy.
        redundancy: Redundancy,
        /// The other setting, its required value, and the reason.
        needs: &'static str,
    },
}

impl Job {
    /// Number of parts that the training data are divided into.
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
            // Its own part first.
            _ if self.membership.on_loss == OnLoss::Reassign => {
                (0..workers).map(|number| PartId((worker.0 + number) % workers)).collect()
            }
            _ => alloc::vec![PartId(worker.0)],
        }
    }

    /// Number of examples that count as a worker's own, of parts with `rows` examples each: the
    /// first part's, or all if the parts are shards, which no worker owns.
    #[must_use]
    pub fn own_rows(&self, rows: &[u64]) -> u64 {
        let own = if matches!(self.work, WorkSpec::Shards { .. }) { rows.len() } else { 1 };
        rows.iter().take(own).sum()
    }

    /// Parts and coefficients that `worker` combines into each gradient; `None` without gradient
    /// coding.
    #[must_use]
    pub fn pieces_of(&self, worker: WorkerId) -> Option<Vec<Piece>> {
        Some(self.code().ok()??.pieces(worker))
    }

    /// The largest number of examples that a gradient of `task` is computed from.
    #[must_use]
    pub fn most_samples(&self, task: Task) -> u32 {
        let parts = self.redundancy.parts_combined();
        if task.examples > 0 { task.examples } else { self.batch_size.saturating_mul(parts) }
    }

    /// The amount of computation for a gradient of `task`, in ordinary mini-batches.
    #[must_use]
    pub fn amount(&self, task: Task) -> f64 {
        f64::from(self.most_samples(task)) / f64::from(self.batch_size)
    }

    /// The gradient code, if there is one.
    ///
    /// # Errors
    /// [`CodeError`] if no such code exists for this number of workers.
    pub(crate) fn code(&self) -> Result<Option<Code>, CodeError> {
        let workers = self.membership.workers;
        match self.redundancy {
            Redundancy::Fractional { tolerance } => Code::fractional(workers, tolerance).map(Some),
            Redundancy::Cyclic { tolerance } => Code::cyclic(workers, tolerance).map(Some),
            Redundancy::None | Redundancy::Partial { .. } => Ok(None),
        }
    }

    /// Builds the policy that decides when gradients are applied and workers continue.
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

    /// Number of mini-batches of one worker that may be under way, unless the run changes it.
    #[must_use]
    pub fn window(&self) -> u32 {
        match self.redundancy {
            Redundancy::None => self.mode.window(),
            _ => self.policy().window(),
        }
    }

    /// Returns the task after `task`, if a worker is given several at once.
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

impl Job {
    /// Checks that the division of work is compatible with the other settings under `mode`.
    ///
    /// # Errors
    /// [`WorkError`] names the conflict.
    pub fn check_work(&self, mode: &Mode) -> Result<(), WorkError> {
        self.check_division(mode)?;
        self.check_reassignment(mode)?;
        self.check_redundancy(mode)
    }

    /// Checks that an unequal division of work is compatible with the other settings.
    fn check_division(&self, mode: &Mode) -> Result<(), WorkError> {
        let work = self.work;
        if work == WorkSpec::Equal {
            return Ok(());
        }
        let needs = |needs| Err(WorkError::Work { work, needs });
        if self.redundancy != Redundancy::None {
            return needs("redundancy = none: that says itself who computes what");
        }
        if self.budget.kind != BudgetKind::Global {
            return needs(
                "budget = global: otherwise each worker has its own part to do, fast or slow",
            );
        }
        if let WorkSpec::Shards { count } = work {
            return self.check_shards(count, mode);
        }
        if self.batch_size.checked_mul(self.membership.workers).is_none() {
            return needs("a batch-size below 2^32 examples of all workers together");
        }
        Ok(())
    }

    /// Checks that there is an example for each shard, and that no setting weighs workers by their
    /// own data. `mode` is the mode of the job, or one to switch to.
    fn check_shards(&self, count: u32, mode: &Mode) -> Result<(), WorkError> {
        let rows = self.data.train.rows;
        if count == 0 || count > MOST_SHARDS || u64::from(count) > rows {
            return Err(WorkError::Shards { count, rows });
        }
        self.check_counts_examples(mode).map_err(|needs| WorkError::Work { work: self.work, needs })
    }

    /// Checks that other workers can do a lost worker's share. `mode` is the mode of the job, or
    /// one to switch to.
    fn check_reassignment(&self, mode: &Mode) -> Result<(), WorkError> {
        if self.membership.on_loss != OnLoss::Reassign {
            return Ok(());
        }
        let needs = |needs| Err(WorkError::Reassign { needs });
        if self.work != WorkSpec::Equal || self.redundancy != Redundancy::None {
            return needs(
                "work = equal and redundancy = none: with others, say continue (shards are always \
                 done by whoever is there)",
            );
        }
        if self.budget.kind != BudgetKind::Global {
            return needs("budget = global: otherwise each worker has its own part to do");
        }
        self.check_counts_examples(mode).map_err(|needs| WorkError::Reassign { needs })
    }

    /// Checks that no setting weighs workers by their own data; the error names the required
    /// setting.
    fn check_counts_examples(&self, mode: &Mode) -> Result<(), &'static str> {
        let foreseen = self.switches.iter().map(|switch| mode.with(switch.to));
        for mode in [*mode].into_iter().chain(foreseen) {
            if matches!(
                mode.consistency,
                ConsistencySpec::Malenia { .. } | ConsistencySpec::Ringleader
            ) {
                return Err(
                    "another consistency than malenia and ringleader: these give every worker's \
                     own data the same say, and here the data are everybody's (k-batch-sync:K and \
                     asp are the same for such data)",
                );
            }
            if mode.participation != ParticipationSpec::Plain {
                return Err(
                    "participation = plain: the others weigh workers by data that only they have, \
                     and here each example counts once an epoch, whoever computes it",
                );
            }
        }
        Ok(())
    }

    /// Checks that redundancy is not combined with other rules: its rounds are synchronous, and the
    /// code alone determines the weights of gradients. `mode` is the mode of the job, or one to
    /// switch to.
    fn check_redundancy(&self, mode: &Mode) -> Result<(), WorkError> {
        let redundancy = self.redundancy;
        if redundancy == Redundancy::None {
            return Ok(());
        }
        let needs = |needs| Err(WorkError::Redundancy { redundancy, needs });
        if mode.consistency != ConsistencySpec::Bsp {
            return needs("consistency = bsp: its rounds are synchronous");
        }
        if mode.in_flight.is_some() {
            return needs("in-flight = auto: it says itself what may be under way");
        }
        if *mode != Mode::of(ConsistencySpec::Bsp) {
            return needs("plain staleness and participation: each partition counts once a round");
        }
        if !self.switches.is_empty() {
            return needs("no switch: it cannot change during a run");
        }
        if self.budget.kind != BudgetKind::Global {
            return needs("budget = global: all partitions advance together");
        }
        if let Redundancy::Partial { tasks } = redundancy {
            let most = self.membership.workers.min(MOST_IN_FLIGHT);
            if tasks == 0 || tasks > most {
                return Err(WorkError::Partial { tasks, most });
            }
        }
        let decoder = self.code().and_then(|code| code.map(Decoder::new).transpose());
        decoder.map(|_| ()).map_err(WorkError::Code)
    }
}
