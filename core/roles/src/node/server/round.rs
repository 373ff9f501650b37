//! Rounds: gradients are gathered, combined in worker order and applied, then workers released.

use alloc::vec::Vec;

use super::Server;
use super::measuring::What;
use super::roster::{Presence, Slot};
use crate::node::by_workers::MOST_BY_WORKERS;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{Clock, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::job::BudgetKind;
use pstrain_policy::rules::Closing;
use pstrain_policy::work::Share;
use pstrain_wire::Phase;
use pstrain_wire::decision::Contribution;
use pstrain_wire::worker::{EndReason, Push};

/// The most evaluations under way. If they take longer than the epochs between them, points of the
/// curve are left out instead of queued; the last version is always evaluated.
const MOST_EVALUATIONS: usize = 32;

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
        contribution.clock = self.rounds.cohort.contribute(worker);
        if let Some(assigner) = &mut self.rounds.assigner {
            assigner.took(worker, contribution.task);
            self.rounds.cohort.set_covered(assigner.is_covered());
        }
        self.gather(contribution, push, factor);
        self.rounds.policy.contributed(&self.rounds.cohort, worker, now);
        self.retire_if_finished(worker);
    }

    /// Takes `worker` out of the cohort once it has finished its share: no other may wait for it
    /// any more.
    pub(super) fn retire_if_finished(&mut self, worker: WorkerId) {
        let slot = &self.members.roster[worker];
        if slot.batches.accepted() >= self.quota(slot.rows) {
            self.members.finished.insert(worker);
            self.retire(worker);
        }
    }

    /// Takes `worker` out of the cohort and keeps its clock.
    pub(super) fn retire(&mut self, worker: WorkerId) {
        self.members.joining.remove(&worker);
        if let Some(clock) = self.rounds.cohort.leave(worker) {
            self.members.roster[worker].clock = clock;
            self.rounds.policy.left(&self.rounds.cohort, worker);
            if let Some(auto) = &mut self.modes.auto {
                auto.left(worker);
            }
        }
    }

    /// True if too few workers are present to continue.
    pub(super) fn is_short(&self) -> bool {
        let needed = self.job.membership.needed_to_run();
        self.members.roster.ready() < needed && self.members.present() < needed || self.is_stuck()
    }

    /// True if the open round needs a worker that is not present.
    fn is_stuck(&self) -> bool {
        self.lifecycle.phase() == Phase::Training && self.rounds.is_stuck()
    }

    /// Returns the number of workers that must be present to continue.
    pub(super) fn needed(&self) -> u32 {
        let needed = self.job.membership.needed_to_run();
        if self.is_stuck() { needed.max(self.members.present() + 1) } else { needed }
    }

    /// Takes every step that has become possible: starts, updates, gives out parameters, ends the
    /// run. An event handler that may have made one possible calls it last. The order of the steps
    /// is an invariant, for the reasons given at each.
    pub(super) fn settle(&mut self, now: Time, out: &mut Outbox) {
        self.see_to_initial(now, out);
        if self.lifecycle.phase() == Phase::Gathering
            && self.members.roster.ready() >= self.job.membership.needed_to_start()
            && self.initial.is_known()
        {
            self.begin(now, out);
        }
        self.watch_attendance(now, out);
        // First the update that waited for sums, since no other step is possible before; then the
        // repeated grants that waited with it, since the next step may begin another measurement.
        let before = self.version();
        let made = self.finish_measurements(now, out);
        self.repeat_deferred_grants(now, out);
        // A change at a quiesce point (mode, key map) can make further steps possible: for example,
        // it lets newcomers join. A scheduled mode change is ordered after the updates that make it
        // due and before parameters are given out, which it stops.
        loop {
            while self.step(now, out) {}
            self.order_due(now);
            if !self.try_begin_mode(now, out) && !self.move_keys(now, out) {
                break;
            }
        }
        self.rounds.next_turn = None;
        if self.may_give_out() {
            // Superseding comes first: `give_out` records the version that it sends, after which
            // the worker's earlier mini-batches would count as up to date.
            if (made || self.version() > before) && self.rounds.policy.cancels() {
                self.supersede(now, out);
            }
            self.give_out(now, out);
        }
        // After `give_out`: a verdict for want of answers must know who still computes.
        self.settle_doubt(now, out);
        if self.lifecycle.phase() == Phase::Draining
            && self.rounds.busy == 0
            && !self.is_measuring()
            && !self.awaits_checkpoint()
        {
            self.end(now, EndReason::Stopped, out);
        }
        if !self.group.gone.is_empty() {
            self.dismiss_gone(out);
        }
        self.see_to_evaluations(now, out);
        self.release_members(now, out);
        // Last: any step before may have ended the run, and `end` leaves all that follows to this
        // call.
        self.finish_if_done(now, out);
    }

    fn begin(&mut self, now: Time, out: &mut Outbox) {
        self.lifecycle.train(now);
        self.group.begin_phase(now);
        let ready: Vec<WorkerId> = self
            .members
            .roster
            .iter()
            .filter(|(_, slot)| slot.presence == Presence::Ready)
            .map(|(worker, _)| worker)
            .collect();
        for &worker in &ready {
            let slot = &mut self.members.roster[worker];
            // Until now the worker waited for the others to join, not for parameters.
            slot.pushes.asked = slot.pushes.asked.map(|_| now);
            let clock = slot.clock;
            self.count(worker, clock);
        }
        self.count_down(now, out);
        out.push(Effect::Report(Event::Started { workers: ready.len() as u32 }));
        self.evaluate(out);
    }

    /// Makes one change to the cohort or the version; false if there is none to make.
    fn step(&mut self, now: Time, out: &mut Outbox) -> bool {
        if !matches!(self.lifecycle.phase(), Phase::Training | Phase::Draining)
            || self.is_measuring()
        {
            return false;
        }
        if self.rounds.cohort.contributions() > 0 {
            let held = self.rounds.policy.in_rounds() && self.is_short();
            // A round does not close while too few workers are present.
            let closing = match self.rounds.policy.closes(&self.rounds.cohort) {
                _ if held => Closing::NotYet,
                // No other gradient can arrive.
                Closing::NotYet if self.rounds.is_used_up() => self.rounds.policy.flushes(),
                closing => closing,
            };
            if closing == Closing::NotYet {
                self.merge_waiting();
                return false;
            }
            self.close(now, closing, out);
            return true;
        }
        if self.rounds.is_used_up() {
            self.end(now, EndReason::BudgetReached, out);
            return false;
        }
        if !self.rounds.cohort.is_empty() {
            return false;
        }
        if !self.members.joining.is_empty() {
            self.admit_joining(); // no round to wait for
            return true;
        }
        if self.all_finished() {
            self.end(now, EndReason::BudgetReached, out);
        }
        false
    }

    /// Merges the gradients that wait for the next update into as few vectors as possible.
    fn merge_waiting(&mut self) {
        // Where an update takes whole iterations, the waiting gradients belong to several of them.
        if self.rounds.policy.flushes() == Closing::Everything && self.store.can_merge() {
            self.merge();
        }
    }

    /// Returns the number of gradient vectors that the open round keeps in memory. Gradients of one
    /// worker from one part of the data are summed as they arrive: at most one vector for each
    /// pair, under every mode that allows it.
    #[must_use]
    pub fn vectors_held(&self) -> usize {
        self.store.vectors()
    }

    /// True if a partition budget is used up: every present worker has finished its share.
    fn all_finished(&self) -> bool {
        let done = |(worker, slot): (WorkerId, &Slot)| {
            !slot.presence.is_alive() || self.members.finished.contains(&worker)
        };
        !self.members.finished.is_empty() && self.members.roster.iter().all(done)
    }

    /// Adds `worker` to the cohort, at `clock`.
    pub(super) fn count(&mut self, worker: WorkerId, clock: Clock) {
        let rows = self.members.roster[worker].rows;
        self.rounds.cohort.join(worker, clock, self.job.pass_over(rows));
    }

    pub(super) fn admit_joining(&mut self) {
        while let Some(worker) = self.members.joining.pop_first() {
            let clock = self.entry().unwrap_or(self.members.roster[worker].clock);
            self.count(worker, clock);
        }
    }

    /// Returns the clock at which a newcomer joins, if the cohort has members: the slowest
    /// member's, since behind it a newcomer would hold the others back; the fastest member's if the
    /// policy wants newcomers in front.
    pub(super) fn entry(&self) -> Option<Clock> {
        if self.rounds.policy.joins_in_front() {
            self.rounds.cohort.fastest()
        } else {
            self.rounds.cohort.slowest()
        }
    }

    /// Applies the contributions that `closing` selects as one update. If the update needs sums
    /// over the keys of all servers (norms, distances), this only begins it: no parameters are
    /// given out until all servers have answered.
    pub(super) fn close(&mut self, now: Time, closing: Closing, out: &mut Outbox) {
        if closing == Closing::NotYet {
            return;
        }
        let version = self.rounds.cohort.version();
        let chosen = self.store.choose(closing, self.rounds.cohort.oldest(), version);
        let weights = self.rounds.assigner.as_ref().and_then(|assigner| {
            let share =
                |c: &Contribution| Share { worker: c.worker, task: c.task, samples: c.samples };
            assigner.weights(&self.store.chosen(&chosen).map(share).collect::<Vec<_>>())
        });
        let factors = weights.as_ref().map(|weights| weights.factors.as_slice());
        let interval = self.job.stopping.interval(self.train_rows());
        let evaluations = self.progress.samples / interval;
        // The number that this Close decision is about to get: the answers of the other servers
        // name it.
        let decision = self.group.next();
        // Recorded before `cohort.close`: the other servers select the same contributions by the
        // version and the oldest iteration of this moment.
        self.tell_close(closing, factors);
        // Copied first: `update` consumes the contributions.
        let mut applied = core::mem::take(&mut self.rounds.buffers.applied);
        applied.extend(self.store.chosen(&chosen).copied());
        self.early.made(version.next(), &applied);
        self.store.update(chosen, closing, version, factors);
        for contribution in applied.drain(..) {
            let Contribution { worker, incarnation, sequence, task, clock, base, samples, granted } =
                contribution;
            if weights.is_none() {
                self.progress.samples += u64::from(samples);
            }
            self.progress.ledger.applied += 1;
            self.progress.ledger.outstanding -= 1;
            let staleness = version.since(base);
            let slot = &mut self.members.roster[worker];
            slot.updates += 1;
            slot.account.staleness = staleness;
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
        self.rounds.buffers.applied = applied;
        out.extend(self.store.spares().map(Effect::Recycle));
        self.progress.samples += weights.map_or(0, |weights| weights.samples);
        // From here on the version is the new one, for policy, assigner and events alike.
        self.rounds.cohort.close(closing);
        if let Some(assigner) = &mut self.rounds.assigner {
            assigner.updated(&self.rounds.cohort);
            self.rounds.cohort.set_covered(false);
        }
        self.rounds.policy.closed(&self.rounds.cohort, closing);
        self.progress.last_update = now;
        let point = self.point();
        out.push(Effect::Report(Event::Updated { point, closing }));
        // Newcomers join once the round has closed: they count from the next one on.
        self.admit_joining();
        let evaluates = self.progress.samples / interval > evaluations;
        // Without sums over all keys the parameters are complete now. Otherwise they stay those of
        // the version before until `finish_measurements` has all sums, so evaluation and budget
        // wait for it, too.
        match self.store.sums() {
            None => self.updated(now, evaluates, out),
            Some(sums) => {
                self.measure(now, decision, What::Update { evaluates }, sums);
                self.finish_measurements(now, out);
            }
        }
    }

    /// Continues after an update, once the parameters are at the current version.
    pub(super) fn updated(&mut self, now: Time, evaluates: bool, out: &mut Outbox) {
        if evaluates {
            self.evaluate(out);
        }
        self.count_down(now, out);
    }

    /// Tells the policy how much the budget still asks for, and ends the run if that is nothing.
    fn count_down(&mut self, now: Time, out: &mut Outbox) {
        if self.job.budget.kind != BudgetKind::Global {
            return;
        }
        let samples = self.samples_wanted().saturating_sub(self.progress.samples);
        self.rounds.cohort.set_wanted(samples.div_ceil(self.job.whole_batch(self.train_rows())));
        if samples == 0 {
            self.end(now, EndReason::BudgetReached, out);
        }
    }

    /// Requests an evaluation of the current parameters, unless they have been evaluated.
    pub(super) fn evaluate(&mut self, out: &mut Outbox) {
        if self.evaluates_later() {
            return;
        }
        let by_workers = self.evaluates_by_workers();
        let most = if by_workers { MOST_BY_WORKERS } else { MOST_EVALUATIONS };
        let behind = self.evaluations_due() >= most && self.lifecycle.end().is_none();
        if behind || self.evaluations.last == Some(self.version()) {
            return;
        }
        self.evaluations.last = Some(self.version());
        let point = self.point();
        self.show(point, out);
    }

    /// Drops the gradients of the open round: they will not become an update.
    pub(super) fn discard_round(&mut self) {
        let discarded = self.store.gathered() as u64;
        self.discard();
        self.progress.ledger.discarded += discarded;
        self.progress.ledger.outstanding -= discarded;
    }
}
