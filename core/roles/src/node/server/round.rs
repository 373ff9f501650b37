//! Rounds: gradients gathered, combined in worker order and applied; then who may go on.

use alloc::vec::Vec;

use super::Server;
use super::arriving::Arriving;
use super::measuring::What;
use super::roster::{Grant, Presence, Slot};
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{Clock, Version, WorkerId};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::job::BudgetKind;
use pstrain_policy::rules::Closing;
use pstrain_policy::work::{Dealer, Share};
use pstrain_wire::Phase;
use pstrain_wire::decision::Contribution;
use pstrain_wire::worker::{EndReason, Push};

/// Evaluations that may be under way. When they take longer than the epochs between them, points
/// of the curve are left out rather than kept waiting; the last version is always evaluated.
const MOST_EVALUATIONS: usize = 32;

/// The open round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Who is given parameters next; kept for its memory.
    next: Vec<WorkerId>,
    /// What becomes part of an update; kept for its memory.
    applied: Vec<Contribution>,
}

impl Server {
    /// Adds a gradient to the open round.
    pub(super) fn contribute(
        &mut self,
        now: Time,
        mut contribution: Contribution,
        push: Push,
        factor: Option<f32>,
    ) {
        let worker = contribution.worker;
        contribution.clock = self.cohort.contribute(worker);
        if let Some(dealer) = &mut self.dealer {
            dealer.took(worker, contribution.task);
            self.cohort.set_covered(dealer.is_covered());
        }
        self.gather(contribution, push, factor);
        self.policy.contributed(&self.cohort, worker, now);
        let Some(slot) = self.roster.slot(worker) else { return };
        if slot.batches.accepted() >= self.quota(slot.rows) {
            // Nothing left for it to do: nobody may wait for it any more.
            self.finished.insert(worker);
            self.retire(worker);
        }
    }

    /// Takes `worker` out of the cohort and keeps its clock.
    pub(super) fn retire(&mut self, worker: WorkerId) {
        self.joining.remove(&worker);
        if let Some(clock) = self.cohort.leave(worker)
            && let Some(slot) = self.roster.slot_mut(worker)
        {
            slot.clock = clock;
            self.policy.left(&self.cohort, worker);
            if let Some(auto) = &mut self.auto {
                auto.left(worker);
            }
        }
    }

    /// Whether too few workers are there to go on.
    pub(super) fn is_short(&self) -> bool {
        let needed = self.job.membership.needed_to_run();
        self.roster.ready() < needed && self.present() < needed || self.is_stuck()
    }

    /// Whether the open round needs somebody who is not there.
    fn is_stuck(&self) -> bool {
        let is_stuck = |dealer: &dyn Dealer| dealer.is_stuck(&self.cohort);
        self.phase == Phase::Training && self.dealer.as_deref().is_some_and(is_stuck)
    }

    /// How many workers must be there to go on.
    pub(super) fn needed(&self) -> u32 {
        let needed = self.job.membership.needed_to_run();
        if self.is_stuck() { needed.max(self.present() + 1) } else { needed }
    }

    /// Workers that are there with their data. One that has done its share and went counts, for
    /// nobody could take its place.
    pub(super) fn present(&self) -> u32 {
        let gone = |worker: &&WorkerId| {
            self.roster.slot(**worker).is_some_and(|slot| slot.presence != Presence::Ready)
        };
        self.roster.ready() + self.finished.iter().filter(gone).count() as u32
    }

    /// Does everything that has become possible: start, update, give out parameters, end.
    pub(super) fn settle(&mut self, now: Time, out: &mut Outbox) {
        if self.phase == Phase::Gathering
            && self.roster.ready() >= self.job.membership.needed_to_start()
        {
            self.begin(now, out);
        }
        self.watch_attendance(now, out);
        let before = self.version();
        let made = self.weigh(now, out);
        self.grant_owed(now, out);
        loop {
            while self.step(now, out) {}
            self.order_due(now);
            let passed = self.pass_fence(now, out) || self.pass_push(now, out);
            if !passed && !self.move_keys(now, out) {
                break;
            }
        }
        self.next_turn = None;
        if self.may_give_out() {
            if (made || self.version() > before) && self.policy.cancels() {
                self.supersede(now, out);
            }
            self.give_out(now, out);
        }
        self.settle_doubt(now, out);
        if self.phase == Phase::Draining && self.busy == 0 && !self.is_measuring() {
            self.end(now, EndReason::Stopped, out);
        }
        if !self.group.gone.is_empty() {
            self.dismiss_gone(out);
        }
        self.finish_if_done(now, out);
    }

    /// Whether parameters are given to workers that wait for them.
    pub(super) fn may_give_out(&self) -> bool {
        let is_fenced = self.ordered.is_some() || self.is_fenced() || self.awaits_push();
        let is_open = !is_fenced && !self.is_measuring();
        self.phase == Phase::Training && !self.is_short() && is_open
    }

    fn begin(&mut self, now: Time, out: &mut Outbox) {
        self.phase = Phase::Training;
        self.phase_since = now;
        self.group.begin_phase(now);
        let ready: Vec<WorkerId> = self
            .roster
            .iter()
            .filter(|(_, slot)| slot.presence == Presence::Ready)
            .map(|(worker, _)| worker)
            .collect();
        for &worker in &ready {
            let Some(slot) = self.roster.slot_mut(worker) else { continue };
            // Until now it waited for the others to come, not for parameters.
            slot.seat.asked = slot.seat.asked.map(|_| now);
            let clock = slot.clock;
            self.count(worker, clock);
        }
        self.count_down(now, out);
        out.push(Effect::Report(Event::Started { workers: ready.len() as u32 }));
        self.evaluate(out);
    }

    /// One change of the cohort or the version; false when there is none to make.
    fn step(&mut self, now: Time, out: &mut Outbox) -> bool {
        if !matches!(self.phase, Phase::Training | Phase::Draining) || self.is_measuring() {
            return false;
        }
        if self.cohort.contributions() > 0 {
            let held = self.policy.in_rounds() && self.is_short();
            let closing = match self.policy.closes(&self.cohort) {
                _ if held => Closing::NotYet,
                // Nothing else can come.
                Closing::NotYet if self.is_used_up() => self.policy.flushes(),
                closing => closing,
            };
            if closing == Closing::NotYet {
                self.merge_waiting();
                return false;
            }
            self.close(now, closing, out);
            return true;
        }
        if self.is_used_up() {
            self.end(now, EndReason::BudgetReached, out);
            return false;
        }
        if !self.cohort.is_empty() {
            return false;
        }
        if !self.joining.is_empty() {
            self.admit_joining(); // there is no round to wait for
            return true;
        }
        if self.all_finished() {
            self.end(now, EndReason::BudgetReached, out);
        }
        false
    }

    /// Keeps what waits for the next update as few vectors as can be.
    fn merge_waiting(&mut self) {
        // Where updates are whole iterations, what waits is not all of the same one.
        if self.policy.flushes() == Closing::Everything && self.store.can_merge() {
            self.merge();
        }
    }

    /// Gradients that the open round keeps in memory, where those of a worker from the same part of
    /// the data are added up as they come: at most one for each, under every mode that allows it.
    #[must_use]
    pub fn vectors_held(&self) -> usize {
        self.store.vectors()
    }

    /// Whether all tasks there are have been given out and have come back.
    fn is_used_up(&self) -> bool {
        self.busy == 0 && self.dealer.as_ref().is_some_and(|dealer| dealer.is_used_up())
    }

    /// Whether a partition budget is used up: everybody who is there has done their share.
    fn all_finished(&self) -> bool {
        let done = |(worker, slot): (WorkerId, &Slot)| {
            !slot.presence.is_alive() || self.finished.contains(&worker)
        };
        !self.finished.is_empty() && self.roster.iter().all(done)
    }

    /// Lets `worker` count from now on, at `clock`.
    pub(super) fn count(&mut self, worker: WorkerId, clock: Clock) {
        let rows = self.roster.slot(worker).map_or(0, |slot| slot.rows);
        self.cohort.join(worker, clock, self.job.pass_over(rows));
    }

    pub(super) fn admit_joining(&mut self) {
        while let Some(worker) = self.joining.pop_first() {
            let own = self.roster.slot(worker).map_or_else(Default::default, |slot| slot.clock);
            let clock = self.entry().unwrap_or(own);
            self.count(worker, clock);
        }
    }

    /// The clock at which a newcomer counts, if anybody counts already: with the slowest, since
    /// behind them it would hold them back, unless the policy wants it in front.
    pub(super) fn entry(&self) -> Option<Clock> {
        if self.policy.joins_in_front() { self.cohort.fastest() } else { self.cohort.slowest() }
    }

    /// Applies the contributions that `closing` chooses as one update. Where that takes something
    /// that all servers have to be asked for, nobody is given parameters until they have answered.
    pub(super) fn close(&mut self, now: Time, closing: Closing, out: &mut Outbox) {
        if closing == Closing::NotYet {
            return;
        }
        let version = self.cohort.version();
        let chosen = self.store.choose(closing, self.cohort.oldest(), version);
        let weights = self.dealer.as_ref().and_then(|dealer| {
            let share =
                |c: &Contribution| Share { worker: c.worker, task: c.task, samples: c.samples };
            dealer.weights(&self.store.chosen(&chosen).map(share).collect::<Vec<_>>())
        });
        let factors = weights.as_ref().map(|weights| weights.factors.as_slice());
        let epochs = self.samples / self.job.data.train.rows;
        let decision = self.group.next();
        self.tell_close(closing, factors);
        let mut applied = core::mem::take(&mut self.round.applied);
        applied.extend(self.store.chosen(&chosen).copied());
        self.store.update(chosen, closing, version, factors);
        for contribution in applied.drain(..) {
            let Contribution { worker, incarnation, sequence, task, clock, base, samples, granted } =
                contribution;
            if weights.is_none() {
                self.samples += u64::from(samples);
            }
            self.ledger.applied += 1;
            self.ledger.outstanding -= 1;
            if let Some(slot) = self.roster.slot_mut(worker) {
                slot.updates += 1;
                slot.account.staleness = version.since(base);
            }
            let staleness = version.since(base);
            let age = now.since(granted);
            out.push(Effect::Report(Event::Applied {
                worker,
                incarnation,
                sequence,
                part: task.part,
                batch: task.batch,
                examples: task.examples,
                clock,
                base,
                staleness,
                samples,
                age,
            }));
        }
        self.round.applied = applied;
        out.extend(self.store.spares().map(Effect::Spare));
        self.samples += weights.map_or(0, |weights| weights.samples);
        self.cohort.close(closing);
        if let Some(dealer) = &mut self.dealer {
            dealer.updated(&self.cohort);
            self.cohort.set_covered(false);
        }
        self.policy.closed(&self.cohort, closing);
        self.last_update = now;
        let point = self.point();
        out.push(Effect::Report(Event::Updated { point, closing }));
        self.admit_joining();
        let evaluates = self.samples / self.job.data.train.rows > epochs;
        match self.store.sums() {
            None => self.updated(now, evaluates, out),
            Some(sums) => {
                self.measure(now, decision, What::Update { evaluates }, sums);
                self.weigh(now, out);
            }
        }
    }

    /// The parameters are those of the current version.
    pub(super) fn updated(&mut self, now: Time, evaluates: bool, out: &mut Outbox) {
        if evaluates {
            self.evaluate(out);
        }
        self.count_down(now, out);
    }

    /// Lets the policy know what the budget still asks for, and ends the run if that is nothing.
    fn count_down(&mut self, now: Time, out: &mut Outbox) {
        if self.job.budget.kind != BudgetKind::Global {
            return;
        }
        let samples = self.samples_wanted().saturating_sub(self.samples);
        self.cohort.set_wanted(samples.div_ceil(self.job.whole_batch()));
        if samples == 0 {
            self.end(now, EndReason::BudgetReached, out);
        }
    }

    /// Asks for an evaluation of the current parameters, unless they were evaluated.
    pub(super) fn evaluate(&mut self, out: &mut Outbox) {
        if self.evaluates_later() {
            return;
        }
        let behind = self.evaluations_due() >= MOST_EVALUATIONS && self.end.is_none();
        if behind || self.last_evaluated == Some(self.version()) {
            return;
        }
        self.last_evaluated = Some(self.version());
        let point = self.point();
        self.show(point, out);
    }

    /// Gives parameters to every member that waits for them and may go on.
    fn give_out(&mut self, now: Time, out: &mut Outbox) {
        let mut next = core::mem::take(&mut self.round.next);
        // The cost of a push does not grow with those who wait: they are looked at when something
        // has changed for them.
        let members = (self.cohort.joins(), self.cohort.len());
        let of_dealer = self.dealer.as_ref().map_or(0, |dealer| dealer.gate());
        let gate = Some((members, self.policy.gate(&self.cohort), of_dealer));
        if gate == self.gate {
            self.asking.sort_unstable();
            self.asking.dedup();
            next.extend(self.asking.drain(..).filter(|worker| self.waiting.contains(*worker)));
        } else {
            self.gate = gate;
            self.asking.clear();
            next.extend(self.waiting.iter());
        }
        if self.policy.next_turn(&self.cohort).is_some() {
            next.sort_unstable_by_key(|&worker| (self.cohort.clock(worker), worker));
        }
        for worker in next.drain(..) {
            self.next_turn = self.policy.next_turn(&self.cohort).filter(|&turn| now < turn);
            if self.next_turn.is_some() {
                self.gate = None; // all who wait are looked at again then
                break;
            }
            self.grant(now, worker, out);
        }
        self.round.next = next;
    }

    /// Gives `worker` as many mini-batches as it may have, if any.
    fn grant(&mut self, now: Time, worker: WorkerId, out: &mut Outbox) {
        let (version, window) = (self.version(), self.window(worker));
        let Some(slot) = self.roster.slot(worker) else { return };
        let (Some(peer), true) = (slot.peer, self.cohort.contains(worker)) else { return };
        if self.is_suspect(worker) {
            return;
        }
        let first = slot.seat.next_sequence();
        let quota = self.quota(slot.rows);
        let asked = slot.seat.asked;
        let was_idle = slot.seat.grants.is_empty();
        loop {
            let Some(slot) = self.roster.slot_mut(worker) else { return };
            let under_way = slot.seat.under_way();
            let has_more = match &self.dealer {
                None => slot.batches.has_more(quota),
                Some(_) => slot.batches.accepted() + u64::from(under_way) < quota,
            };
            let may_start = under_way < window
                && has_more
                && self.policy.may_start(&self.cohort, worker, under_way);
            if !may_start {
                break;
            }
            let task = match &mut self.dealer {
                None => slot.batches.take(quota).map(|batch| Task::own(worker, batch)),
                Some(dealer) => {
                    let ahead = self.cohort.lead(worker) + u64::from(under_way);
                    dealer.due(Version(version.0 + ahead));
                    dealer.deal(worker, version)
                }
            };
            let Some(task) = task else { break };
            let sequence = slot.seat.next_sequence();
            let grant = Grant { sequence, version, task, renewed: false, at: now };
            slot.seat.grants.push_back(grant);
            slot.since = now;
            // Only the first was waited for.
            let waited = asked.filter(|_| sequence == first);
            let waited = waited.map_or_else(Default::default, |at| now.since(at));
            self.busy += 1;
            self.ledger.assigned += 1;
            self.ledger.outstanding += 1;
            self.training_since.get_or_insert(now);
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
        let Some(slot) = self.roster.slot_mut(worker) else { return };
        if slot.seat.next_sequence() == first {
            return;
        }
        if was_idle {
            slot.account.granted(now, asked.unwrap_or(now), self.mover);
        }
        self.policy.started(worker, now);
        slot.seat.asked = Some(now);
        if slot.seat.under_way() == window {
            slot.seat.asked = None;
            self.waiting.remove(worker);
        }
        self.send_parameters(peer, worker, first, out);
    }

    /// Gives the current version to those who compute on an earlier one in vain.
    fn supersede(&mut self, now: Time, out: &mut Outbox) {
        let version = self.version();
        let is_behind = |slot: &Slot| slot.seat.under_way() > 0 && slot.seat.given < version;
        let all = self.roster.iter().filter(|(_, slot)| is_behind(slot));
        let behind: Vec<WorkerId> = all.map(|(worker, _)| worker).collect();
        for worker in behind {
            self.supersede_for(now, worker, out);
        }
    }

    /// Gives `worker` the current version if it computes on an earlier one in vain. Its pushes are
    /// called off, and new ones allowed in their place: it begins at once, even while a gradient is
    /// on its way. Until it has been heard again nothing more is sent: over a slow link versions
    /// would pile up.
    pub(super) fn supersede_for(&mut self, now: Time, worker: WorkerId, out: &mut Outbox) {
        let version = self.version();
        if self.phase != Phase::Training || !self.policy.cancels() || self.is_measuring() {
            return;
        }
        let Some(slot) = self.roster.slot_mut(worker) else { return };
        let Some(peer) = slot.peer.filter(|_| !slot.seat.grants.is_empty()) else { return };
        if slot.seat.unsure && !self.group.is_alone() {
            return; // it may not be connected to all servers yet
        }
        if slot.seat.given < version && !slot.seat.is_superseding {
            slot.seat.is_superseding = true;
            // It will say that they have come.
            slot.seat.idle.asked();
            let sequence = slot.seat.next_sequence();
            let here = slot.seat.call_off(version, now);
            out.push(Effect::Report(Event::Superseded { worker, sequence, version }));
            for late in here.into_values().filter_map(Arriving::into_own) {
                self.take_late(now, worker, &late, out);
            }
            self.send_parameters(peer, worker, sequence, out);
        }
    }

    /// Throws away what is in the open round: it will not become an update.
    pub(super) fn discard_round(&mut self) {
        let discarded = self.store.gathered() as u64;
        self.discard();
        self.ledger.discarded += discarded;
        self.ledger.outstanding -= discarded;
    }
}
