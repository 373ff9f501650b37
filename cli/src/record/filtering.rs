//! The workers' filters, run again in a replay.
//!
//! A worker's filters depend on its gradients in the order in which it sent them, which is the
//! order of their sequence numbers. A gradient that was dropped while the worker had no other under
//! way left no trace in their state. The order of updates does not tell when a worker with several
//! gradients under way learned of a drop; such a gap cannot be replayed if the filters keep state
//! from one gradient to the next.

use std::ops::Range;

use anyhow::bail;
use pstrain_compute::decided::Decided;
use pstrain_compute::filter::FilterChain;
use pstrain_compute::id::{Incarnation, Sequence, WorkerId};
use pstrain_compute::model::Model;
use pstrain_compute::task::Task;
use pstrain_policy::job::Job;

use super::order_reader::Contribution;

/// The filters of all workers.
#[derive(Debug)]
pub(super) struct ReplayFilters {
    job: Job,
    model: Model,
    lanes: Vec<Lane>,
    /// True if a worker was ever allowed several mini-batches at once.
    in_flight: bool,
}

/// The filters of one worker.
#[derive(Debug, Default)]
struct Lane {
    incarnation: Incarnation,
    last: Sequence,
    filter_chain: Option<FilterChain>,
}

impl ReplayFilters {
    /// The filters of `job`, whose model is `model`; None if the job has no filters.
    pub(super) fn new(job: &Job, model: &Model) -> Option<Self> {
        let lanes = (0..job.membership.workers).map(|_| Lane::default()).collect();
        let in_flight =
            job.mode.window() > 1 || job.assigner().is_ok_and(|assigner| assigner.is_some());
        (!job.filters.is_none()).then(|| Self {
            job: job.clone(),
            model: model.clone(),
            lanes,
            in_flight,
        })
    }

    /// Notes that workers may have `window` mini-batches under way from now on.
    pub(super) const fn set_window(&mut self, window: u32) {
        self.in_flight |= window > 1;
    }

    /// Replaces a gradient by the server's decoded copy after filtering. Gradients of a worker must
    /// come in the order of their sequence numbers.
    pub(super) fn filter(
        &mut self,
        contribution: &Contribution,
        gradient: &mut Vec<f32>,
        block: Option<Range<usize>>,
        parameters: &[f32],
    ) -> anyhow::Result<()> {
        let Contribution { worker, incarnation, sequence, part, batch, examples, base, .. } =
            *contribution;
        let Some(lane) = self.lanes.get_mut(worker.0 as usize) else { return Ok(()) };
        if lane.filter_chain.is_none() || lane.incarnation != incarnation {
            let filter_chain = self.job.filter_chain(worker, self.model.layout());
            *lane = Lane { incarnation, last: Sequence(0), filter_chain };
        }
        let follows = sequence == lane.last.next();
        let is_known = sequence > lane.last && !self.in_flight;
        if self.job.filters.remember() && !follows && !is_known {
            return cannot(worker, lane.last, sequence);
        }
        lane.last = sequence;
        if let Some(filter_chain) = &mut lane.filter_chain {
            let task = Task { part, batch, examples };
            filter_chain.turn_to(base);
            let values = std::mem::take(gradient);
            let filtered = filter_chain.filter(values, sequence, task, block, parameters);
            filter_chain.decided(&Decided::after(None, sequence, None));
            gradient.clone_from(&filtered.gradient);
        }
        Ok(())
    }
}

fn cannot(worker: WorkerId, last: Sequence, sequence: Sequence) -> anyhow::Result<()> {
    bail!(
        "this run cannot be computed again: push {sequence} of worker {worker} follows its push \
         {last} in the order of updates. What became of those between changed what its filters \
         carried on, and with several mini-batches in flight the order of updates does not say \
         when (error-feedback = off leaves no such gap, nor does in-flight = 1 without redundancy)"
    )
}
