//! The end of a run on request: the members' last models become its result.
//!
//! A run that keeps checkpoints takes one first, from which it can be resumed. Then the group
//! halts, and the meeting point asks for the parameters: one member that has the latest
//! version where all have the same, and all members where each has a model of its own. Workers at
//! their own pace rest instead of halting, as at the end of the budget. A run whose members do not
//! answer within a lease ends with the parameters that it has.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Meeting;
use super::checkpoints::Checkpoints;
use super::members::Presence;
use crate::node::{Effect, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::peers::Show;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Phase};

/// Stands for the version of the last models: no update makes it.
pub(super) const LAST: Version = Version(u64::MAX);

/// The last models that have come; none of a member whose model is awaited.
type Models = BTreeMap<WorkerId, Option<Arc<Vec<f32>>>>;

/// A stop that is under way.
#[derive(Debug)]
pub(super) struct Stop {
    since: Time,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The members train until a checkpoint is on the disk, or one of them is lost.
    Saving,
    /// The members halt, or rest.
    Halting,
    /// The models that have come, of the members that are asked for theirs.
    Asked(Models),
    /// The models are evaluated.
    Evaluating,
}

impl Stop {
    /// True if the last models have come.
    pub(super) const fn is_evaluating(&self) -> bool {
        matches!(self.stage, Stage::Evaluating)
    }

    /// True if the members need not train any more.
    const fn ends_training(&self) -> bool {
        !matches!(self.stage, Stage::Saving)
    }

    fn asks(&self, worker: WorkerId) -> bool {
        matches!(&self.stage, Stage::Asked(models) if models.contains_key(&worker))
    }
}

impl Meeting {
    /// Ends the run on request: at once if it has not begun, or is asked a second time.
    pub(super) fn stop(&mut self, now: Time, out: &mut Outbox) {
        if self.lifecycle.phase() != Phase::Training || self.stop.is_some() {
            return self.end(now, EndReason::Stopped, out);
        }
        self.stop = Some(Stop { since: now, stage: Stage::Saving });
        self.save_now(out);
        self.halt_once_saved(now, out);
    }

    /// True if the run is stopped, and the members need not train any more.
    pub(super) fn ends_on_request(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::ends_training)
    }

    /// Halts the group for a stop, unless a checkpoint is awaited that the run can be resumed from.
    pub(super) fn halt_once_saved(&mut self, now: Time, out: &mut Outbox) {
        let is_saving = self.stop.as_ref().is_some_and(|stop| !stop.ends_training());
        if !is_saving || self.is_saving() && self.group.is_training() {
            return;
        }
        self.stop = Some(Stop { since: now, stage: Stage::Halting });
        // The group may have fewer members by now than in an undisturbed run.
        self.checkpoints.iter_mut().for_each(Checkpoints::give_up);
        match self.job.architecture.is_asynchronous() {
            true => self.request(out),
            false => self.halt(now, String::from("the run is stopped"), out),
        }
    }

    /// The members have halted for a stop: asks for their models.
    pub(super) fn ask_for_last_models(&mut self, now: Time, out: &mut Outbox) {
        self.dissolve();
        let is_gossip = self.job.architecture.is_gossip();
        let there = self.slots.with(Presence::Ready).filter(|(_, slot)| !slot.joins);
        let there: Vec<_> =
            there.filter_map(|(worker, slot)| Some((worker, slot.version, slot.peer?))).collect();
        let latest = there.iter().map(|(_, version, _)| *version).max().unwrap_or_default();
        let ends_at = if is_gossip { self.lockstep.version() } else { latest };
        let is_known = self.snapshot.0.version == ends_at;
        let most = if is_gossip { there.len() } else { 1 };
        let asked = there.iter().filter(|(_, version, _)| is_gossip || *version == latest);
        let asked: Vec<_> = asked.take(if is_known { 0 } else { most }).collect();
        let models: Models = asked.iter().map(|(worker, ..)| (*worker, None)).collect();
        for (.., peer) in asked {
            out.push(Effect::Send(*peer, Message::Show(Show { number: LAST.0 })));
        }
        self.advance_stop(now, models, out);
    }

    /// Repeats the request for the last model to a member that may have missed it.
    pub(super) fn repeat_stop(&self, worker: WorkerId, peer: PeerId, out: &mut Outbox) {
        if self.stop.as_ref().is_some_and(|stop| stop.asks(worker)) {
            out.push(Effect::Send(peer, Message::Show(Show { number: LAST.0 })));
        }
    }

    /// A member has sent its last model.
    pub(super) fn on_last_model(
        &mut self,
        now: Time,
        worker: WorkerId,
        values: Arc<Vec<f32>>,
        out: &mut Outbox,
    ) {
        if let Some(Stop { stage: Stage::Asked(models), .. }) = &mut self.stop
            && let Some(model) = models.get_mut(&worker)
        {
            *model = Some(values);
            let models = core::mem::take(models);
            self.advance_stop(now, models, out);
        }
    }

    /// A member is gone: if it was asked for its model, the others are asked again.
    pub(super) fn stop_without(&mut self, now: Time, worker: WorkerId, out: &mut Outbox) {
        if self.stop.as_ref().is_some_and(|stop| stop.asks(worker)) {
            self.ask_for_last_models(now, out);
        }
    }

    /// All members have an update that one of them has made: it has the gradients of all.
    fn have_all_made(&mut self, now: Time, version: Version, out: &mut Outbox) {
        for worker in self.group.members().collect::<Vec<_>>() {
            self.slots[worker].made(version);
        }
        self.catch_up(now, out);
    }

    /// Evaluates the last models once all are here.
    fn advance_stop(&mut self, now: Time, models: Models, out: &mut Outbox) {
        let Some(stop) = &mut self.stop else { unreachable!("models are asked for by a stop") };
        if models.values().any(Option::is_none) {
            stop.stage = Stage::Asked(models);
            return;
        }
        stop.stage = Stage::Evaluating;
        let version = models.keys().next().map(|worker| self.slots[*worker].version);
        let models: Vec<_> = models.into_values().flatten().collect();
        match (version, models.first()) {
            (Some(version), Some(model)) if !self.job.architecture.is_gossip() => {
                self.have_all_made(now, version, out);
                self.evaluate(now, self.point(), Arc::clone(model), out);
            }
            (_, Some(_)) => self.evaluate_mean(now, self.point(), &models, out),
            (_, None) => {} // the latest are known, or no member has them
        }
    }

    /// When a stop waits no longer.
    pub(super) fn stops_at(&self) -> Option<Time> {
        let stop = self.stop.as_ref().filter(|_| self.lifecycle.phase() == Phase::Training)?;
        Some(stop.since + self.job.membership.lease)
    }
}
