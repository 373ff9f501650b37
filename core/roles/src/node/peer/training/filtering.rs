//! Filters of a worker's gradients.
//!
//! The residual of error feedback has what filters have left out of all updates so far. An update
//! that is given up is not made: its gradient leaves no residual, and is filtered again from the
//! residual before it. An update that others have made has the filtered gradient, whether this
//! worker has made it with them or was sent it.

use alloc::vec::Vec;

use pstrain_compute::decided::{Decided, DropReason};
use pstrain_compute::filter::{FilterChain, Filtered};
use pstrain_compute::id::{BatchId, Sequence, Version, WorkerId};
use pstrain_compute::model::Model;
use pstrain_compute::task::Task;
use pstrain_policy::combining::Scheme;
use pstrain_policy::job::Job;

/// The filters of a worker.
#[derive(Debug)]
pub(super) struct Filtering {
    chain: FilterChain,
    /// The number of the last gradient, and its mini-batch; none before the first.
    last: Option<(Sequence, BatchId)>,
}

impl Filtering {
    /// The filters of `worker` before its first gradient; none if gradients are sent as they are.
    pub(super) fn of(job: &Job, model: &Model, worker: WorkerId, scheme: &Scheme) -> Option<Self> {
        let is_filtered = matches!(scheme, Scheme::Gather);
        let chain = is_filtered.then(|| job.filter_chain(worker, model.layout())).flatten()?;
        Some(Self { chain, last: None })
    }

    /// Filters the gradient of a mini-batch, which was computed from version `base`, for the next
    /// update. `parameters` are the current ones.
    pub(super) fn filter(
        &mut self,
        gradient: Vec<f32>,
        (base, task): (Version, Task),
        parameters: &[f32],
    ) -> Filtered {
        let mut number = Sequence(1);
        if let Some((last, batch)) = self.last {
            // Each mini-batch is in one update: the update of the last gradient was given up if its
            // mini-batch is due again.
            let dropped = (batch == task.batch).then_some(DropReason::Stale);
            self.chain.decided(&Decided::after(None, last, dropped));
            number = Sequence(last.0 + 1);
        }
        self.last = Some((number, task.batch));
        self.chain.turn_to(base);
        self.chain.filter(gradient, number, task, None, parameters)
    }

    /// The L2 norm of the residual.
    pub(super) fn carried(&self) -> f64 {
        self.chain.carried()
    }
}
