//! Values of the next version, sent to the workers before its update is made.
//!
//! While the last ranges of a round's gradients are in transit, the update's values at the keys of
//! earlier ranges are known, if the round closes with the gradients that are expected. They are
//! sent at once, and after the update a worker is sent the rest. If the update is made of other
//! gradients, because a worker was lost or its gradient refused, all values are sent again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use super::roster::{Grant, Roster};
use crate::node::incoming::Ranges;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::{Coverage, KeyRange};
use pstrain_policy::consistency::Cohort;
use pstrain_policy::job::Exchange;
use pstrain_policy::rules::Closing;
use pstrain_wire::decision::Contribution;
use pstrain_wire::worker::Parameters;
use pstrain_wire::{Message, Phase};

/// Whether values were sent before their update.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) enum Early {
    /// None of the next version.
    #[default]
    None,
    /// Some of the next version, whose update is expected to be made of these gradients.
    Expected(Vec<Contribution>, Coverage),
    /// The expectation has changed: no more are sent of the next version, and those sent are wrong.
    Changed,
    /// The update of this version was made as expected, and no later one is under way.
    Kept(Version),
}

impl Early {
    /// Records that ranges of a gradient are dropped, and others may come in their place.
    pub(super) fn dropped(&mut self) {
        if matches!(self, Self::Expected(..)) {
            *self = Self::Changed;
        }
    }

    /// Records the update that makes `version`, of these gradients, in the order in which they are
    /// combined.
    pub(super) fn made(&mut self, version: Version, of: &[Contribution]) {
        *self = match self {
            Self::Expected(expected, _) if expected == of => Self::Kept(version),
            _ => Self::None,
        };
    }
}

impl Server {
    /// Sends the values of the next version that have become known, if any have.
    pub(super) fn show_early(&mut self, out: &mut Outbox) {
        if self.early == Early::Changed || !self.may_show_early() {
            return;
        }
        let keys = self.newly_known();
        if keys.is_empty() {
            return;
        }
        let Self { rounds, members, store, early, .. } = self;
        let mut cohort = rounds.cohort.clone();
        let mut incoming = Vec::new();
        for (worker, grant, gradient) in arriving(&rounds.cohort, &members.roster) {
            // A round that closes without some of them is made of others than all.
            if !incoming.is_empty() && rounds.policy.closes(&cohort) != Closing::NotYet {
                return;
            }
            let contribution = Contribution {
                worker,
                incarnation: members.roster[worker].incarnation,
                sequence: grant.sequence,
                task: grant.task,
                clock: cohort.contribute(worker),
                base: gradient.base,
                samples: gradient.samples,
                granted: grant.at,
            };
            incoming.push((contribution, gradient.values));
        }
        if rounds.policy.closes(&cohort) != Closing::Everything {
            return;
        }
        let expected = store.expected(incoming.iter().map(|(contribution, _)| *contribution));
        let mut shown = match core::mem::take(early) {
            Early::Expected(before, _) if before != expected => {
                *early = Early::Changed;
                return;
            }
            Early::Expected(_, shown) => shown,
            _ => Coverage::default(),
        };
        let values = store.foresee(rounds.cohort.version(), &incoming, &keys);
        for range in &keys {
            shown.add(*range);
        }
        *early = Early::Expected(expected, shown);
        let workers: Vec<WorkerId> = rounds.cohort.workers().collect();
        for (keys, values) in keys.into_iter().zip(values) {
            for &worker in &workers {
                self.send_early(worker, (keys, &values), out);
            }
        }
    }

    /// The keys at which all gradients of the open round have arrived, and whose values were not
    /// sent before, in key order.
    fn newly_known(&self) -> Vec<KeyRange> {
        let (cohort, mut keys) = (&self.rounds.cohort, Vec::from([self.store.trained_keys()]));
        if let Early::Expected(_, shown) = &self.early {
            keys = keys.into_iter().flat_map(|range| shown.gaps(range)).collect();
        }
        let mut incomplete = 0;
        for (_, _, ranges) in arriving(cohort, &self.members.roster) {
            keys = keys.into_iter().flat_map(|range| ranges.came.within(range)).collect();
            incomplete += 1;
        }
        let whole = cohort.workers().filter(|worker| cohort.contributed(*worker)).count();
        if incomplete == 0 || incomplete + whole < cohort.len() {
            keys.clear();
        }
        keys
    }

    /// True if the next update is one whose values may be known before it.
    fn may_show_early(&self) -> bool {
        self.job.exchange == Exchange::Layers
            && self.lifecycle.phase() == Phase::Training
            && self.group.is_alone()
            && !self.is_fenced()
            && !self.is_measuring()
            && self.rounds.assigner.is_none()
            && self.rounds.policy.in_rounds()
            && self.job.update.clip_contribution.is_none()
            && self.store.foresees()
    }

    /// Sends `worker` values of the next version.
    fn send_early(
        &mut self,
        worker: WorkerId,
        (keys, values): (KeyRange, &Arc<Vec<f32>>),
        out: &mut Outbox,
    ) {
        let version = self.version().next();
        let slot = &mut self.members.roster[worker];
        // A process that has just taken the place of a lost one does not accept values yet.
        let has_begun = slot.pushes.came > Sequence(0) || !slot.pushes.grants.is_empty();
        let Some(peer) = slot.peer.filter(|_| has_begun) else { return };
        let (of, sent) = slot.pushes.early.get_or_insert_with(|| (version, Coverage::default()));
        if *of != version {
            (*of, *sent) = (version, Coverage::default());
        }
        sent.add(keys);
        let parameters = Parameters::early(version, keys, Arc::clone(values));
        give(peer, worker, parameters, out);
    }

    /// The keys whose values of the current version `worker` was sent before the update. From now
    /// on it is sent all values.
    pub(super) fn take_early(&mut self, worker: WorkerId) -> Option<Coverage> {
        let version = self.version();
        let (of, sent) = self.members.roster[worker].pushes.early.take()?;
        let is_kept = of == version && self.early == Early::Kept(version);
        // If a server has joined since, the keys here are others.
        (is_kept && self.group.is_alone()).then_some(sent)
    }
}

/// Members of the cohort whose gradients for the open round have arrived in part, with the ranges
/// that have.
fn arriving<'a>(
    cohort: &Cohort,
    roster: &'a Roster,
) -> impl Iterator<Item = (WorkerId, Grant, Ranges<'a>)> {
    let awaited = cohort.workers().filter(|worker| !cohort.contributed(*worker));
    awaited.filter_map(|worker| {
        let slot = &roster[worker];
        let grant = *slot.pushes.grants.front()?;
        let ranges = slot.pushes.incoming.ranges_of(slot.incarnation, grant.sequence)?;
        Some((worker, grant, ranges))
    })
}

/// Sends parameters to a worker.
pub(super) fn give(peer: PeerId, worker: WorkerId, parameters: Parameters, out: &mut Outbox) {
    out.push(Effect::Report(Event::Given { worker, bytes: parameters.bytes() }));
    out.push(Effect::Send(peer, Message::Parameters(parameters)));
}
