//! The gradients of the open round, and how they are kept until they become an update.

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

/// The order of the gradients of an update.
type Place = (PartId, WorkerId, Incarnation, Sequence);

/// A contribution with its values.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Gathered {
    pub(super) contribution: Contribution,
    /// The parameters of the version it was computed on, if the aggregator needs them.
    #[serde(with = "presence")]
    pub(super) base: Option<Arc<Vec<f32>>>,
    /// The keys that it has values for, if these are not all.
    #[serde(skip)]
    pub(super) keys: Option<KeyList>,
    /// None if they are merged in those of one before it.
    #[serde(with = "presence")]
    pub(super) values: Option<Arc<Vec<f32>>>,
}

impl Gathered {
    /// Where it counts in an update: that depends on nothing but what it is.
    const fn place(&self) -> Place {
        let Contribution { task, worker, incarnation, sequence, .. } = self.contribution;
        (task.part, worker, incarnation, sequence)
    }

    /// Saves or restores the arrays, once serde has been over the rest.
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        lists: Option<&Lists>,
    ) -> Result<(), SavedError> {
        let Self { contribution, base, keys, values, .. } = self;
        base.iter_mut().try_for_each(|base| archive.shared("base", base))?;
        // A list does not change while something waits that has values for its keys.
        *keys =
            lists.and_then(|lists| lists.of(contribution.worker)).map(|listed| listed.list.clone());
        let mut save = |values| match keys {
            Some(keys) => archive.shared_of("gradient", values, keys.len()),
            None => archive.shared("gradient", values),
        };
        values.iter_mut().try_for_each(&mut save)
    }

    /// The gradient, as part of the update that is made on `version`.
    pub(super) fn gradient(&self, version: Version) -> Gradient<'_> {
        let Contribution { worker, task, clock, samples, base, .. } = self.contribution;
        Gradient {
            worker,
            part: task.part,
            clock,
            samples,
            size: task.examples,
            staleness: version.since(base),
            base: self.base.as_ref().map(|values| values.as_slice()),
            keys: self.keys.as_ref(),
            values: self.values.as_ref().map_or(&[], |values| values.as_slice()),
        }
    }
}

/// The contributions to the open round, in the order in which they came.
///
/// Invariant: once those that wait are merged, each worker has one vector for each part of the data
/// that it computed from, as far as [`Merging`] allows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Contributions {
    all: Vec<Gathered>,
    /// How many of them are merged, or are the first of their worker and part.
    settled: usize,
    /// Where the first of each worker and part is, in their order. What was there stays in memory.
    firsts: Vec<((WorkerId, PartId), usize)>,
}

impl Contributions {
    /// Saves or restores all, of workers that have values for the keys of these lists.
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        lists: Option<&Lists>,
    ) -> Result<(), SavedError> {
        archive.small(self)?;
        self.all.iter_mut().try_for_each(|gathered| gathered.archive(archive, lists))
    }

    /// Whether something of `worker` is here.
    pub(super) fn has_of(&self, worker: WorkerId) -> bool {
        self.all.iter().any(|gathered| gathered.contribution.worker == worker)
    }

    pub(super) fn push(&mut self, gathered: Gathered) {
        self.all.push(gathered);
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
            let whose = next.contribution.place();
            let first = match self.firsts.binary_search_by_key(&whose, |&(it, _)| it) {
                Ok(known) => self.firsts[known].1,
                Err(new) => {
                    self.firsts.insert(new, (whose, place));
                    place
                }
            };
            let Some(first) = before.get_mut(first) else { continue };
            if merging == Merging::Latest {
                first.values = next.values.take();
                first.base = next.base.take();
                continue;
            }
            let Some(mut sum) = first.values.take() else { continue };
            let values: &mut Vec<f32> = Arc::make_mut(&mut sum);
            let (given, added) = (first.gradient(version), next.gradient(version));
            aggregator.merge(values, &given, &added, parameters);
            first.values = Some(sum);
            first.base = None;
            (next.values, next.base) = (None, None);
        }
        self.settled = self.all.len();
    }

    /// Puts them in the order of their iterations; returns how many are of one up to `oldest`.
    pub(super) fn sort_by_iteration(&mut self, oldest: Clock) -> usize {
        self.all.sort_by_key(|gathered| gathered.contribution.clock);
        self.all.partition_point(|gathered| gathered.contribution.clock <= oldest)
    }

    /// Puts those in `taken` in the order of partitions and workers, never of arrival, so that the
    /// result depends on nothing else.
    pub(super) fn in_order(&mut self, taken: Range<usize>) {
        let taken = &mut self.all[taken];
        taken.sort_by_key(Gathered::place);
    }

    /// Those in `taken`.
    pub(super) fn at(&self, taken: Range<usize>) -> &[Gathered] {
        self.all.get(taken).unwrap_or_default()
    }

    /// Whether some were not looked at by [`Self::merge`] yet.
    pub(super) fn has_unsettled(&self) -> bool {
        self.settled < self.all.len()
    }

    /// Takes out those in `taken`.
    pub(super) fn take(&mut self, taken: Range<usize>) -> Drain<'_, Gathered> {
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
        self.all.iter().filter(|gathered| gathered.values.is_some()).count()
    }
}
