//! Gradients of the open round, until they become an update.

use alloc::sync::Arc;
use alloc::vec::{Drain, Vec};
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::lists::Lists;
use pstrain_compute::id::{Clock, Incarnation, PartId, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyList;
use pstrain_compute::saved::{Archive, SavedError, presence};
use pstrain_policy::aggregate::{Aggregator, Gradient, Merging};
use pstrain_wire::decision::Contribution;

/// Sort key of the gradients of an update.
type Place = (PartId, WorkerId, Incarnation, Sequence);

/// The sort key of a contribution: it does not depend on its arrival.
pub(super) const fn place(contribution: &Contribution) -> Place {
    let Contribution { task, worker, incarnation, sequence, .. } = contribution;
    (task.part, *worker, *incarnation, *sequence)
}

/// The gradient of a contribution with values at all keys, as a part of the update that is made on
/// `version`.
pub(super) const fn gradient_of<'a>(
    contribution: &Contribution,
    values: &'a [f32],
    version: Version,
) -> Gradient<'a> {
    let Contribution { worker, task, clock, samples, base, .. } = *contribution;
    Gradient {
        worker,
        part: task.part,
        clock,
        samples,
        size: task.examples,
        staleness: version.since(base),
        base: None,
        keys: None,
        values,
    }
}

/// A contribution with its values.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeldGradient {
    pub(super) contribution: Contribution,
    /// The parameters of the version the gradient was computed on, if the aggregator needs them.
    #[serde(with = "presence")]
    pub(super) base: Option<Arc<Vec<f32>>>,
    /// The keys that the gradient has values for; none if for all.
    #[serde(skip)]
    pub(super) keys: Option<KeyList>,
    /// None if the values are merged into those of an earlier gradient.
    #[serde(with = "presence")]
    pub(super) values: Option<Arc<Vec<f32>>>,
}

impl HeldGradient {
    /// Saves or restores the arrays, after serde has handled the other fields.
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        lists: Option<&Lists>,
    ) -> Result<(), SavedError> {
        let Self { contribution, base, keys, values, .. } = self;
        base.iter_mut().try_for_each(|base| archive.shared("base", base))?;
        // A worker's list does not change while one of its gradients waits: see `Store::learn`.
        *keys =
            lists.and_then(|lists| lists.of(contribution.worker)).map(|listed| listed.list.clone());
        let mut save = |values| match keys {
            Some(keys) => archive.shared_of("gradient", values, keys.len()),
            None => archive.shared("gradient", values),
        };
        values.iter_mut().try_for_each(&mut save)
    }

    /// The gradient, as a part of the update that is made on `version`.
    pub(super) fn gradient(&self, version: Version) -> Gradient<'_> {
        let values = self.values.as_ref().map_or(&[][..], |values| values.as_slice());
        Gradient {
            base: self.base.as_ref().map(|values| values.as_slice()),
            keys: self.keys.as_ref(),
            ..gradient_of(&self.contribution, values, version)
        }
    }
}

/// Contributions to the open round, in order of arrival.
///
/// Invariant: after [`Self::merge`], each worker has one vector for each part of the data that it
/// computed from, as far as [`Merging`] allows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Contributions {
    all: Vec<HeldGradient>,
    /// The first `settled` contributions are merged, or are the first of their worker and part.
    settled: usize,
    /// Index of the first contribution of each worker and part, sorted. A sorted `Vec`: unlike a
    /// `BTreeMap` it keeps its memory from round to round.
    firsts: Vec<((WorkerId, PartId), usize)>,
}

impl Contributions {
    /// Saves or restores all contributions; `lists` are the workers' lists in a sparse model.
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        lists: Option<&Lists>,
    ) -> Result<(), SavedError> {
        archive.small(self)?;
        self.all.iter_mut().try_for_each(|gathered| gathered.archive(archive, lists))
    }

    /// True if a contribution of `worker` waits.
    pub(super) fn has_of(&self, worker: WorkerId) -> bool {
        self.all.iter().any(|gathered| gathered.contribution.worker == worker)
    }

    pub(super) fn push(&mut self, gathered: HeldGradient) {
        self.all.push(gathered);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Merges waiting contributions for an update on `version` of `parameters`, which will take
    /// all.
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
            let next = &mut rest[0];
            let whose = next.contribution.place();
            let first = match self.firsts.binary_search_by_key(&whose, |&(it, _)| it) {
                Ok(known) => self.firsts[known].1,
                Err(new) => {
                    self.firsts.insert(new, (whose, place));
                    place
                }
            };
            let Some(first) = before.get_mut(first) else {
                continue; // this is the first of its place
            };
            if merging == Merging::Latest {
                first.values = next.values.take();
                first.base = next.base.take();
                continue;
            }
            let Some(mut sum) = first.values.take() else {
                unreachable!("the first of a place holds the values of all")
            };
            let values: &mut Vec<f32> = Arc::make_mut(&mut sum);
            let (given, added) = (first.gradient(version), next.gradient(version));
            aggregator.merge(values, &given, &added, parameters);
            first.values = Some(sum);
            first.base = None;
            (next.values, next.base) = (None, None);
        }
        self.settled = self.all.len();
    }

    /// Sorts the contributions by iteration; returns how many have an iteration up to `oldest`.
    pub(super) fn sort_by_iteration(&mut self, oldest: Clock) -> usize {
        self.all.sort_by_key(|gathered| gathered.contribution.clock);
        self.all.partition_point(|gathered| gathered.contribution.clock <= oldest)
    }

    /// Sorts the contributions in `taken` by partition and worker, so that the result does not
    /// depend on the order of arrival.
    pub(super) fn in_order(&mut self, taken: Range<usize>) {
        let taken = &mut self.all[taken];
        taken.sort_by_key(|gathered| place(&gathered.contribution));
    }

    /// The contributions in `taken`.
    pub(super) fn at(&self, taken: Range<usize>) -> &[HeldGradient] {
        self.all.get(taken).unwrap_or_default()
    }

    /// True if [`Self::merge`] has not processed all contributions yet.
    pub(super) fn has_unsettled(&self) -> bool {
        self.settled < self.all.len()
    }

    /// Removes and returns the contributions in `taken`.
    pub(super) fn take(&mut self, taken: Range<usize>) -> Drain<'_, HeldGradient> {
        if taken.start == 0 {
            self.firsts.clear();
            self.settled = 0;
        }
        self.all.drain(taken)
    }

    /// Discards all contributions.
    pub(super) fn clear(&mut self) {
        let all = self.all.len();
        self.take(0..all);
    }

    /// Number of gradient vectors in memory.
    pub(super) fn vectors(&self) -> usize {
        self.all.iter().filter(|gathered| gathered.values.is_some()).count()
    }
}
