//! The gradients of the open round, and how they are kept until they become an update.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::{Drain, Vec};
use core::ops::Range;

use crate::aggregate::{Aggregator, Gradient, Merging};
use crate::id::{Clock, Incarnation, PartId, Sequence, Version, WorkerId};
use crate::time::Time;
use crate::work::Task;

/// A gradient that was accepted.
#[derive(Debug)]
pub(super) struct Contribution {
    pub(super) worker: WorkerId,
    pub(super) incarnation: Incarnation,
    pub(super) sequence: Sequence,
    pub(super) task: Task,
    /// The iteration it is a part of.
    pub(super) clock: Clock,
    pub(super) base: Version,
    /// The parameters of that version, if the aggregator needs them.
    pub(super) base_parameters: Option<Arc<Vec<f32>>>,
    pub(super) samples: u32,
    /// When its parameters were given out.
    pub(super) granted: Time,
    /// None if it is merged in one before it.
    pub(super) gradient: Option<Arc<Vec<f32>>>,
}

impl Contribution {
    /// The gradient, as part of the update that is made on `version`.
    pub(super) fn gradient(&self, version: Version) -> Gradient<'_> {
        Gradient {
            worker: self.worker,
            part: self.task.part,
            clock: self.clock,
            samples: self.samples,
            size: self.task.examples,
            staleness: version.since(self.base),
            base: self.base_parameters.as_ref().map(|values| values.as_slice()),
            values: self.gradient.as_ref().map_or(&[], |values| values.as_slice()),
        }
    }
}

/// The contributions to the open round, in the order in which they came.
///
/// Invariant: once those that wait are merged, each worker has one vector for each part of the data
/// that it computed from, as far as [`Merging`] allows.
#[derive(Debug, Default)]
pub(super) struct Contributions {
    all: Vec<Contribution>,
    /// How many of them are merged, or are the first of their worker and part.
    settled: usize,
    /// Where the first of each worker and part is.
    firsts: BTreeMap<(WorkerId, PartId), usize>,
}

impl Contributions {
    pub(super) fn push(&mut self, contribution: Contribution) {
        self.all.push(contribution);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Merges those that wait for an update on `version` of `parameters`, which will take all.
    pub(super) fn merge(
        &mut self,
        aggregator: &mut Aggregator,
        version: Version,
        parameters: &[f32],
    ) {
        let merging = aggregator.merging();
        if merging == Merging::Apart {
            return;
        }
        for place in self.settled..self.all.len() {
            let (before, rest) = self.all.split_at_mut(place);
            let Some(next) = rest.first_mut() else { break };
            let first = *self.firsts.entry((next.worker, next.task.part)).or_insert(place);
            let Some(first) = before.get_mut(first) else { continue };
            if merging == Merging::Latest {
                first.gradient = next.gradient.take();
                first.base_parameters = next.base_parameters.take();
                continue;
            }
            let Some(mut sum) = first.gradient.take() else { continue };
            let values: &mut Vec<f32> = Arc::make_mut(&mut sum);
            let (given, added) = (first.gradient(version), next.gradient(version));
            aggregator.merge(values, &given, &added, parameters);
            first.gradient = Some(sum);
            first.base_parameters = None;
            (next.gradient, next.base_parameters) = (None, None);
        }
        self.settled = self.all.len();
    }

    /// Puts them in the order of their iterations; returns how many are of one up to `oldest`.
    pub(super) fn sort_by_iteration(&mut self, oldest: Clock) -> usize {
        self.all.sort_by_key(|contribution| contribution.clock);
        self.all.partition_point(|contribution| contribution.clock <= oldest)
    }

    /// Those in `taken`, in the order of partitions and workers, never of arrival, so that the
    /// result depends on nothing else.
    pub(super) fn in_order(&mut self, taken: Range<usize>) -> &[Contribution] {
        let taken = &mut self.all[taken];
        taken.sort_by_key(|c| (c.task.part, c.worker, c.incarnation, c.sequence));
        taken
    }

    /// Takes out those in `taken`.
    pub(super) fn take(&mut self, taken: Range<usize>) -> Drain<'_, Contribution> {
        if taken.start == 0 {
            self.firsts.clear();
            self.settled = 0;
        }
        self.all.drain(taken)
    }

    /// Throws all away.
    pub(super) fn clear(&mut self) {
        let all = self.all.len();
        self.take(0..all);
    }

    /// The vectors that are kept.
    pub(super) fn vectors(&self) -> usize {
        self.all.iter().filter(|contribution| contribution.gradient.is_some()).count()
    }
}
