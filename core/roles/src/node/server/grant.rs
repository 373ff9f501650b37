//! Permits to compute: which waiting workers are given parameters, and how they are sent.

use super::Server;
use super::arriving::Arriving;
use super::early::give;
use super::roster::{Grant, Slot};
use crate::node::{Effect, Event, Outbox};
use alloc::vec::Vec;
use pstrain_compute::id::{PeerId, Sequence, Version, WorkerId};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_wire::Phase;
use pstrain_wire::decision::Decision;
use pstrain_wire::worker::ParametersHeader;

impl Server {
    /// True if waiting workers may be given parameters. Every pending change that needs the run to
    /// quiesce stops them, since only then does the work under way run out.
    pub(super) fn may_give_out(&self) -> bool {
        let is_fenced = self.modes.ordered.is_some() || self.is_fenced();
        let is_open = !is_fenced && !self.is_measuring();
        self.lifecycle.phase() == Phase::Training && !self.is_short() && is_open
    }

    /// Gives parameters to every waiting member that the policy lets start.
    pub(super) fn give_out(&mut self, now: Time, out: &mut Outbox) {
        let mut next = core::mem::take(&mut self.rounds.buffers.next);
        // A scan of all waiting workers happens only if one of them may be able to start now, so
        // that the cost of a push does not grow with their number.
        let members = (self.rounds.cohort.joins(), self.rounds.cohort.len());
        let of_assigner = self.rounds.assigner.as_ref().map_or(0, |assigner| assigner.gate());
        let gate = Some((members, self.rounds.policy.gate(&self.rounds.cohort), of_assigner));
        if gate == self.rounds.gate {
            self.rounds.newly_waiting.sort_unstable();
            self.rounds.newly_waiting.dedup();
            next.extend(
                self.rounds
                    .newly_waiting
                    .drain(..)
                    .filter(|worker| self.rounds.waiting.contains(*worker)),
            );
        } else {
            self.rounds.gate = gate;
            self.rounds.newly_waiting.clear();
            next.extend(self.rounds.waiting.iter());
        }
        if self.rounds.policy.next_turn(&self.rounds.cohort).is_some() {
            next.sort_unstable_by_key(|&worker| (self.rounds.cohort.clock(worker), worker));
        }
        for worker in next.drain(..) {
            self.rounds.next_turn =
                self.rounds.policy.next_turn(&self.rounds.cohort).filter(|&turn| now < turn);
            if self.rounds.next_turn.is_some() {
                self.rounds.gate = None; // at that time all waiting workers are scanned again
                break;
            }
            self.grant(now, worker, out);
        }
        self.rounds.buffers.next = next;
    }

    /// Gives `worker` as many mini-batches as policy, window and budget allow, if any.
    fn grant(&mut self, now: Time, worker: WorkerId, out: &mut Outbox) {
        let (version, window) = (self.version(), self.window(worker));
        let slot = &self.members.roster[worker];
        // A worker that joins later, or has finished its share, waits without being of the cohort.
        let (Some(peer), true) = (slot.peer, self.rounds.cohort.contains(worker)) else { return };
        if self.is_suspect(worker) {
            return; // until the verdict on its gradient
        }
        let first = slot.pushes.next_sequence();
        let quota = self.quota(slot.rows);
        let asked = slot.pushes.asked;
        let was_idle = slot.pushes.grants.is_empty();
        loop {
            let slot = &mut self.members.roster[worker];
            let under_way = slot.pushes.under_way();
            let has_more = match &self.rounds.assigner {
                None => slot.batches.has_more(quota),
                Some(_) => slot.batches.accepted() + u64::from(under_way) < quota,
            };
            let may_start = under_way < window
                && has_more
                && self.rounds.policy.may_start(&self.rounds.cohort, worker, under_way);
            if !may_start {
                break;
            }
            let task = match &mut self.rounds.assigner {
                None => slot.batches.take(quota).map(|batch| Task::own(worker, batch)),
                Some(assigner) => {
                    let ahead = self.rounds.cohort.lead(worker) + u64::from(under_way);
                    assigner.due(Version(version.0 + ahead));
                    assigner.assign(worker, version)
                }
            };
            let Some(task) = task else { break };
            let sequence = slot.pushes.next_sequence();
            let grant = Grant { sequence, version, task, renewed: false, at: now };
            slot.pushes.grants.push_back(grant);
            slot.since = now;
            // The worker waited only for the first of them.
            let waited = asked.filter(|_| sequence == first);
            let waited = waited.map_or_else(Default::default, |at| now.since(at));
            self.rounds.busy += 1;
            self.progress.ledger.assigned += 1;
            self.progress.ledger.outstanding += 1;
            self.progress.training_since.get_or_insert(now);
            let Task { part, batch, .. } = task;
            out.push(Effect::Report(Event::Granted {
                worker,
                sequence,
                version,
                part,
                batch,
                waited,
            }));
        }
        let slot = &mut self.members.roster[worker];
        if slot.pushes.next_sequence() == first {
            return;
        }
        if was_idle {
            slot.account.granted(now, asked.unwrap_or(now), self.rounds.released_by);
        }
        self.rounds.policy.started(worker, now);
        slot.pushes.asked = Some(now);
        if slot.pushes.under_way() == window {
            slot.pushes.asked = None;
            self.rounds.waiting.remove(worker);
        }
        self.send_parameters(peer, worker, first, out);
    }

    /// Sends the current version to the workers that compute on an earlier one in vain.
    pub(super) fn supersede(&mut self, now: Time, out: &mut Outbox) {
        let version = self.version();
        let is_behind = |slot: &Slot| slot.pushes.under_way() > 0 && slot.pushes.given < version;
        let all = self.members.roster.iter().filter(|(_, slot)| is_behind(slot));
        let behind: Vec<WorkerId> = all.map(|(worker, _)| worker).collect();
        for worker in behind {
            self.supersede_for(now, worker, out);
        }
    }

    /// Sends `worker` the current version if it computes on an earlier one in vain. Its pushes are
    /// called off and new ones allowed in their place, so that it starts at once, even while a
    /// gradient is on its way. Nothing more is sent until a message from the worker arrives: over a
    /// slow link versions would pile up.
    pub(super) fn supersede_for(&mut self, now: Time, worker: WorkerId, out: &mut Outbox) {
        let version = self.version();
        if self.lifecycle.phase() != Phase::Training
            || !self.rounds.policy.cancels()
            || self.is_measuring()
        {
            return;
        }
        let slot = &mut self.members.roster[worker];
        let Some(peer) = slot.peer.filter(|_| !slot.pushes.grants.is_empty()) else { return };
        if slot.pushes.grants_unconfirmed && !self.group.is_alone() {
            return; // it may not have reached all servers yet
        }
        if slot.pushes.given < version && !slot.pushes.is_superseding {
            slot.pushes.is_superseding = true;
            // The worker will report their arrival, which flood control must not count.
            slot.pushes.idle.asked();
            let sequence = slot.pushes.next_sequence();
            let here = slot.pushes.call_off(version, now);
            slot.since = now;
            out.push(Effect::Report(Event::Superseded { worker, sequence, version }));
            for late in here.into_values().filter_map(Arriving::into_own) {
                self.take_called_off(now, worker, &late, out);
            }
            self.send_parameters(peer, worker, sequence, out);
        }
    }

    /// Records that `worker` wants parameters.
    pub(super) fn ask(&mut self, now: Time, worker: WorkerId) {
        let slot = &mut self.members.roster[worker];
        if !slot.pushes.remapping {
            if slot.pushes.asked.is_none() {
                slot.pushes.asked = Some(now);
                slot.since = now;
            }
            self.rounds.waiting.insert(worker);
            self.rounds.newly_waiting.push(worker);
        }
    }

    /// Answers a worker that did not receive the answer: the same grants, with the current
    /// parameters.
    pub(super) fn grant_again(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        out: &mut Outbox,
    ) {
        if self.is_measuring() {
            return self.grant_later(peer, worker);
        }
        let slot = &mut self.members.roster[worker];
        let Some(first) = slot.pushes.grants.front_mut() else {
            return; // decided or called off while the answer had to wait
        };
        first.at = now;
        let sequence = first.sequence;
        out.push(Effect::Report(Event::Repeated { worker, sequence }));
        self.send_parameters(peer, worker, sequence, out);
    }

    /// Sends the current parameters with the grants of `worker` from `first` on.
    pub(super) fn send_parameters(
        &mut self,
        peer: PeerId,
        worker: WorkerId,
        first: Sequence,
        out: &mut Outbox,
    ) {
        let (version, mut early) = (self.version(), self.take_early(worker));
        self.store.gave(worker, version);
        // A worker that has not declared its working set is not among the waiting ones.
        let Some(answer) = self.store.answer(worker) else { return };
        let keys = answer.place;
        let slot = &mut self.members.roster[worker];
        let pushes = &mut slot.pushes;
        pushes.given = version;
        let decided = pushes.decided;
        let mut run: Option<ParametersHeader> = None;
        let (tells, mut headers) = (!self.group.is_alone(), Vec::new());
        let mut send = |header| {
            if tells {
                headers.push(header);
            }
            let mut parameters = answer.message(header);
            if let Some(early) = early.take() {
                parameters.leave_out(&early);
            }
            give(peer, worker, parameters, out);
        };
        let mut next = None;
        for grant in pushes.grants.iter_mut().filter(|grant| grant.sequence >= first) {
            if let Some(task) = self
                .rounds
                .assigner
                .as_mut()
                .and_then(|assigner| assigner.renew(worker, grant.task, version))
            {
                grant.task = task;
                grant.renewed = true;
            }
            let Grant { sequence, task, .. } = *grant;
            match &mut run {
                // One message grants a run of consecutive tasks.
                Some(run) if next == Some(task) => run.ahead += 1,
                _ => {
                    let header =
                        ParametersHeader { version, keys, sequence, task, ahead: 0, decided };
                    run.replace(header).into_iter().for_each(&mut send);
                }
            }
            next = Some(self.job.following(task));
        }
        run.into_iter().for_each(send);
        // In one stream with the updates, so that every server sends its part of this version.
        self.group.tell(|| Decision::Give { worker, headers });
    }
}
