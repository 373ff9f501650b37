//! Liveness of the members, the consequences of a loss, and every time limit of the server.

use alloc::string::String;
use alloc::vec::Vec;

use super::Server;
use super::mode_change::answer;
use super::roster::{Presence, Slot};
use crate::node::{Departure, Effect, Event, Outbox, damage};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::job::OnLoss;
use pstrain_wire::worker::{End, EndReason, Heartbeat};
use pstrain_wire::{FrameError, Message, Phase, Refusal};

impl Server {
    pub(super) fn on_disconnected(
        &mut self,
        now: Time,
        peer: PeerId,
        why: String,
        out: &mut Outbox,
    ) {
        self.forget_stranger(peer);
        self.forget_asker(peer);
        if self.group.of_peer(peer).is_some() {
            self.lose_server(now, peer, why, out);
            return self.settle(now, out);
        }
        if let Some(worker) = self.members.roster.detach(peer) {
            // The worker keeps its lease: it may come back, with nothing lost.
            self.rounds.waiting.remove(worker);
            let slot = &mut self.members.roster[worker];
            slot.since = now;
            slot.pushes.cut_off();
            out.push(Effect::Report(Event::CutOff { worker, why }));
            self.settle(now, out);
        }
    }

    /// Handles bytes that are not a frame. From a member they mean damage on the way, and its
    /// connection counts as lost. Any other peer is refused.
    pub(super) fn on_garbage(
        &mut self,
        now: Time,
        peer: PeerId,
        error: FrameError,
        out: &mut Outbox,
    ) {
        let is_member =
            self.members.roster.worker_of(peer).is_some() || self.group.of_peer(peer).is_some();
        if !is_member {
            return self.refuse(now, peer, error.into(), out);
        }
        let why = damage::in_words(error);
        out.push(Effect::Send(peer, Message::Refused(error.into())));
        out.push(Effect::Close(peer));
        self.on_disconnected(now, peer, why, out);
    }

    /// Handles part of a long message: the worker that sends it is alive. It is sent a heartbeat
    /// now and then, or it would take the silence until its message is complete for the death of
    /// the server.
    pub(super) fn on_receiving(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        let heartbeat = self.job.membership.heartbeat();
        if self.hear_server(now, peer) {
            return;
        }
        self.initial.hear(now, peer);
        let Some((_, slot)) = self.members.roster.of_peer(peer) else {
            return; // it has not introduced itself
        };
        slot.heard = now;
        if now >= slot.told + heartbeat {
            slot.told = now;
            out.push(Effect::Send(peer, Message::Heartbeat(Heartbeat::default())));
        }
    }

    /// Removes `worker` from the run, without settling.
    pub(super) fn depart(&mut self, now: Time, worker: WorkerId, how: Departure, out: &mut Outbox) {
        self.members.roster.set_presence(worker, Presence::Gone(how), now);
        let slot = &mut self.members.roster[worker];
        slot.pushes.arriving.clear();
        slot.pushes.asked = None;
        let went_down = slot.pushes.went_down;
        let why = slot.why_left.clone();
        slot.account.left();
        self.evaluations.by_workers.left(worker);
        self.rounds.released_by = Some(worker);
        let lost = u64::from(slot.pushes.under_way());
        for grant in core::mem::take(&mut slot.pushes.grants) {
            match &mut self.rounds.assigner {
                None => slot.batches.put_back(grant.task.batch),
                Some(assigner) => assigner.put_back(worker, grant.task),
            }
        }
        if let Some(assigner) = &mut self.rounds.assigner {
            assigner.left(worker);
        }
        self.rounds.busy -= lost;
        self.progress.ledger.outstanding -= lost;
        if self.lifecycle.phase() == Phase::Ending {
            self.progress.ledger.discarded += lost;
        } else {
            self.progress.ledger.lost += lost;
        }
        self.rounds.waiting.remove(worker);
        self.forget(worker);
        out.push(Effect::Report(Event::Departed { worker, how, lost, why }));
        if matches!(self.lifecycle.phase(), Phase::Gathering | Phase::Ending) {
            return;
        }
        // No other worker waits for one that is not in the cohort (any more, or yet), and a
        // draining run waits for no worker.
        if !self.rounds.cohort.contains(worker) || self.lifecycle.phase() == Phase::Draining {
            return self.retire(worker);
        }
        match self.job.membership.on_loss {
            // The run stood still with the worker, so it is not lost, and its slot in the cohort
            // is kept for its next incarnation.
            _ if how == Departure::Replaced && went_down => {}
            // Its slot in the cohort is kept: a worker that must wait for it does.
            OnLoss::Wait if how == Departure::Replaced => {}
            OnLoss::Wait => {
                self.members.awaited_back.insert((now, worker));
            }
            OnLoss::Stop if how != Departure::Replaced => {
                self.retire(worker);
                self.end(now, EndReason::WorkerLost(worker, how), out);
            }
            _ => self.retire(worker),
        }
    }

    /// True if `worker`, with this message, has sent far more messages than it has use for.
    pub(super) fn is_flooding(&mut self, now: Time, worker: WorkerId, message: &Message) -> bool {
        let lease = self.job.membership.lease;
        let slot = &mut self.members.roster[worker];
        slot.pushes.idle.is_flood(now, lease, message)
    }

    /// Reports when too few workers are present, and when enough are present again.
    pub(super) fn watch_attendance(&mut self, now: Time, out: &mut Outbox) {
        if self.lifecycle.phase() != Phase::Training {
            return;
        }
        match (self.is_short(), self.members.short_since) {
            (true, None) => {
                self.members.short_since = Some(now);
                let present = self.members.present();
                out.push(Effect::Report(Event::Paused { present, needed: self.needed() }));
            }
            (false, Some(_)) => {
                self.members.short_since = None;
                out.push(Effect::Report(Event::Unpaused));
            }
            _ => {}
        }
    }

    /// Drains the run: gives out no more parameters; outstanding gradients may still arrive.
    pub(super) fn drain(&mut self, now: Time, out: &mut Outbox) {
        match self.lifecycle.phase() {
            Phase::Training => {
                self.pause(out);
                self.lifecycle.drain(now);
            }
            Phase::Gathering => {
                self.pause(out);
                self.end(now, EndReason::Stopped, out);
            }
            Phase::Draining | Phase::Ending => {}
        }
        self.settle(now, out);
    }

    /// Raises the budget to `epochs` passes over the data. A run that has used up its budget goes
    /// on with the cohort that it had: its workers come back as new incarnations.
    pub(super) fn extend(&mut self, now: Time, epochs: u32, out: &mut Outbox) {
        self.job.extend(epochs);
        if let Some(assigner) = &mut self.rounds.assigner {
            assigner.extend(epochs.into());
        }
        if self.lifecycle.end() == Some(EndReason::BudgetReached) {
            self.lifecycle.train(now);
            self.reopen();
            let roster = &self.members.roster;
            let cohort = roster.iter().map(|(worker, _)| worker);
            let gone: Vec<WorkerId> = cohort
                .filter(|&it| self.rounds.cohort.contains(it) && !roster[it].presence.is_alive())
                .collect();
            self.members.awaited_back.extend(gone.into_iter().map(|worker| (now, worker)));
        }
        for worker in core::mem::take(&mut self.members.finished) {
            let slot = &self.members.roster[worker];
            if slot.batches.accepted() >= self.quota(slot.rows) {
                self.members.finished.insert(worker);
            } else if slot.presence == Presence::Ready {
                self.enrol(worker);
            }
        }
        self.settle(now, out);
    }

    /// Ends the run and tells all members. It leaves settling to the caller and has no further
    /// consequences until then, so that it can be called in the middle of any step.
    pub(super) fn end(&mut self, now: Time, reason: EndReason, out: &mut Outbox) {
        if self.lifecycle.end().is_some() {
            return;
        }
        // The last update may have made the parameters NaN or infinite.
        let reason = if reason.is_success() && self.has_diverged() {
            EndReason::Diverged(self.version())
        } else {
            reason
        };
        self.lifecycle.end_with(reason, now);
        self.group.begin_phase(now);
        self.discard_round();
        self.cancel_auto_measurement();
        self.rounds.waiting.clear();
        self.rounds.newly_waiting.clear();
        out.push(Effect::Report(Event::Ended { reason }));
        let why = alloc::format!("the run ended before: {reason}");
        if let Some(ordered) = self.modes.ordered.take() {
            for (asker, _) in ordered.askers {
                answer(asker, Err(why.clone()), out);
            }
        }
        self.stop_changes(&why, out);
        // The run has ended by now, so the limit on evaluations under way does not apply to this
        // one.
        if self.progress.training_since.is_some() && !matches!(reason, EndReason::ServerLost(_)) {
            self.evaluate(out);
        }
        if self.needs_members() {
            self.lifecycle.hold_end();
        }
        // With checkpoints the end must be on disk first: a worker that is told leaves for good.
        if self.tells_end() {
            self.tell_end(out);
        }
    }

    /// True if a run that has ended needs its members: one of them evaluates, or other servers owe
    /// parameters, each to one leader, and members elect the leader if there is a standby.
    fn needs_members(&self) -> bool {
        let owed = self.group.shown() > 0 || self.measuring.is_open();
        self.needs_evaluator() || owed && self.members.electors().next().is_some()
    }

    /// Tells members of the end once they are not needed any more.
    pub(super) fn release_members(&mut self, now: Time, out: &mut Outbox) {
        if self.lifecycle.holds_end() && !self.needs_members() {
            self.lifecycle.release_end(now);
            if self.tells_end() {
                self.tell_end(out);
            }
        }
    }

    /// Tells all connected workers that the run has ended.
    pub(super) fn tell_end(&self, out: &mut Outbox) {
        let Some(reason) = self.lifecycle.end() else { unreachable!("the run has ended") };
        let peers = self.members.roster.iter().filter_map(|(_, slot)| slot.peer);
        out.extend(peers.map(|peer| Effect::Send(peer, Message::End(End { reason }))));
    }

    /// Finishes once all members have said goodbye, or the time for that is over.
    pub(super) fn finish_if_done(&mut self, now: Time, out: &mut Outbox) {
        let Some(reason) = self.lifecycle.end() else { return };
        let late = now >= self.lifecycle.since + self.job.membership.lease;
        // `keep_end` comes last: it saves the final state, which must contain all evaluations.
        if self.lifecycle.is_done() || self.evaluations_due() > 0 || !self.keep_end(late, out) {
            return;
        }
        // A worker that is disconnected at the moment comes back, and must be told that the run has
        // ended.
        let owed = self.members.roster.iter().any(|(_, slot)| slot.presence.is_alive());
        let owed = owed || self.owes_a_server();
        if owed && !late {
            return;
        }
        if !self.tells_end() {
            self.tell_end(out); // the end could not be written to disk
        }
        self.lifecycle.finish();
        let gone: Vec<WorkerId> = self
            .members
            .roster
            .iter()
            .filter(|(_, slot)| slot.presence.is_alive())
            .map(|(worker, _)| worker)
            .collect();
        for worker in gone {
            self.depart(now, worker, Departure::Lost, out);
        }
        self.dismiss_servers(reason, out);
        out.push(Effect::Done(Ok(reason)));
    }

    pub(super) fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        self.expire_strangers(now, out);
        self.expire_initial(now, out);
        self.watch_servers(now, out);
        if self.members.lease_check.is_some_and(|at| now >= at) {
            self.expire_leases(now, out);
        }
        let membership = self.job.membership;
        let overdue =
            |since: Option<Time>| since.is_some_and(|at| now >= at + membership.patience());
        match self.lifecycle.phase() {
            Phase::Gathering if now >= self.lifecycle.since + membership.start_patience() => {
                self.end_for_want_of_workers(now, membership.needed_to_start(), out);
            }
            Phase::Training if overdue(self.members.short_since) => {
                self.end_for_want_of_workers(now, self.needed(), out);
            }
            Phase::Training => {
                if let Some(&(since, worker)) = self.members.awaited_back.first()
                    && overdue(Some(since))
                {
                    // It may be back without its data.
                    let how = match self.members.roster[worker].presence {
                        Presence::Gone(how) => how,
                        _ => Departure::Lost,
                    };
                    self.end(now, EndReason::WorkerLost(worker, how), out);
                }
            }
            Phase::Draining if now >= self.lifecycle.since + membership.lease => {
                self.end(now, EndReason::Stopped, out);
            }
            _ => {}
        }
        self.settle(now, out);
    }

    fn end_for_want_of_workers(&mut self, now: Time, needed: u32, out: &mut Outbox) {
        self.end(now, EndReason::TooFewWorkers { present: self.members.present(), needed }, out);
    }

    /// Closes connections that have not sent a Hello within a lease. They are closed without a
    /// refusal, since a worker whose Hello is only late would take that as final.
    fn expire_strangers(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.job.membership.lease;
        while let Some(&(since, peer)) = self.members.unauthenticated.first()
            && now >= since + lease
        {
            self.forget_stranger(peer);
            let what = alloc::format!("no hello came within {lease:?}");
            let why = Refusal::Unexpected { what };
            let (from, worker, who) = (None, None, None);
            out.push(Effect::Report(Event::Refused { peer, from, worker, who, why }));
            out.push(Effect::Close(peer));
        }
    }

    /// Gives every member a fresh lease: this server was not running to hear them.
    pub(super) fn renew_leases(&mut self, now: Time) {
        if self.lifecycle.phase() == Phase::Ending {
            self.lifecycle.since = now; // the members had no time to say goodbye, either
        }
        self.members.roster.renew(now);
        self.evaluations.by_workers.renew(now);
        self.group.renew(now);
        self.members.lease_check = None;
        self.schedule_lease_check(now);
    }

    /// Returns until when a worker may be silent. One that went down together with this server has
    /// as long as a server that is away.
    fn lease_end(&self, slot: &Slot) -> Time {
        let membership = self.job.membership;
        slot.heard.max(Time::ZERO)
            + match slot.pushes.went_down {
                true => membership.patience(),
                false => membership.lease,
            }
    }

    fn expire_leases(&mut self, now: Time, out: &mut Outbox) {
        let silent: Vec<WorkerId> = self
            .members
            .roster
            .iter()
            .filter(|(_, slot)| slot.presence.is_alive() && now >= self.lease_end(slot))
            .map(|(worker, _)| worker)
            .collect();
        for worker in silent {
            if let Some(peer) = self.members.roster[worker].peer {
                out.push(Effect::Close(peer));
                self.members.roster.detach(peer);
            }
            self.depart(now, worker, Departure::Lost, out);
        }
        self.members.lease_check = None;
        self.schedule_lease_check(now);
    }

    /// Schedules the check for the first lease that can expire. Leases are only ever extended, so a
    /// check at that time finds every expiry exactly when it is due, and a message costs nothing.
    pub(super) fn schedule_lease_check(&mut self, now: Time) {
        if self.members.lease_check.is_none() {
            let alive = self.members.roster.iter().filter(|(_, slot)| slot.presence.is_alive());
            self.members.lease_check = alive.map(|(_, slot)| self.lease_end(slot)).min();
            debug_assert!(self.members.lease_check.is_none_or(|at| at > now));
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        if self.lifecycle.is_done() {
            return None;
        }
        let membership = self.job.membership;
        let phase = match self.lifecycle.phase() {
            Phase::Gathering => Some(self.lifecycle.since + membership.start_patience()),
            Phase::Draining | Phase::Ending => Some(self.lifecycle.since + membership.lease),
            _ => None,
        };
        // Once the goodbyes are overdue only evaluations are missing, and their results wake the
        // server.
        let phase = phase
            .filter(|_| !(self.lifecycle.phase() == Phase::Ending && self.evaluations_due() > 0));
        let patience = membership.patience();
        [
            phase,
            self.members.lease_check,
            self.order_at(),
            self.group.deadline(membership.lease, |since| self.due_back(since)),
            self.rounds.next_turn,
            self.members.unauthenticated.first().map(|&(since, _)| since + membership.lease),
            self.initial_due(),
            self.evaluation_due(),
            self.members
                .short_since
                .filter(|_| self.lifecycle.phase() == Phase::Training)
                .map(|at| at + patience),
            self.members
                .awaited_back
                .first()
                .filter(|_| self.lifecycle.phase() == Phase::Training)
                .map(|&(at, _)| at + patience),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
