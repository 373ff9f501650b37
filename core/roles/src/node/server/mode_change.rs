//! Changes of mode at a point where the run has quiesced, so that no gradient is lost or counted
//! twice.
//!
//! Once a mode is ordered, no parameters are given out any more. Work under way comes back and is
//! taken under the old mode; a worker that dies meanwhile is removed when its lease expires. When
//! nothing is under way, the gathered gradients become the last updates of the old mode, and the
//! new mode begins with all members at the same clock.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Server;
use super::early::Early;
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

/// The [`Control::key`] of the order that a server leaves; the value is the number of the server.
pub const LEAVE_SERVER: &str = "leave-server";

/// The [`Control::key`] of the order that the run ends; the value is empty.
pub const STOP: &str = "stop";

/// A mode that was ordered and has not begun.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ordered {
    pub(super) mode: Mode,
    cause: Cause,
    /// The version of the parameters to go back to, if any.
    restore: Option<Version>,
    pub(super) since: Time,
    /// An update was made to let this order, or the one that it replaced, begin. Then all members
    /// start afresh, even if the mode turns out to be the current one.
    anew: bool,
    /// Clients that wait for the mode to begin, with the order of each.
    pub(super) askers: Vec<(PeerId, Control)>,
}

impl Ordered {
    /// Creates an order without clients, which keeps the current parameters.
    const fn new(mode: Mode, cause: Cause, since: Time) -> Self {
        Self { mode, cause, restore: None, since, anew: false, askers: Vec::new() }
    }
}

impl Server {
    /// Handles a client's order to change the mode. It is answered once the mode has begun.
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
        if let Some(reason) = self.lifecycle.end() {
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
        // The order builds on one that is still waiting, so that both changes take effect.
        let base =
            self.modes.ordered.as_ref().map_or_else(|| self.chosen_mode(), |ordered| ordered.mode);
        let checked = base.set(&control.key, &control.value).and_then(|mode| {
            self.job.check_mode(&mode).map_err(|error| error.to_string())?;
            Ok(mode)
        });
        match checked {
            Err(why) => answer(peer, Err(why), out),
            Ok(mode) => {
                // It replaces an order that has not begun.
                let before = self.modes.ordered.take();
                let since = before.as_ref().map_or(now, |before| before.since);
                // A pending return to earlier parameters stays: the current ones are of no use.
                let restore = before.as_ref().and_then(|before| before.restore);
                let anew = before.as_ref().is_some_and(|before| before.anew);
                let mut askers = before.map_or_else(Vec::new, |before| before.askers);
                askers.push((peer, control));
                let cause = Cause::Ordered;
                self.modes.ordered = Some(Ordered { mode, cause, restore, since, anew, askers });
                self.settle(now, out);
            }
        }
    }

    /// Handles a client's order to end the run, like [`Input::Drain`](crate::node::Input::Drain).
    /// It is answered at once, since work under way may take long to come back.
    fn order_stop(&mut self, now: Time, peer: PeerId, control: &Control, out: &mut Outbox) {
        if !control.value.is_empty() {
            let why = alloc::format!("stop takes no value, and was given {:?}", control.value);
            return answer(peer, Err(why), out);
        }
        let begun = Begun { version: self.version(), mode: self.mode_in_words() };
        answer(peer, Ok(begun), out);
        self.drain(now, out);
    }

    /// Orders the next scheduled mode change of the job, if it is due.
    pub(super) fn order_due(&mut self, now: Time) {
        if self.modes.ordered.is_some() || self.lifecycle.phase() != Phase::Training {
            return; // one change at a time
        }
        let Some(switch) = self.job.switches.get(self.modes.switched) else { return };
        let Some(since) = self.progress.training_since else { return };
        if switch.at.is_due(self.version(), now.since(since)) {
            self.modes.switched += 1;
            let (mode, cause) = (self.chosen_mode().with(switch.to), Cause::Scheduled);
            self.modes.ordered = Some(Ordered::new(mode, cause, now));
        }
    }

    /// When the next scheduled mode change is due by the clock, if it is.
    pub(super) fn order_at(&self) -> Option<Time> {
        if self.modes.ordered.is_some() || self.lifecycle.phase() != Phase::Training {
            return None;
        }
        let switch = self.job.switches.get(self.modes.switched)?;
        Some(self.progress.training_since? + switch.at.time()?)
    }

    /// Returns the mode that the user chose: `auto` itself, not the mode that it has set.
    pub(super) fn chosen_mode(&self) -> Mode {
        if self.modes.auto.is_some() { Mode::of(ConsistencySpec::Auto) } else { self.modes.current }
    }

    /// The most mini-batches of `worker` that may be under way.
    pub(super) fn window(&self, worker: WorkerId) -> u32 {
        self.modes.auto.as_ref().map_or(self.rounds.window, |auto| auto.window(worker))
    }

    /// Lets `auto` observe a push, and follows its choice.
    pub(super) fn show_auto(
        &mut self,
        worker: WorkerId,
        now: Time,
        given: Time,
        compute: Duration,
        loss: f32,
        out: &mut Outbox,
    ) {
        let Some(auto) = &mut self.modes.auto else { return };
        if self.modes.ordered.is_some() || self.lifecycle.phase() != Phase::Training {
            return;
        }
        let rows = self.members.roster[worker].rows;
        let version = self.rounds.cohort.version();
        let seen = Seen { worker, now, given, compute, loss, rows, version };
        let choice = auto.pushed(&self.modes.current, seen);
        self.follow_auto(now, choice, out);
    }

    /// Gives `auto` the measurements of the parameters that it asked for, summed over all keys.
    pub(super) fn looked(&mut self, now: Time, sums: &[ExactSum], out: &mut Outbox) {
        let choice =
            self.modes.auto.as_mut().and_then(|auto| auto.looked(&self.modes.current, sums));
        // During the measurement another mode may have been ordered, and with it another `auto`.
        self.follow_auto(now, choice.filter(|_| self.modes.ordered.is_none()), out);
    }

    /// Lets `auto` go back from `version`, which has diverged; returns whether the run continues.
    pub(super) fn try_go_back(&mut self, now: Time, version: Version, out: &mut Outbox) -> bool {
        let may = self.lifecycle.phase() == Phase::Training && self.modes.ordered.is_none();
        let Some(auto) = self.modes.auto.as_mut().filter(|_| may) else {
            return self.is_going_back();
        };
        let choice = auto.diverged(&self.modes.current, version);
        let goes_on = choice.is_some();
        self.follow_auto(now, choice, out);
        goes_on
    }

    /// True if the parameters go back to an earlier version once nothing is under way.
    pub(super) fn is_going_back(&self) -> bool {
        self.modes.ordered.as_ref().is_some_and(|ordered| ordered.restore.is_some())
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
                        self.finish_measurements(now, out);
                    }
                }
            }
            Some(Choice::Window { worker, in_flight, why }) => {
                out.push(Effect::Report(Event::Adjusted { worker, in_flight, why }));
            }
            Some(Choice::Mode { mode, restore, why }) => {
                let ordered = Ordered::new(mode, Cause::Chosen(why), now);
                self.modes.ordered = Some(Ordered { restore, ..ordered });
            }
        }
    }

    /// Begins the ordered mode if the run has quiesced for it; returns whether it has begun.
    pub(super) fn try_begin_mode(&mut self, now: Time, out: &mut Outbox) -> bool {
        // One change at a time: moving keys carry the state of the mode under which they were cut.
        let is_free = self.group.changes.cut().is_none() && !self.is_measuring();
        let may = self.may_change() && is_free;
        let Some(ordered) = self.modes.ordered.as_ref().filter(|_| may) else {
            return false;
        };
        // A mode under which gradients count the same begins at once.
        let is_same = !ordered.anew && ordered.mode.counts_like(&self.modes.current);
        if !(is_same && ordered.restore.is_none() || self.quiesce(now, out)) {
            return false;
        }
        let Some(ordered) = self.modes.ordered.take() else { unreachable!("a mode is ordered") };
        self.begin_mode(ordered, out);
        true
    }

    /// True if mode, keys and parameters may still be changed from outside.
    pub(super) const fn may_change(&self) -> bool {
        matches!(self.lifecycle.phase(), Phase::Gathering | Phase::Training)
    }

    /// Makes updates of the gathered gradients if nothing is under way; returns whether none are
    /// left.
    pub(super) fn quiesce(&mut self, now: Time, out: &mut Outbox) -> bool {
        if self.rounds.busy > 0 {
            return false;
        }
        while self.rounds.cohort.contributions() > 0 {
            if self.rounds.policy.in_rounds() && self.is_short() {
                return false; // a round does not close while too few workers are present
            }
            self.modes.ordered.iter_mut().for_each(|ordered| ordered.anew = true);
            self.close(now, self.rounds.policy.flushes(), out);
            if self.lifecycle.end().is_some() || self.is_measuring() {
                return false;
            }
        }
        true
    }

    fn begin_mode(&mut self, ordered: Ordered, out: &mut Outbox) {
        let Ordered { mode, cause, restore, anew, askers, .. } = ordered;
        if !matches!(cause, Cause::Chosen(_)) {
            self.modes.auto =
                (mode.consistency == ConsistencySpec::Auto).then(|| Auto::new(self.keys.len()));
        }
        let keeps_looks = matches!(cause, Cause::Chosen(_));
        let (wished, mode) = (mode, self.job.at_start(mode));
        let anew = anew || !mode.counts_like(&self.modes.current);
        self.modes.current = mode;
        if self.job.redundancy == Redundancy::None {
            self.rounds.window = mode.window();
        }
        self.rounds.gate = None; // all waiting workers are scanned again
        self.store.set_mode(&mode);
        self.group.tell(|| Decision::Mode(Box::new(mode)));
        let version = self.version();
        out.push(Effect::Report(Event::Switched { version, mode: Box::new(mode), cause, anew }));
        if anew {
            self.rounds.policy = match self.job.redundancy {
                Redundancy::None => mode.consistency.build(),
                _ => self.job.policy(),
            };
            self.rounds.cohort.level();
            self.admit_joining();
        }
        if let Some(from) = restore {
            self.go_back(from, out);
        }
        // After `go_back`, which takes the earlier parameters from the measurements.
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

    /// Makes a new version from earlier parameters. Nothing is under way.
    fn go_back(&mut self, from: Version, out: &mut Outbox) {
        self.store.go_back();
        self.early = Early::default();
        self.doubt = Default::default(); // it was about the replaced parameters
        self.group.tell(|| Decision::GoBack);
        self.rounds.cohort.renew();
        let point = self.point();
        out.push(Effect::Report(Event::Restored { point, from }));
    }

    /// True if `peer` is a client that waits for the answer to its request.
    pub(super) fn is_asker(&self, peer: PeerId) -> bool {
        let is_its = |ordered: &Ordered| ordered.askers.iter().any(|(asker, _)| *asker == peer);
        self.modes.ordered.as_ref().is_some_and(is_its)
            || self.group.changes.askers().any(|asker| asker == peer)
            || self.pullers.peers().any(|puller| puller == peer)
    }

    /// Stops answering `peer`. Its order remains in force.
    pub(super) fn forget_asker(&mut self, peer: PeerId) {
        self.group.changes.forget_asker(peer);
        self.pullers.forget(peer);
        if let Some(ordered) = &mut self.modes.ordered {
            ordered.askers.retain(|(asker, _)| *asker != peer);
        }
    }
}

/// Tells a client the outcome of its order, and closes its connection.
pub(super) fn answer(asker: PeerId, result: Controlled, out: &mut Outbox) {
    out.push(Effect::Send(asker, Message::Controlled(result)));
    out.push(Effect::Close(asker));
}
