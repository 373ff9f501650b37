//! Changes of mode: a fence in the order of updates, which loses and duplicates nothing.
//!
//! Once a mode is ordered, nobody is given parameters any more. What is under way comes back and is
//! taken under the old mode; whoever dies meanwhile is taken out by its lease. When nothing is
//! under way, what has been gathered becomes a last update of the old mode, and the new one begins
//! with everybody at the same clock.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Server;
use super::measuring::What;
use crate::node::{Cause, Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::sum::ExactSum;
use pstrain_compute::time::Time;
use pstrain_policy::auto::{Auto, Choice, Seen};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::Redundancy;
use pstrain_policy::mode::Mode;
use pstrain_wire::client::{Begun, Control, Controlled};
use pstrain_wire::decision::Decision;
use pstrain_wire::{Message, Phase};

/// The order that a server shall go, as [`Control::key`]; its value is the server's number.
pub const LEAVE_SERVER: &str = "leave-server";

/// The order that the run shall end, as [`Control::key`]; its value is empty.
pub const STOP: &str = "stop";

/// A mode that was ordered and has not begun.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ordered {
    pub(super) mode: Mode,
    cause: Cause,
    /// The version of the parameters it begins with, if not the current one.
    restore: Option<Version>,
    pub(super) since: Time,
    /// Whether an update has been made so that it can begin, or so that the one whose place it took
    /// could: then all begin anew, even if it turns out to be the mode that there was.
    anew: bool,
    /// Clients that want to know when it has, and what each of them wanted.
    pub(super) askers: Vec<(PeerId, Control)>,
}

impl Ordered {
    /// One that nobody waits for, to begin with the parameters that there are.
    const fn new(mode: Mode, cause: Cause, since: Time) -> Self {
        Self { mode, cause, restore: None, since, anew: false, askers: Vec::new() }
    }
}

impl Server {
    /// A client wants another mode. It is answered once that has begun.
    pub(super) fn on_control(
        &mut self,
        now: Time,
        peer: PeerId,
        control: Control,
        out: &mut Outbox,
    ) {
        let message = Message::Control(control.clone());
        if let Err(why) = self.check_client(peer, &message) {
            return self.refuse(now, peer, why, out);
        }
        self.forget_stranger(peer);
        if let Some(reason) = self.end {
            return answer(peer, Err(alloc::format!("the run has ended: {reason}")), out);
        }
        if control.key == STOP {
            return self.order_stop(now, peer, &control, out);
        }
        if !self.may_change() {
            return answer(peer, Err("the run drains: nothing changes any more".into()), out);
        }
        if control.key == LEAVE_SERVER {
            return self.order_leave(now, peer, &control, out);
        }
        // On top of one that waits: what that changes shall begin, too.
        let base = self.ordered.as_ref().map_or_else(|| self.chosen_mode(), |ordered| ordered.mode);
        let workers = self.job.membership.workers;
        let checked = base.set(&control.key, &control.value).and_then(|mode| {
            mode.consistency.check(workers).map_err(|error| error.to_string())?;
            self.job.check_work(&mode).map_err(|error| error.to_string())?;
            self.job.check_aggregation(&mode).map_err(|error| error.to_string())?;
            self.job.check_sparse(&mode).map_err(|error| error.to_string())?;
            self.job.check_blocks(&mode).map_err(|error| error.to_string())?;
            Ok(mode)
        });
        match checked {
            Err(why) => answer(peer, Err(why), out),
            Ok(mode) => {
                // It takes the place of one that was ordered before and has not begun.
                let before = self.ordered.take();
                let since = before.as_ref().map_or(now, |before| before.since);
                // Whoever wanted other parameters did because the current ones are of no use.
                let restore = before.as_ref().and_then(|before| before.restore);
                let anew = before.as_ref().is_some_and(|before| before.anew);
                let mut askers = before.map_or_else(Vec::new, |before| before.askers);
                askers.push((peer, control));
                let cause = Cause::Ordered;
                self.ordered = Some(Ordered { mode, cause, restore, since, anew, askers });
                self.settle(now, out);
            }
        }
    }

    /// A client wants the run to end, as by [`Input::Drain`](crate::node::Input::Drain). It is
    /// answered at once: what is under way may take long to come back.
    fn order_stop(&mut self, now: Time, peer: PeerId, control: &Control, out: &mut Outbox) {
        if !control.value.is_empty() {
            let why = alloc::format!("stop takes no value, and was given {:?}", control.value);
            return answer(peer, Err(why), out);
        }
        let begun = Begun { version: self.version(), mode: self.mode_in_words() };
        answer(peer, Ok(begun), out);
        self.drain(now, out);
    }

    /// Orders what the job says shall be ordered by now.
    pub(super) fn order_due(&mut self, now: Time) {
        if self.ordered.is_some() || self.phase != Phase::Training {
            return; // one after the other
        }
        let Some(switch) = self.job.switches.get(self.switched) else { return };
        let Some(since) = self.training_since else { return };
        if switch.at.is_due(self.version(), now.since(since)) {
            self.switched += 1;
            let (mode, cause) = (self.chosen_mode().with(switch.to), Cause::Scheduled);
            self.ordered = Some(Ordered::new(mode, cause, now));
        }
    }

    /// When a mode has to be ordered by the clock.
    pub(super) fn order_at(&self) -> Option<Time> {
        if self.ordered.is_some() || self.phase != Phase::Training {
            return None;
        }
        let switch = self.job.switches.get(self.switched)?;
        Some(self.training_since? + switch.at.time()?)
    }

    /// The mode as people chose it: what `auto` makes of it is not theirs.
    pub(super) fn chosen_mode(&self) -> Mode {
        if self.auto.is_some() { Mode::of(ConsistencySpec::Auto) } else { self.mode }
    }

    /// Mini-batches of `worker` that may be under way.
    pub(super) fn window(&self, worker: WorkerId) -> u32 {
        self.auto.as_ref().map_or(self.window, |auto| auto.window(worker))
    }

    /// Lets `auto` see a push, and orders what it chooses.
    pub(super) fn show_auto(
        &mut self,
        worker: WorkerId,
        now: Time,
        given: Time,
        compute: Duration,
        loss: f32,
        out: &mut Outbox,
    ) {
        let Some(auto) = &mut self.auto else { return };
        if self.ordered.is_some() || self.phase != Phase::Training {
            return;
        }
        let rows = self.roster.slot(worker).map_or(0, |slot| slot.rows);
        let version = self.cohort.version();
        let seen = Seen { worker, now, given, compute, loss, rows, version };
        let choice = auto.pushed(&self.mode, seen);
        self.follow_auto(now, choice, out);
    }

    /// Lets `auto` know what was seen of the parameters that it wanted to look at, added up over
    /// all keys.
    pub(super) fn looked(&mut self, now: Time, sums: &[ExactSum], out: &mut Outbox) {
        let choice = self.auto.as_mut().and_then(|auto| auto.looked(&self.mode, sums));
        // Somebody may have ordered another mode while it was being measured, and another `auto`.
        self.follow_auto(now, choice.filter(|_| self.ordered.is_none()), out);
    }

    /// Lets `auto` go back from `version`, which has diverged; whether the run goes on.
    pub(super) fn outlives(&mut self, now: Time, version: Version, out: &mut Outbox) -> bool {
        let may = self.phase == Phase::Training && self.ordered.is_none();
        let Some(auto) = self.auto.as_mut().filter(|_| may) else { return self.is_going_back() };
        let choice = auto.diverged(&self.mode, version);
        let goes_on = choice.is_some();
        self.follow_auto(now, choice, out);
        goes_on
    }

    /// Whether earlier parameters take the place of the current ones once nothing is under way.
    pub(super) fn is_going_back(&self) -> bool {
        self.ordered.as_ref().is_some_and(|ordered| ordered.restore.is_some())
    }

    fn follow_auto(&mut self, now: Time, choice: Option<Choice>, out: &mut Outbox) {
        match choice {
            None => {}
            Some(Choice::Look(look)) => {
                let number = self.group.next();
                self.group.tell(|| Decision::Look(look));
                match self.store.look(look) {
                    None => self.looked(now, &[], out),
                    Some(sums) => {
                        self.measure(now, number, What::Look, sums);
                        self.weigh(now, out);
                    }
                }
            }
            Some(Choice::Window { worker, in_flight, why }) => {
                out.push(Effect::Report(Event::Adjusted { worker, in_flight, why }));
            }
            Some(Choice::Mode { mode, restore, why }) => {
                let ordered = Ordered::new(mode, Cause::Chosen(why), now);
                self.ordered = Some(Ordered { restore, ..ordered });
            }
        }
    }

    /// Begins a mode that was ordered, if nothing is left before the fence; whether it did.
    pub(super) fn pass_fence(&mut self, now: Time, out: &mut Outbox) -> bool {
        // One after the other: what moves is of the mode it was taken under.
        let is_free = self.group.changes.cut().is_none() && !self.is_measuring();
        let may = self.may_change() && is_free;
        let Some(ordered) = self.ordered.as_ref().filter(|_| may) else {
            return false;
        };
        let is_same = !ordered.anew && ordered.mode.counts_like(&self.mode);
        if !(is_same && ordered.restore.is_none() || self.clear_fence(now, out)) {
            return false;
        }
        let Some(ordered) = self.ordered.take() else { return false };
        self.begin_mode(ordered, out);
        true
    }

    /// Whether there is still something for another mode to change.
    pub(super) const fn may_change(&self) -> bool {
        matches!(self.phase, Phase::Gathering | Phase::Training)
    }

    /// Makes updates of what has been gathered if nothing else is on its way; whether nothing is
    /// left.
    pub(super) fn clear_fence(&mut self, now: Time, out: &mut Outbox) -> bool {
        if self.busy > 0 {
            return false;
        }
        while self.cohort.contributions() > 0 {
            if self.policy.in_rounds() && self.is_short() {
                return false; // no round closes while too few workers are there
            }
            self.ordered.iter_mut().for_each(|ordered| ordered.anew = true);
            self.close(now, self.policy.flushes(), out);
            if self.end.is_some() || self.is_measuring() {
                return false;
            }
        }
        true
    }

    fn begin_mode(&mut self, ordered: Ordered, out: &mut Outbox) {
        let Ordered { mode, cause, restore, anew, askers, .. } = ordered;
        if !matches!(cause, Cause::Chosen(_)) {
            self.auto =
                (mode.consistency == ConsistencySpec::Auto).then(|| Auto::new(self.keys.len()));
        }
        let keeps_looks = matches!(cause, Cause::Chosen(_));
        let (wished, mode) = (mode, self.job.at_start(mode));
        let anew = anew || !mode.counts_like(&self.mode);
        self.mode = mode;
        if self.job.redundancy == Redundancy::None {
            self.window = mode.window();
        }
        self.gate = None; // whoever waits is looked at again
        self.store.set_mode(&mode);
        self.group.tell(|| Decision::Mode(Box::new(mode)));
        let version = self.version();
        out.push(Effect::Report(Event::Switched { version, mode: Box::new(mode), cause, anew }));
        if anew {
            self.policy = match self.job.redundancy {
                Redundancy::None => mode.consistency.build(),
                _ => self.job.policy(),
            };
            self.cohort.level();
            self.admit_joining();
        }
        if let Some(from) = restore {
            self.go_back(from, out);
        }
        if !keeps_looks {
            self.store.forget_looks();
            self.group.tell(|| Decision::ForgetLooks);
        }
        for (asker, Control { key, value, .. }) in askers {
            let is_in_force = wished.set(&key, &value) == Ok(wished);
            let gone = || alloc::format!("another order came before it began: the mode is {mode}");
            let begun = || Begun { version, mode: self.mode_in_words() };
            answer(asker, if is_in_force { Ok(begun()) } else { Err(gone()) }, out);
        }
    }

    /// Lets all who count begin anew under the mode that there is. Nothing is under way.
    pub(super) fn begin_anew(&mut self, now: Time, out: &mut Outbox) {
        let ordered = Ordered::new(self.chosen_mode(), Cause::Pushed, now);
        self.begin_mode(Ordered { anew: true, ..ordered }, out);
    }

    /// Makes a new version of the parameters of an earlier one. Nothing is under way.
    fn go_back(&mut self, from: Version, out: &mut Outbox) {
        self.store.go_back();
        self.doubt = None; // it was about the parameters before
        self.group.tell(|| Decision::GoBack);
        self.cohort.renew();
        let point = self.point();
        out.push(Effect::Report(Event::Restored { point, from }));
    }

    /// Whether `peer` waits for a mode that it ordered.
    pub(super) fn is_asker(&self, peer: PeerId) -> bool {
        let is_its = |ordered: &Ordered| ordered.askers.iter().any(|(asker, _)| *asker == peer);
        self.ordered.as_ref().is_some_and(is_its)
            || self.pushes.askers().any(|asker| asker == peer)
            || self.group.changes.askers().any(|asker| asker == peer)
            || self.pullers.peers().any(|puller| puller == peer)
    }

    /// Answers `peer` no more. What it ordered stays ordered.
    pub(super) fn forget_asker(&mut self, peer: PeerId) {
        self.group.changes.forget_asker(peer);
        self.pullers.forget(peer);
        self.pushes.forget(peer);
        if let Some(ordered) = &mut self.ordered {
            ordered.askers.retain(|(asker, _)| *asker != peer);
        }
    }
}

/// Tells a client what became of the mode it ordered.
pub(super) fn answer(asker: PeerId, result: Controlled, out: &mut Outbox) {
    out.push(Effect::Send(asker, Message::Controlled(result)));
    out.push(Effect::Close(asker));
}
