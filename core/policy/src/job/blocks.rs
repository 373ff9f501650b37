//! Updates that change one block of the keys each, and the settings that they work with.

use super::{Job, JobError, OnLoss};
use crate::consistency::ConsistencySpec;
use crate::job::{Redundancy, WorkSpec};
use crate::mode::Mode;
use crate::rules::StalenessSpec;
use pstrain_compute::filter::PullFilter;
use pstrain_compute::id::Version;
use pstrain_compute::model::Loss;
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::params::{Cut, KeyRange};
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;

impl Job {
    /// Checks that updates of blocks and steps by curvature work under `mode`, if the job has them.
    ///
    /// # Errors
    /// [`JobError::Blocks`] or [`JobError::Diagonal`] name the conflict.
    pub fn check_blocks(&self, mode: &Mode) -> Result<(), JobError> {
        self.check_diagonal(mode)?;
        let Some(blocks) = self.blocks else { return Ok(()) };
        let in_order = |consistency| {
            matches!(consistency, ConsistencySpec::Bsp | ConsistencySpec::Delay { .. })
        };
        let switches = self.switches.iter().map(|switch| switch.to);
        let needs = if !self.is_sparse() {
            "model = logistic or linear on sparse rows: of other models the gradient of some keys \
             costs what that of all does"
        } else if blocks.count > self.data.shape.inputs {
            "a column of the data for each of them: use fewer"
        } else if ![mode.consistency].into_iter().chain(switches).all(in_order) {
            "consistency = bsp or delay: only there all gradients of an update are of one \
             iteration, and so of one block"
        } else if mode.max_staleness.is_some() {
            "max-staleness = none: whoever were to compute a block again would be late for the next"
        } else if self.redundancy != Redundancy::None {
            "redundancy = none"
        } else if self.work != WorkSpec::Equal || self.membership.on_loss == OnLoss::Reassign {
            "work = equal, and on-worker-loss other than reassign: each update is of one \
             mini-batch of each worker"
        } else if matches!(
            self.update.optimizer,
            OptimizerSpec::Adam { .. } | OptimizerSpec::AdamW { .. }
        ) {
            "another optimizer than adam, which counts the steps of all keys alike"
        } else {
            return Ok(());
        };
        Err(JobError::Blocks { blocks, needs })
    }

    /// Checks that steps by curvature work under `mode`, if the job has them.
    fn check_diagonal(&self, mode: &Mode) -> Result<(), JobError> {
        let needs = if self.update.optimizer != OptimizerSpec::Diagonal {
            return Ok(());
        } else if !self.is_sparse() {
            "model = logistic or linear on sparse rows: there is a bound of the second derivatives of \
             no other model"
        } else if self.loss == Loss::Absolute {
            "another loss than absolute, whose second derivative has no bound: use huber"
        } else if mode.staleness != StalenessSpec::Plain {
            "staleness = plain: a gradient that counted less would count less in both, gradient \
             and curvature, and so make the same step"
        } else {
            return Ok(());
        };
        Err(JobError::Diagonal(needs))
    }

    /// The blocks of a model with `keys` keys, as seen by the server of the keys `own`; `None` if
    /// updates cover all keys.
    #[must_use]
    pub fn cut(&self, keys: u64, own: KeyRange) -> Option<Cut> {
        self.blocks.map(|blocks| Cut { blocks, seed: Stream::new(self.seed), keys, own })
    }

    /// The keys that a gradient of `task` has values for, in a model with `keys` keys; `None` for
    /// all.
    #[must_use]
    pub fn block_of(&self, task: Task, keys: u64) -> Option<KeyRange> {
        self.blocks?.keys(Stream::new(self.seed), Version(task.batch.0), keys)
    }

    /// Number of mini-batches in a pass over `rows` rows of a worker, at least the number of blocks
    /// of keys.
    #[must_use]
    pub fn pass_over(&self, rows: u64) -> u64 {
        let blocks = self.blocks.map_or(0, |blocks| u64::from(blocks.count));
        self.pass(rows).batches().max(blocks)
    }

    /// Returns the filter for parameters that are sent to workers. With blocks, only changed
    /// parameters are sent unless another filter is set: a worker already has the others.
    #[must_use]
    pub fn pull_filter(&self) -> PullFilter {
        match self.filters.pull {
            PullFilter::None if self.blocks.is_some() => PullFilter::Changed { delta: 0.0 },
            filter => filter,
        }
    }
}
