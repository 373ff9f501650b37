//! Requests to workers that train at their own pace.
//!
//! While they train, the meeting point asks for their models to evaluate the mean; the members go
//! on meanwhile. For the end of the run and for a checkpoint it asks them to rest: each begins no
//! update, and answers once its own exchange is over. When all rest no exchange is under way, so
//! that the mean of their models is exact.
//!
//! A worker makes a few updates more than the meeting point has counted, and not many more: the
//! budget is one of all workers.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Meeting;
use crate::node::{Effect, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::peers::{Allow, Rest, Rested, Show};
use pstrain_wire::{Message, Phase};

/// Most updates of a worker that the meeting point has not counted. It allows them in halves.
const MOST_UNCOUNTED: u64 = 64;

/// The requests that are open.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// True if an evaluation is due.
    is_due: bool,
    /// The number of the request for models that is open.
    shown: Option<u64>,
    stage: Stage,
    /// The number of the last request to rest.
    rest: u64,
    /// The number of the last request.
    number: u64,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Training,
    /// These members do not rest yet.
    Ending(BTreeSet<WorkerId>),
    /// All rest.
    Resting,
    /// All rest for the end of the run, and the mean of their models is known.
    Ended,
}

impl Pace {
    /// An evaluation is due.
    pub(super) const fn evaluate(&mut self) {
        self.is_due = true;
    }

    /// True if the mean of the last models is known.
    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// A group is formed. Requests to the last one are void.
    pub(super) fn regroup(&mut self) {
        if !self.has_ended() {
            self.is_due |= self.shown.is_some();
            self.shown = None;
            self.stage = Stage::Training;
        }
    }
}

impl Meeting {
    /// Updates of a worker that makes them alone; 0 of one that makes them with all others.
    pub(super) fn first_version(&self, worker: WorkerId) -> Version {
        match self.job.architecture.is_asynchronous() {
            true => Version(self.lockstep.batch(worker).0),
            false => Version(0),
        }
    }

    /// Allows a worker updates: a few more than were counted, and fewer towards the end of the
    /// budget.
    pub(super) fn allow(&mut self, worker: WorkerId, out: &mut Outbox) {
        let left = self.lockstep.samples_wanted().saturating_sub(self.lockstep.samples());
        let updates = left / u64::from(self.job.batch_size.max(1));
        let workers = u64::from(self.job.membership.workers.max(1));
        let uncounted = (updates / workers / 2).clamp(1, MOST_UNCOUNTED);
        if !self.group.has(worker) {
            return; // its next group allows it
        }
        let slot = &mut self.slots[worker];
        let version = Version(slot.version.0 + uncounted);
        if slot.version.0 + uncounted.div_ceil(2) >= slot.allowed.0 && version > slot.allowed {
            slot.allowed = version;
            let allow = Message::Allow(Allow { version });
            out.extend(slot.peer.map(|peer| Effect::Send(peer, allow)));
        }
    }

    /// Asks the members for what is due.
    pub(super) fn request(&mut self, out: &mut Outbox) {
        if self.lifecycle.phase() != Phase::Training || !self.group.is_training() {
            return;
        }
        let is_over = self.lockstep.is_over() || self.ends_on_request();
        let is_saved = self.checkpoint_is_due();
        match &self.pace.stage {
            Stage::Training if is_over || is_saved => {
                self.pace.number += 1;
                (self.pace.rest, self.pace.shown) = (self.pace.number, None);
                self.pace.stage = Stage::Ending(self.group.members().collect());
                self.tell_members(Message::Rest(Rest { number: self.pace.rest, rests: true }), out);
            }
            Stage::Training if self.pace.is_due && self.pace.shown.is_none() => self.show(out),
            Stage::Resting if is_over && self.pace.shown.is_none() => self.show(out),
            Stage::Resting | Stage::Ended if is_saved => self.ask_for_states(out),
            _ => {}
        }
    }

    fn show(&mut self, out: &mut Outbox) {
        self.pace.number += 1;
        let number = self.pace.number;
        (self.pace.is_due, self.pace.shown) = (false, Some(number));
        self.tell_members(Message::Show(Show { number }), out);
    }

    fn tell_members(&self, message: Message, out: &mut Outbox) {
        let peers = self.group.members().filter_map(|worker| self.slots[worker].peer);
        out.extend(peers.map(|peer| Effect::Send(peer, message.clone())));
    }

    /// Repeats requests to a member that may have missed them.
    pub(super) fn repeat_requests(&mut self, worker: WorkerId, peer: PeerId, out: &mut Outbox) {
        let is_asynchronous = self.job.architecture.is_asynchronous();
        if !is_asynchronous || !self.group.is_training() || !self.group.has(worker) {
            return;
        }
        let version = self.slots[worker].allowed;
        if version.0 > 0 {
            out.push(Effect::Send(peer, Message::Allow(Allow { version })));
        }
        if let Stage::Ending(members) = &self.pace.stage
            && members.contains(&worker)
        {
            let rest = Rest { number: self.pace.rest, rests: true };
            out.push(Effect::Send(peer, Message::Rest(rest)));
        }
        if let Stage::Training = self.pace.stage {
            let rest = Rest { number: self.pace.rest, rests: false };
            out.push(Effect::Send(peer, Message::Rest(rest)));
        }
        if let Some(number) = self.pace.shown {
            out.push(Effect::Send(peer, Message::Show(Show { number })));
        }
        self.ask_again(worker, peer, out);
    }

    /// A member has no update under way.
    pub(super) fn on_rested(
        &mut self,
        worker: WorkerId,
        Rested { number }: Rested,
        out: &mut Outbox,
    ) {
        if let Stage::Ending(members) = &mut self.pace.stage
            && number == self.pace.rest
        {
            members.remove(&worker);
            if members.is_empty() {
                self.pace.stage = Stage::Resting;
                self.request(out);
            }
        }
    }

    /// The checkpoint has the states of all members: they go on.
    pub(super) fn go_on(&mut self, out: &mut Outbox) {
        if let Stage::Resting = self.pace.stage {
            self.pace.stage = Stage::Training;
            self.tell_members(Message::Rest(Rest { number: self.pace.rest, rests: false }), out);
            self.request(out);
        }
    }

    /// A member has sent its model.
    pub(super) fn on_shown(
        &mut self,
        now: Time,
        worker: WorkerId,
        version: Version,
        values: Arc<Vec<f32>>,
        out: &mut Outbox,
    ) {
        // Models under another number are of an earlier request, repeated after a reconnect.
        if self.pace.shown != Some(version.0) || !self.group.is_training() {
            return;
        }
        self.models.insert(worker, version, values);
        let group = &self.group;
        let models = self
            .models
            .take(version, |models| group.members().all(|worker| models.contains_key(&worker)));
        let Some(models) = models else { return }; // others are on their way
        // A worker that is gone has no part in the mean.
        let models = models.into_iter().filter(|(worker, _)| group.has(*worker));
        let models: Vec<Arc<Vec<f32>>> = models.map(|(_, model)| model).collect();
        self.pace.shown = None;
        if let Stage::Resting = self.pace.stage {
            self.pace.stage = Stage::Ended;
        }
        // The members have gone on meanwhile: the point is not before their models.
        self.evaluate_mean(now, self.point(), &models, out);
        self.request(out);
    }
}
