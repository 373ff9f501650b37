//! The progress of a run as a meeting point sees it, from its members' reports.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::Meeting;
use super::initial::FIRST;
use super::members::{Presence, Slot};
use super::stopping::LAST;
use crate::node::{Effect, Evaluate, Evaluated, Event, Outbox, Point};
use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Clock, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::{KeyRange, first_not_finite};
use pstrain_compute::time::Time;
use pstrain_policy::gossip::average;
use pstrain_policy::lockstep::Share;
use pstrain_policy::rules::Closing;
use pstrain_wire::peers::{Contributed, Reduced, Snapshot};
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Phase, Refusal, TimeSpent};

impl Meeting {
    /// The position of the current version on the training curve.
    #[must_use]
    pub fn point(&self) -> Point {
        let samples = self.applied_samples;
        Point {
            version: self.lockstep.version(),
            samples,
            epoch: samples as f64 / self.lockstep.epoch_rows() as f64,
            time: self.clock.time(),
        }
    }

    pub(super) fn on_reduced(
        &mut self,
        now: Time,
        worker: WorkerId,
        reduced: Reduced,
        out: &mut Outbox,
    ) {
        let most = self.most_updates();
        let slot = &mut self.slots[worker];
        if self.job.architecture.is_asynchronous() {
            slot.joins = false;
            let version = reduced.version;
            slot.reports.push_back((now, reduced));
            return self.count(now, worker, version, out);
        }
        if reduced.version <= slot.version || reduced.version > most {
            return; // repeated after a reconnect, or impossible
        }
        slot.made(reduced.version);
        slot.reports.push_back((now, reduced));
        self.catch_up(now, out);
    }

    /// Makes the updates that all members have made.
    pub(super) fn catch_up(&mut self, now: Time, out: &mut Outbox) {
        let (slots, made) = (&self.slots, self.lockstep.version());
        let is_ready = |worker: WorkerId| slots[worker].presence == Presence::Ready;
        if self.group.any(|worker| is_ready(worker) && slots[worker].version <= made) {
            return;
        }
        let ready = self.slots.with(Presence::Ready).filter(|(worker, _)| self.group.has(*worker));
        // All members may be gone, or still load their data.
        let Some(version) = ready.map(|(_, slot)| slot.version).min() else { return };
        while self.lockstep.version() < version {
            let absent = self.absent();
            let shares = self.lockstep.shares();
            let shares = shares.filter(|(worker, _)| !absent.contains(worker)).collect();
            let begun = self.step(now, shares, out);
            self.lockstep.advance_without(&absent, &self.job.stopping);
            let made = self.lockstep.version();
            let slots = self.slots.iter_mut();
            slots.for_each(|slot| slot.reports.retain(|(_, report)| report.version > made));
            self.updated(now, begun, out);
            self.evaluate_snapshot(now, out);
            self.take_if_whole(out);
        }
    }

    /// The workers that have no part in the next update, as its report says. If that is lost, a
    /// later one tells how many mini-batches each worker had in the updates up to it.
    fn absent(&self) -> Vec<WorkerId> {
        let next = self.lockstep.version().next();
        let members = self.slots.with(Presence::Ready).filter(|(it, _)| self.group.has(*it));
        let reports = members.flat_map(|(_, slot)| &slot.reports).map(|(_, report)| report);
        let later = reports.filter(|report| report.version >= next);
        let first = later.min_by_key(|report| report.version);
        let done = first.and_then(|report| report.done.as_ref());
        done.map(|done| self.lockstep.absent(done)).unwrap_or_default()
    }

    /// Counts the updates of a worker that makes them alone, up to its own version.
    pub(super) fn count(
        &mut self,
        now: Time,
        worker: WorkerId,
        version: Version,
        out: &mut Outbox,
    ) {
        let mut is_due = false;
        loop {
            let (most, share) = (self.most_updates(), self.lockstep.share(worker));
            let slot = &mut self.slots[worker];
            let Some(share) = share.filter(|_| slot.version < version.min(most)) else { break };
            slot.version = slot.version.next();
            let made = slot.version;
            slot.reports.retain(|(_, report)| report.version >= made);
            let begun = self.step(now, Vec::from([(worker, share)]), out);
            is_due |= self.lockstep.advance_alone(worker, &self.job.stopping);
            let slot = &mut self.slots[worker];
            (slot.base, slot.since) = (self.lockstep.version(), now);
            self.updated(now, begun, out);
        }
        if is_due {
            self.pace.evaluate();
        }
        self.allow(worker, out);
        self.request(out);
    }

    /// The workers have made the next version, whose gradients were begun at `begun`. It is no
    /// update if all its gradients were dropped.
    fn updated(&mut self, now: Time, begun: Option<Time>, out: &mut Outbox) {
        self.states = None;
        let Some(begun) = begun else { return };
        self.clock.updated(now, begun);
        let (point, closing) = (self.point(), Closing::Everything);
        out.push(Effect::Report(Event::Updated { point, closing }));
    }

    /// The latest version that a worker can have: each update has an example at least.
    pub(super) fn most_updates(&self) -> Version {
        Version(self.lockstep.samples_wanted()).max(self.lockstep.version().next())
    }

    /// Returns the parts of workers in the update that each makes next, and when they arrived, as
    /// far as they are reported.
    fn parts(
        &self,
        shares: &[(WorkerId, Share)],
        made_by: impl Fn(&Slot) -> Version,
    ) -> BTreeMap<WorkerId, (Time, Contributed)> {
        let part_of = |worker| {
            let slot = &self.slots[worker];
            let mut reports = slot.reports.iter();
            let (came, report) = reports.find(|(_, report)| report.version == made_by(slot))?;
            Some((*came, report.part?))
        };
        shares.iter().filter_map(|(worker, _)| Some((*worker, part_of(*worker)?))).collect()
    }

    /// Records the next update, which has the gradients of `shares`. Returns when they were begun,
    /// or None if none of them was applied.
    fn step(
        &mut self,
        now: Time,
        shares: Vec<(WorkerId, Share)>,
        out: &mut Outbox,
    ) -> Option<Time> {
        let applied = self.ledger.applied;
        let latest = self.lockstep.version();
        let is_asynchronous = self.job.architecture.is_asynchronous();
        // The version that a worker makes with this update, of its own or of all.
        let made_by = |slot: &Slot| if is_asynchronous { slot.version } else { latest.next() };
        let (members, parameters) = (self.group.len(), self.keys().len());
        let parts = self.parts(&shares, made_by);
        let begun = begun_at(now, &parts);
        // The others cannot have the sum before the slowest has its gradient.
        let slowest = parts.iter().max_by_key(|(_, (_, part))| part.compute);
        let (mut pushed, mut combined) = (Vec::new(), Vec::new());
        self.ledger.assigned += shares.len() as u64;
        for (worker, Share { task, samples, .. }) in shares {
            let clock = Clock(self.lockstep.batch(worker).0);
            let slot = &mut self.slots[worker];
            slot.updates += 1;
            let (incarnation, made) = (slot.incarnation, Sequence(made_by(slot).0));
            let part_of = parts.get(&worker);
            let base = match part_of {
                _ if is_asynchronous => slot.base,
                Some((_, part)) => part.base.min(latest),
                None => latest,
            };
            // A late gradient has the number of the update that it was computed for.
            let is_partial = self.job.membership.partial_after.is_some();
            let sequence = if is_partial { Sequence(base.next().0) } else { made };
            let (part, batch) = (task.part, task.batch);
            let (mut age, mut not_finite) = (Duration::ZERO, None);
            if let (Some((came, own)), Some((by, (_, slowest)))) = (part_of, slowest) {
                let Contributed { loss, compute, reduce, bytes, received, .. } = *own;
                let ago = now.since(*came);
                (age, not_finite) = (own.age.saturating_add(ago), own.not_finite);
                let barrier = reduce.min(slowest.compute.saturating_sub(compute));
                let network = reduce - barrier;
                let spent = TimeSpent { compute, network, barrier, ..TimeSpent::default() };
                slot.account.stepped(spent, (!barrier.is_zero()).then_some(*by), loss);
                pushed.push(Event::Given { worker, bytes: received });
                pushed.push(Event::Pushed {
                    worker,
                    sequence,
                    base,
                    part,
                    batch,
                    loss,
                    bytes,
                    unfiltered: self.job.unfiltered(bytes, members, parameters),
                    turnaround: own.age,
                    ago,
                    compute,
                    spent,
                });
            }
            if let Some(key) = not_finite {
                self.ledger.discarded += 1;
                self.ledger.left_out += 1;
                let reason = DropReason::NotFinite;
                combined.push(Event::Dropped { worker, sequence, reason });
                self.doubt.not_finite((worker, incarnation), base, (sequence, key));
                continue;
            }
            self.slots[worker].finite = self.slots[worker].finite.max(Some(base));
            self.doubt.finite(worker);
            self.ledger.applied += 1;
            self.applied_samples += u64::from(samples);
            combined.push(Event::Applied {
                worker,
                incarnation,
                sequence,
                part,
                batch,
                examples: task.examples,
                clock,
                base,
                staleness: latest.0 - base.0,
                samples,
                age,
            });
        }
        out.extend(pushed.into_iter().chain(combined).map(Effect::Report));
        (self.ledger.applied > applied).then_some(begun)
    }

    /// A member has sent its parameters.
    pub(super) fn on_snapshot(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        Snapshot { version, values }: Snapshot,
        out: &mut Outbox,
    ) {
        let wanted = self.keys();
        if values.len() as u64 != wanted.len() {
            let given = KeyRange::new(0, values.len() as u64).unwrap_or(wanted);
            let values = values.len() as u64;
            return self.refuse(now, peer, Refusal::Keys { given, values, wanted }, out);
        }
        if version == FIRST {
            return self.on_initial(now, peer, worker, values, out);
        }
        if self.job.architecture.is_asynchronous() {
            return self.on_shown(now, worker, version, values, out);
        }
        if version == LAST {
            return self.on_last_model(now, worker, values, out);
        }
        let is_known = version <= self.snapshot.0.version; // repeated after a reconnect
        if !is_known && version <= self.most_updates() {
            self.models.insert(worker, version, values);
            self.evaluate_snapshot(now, out);
        }
    }

    /// Evaluates the parameters that have come, once all members have made their version.
    fn evaluate_snapshot(&mut self, now: Time, out: &mut Outbox) {
        if self.lifecycle.phase() != Phase::Training {
            return;
        }
        let point = self.point();
        let is_gossip = self.job.architecture.is_gossip();
        let group = &self.group;
        let models = self.models.take(point.version, |models| {
            !is_gossip || group.members().all(|worker| models.contains_key(&worker))
        });
        let Some(models) = models else { return }; // they are on their way, or of another version
        // A worker that is gone has no part in the mean.
        let models = models.into_iter().filter(|(worker, _)| !is_gossip || group.has(*worker));
        let models: Vec<Arc<Vec<f32>>> = models.map(|(_, model)| model).collect();
        match models.first() {
            Some(model) if !is_gossip => self.evaluate(now, point, Arc::clone(model), out),
            Some(_) => self.evaluate_mean(now, point, &models, out),
            None => {}
        }
    }

    /// Evaluates the mean of models.
    pub(super) fn evaluate_mean(
        &mut self,
        now: Time,
        point: Point,
        models: &[Arc<Vec<f32>>],
        out: &mut Outbox,
    ) {
        let models: Vec<&[f32]> = models.iter().map(|model| model.as_slice()).collect();
        let (mean, distance) = average(&models);
        self.distances.insert(point.version, distance);
        self.evaluate(now, point, Arc::new(mean), out);
    }

    pub(super) fn evaluate(
        &mut self,
        now: Time,
        point: Point,
        parameters: Arc<Vec<f32>>,
        out: &mut Outbox,
    ) {
        if first_not_finite(self.keys(), &parameters).is_some() {
            return self.end(now, EndReason::Diverged(point.version), out);
        }
        self.snapshot = (point, Arc::clone(&parameters));
        self.evaluations.request(Evaluate { point, parameters }, out);
    }

    pub(super) fn on_evaluated(&mut self, now: Time, mut evaluated: Evaluated, out: &mut Outbox) {
        let version = evaluated.point.version;
        // A driver that is asked again after a restart answers twice.
        let Some(Evaluate { point, parameters }) = self.evaluations.requested(version).cloned()
        else {
            return;
        };
        evaluated.evaluation.consensus_distance = self.distances.remove(&version);
        let end = self.evaluations.end_by(&evaluated, &self.job.stopping);
        let unknown = self.evaluations.note_unknown(&evaluated.evaluation, &self.job.stopping);
        out.extend(unknown.map(Effect::Report));
        self.evaluations.finish(&evaluated);
        let loss = self.loss();
        self.evaluations.remember(now, loss);
        out.push(Effect::Report(evaluated.into()));
        if let Some(reason) = end {
            // The result is the model that was evaluated, not one that has come since.
            self.snapshot = (point, parameters);
            self.end(now, reason, out);
        }
        self.settle(now, out);
    }
}

/// When the first gradient of an update was begun, plus the longest time for which values of one
/// waited for connections to be opened.
fn begun_at(now: Time, parts: &BTreeMap<WorkerId, (Time, Contributed)>) -> Time {
    let begun = parts.values().map(|(came, part)| came.since(Time::ZERO + part.age)).min();
    let opening = parts.values().map(|(_, part)| part.opening).max().unwrap_or_default();
    begun.map_or(now, |begun| now.min(Time::ZERO + begun + opening))
}
