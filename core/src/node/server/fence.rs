//! Changes of mode: a fence in the order of updates, which loses and duplicates nothing.
//!
//! Once a mode is ordered, nobody is given parameters any more. What is under way comes back and is
//! taken under the old mode; whoever dies meanwhile is taken out by its lease. When nothing is
//! under way, what has been gathered becomes a last update of the old mode, and the new one begins
//! with everybody at the same clock.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Server, unexpected};
use crate::consistency::{Auto, Choice, Closing, ConsistencySpec, Seen};
use crate::id::{PeerId, WorkerId};
use crate::mode::Mode;
use crate::node::{Cause, Effect, Event, Outbox};
use crate::protocol::message::{Control, Controlled};
use crate::protocol::{Message, Phase};
use crate::time::Time;

/// A mode that was ordered and has not begun.
#[derive(Debug)]
pub(super) struct Ordered {
    mode: Mode,
    cause: Cause,
    /// Clients that want to know when it has.
    pub(super) askers: Vec<PeerId>,
}

impl Server {
    /// A client wants another mode. It is answered once that has begun.
    pub(super) fn on_control(
        &mut self,
        now: Time,
        peer: PeerId,
        control: &Control,
        out: &mut Outbox,
    ) {
        if self.roster.worker_of(peer).is_some() {
            let control = Message::Control(control.clone());
            return self.refuse(now, peer, unexpected("a worker's message", &control), out);
        }
        self.strangers.retain(|&(_, stranger)| stranger != peer);
        let base = self.ordered.as_ref().map_or(self.mode, |ordered| ordered.mode);
        let checked = base.set(&control.key, &control.value).and_then(|mode| {
            let workers = self.job.membership.workers;
            let fits = mode.consistency.check(workers).map_err(|error| error.to_string());
            let works = self.job.check_work(&mode).map_err(|error| error.to_string());
            fits.and(works).map(|()| mode)
        });
        let over = || String::from("the run is over, or about to be");
        match checked {
            Err(why) => self.answer(alloc::vec![peer], &Err(why), out),
            Ok(_) if !matches!(self.phase, Phase::Gathering | Phase::Training) => {
                self.answer(alloc::vec![peer], &Err(over()), out);
            }
            Ok(mode) => self.order(now, mode, Cause::Ordered, Some(peer), out),
        }
    }

    /// Orders another mode. One that was ordered before and has not begun is given up.
    pub(super) fn order(
        &mut self,
        now: Time,
        mode: Mode,
        cause: Cause,
        asker: Option<PeerId>,
        out: &mut Outbox,
    ) {
        let mut askers: Vec<PeerId> = asker.into_iter().collect();
        if let Some(given_up) = self.ordered.take() {
            askers.extend(given_up.askers);
        }
        self.take_order(Ordered { mode, cause, askers }, out);
        self.settle(now, out);
    }

    /// Begins a mode at once, or lets it wait for what is under way.
    fn take_order(&mut self, ordered: Ordered, out: &mut Outbox) {
        // How much may be under way, and how stale it may be, concerns no gradient but the next.
        let Mode { in_flight, max_staleness, .. } = self.mode;
        let same = Mode { in_flight, max_staleness, ..ordered.mode };
        if same == self.mode {
            self.begin_mode(ordered, out);
        } else {
            self.ordered = Some(ordered);
        }
    }

    /// Orders what the job says shall be ordered by now.
    pub(super) fn order_due(&mut self, now: Time) {
        if self.ordered.is_some() {
            return; // one after the other
        }
        let Some(switch) = self.job.switches.get(self.switched) else { return };
        let Some(since) = self.training_since else { return };
        if switch.at.is_due(self.version(), now.since(since)) {
            self.switched += 1;
            let mode = self.mode.with(switch.to);
            self.ordered = Some(Ordered { mode, cause: Cause::Scheduled, askers: Vec::new() });
        }
    }

    /// When a mode has to be ordered by the clock.
    pub(super) fn order_at(&self) -> Option<Time> {
        let switch = self.job.switches.get(self.switched)?;
        Some(self.training_since? + switch.at.time()?)
    }

    /// Mini-batches of `worker` that may be under way.
    pub(super) fn window(&self, worker: WorkerId) -> u32 {
        self.auto.as_ref().map_or(self.window, |auto| auto.window(worker))
    }

    /// Lets `auto` see a push, and does what it chooses.
    pub(super) fn show_auto(&mut self, seen: Seen, out: &mut Outbox) {
        let Some(auto) = &mut self.auto else { return };
        if self.ordered.is_some() || self.phase != Phase::Training {
            return;
        }
        match auto.pushed(&self.mode, seen) {
            None => {}
            Some(Choice::Window { worker, in_flight, why }) => {
                out.push(Effect::Report(Event::Adjusted { worker, in_flight, why }));
            }
            Some(Choice::Mode { mode, why }) => {
                let ordered = Ordered { mode, cause: Cause::Chosen(why), askers: Vec::new() };
                self.take_order(ordered, out);
            }
        }
    }

    /// Goes through the fence if nothing is left before it; whether it did.
    pub(super) fn pass_fence(&mut self, now: Time, out: &mut Outbox) -> bool {
        let is_gathering = self.phase == Phase::Gathering; // there is nothing before the fence
        if self.busy > 0 || !(is_gathering || self.phase == Phase::Training) {
            return false;
        }
        let Some(ordered) = self.ordered.take() else { return false };
        if self.cohort.contributions() > 0 {
            self.close(now, Closing::Everything, out);
            if self.end.is_some() {
                self.ordered = Some(ordered);
                return false;
            }
        }
        self.begin_mode(ordered, out);
        true
    }

    fn begin_mode(&mut self, ordered: Ordered, out: &mut Outbox) {
        let Ordered { mode, cause, askers } = ordered;
        if !matches!(cause, Cause::Chosen(_)) {
            self.auto = (mode.consistency == ConsistencySpec::Auto).then(Auto::new);
        }
        let mode = mode.at_start();
        if mode.consistency != self.mode.consistency {
            self.policy = mode.consistency.build();
            self.cohort.level();
        }
        if (mode.consistency, mode.staleness, mode.participation)
            != (self.mode.consistency, self.mode.staleness, self.mode.participation)
        {
            self.aggregator.set_mode(&mode);
        }
        self.mode = mode;
        self.window = mode.window();
        self.gate = None; // whoever waits is looked at again
        let version = self.version();
        out.push(Effect::Report(Event::Switched { version, mode: Box::new(mode), cause }));
        self.admit_joining();
        self.answer(askers, &Ok(version), out);
    }

    /// Tells those who ordered a mode what became of it.
    pub(super) fn answer(&self, askers: Vec<PeerId>, result: &Controlled, out: &mut Outbox) {
        for peer in askers {
            out.push(Effect::Send(peer, Message::Controlled(result.clone())));
            out.push(Effect::Close(peer));
        }
    }
}
