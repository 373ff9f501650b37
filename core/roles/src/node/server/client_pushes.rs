//! Clients that push values for a key range.
//!
//! A client that may do so is asked for the values part by part: no frame is longer than a part,
//! and the server holds no more than has arrived. A complete push waits for the run to quiesce,
//! like a change of mode: work under way comes back, the gathered gradients become an update, and
//! all members start afresh on parameters that are one version later. So no gradient is computed on
//! part of a push, on any server. A round that is open is finished first, with the workers that it
//! still needs.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, Version};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::params::{KeyRange, first_not_finite};
use pstrain_compute::time::Time;
use pstrain_policy::job::Redundancy;
use pstrain_wire::decision::Decision;
use pstrain_wire::range::{PartDue, PushRange, PushRule, PushedRange, RangePart, RangePushed};
use pstrain_wire::{Limits, Message, Phase, Refusal};

/// The most clients whose values may be held at once: each may push one for every parameter.
const MOST_PUSHERS: usize = 4;

/// A client that sends values.
#[derive(Debug, Serialize, Deserialize)]
struct Pusher {
    peer: PeerId,
    due: PartDue,
    heard: Time,
    pushed: PushedRange,
}

/// A complete push.
#[derive(Debug, Serialize, Deserialize)]
struct Whole {
    /// The client, while it is connected.
    peer: Option<PeerId>,
    since: Time,
    /// The version whose round was open when the push was complete.
    round: Version,
    pushed: PushedRange,
}

/// The values that clients push.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Pushes {
    coming: Vec<Pusher>,
    /// Complete pushes that wait for the run to quiesce, in the order of their completion.
    whole: VecDeque<Whole>,
}

impl Pushes {
    /// The connections.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.coming.iter().map(|pusher| pusher.peer).chain(self.askers())
    }

    /// The connections of clients whose push is complete.
    pub(super) fn askers(&self) -> impl Iterator<Item = PeerId> {
        self.whole.iter().filter_map(|whole| whole.peer)
    }

    /// True if values are expected from this client.
    pub(super) fn is_awaited(&self, peer: PeerId) -> bool {
        self.coming.iter().any(|pusher| pusher.peer == peer)
    }

    /// Since when the first complete push has been waiting.
    pub(super) fn since(&self) -> Option<Time> {
        self.whole.front().map(|whole| whole.since)
    }

    /// Removes a connection. A complete push is applied all the same.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.coming.retain(|pusher| pusher.peer != peer);
        let its = self.whole.iter_mut().filter(|whole| whole.peer == Some(peer));
        its.for_each(|whole| whole.peer = None);
    }

    /// Handles part of a long message from this client; false if no values are expected from it.
    pub(super) fn hear(&mut self, now: Time, peer: PeerId) -> bool {
        let mut its = self.coming.iter_mut().filter(|pusher| pusher.peer == peer);
        its.next().map(|pusher| pusher.heard = now).is_some()
    }

    /// Returns when the client that has been silent for longest was last heard.
    pub(super) fn heard(&self) -> Option<Time> {
        self.coming.iter().map(|pusher| pusher.heard).min()
    }
}

impl Server {
    /// Handles a client's request to push values: asks for the first part.
    pub(super) fn on_push_range(
        &mut self,
        now: Time,
        peer: PeerId,
        push: PushRange,
        out: &mut Outbox,
    ) {
        if let Err(why) = self.check_client(peer, &Message::PushRange(push)) {
            return self.refuse(now, peer, why, out);
        }
        let keys = push.keys.unwrap_or(self.keys);
        let first = PartDue::at(keys, keys.begin()).filter(|_| self.keys.contains(keys));
        let Some(due) = first else {
            let why = Refusal::Keys { given: keys, values: 0, wanted: self.keys };
            return self.refuse(now, peer, why, out);
        };
        if self.clients.pushes.coming.len() + self.clients.pushes.whole.len() >= MOST_PUSHERS {
            let what = String::from("other clients are pushing values to it; try again");
            return self.refuse(now, peer, Refusal::Server { what }, out);
        }
        self.forget_stranger(peer);
        if let Err(why) = self.check_pushes(keys, push.how) {
            return answer(peer, Err(why), out);
        }
        let pushed = PushedRange { keys, how: push.how, parts: Vec::new() };
        self.clients.pushes.coming.push(Pusher { peer, due, heard: now, pushed });
        out.push(Effect::Limit(peer, Limits::PUSHER));
        out.push(Effect::Send(peer, Message::PartDue(due)));
    }

    /// Checks that clients may change the parameters of `keys` now; if not, returns the reason.
    fn check_pushes(&self, keys: KeyRange, how: PushRule) -> Result<(), String> {
        if !self.may_change() {
            return Err("the run is over, or about to be".into());
        }
        let sets_all = keys == self.keys && how == PushRule::Set;
        if !self.initial.is_known() && !sets_all {
            return Err("the initial parameters have not come from a worker yet; push after \
                        training has begun, or set all parameters"
                .into());
        }
        let is_made_anew = matches!(self.job.update.optimizer, OptimizerSpec::Ftrl { .. });
        if is_made_anew && self.lifecycle.phase() != Phase::Gathering {
            return Err(
                "optimizer = ftrl makes each parameter of what it remembers, so that what is \
                        pushed would be gone with the next update; push before training begins"
                    .into(),
            );
        }
        Ok(())
    }

    /// Receives a part of the values, from a client that was asked for one.
    pub(super) fn on_range_part(
        &mut self,
        now: Time,
        peer: PeerId,
        part: RangePart,
        out: &mut Outbox,
    ) {
        let mut coming = self.clients.pushes.coming.iter_mut();
        let Some(place) = coming.position(|pusher| pusher.peer == peer) else {
            unreachable!("values come from a client that was asked for them")
        };
        let mut pusher = self.clients.pushes.coming.swap_remove(place);
        if let Err(what) = check_part(&part, pusher.due) {
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        let keys = pusher.due.keys;
        let next = PartDue::at(keys, part.keys.end());
        pusher.pushed.parts.push(part);
        if let Some(due) = next {
            (pusher.due, pusher.heard) = (due, now);
            self.clients.pushes.coming.push(pusher);
            return out.push(Effect::Send(peer, Message::PartDue(due)));
        }
        let (round, pushed) = (self.version(), pusher.pushed);
        self.clients.pushes.whole.push_back(Whole { peer: Some(peer), since: now, round, pushed });
        self.settle(now, out);
    }

    /// Refuses clients that have not sent the values they were asked for within a lease.
    pub(super) fn expire_pushers(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.job.membership.lease;
        let silent = |pusher: &&Pusher| now >= pusher.heard + lease;
        while let Some(peer) =
            self.clients.pushes.coming.iter().find(silent).map(|pusher| pusher.peer)
        {
            let what = alloc::format!("no values came within {lease:?}");
            self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
    }

    /// True if no parameters may be given out because of a complete push. The round that was open
    /// at its completion is finished first: until it has closed, its workers are given parameters.
    pub(super) fn awaits_push(&self) -> bool {
        let is_open = |whole: &Whole| {
            let in_rounds =
                self.rounds.policy.in_rounds() || self.job.redundancy != Redundancy::None;
            in_rounds && self.rounds.cohort.contributions() > 0 && whole.round == self.version()
        };
        self.clients.pushes.whole.front().is_some_and(|whole| !is_open(whole))
    }

    /// Applies the first complete push to the parameters, if the run has quiesced; returns whether
    /// it did.
    pub(super) fn pass_push(&mut self, now: Time, out: &mut Outbox) -> bool {
        // One change at a time. All servers must be connected: one that is away would follow the
        // push later than the others.
        let is_free = self.modes.ordered.is_none()
            && self.group.changes.cut().is_none()
            && self.group.first_away().is_none()
            && !self.is_measuring();
        let may = self.may_change() && is_free && self.awaits_push();
        if !may || !self.quiesce(now, out) {
            return false;
        }
        let Some(Whole { peer, pushed, .. }) = self.clients.pushes.whole.pop_front() else {
            unreachable!("a complete push is awaited")
        };
        let checked = self.check_pushes(pushed.keys, pushed.how);
        if checked.is_ok() {
            self.restart_cohort(now, out);
            self.push(pushed, out);
        }
        let result = checked.map(|()| self.version());
        peer.into_iter().for_each(|peer| answer(peer, result.clone(), out));
        true
    }

    fn push(&mut self, pushed: PushedRange, out: &mut Outbox) {
        let how = pushed.how;
        for part in &pushed.parts {
            self.store.push(how, part);
            self.group.tell(|| Decision::PushRange { how, part: part.clone() });
        }
        if how == PushRule::Set {
            self.note_set(pushed.keys);
        }
        // One new version for the whole push, after its last part.
        self.rounds.cohort.renew();
        let (point, keys) = (self.point(), pushed.keys);
        out.push(Effect::Report(Event::RangePushed { point, keys, how, pushed: Arc::new(pushed) }));
    }

    /// Drops all pushes and answers their clients with `why`.
    pub(super) fn stop_pushes(&mut self, why: &str, out: &mut Outbox) {
        let pushes = core::mem::take(&mut self.clients.pushes);
        pushes.peers().for_each(|peer| answer(peer, Err(why.to_string()), out));
    }
}

/// Checks that a part is the one that is due, and that it can be applied.
pub(super) fn check_part(part: &RangePart, due: PartDue) -> Result<(), String> {
    if part.keys != due.part {
        let (came, due) = (part.keys, due.part);
        return Err(alloc::format!("values for keys {came} came where those for {due} are due"));
    }
    let Some(values) = part.values() else {
        return Err(alloc::format!("the values for keys {} are in no known form", part.keys));
    };
    match first_not_finite(part.keys, &values) {
        Some(key) => Err(alloc::format!(
            "the value for key {key} is not finite, so nothing was pushed; leave it out, or give a \
             number"
        )),
        None => Ok(()),
    }
}

/// Tells a client the outcome of its push.
fn answer(peer: PeerId, result: RangePushed, out: &mut Outbox) {
    out.push(Effect::Send(peer, Message::RangePushed(result)));
    out.push(Effect::Close(peer));
}
