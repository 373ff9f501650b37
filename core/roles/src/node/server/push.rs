//! Pulls and pushes: checked, decided exactly once, answered.

use core::time::Duration;

use super::Server;
use super::arriving::Elsewhere;
use super::roster::{Grant, PushState};
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::decided::{Decided, DropReason};
use pstrain_compute::id::{PeerId, Sequence, Version, WorkerId};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::Admission;
use pstrain_policy::job::Exchange;
use pstrain_policy::work::Timed;
use pstrain_wire::decision::{Contribution, Decision};
use pstrain_wire::group::Fault;
use pstrain_wire::worker::{CalledOff, Heartbeat, Pull, Push, PushHeader};
use pstrain_wire::{Message, Phase, Refusal};

impl Server {
    pub(super) fn on_pull(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        pull: Pull,
        out: &mut Outbox,
    ) {
        let slot = &self.members.roster[worker];
        if pull.incarnation != slot.incarnation {
            let why = Refusal::Fenced { incarnation: pull.incarnation };
            return self.refuse(now, peer, why, out);
        }
        let wanted = self.keys_of(worker);
        if pull.keys != wanted || self.store.place_of(worker).is_none() {
            let why = Refusal::Keys { given: pull.keys, values: 0, wanted };
            return self.refuse(now, peer, why, out);
        }
        self.repeat_lost_grants(now, peer, worker, pull.allowed, out);
        if self.members.roster[worker].pushes.under_way() < self.window(worker) {
            self.ask(now, worker);
        }
        self.settle(now, out);
    }

    /// Repeats the grants that were lost with a connection: the worker knows of none after push
    /// `known`.
    fn repeat_lost_grants(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        known: Sequence,
        out: &mut Outbox,
    ) {
        let slot = &mut self.members.roster[worker];
        let is_unsure = core::mem::take(&mut slot.pushes.grants_unconfirmed);
        if is_unsure && slot.pushes.grants.back().is_some_and(|last| last.sequence > known) {
            self.grant_again(now, peer, worker, out);
        }
    }

    pub(super) fn on_push(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        push: Push,
        out: &mut Outbox,
    ) {
        let header = push.header;
        let slot = &self.members.roster[worker];
        if header.incarnation != slot.incarnation {
            let why = Refusal::Fenced { incarnation: header.incarnation };
            return self.refuse(now, peer, why, out);
        }
        let push = match self.take_range(worker, push) {
            Ok(Some(push)) => push,
            Ok(None) => return self.show_early(out), // the rest is in transit
            Err(why) => return self.refuse(now, peer, why, out),
        };
        let (header, slot) = (push.header, &self.members.roster[worker]);
        if slot.pushes.decided.is_some_and(|decided| header.sequence <= decided.sequence) {
            if header.sequence <= slot.pushes.came {
                return self.on_repeated_push(now, peer, worker, header, out);
            }
            if let Err(why) = self.check_late(worker, &header) {
                return self.refuse(now, peer, why, out);
            }
            self.take_called_off(now, worker, &push, out);
            // The new grants were sent when this push was called off, but may have been lost.
            self.repeat_lost_grants(now, peer, worker, header.allowed, out);
            self.supersede_for(now, worker, out);
            return self.settle_doubt(now, out);
        }
        if !self.group.is_alone() {
            return self.on_own_part(now, peer, worker, push, out);
        }
        self.judge_push(now, peer, worker, push, Elsewhere::default(), out);
        self.show_early(out);
    }

    /// Receives a push, or a range of one; returns the push once it is whole.
    fn take_range(&mut self, worker: WorkerId, push: Push) -> Result<Option<Push>, Refusal> {
        if self.job.exchange != Exchange::Layers {
            return Ok(Some(push));
        }
        let whole = self.place_of(worker);
        let version = self.version();
        let PushState { incoming, grants, decided, given, .. } =
            &mut self.members.roster[worker].pushes;
        let PushHeader { sequence, base, keys, .. } = push.header;
        if keys != whole {
            if decided.is_some_and(|decided| sequence <= decided.sequence) {
                return Ok(None); // it was called off
            }
            let is_of = |grant: &Grant| grant.sequence == sequence && grant.version <= base;
            if base > (*given).min(version) || !grants.iter().any(is_of) {
                let what = alloc::format!("push {sequence} came in ranges before it was allowed");
                return Err(Refusal::Unexpected { what });
            }
        }
        if incoming.replaced_by(&push.header, whole) {
            self.early.dropped();
        }
        incoming.add(push, whole)
    }

    /// Decides a push that has arrived whole. `elsewhere` is what the other servers report about
    /// their parts.
    pub(super) fn judge_push(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        push: Push,
        elsewhere: Elsewhere,
        out: &mut Outbox,
    ) {
        let fault = elsewhere.fault;
        let sequence = push.header.sequence;
        let checked = self.check_push(worker, &push).and(match fault {
            Some(Fault { key, .. }) => Err(Refusal::NotFinite { count: 1, sequence, key }),
            None => Ok(()),
        });
        match checked {
            Ok(()) => {
                // Before `take_push`, whose settling evaluates the answers on a version in doubt.
                self.note_finite(worker, &push.header);
                let admission = self.admit(worker, &push.header);
                self.take_push(now, peer, worker, push, (admission, &elsewhere), out);
            }
            Err(Refusal::NotFinite { key, .. }) => {
                self.note_not_finite(worker, &push.header, key);
                if fault.is_some_and(|fault| fault.has_diverged) || self.has_diverged() {
                    let version = self.doubt.oldest().unwrap_or(push.header.base);
                    self.diverge(now, version, out);
                }
                let is_over = self.lifecycle.phase() == Phase::Ending;
                let reason = if is_over { DropReason::Over } else { DropReason::NotFinite };
                let dropped = Admission::Drop(reason);
                self.take_push(now, peer, worker, push, (dropped, &elsewhere), out);
            }
            Err(why) => self.refuse(now, peer, why, out),
        }
    }

    /// Handles a push that was called off before it arrived. Its mini-batch was assigned again
    /// then, so the ledger counts one more as assigned and as discarded.
    pub(super) fn take_called_off(
        &mut self,
        now: Time,
        worker: WorkerId,
        push: &Push,
        out: &mut Outbox,
    ) {
        let header = push.header;
        let slot = &mut self.members.roster[worker];
        slot.pushes.came = header.sequence;
        let void = slot.pushes.take_called_off(header.sequence);
        let granted = void.map_or(now, |void| void.at);
        slot.account.dropped += 1;
        self.note_push(now, worker, &header, (granted, push.bytes()), out);
        self.progress.ledger.assigned += 1;
        self.progress.ledger.discarded += 1;
        let reason = match push.first_not_finite() {
            Some(key) => {
                self.note_not_finite(worker, &header, key);
                DropReason::NotFinite
            }
            None => {
                self.note_finite(worker, &header);
                DropReason::Stale
            }
        };
        let sequence = header.sequence;
        out.push(Effect::Report(Event::Dropped { worker, sequence, reason }));
    }

    /// Accounts for the gradient that a worker has stopped computing, if it has.
    pub(super) fn take_stopped(
        &mut self,
        now: Time,
        worker: WorkerId,
        heartbeat: &Heartbeat,
        out: &mut Outbox,
    ) {
        let slot = &mut self.members.roster[worker];
        let is_of_this = heartbeat.incarnation == Some(slot.incarnation);
        let Some(stopped) = heartbeat.called_off.filter(|_| is_of_this) else { return };
        let CalledOff { sequence, base, compute_ns } = stopped;
        let void = slot.pushes.take_called_off(sequence);
        // The end of the run calls off without replacement.
        let here = slot.pushes.grants.iter().find(|grant| grant.sequence == sequence);
        let Some(grant) = void.or_else(|| here.copied()) else { return };
        let compute = Duration::from_nanos(compute_ns).min(now.since(grant.at));
        let spent = slot.account.stopped(now, compute);
        let Task { part, batch, .. } = grant.task;
        out.push(Effect::Report(Event::CalledOff {
            worker,
            sequence,
            base,
            part,
            batch,
            compute,
            spent,
        }));
    }

    /// Accounts for a gradient whose parameters were sent at `granted`, and returns its compute
    /// time.
    fn note_push(
        &mut self,
        now: Time,
        worker: WorkerId,
        header: &PushHeader,
        (granted, bytes): (Time, u64),
        out: &mut Outbox,
    ) -> Duration {
        let turnaround = now.since(granted);
        let compute = Duration::from_nanos(header.compute_ns).min(turnaround);
        let slot = &mut self.members.roster[worker];
        slot.since = now;
        let spent = slot.account.pushed(now, compute, header.loss);
        out.push(Effect::Report(Event::Pushed {
            worker,
            sequence: header.sequence,
            base: header.base,
            part: header.task.part,
            batch: header.task.batch,
            loss: header.loss,
            bytes,
            unfiltered: self.store.keys().len() * size_of::<f32>() as u64,
            turnaround,
            ago: Duration::ZERO,
            compute,
            spent,
        }));
        if let Some(assigner) = &mut self.rounds.assigner {
            let timed = Timed { granted, now, compute, samples: header.samples };
            assigner.timed(worker, timed);
        }
        compute
    }

    /// Answers a push that was decided before. It is never applied again.
    fn on_repeated_push(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        header: PushHeader,
        out: &mut Outbox,
    ) {
        let slot = &self.members.roster[worker];
        let decided = slot.pushes.decided;
        if !header.pull {
            out.push(Effect::Report(Event::Repeated { worker, sequence: header.sequence }));
            if let Some(decided) = decided {
                out.push(Effect::Send(peer, Message::Ack(decided)));
            }
        } else if !slot.pushes.grants.is_empty() {
            self.grant_again(now, peer, worker, out);
        } else {
            out.push(Effect::Report(Event::Repeated { worker, sequence: header.sequence }));
            self.ask(now, worker);
            self.settle(now, out);
        }
    }

    /// True if a gradient for `task` on the current parameters is of use.
    fn wants(&self, worker: WorkerId, task: Task) -> bool {
        let version = self.version();
        self.rounds.assigner.as_ref().is_none_or(|assigner| assigner.wants(worker, task, version))
    }

    fn check_push(&self, worker: WorkerId, push: &Push) -> Result<(), Refusal> {
        let header = &push.header;
        let pushes = &self.members.roster[worker].pushes;
        let (first, given) = (pushes.grants.front(), pushes.given);
        let Some(grant) = first.filter(|grant| grant.sequence == header.sequence) else {
            let message = alloc::format!(
                "push {} came without parameters having been given out for it",
                header.sequence
            );
            return Err(Refusal::Unexpected { what: message });
        };
        let is_base = (grant.version..=given).contains(&header.base);
        // The push may have been on its way when the task was renewed.
        let is_late = grant.renewed && header.base < self.version();
        if !is_base || (grant.task != header.task && !is_late) {
            let Task { part, batch, .. } = header.task;
            let what = alloc::format!(
                "push {} is for version {} and mini-batch {batch} of partition {part}, but {} to \
                 {given} and {} of {} were given out",
                header.sequence,
                header.base,
                grant.version,
                grant.task.batch,
                grant.task.part
            );
            return Err(Refusal::Unexpected { what });
        }
        let values = push.gradient.len() as u64;
        let wanted = self.place_of(worker);
        if header.keys != wanted || values != wanted.len() {
            return Err(Refusal::Keys { given: header.keys, values, wanted });
        }
        self.check_samples(header, grant.task)?;
        // Last: a push that is not finite is taken all the same, so everything else must be valid.
        if let Some(key) = push.first_not_finite() {
            return Err(Refusal::NotFinite { count: 1, sequence: header.sequence, key });
        }
        Ok(())
    }

    fn check_samples(&self, header: &PushHeader, task: Task) -> Result<(), Refusal> {
        let most = self.job.most_samples(task);
        if (1..=most).contains(&header.samples) {
            return Ok(());
        }
        let what = alloc::format!(
            "push {} counts {} examples, but it can have 1 to {most}",
            header.sequence,
            header.samples,
        );
        Err(Refusal::Unexpected { what })
    }

    /// Checks a push that was called off, as far as it is recorded.
    fn check_late(&self, worker: WorkerId, header: &PushHeader) -> Result<(), Refusal> {
        let given = self.members.roster[worker].pushes.given;
        if header.base >= given {
            let what = alloc::format!(
                "push {} is for version {}, but was called off by version {given}",
                header.sequence,
                header.base
            );
            return Err(Refusal::Unexpected { what });
        }
        self.check_samples(header, header.task)
    }

    /// True if the parameters contain NaN or infinity.
    pub(super) fn has_diverged(&self) -> bool {
        self.store.first_not_finite().is_some()
    }

    /// True if a gradient on version `base` has missed more updates than it may.
    fn is_too_stale(&self, base: Version) -> bool {
        let staleness = self.version().since(base);
        self.modes.current.max_staleness.is_some_and(|most| staleness > most)
    }

    /// Decides what happens to a valid push.
    fn admit(&self, worker: WorkerId, header: &PushHeader) -> Admission {
        if self.lifecycle.phase() == Phase::Ending {
            return Admission::Drop(DropReason::Over);
        }
        match self.rounds.policy.admit(&self.rounds.cohort, worker, header.base) {
            Admission::Contribute if self.is_too_stale(header.base) => {
                Admission::Drop(DropReason::Stale)
            }
            Admission::Contribute if !self.wants(worker, header.task) => {
                Admission::Drop(DropReason::Redundant)
            }
            admission => admission,
        }
    }

    /// Carries out the decision on a valid push, and answers it.
    fn take_push(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        push: Push,
        (admission, elsewhere): (Admission, &Elsewhere),
        out: &mut Outbox,
    ) {
        let header = push.header;
        self.rounds.released_by = Some(worker);
        let slot = &mut self.members.roster[worker];
        let grant = slot.pushes.grants.pop_front();
        slot.pushes.came = header.sequence;
        let granted = grant.map_or(now, |grant| grant.at);
        self.rounds.busy -= 1;
        let compute = self.note_push(now, worker, &header, (granted, push.bytes()), out);
        let slot = &mut self.members.roster[worker];
        let dropped = match admission {
            Admission::Contribute => {
                slot.batches.accept();
                None
            }
            Admission::Drop(reason) => {
                let is_left_out = reason == DropReason::NotFinite;
                let counts = match (&mut self.rounds.assigner, grant) {
                    (None, _) => is_left_out,
                    // The task of the grant: it may have been renewed after the worker began.
                    (Some(assigner), Some(grant)) if is_left_out => {
                        assigner.leave_out(worker, grant.task)
                    }
                    (Some(assigner), Some(grant)) if reason != DropReason::Redundant => {
                        assigner.put_back(worker, grant.task);
                        false
                    }
                    _ => false,
                };
                if counts {
                    slot.batches.accept();
                } else if self.rounds.assigner.is_none() {
                    slot.batches.put_back(header.task.batch);
                }
                Some(reason)
            }
        };
        // The decision is recorded before anything is sent: the parameters that answer this push
        // carry it.
        let decided = Decided::after(slot.pushes.decided, header.sequence, dropped);
        slot.pushes.decided = Some(decided);
        match dropped {
            None => {
                let contribution = Contribution {
                    worker,
                    incarnation: header.incarnation,
                    sequence: header.sequence,
                    task: header.task,
                    clock: slot.clock,
                    base: header.base,
                    samples: header.samples,
                    granted,
                };
                let factor = self.clip_factor(&push.gradient, elsewhere);
                self.contribute(now, contribution, push, factor);
                self.show_auto(worker, now, granted, compute, header.loss, out);
            }
            Some(reason) => {
                slot.account.dropped += 1;
                self.drop_push(worker, header.sequence, reason, out);
                self.retire_if_finished(worker);
            }
        }
        // The worker asks after its gradient has been added, and `settle` comes last: if the
        // gradient completes a round, the answer carries the new version.
        self.repeat_lost_grants(now, peer, worker, header.allowed, out);
        if header.pull {
            self.ask(now, worker);
        } else {
            // The worker asks when it wants more; it may be about to leave.
            self.rounds.waiting.remove(worker);
            self.members.roster[worker].pushes.asked = None;
            out.push(Effect::Send(peer, Message::Ack(decided)));
        }
        self.settle(now, out);
    }

    /// Returns the clip factor, if the gradient is longer than `clip_contribution`.
    fn clip_factor(&self, gradient: &[f32], elsewhere: &Elsewhere) -> Option<f32> {
        let update = &self.job.update;
        let mut squares = self.store.squares(update, gradient)?;
        squares += &elsewhere.squares;
        update.clip_factor(&squares)
    }

    /// Drops a gradient.
    fn drop_push(
        &mut self,
        worker: WorkerId,
        sequence: Sequence,
        reason: DropReason,
        out: &mut Outbox,
    ) {
        self.progress.ledger.outstanding -= 1;
        self.progress.ledger.discarded += 1;
        self.progress.ledger.left_out += u64::from(reason == DropReason::NotFinite);
        self.group.tell(|| Decision::Drop { worker, sequence });
        out.push(Effect::Report(Event::Dropped { worker, sequence, reason }));
    }
}
