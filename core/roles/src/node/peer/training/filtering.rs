//! Filters of a worker's gradients.
//!
//! The residual of error feedback has what filters have left out of all updates so far. An update
//! that is given up is not made: its gradient leaves no residual, and is filtered again from the
//! residual before it. An update that others have made has the filtered gradient, whether this
//! worker has made it with them or was sent it.

use alloc::vec::Vec;

use pstrain_compute::decided::{Decided, DropReason};
use pstrain_compute::filter::{FilterChain, Filtered};
use pstrain_compute::id::{Sequence, Version, WorkerId};
use pstrain_compute::model::Model;
use pstrain_compute::task::Task;
use pstrain_policy::combining::Scheme;
use pstrain_policy::job::Job;

/// The filters of a worker.
#[derive(Debug)]
pub(super) struct Filtering {
    chain: FilterChain,
    /// The number of the last gradient, and the version that its update changes.
    last: (Sequence, Version),
}

impl Filtering {
    /// The filters of `worker` before its first gradient; none if gradients are sent as they are.
    pub(super) fn of(job: &Job, model: &Model, worker: WorkerId, scheme: &Scheme) -> Option<Self> {
        let is_filtered = matches!(scheme, Scheme::Gather);
        let chain = is_filtered.then(|| job.filter_chain(worker, model.layout())).flatten()?;
        Some(Self { chain, last: (Sequence(0), Version(0)) })
    }

    /// Filters the gradient of a mini-batch, which was computed from version `base`, for the update
    /// of `version`. `parameters` are those of this version.
    pub(super) fn filter(
        &mut self,
        gradient: Vec<f32>,
        (version, base, task): (Version, Version, Task),
        parameters: &[f32],
    ) -> Filtered {
        let (sequence, of) = self.last;
        // The update of the last gradient was given up if it begins again.
        let dropped = (of >= version).then_some(DropReason::Stale);
        self.chain.decided(&Decided::after(None, sequence, dropped));
        let sequence = Sequence(sequence.0 + 1);
        self.last = (sequence, version);
        self.chain.turn_to(base);
        self.chain.filter(gradient, sequence, task, None, parameters)
    }

    /// The L2 norm of the residual.
    pub(super) fn carried(&self) -> f64 {
        self.chain.carried()
    }
}
