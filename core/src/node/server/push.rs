//! Pulls and pushes: checked, decided exactly once, answered.

use super::Server;
use super::round::Contribution;
use crate::consistency::{Admission, DropReason};
use crate::id::{BatchId, PeerId, Version, WorkerId};
use crate::node::{Effect, Event, Outbox};
use crate::protocol::message::{
    Decided, EndReason, Parameters, ParametersHeader, Pull, Push, PushHeader,
};
use crate::protocol::{Message, Phase, Refusal};
use crate::time::Time;

impl Server {
    pub(super) fn on_pull(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        pull: Pull,
        out: &mut Outbox,
    ) {
        let Some(slot) = self.roster.slot(worker) else { return };
        if pull.incarnation != slot.incarnation {
            let why = Refusal::Fenced { incarnation: pull.incarnation };
            return self.refuse(now, peer, why, out);
        }
        if pull.keys != self.keys {
            let why = Refusal::Keys { given: pull.keys, values: 0, wanted: self.keys };
            return self.refuse(now, peer, why, out);
        }
        if slot.seat.grant.is_some() {
            return self.grant_again(now, peer, worker, out);
        }
        self.ask(now, worker);
        self.settle(now, out);
    }

    /// Notes that `worker` wants parameters.
    fn ask(&mut self, now: Time, worker: WorkerId) {
        if let Some(slot) = self.roster.slot_mut(worker) {
            if slot.seat.asked.is_none() {
                slot.seat.asked = Some(now);
                slot.since = now;
            }
            self.waiting.insert(worker);
            self.asking.push(worker);
        }
    }

    /// Answers a worker that did not get the answer: the same permission, with the parameters
    /// of today.
    fn grant_again(&mut self, now: Time, peer: PeerId, worker: WorkerId, out: &mut Outbox) {
        let version = self.version();
        let Some(slot) = self.roster.slot_mut(worker) else { return };
        let Some(grant) = &mut slot.seat.grant else { return };
        grant.version = version;
        grant.at = now;
        let (sequence, batch, decided) = (grant.sequence, grant.batch, slot.seat.decided);
        out.push(Effect::Report(Event::Repeated { worker, sequence }));
        let header = ParametersHeader { version, keys: self.keys, sequence, batch, decided };
        self.send_parameters(peer, header, out);
    }

    pub(super) fn send_parameters(&self, peer: PeerId, header: ParametersHeader, out: &mut Outbox) {
        let values = self.parameters.clone();
        out.push(Effect::Send(peer, Message::Parameters(Parameters { header, values })));
    }

    pub(super) fn on_push(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        push: Push,
        out: &mut Outbox,
    ) {
        let header = push.header;
        let Some(slot) = self.roster.slot(worker) else { return };
        if header.incarnation != slot.incarnation {
            let why = Refusal::Fenced { incarnation: header.incarnation };
            return self.refuse(now, peer, why, out);
        }
        if header.sequence < slot.seat.next_sequence() {
            return self.on_repeated_push(now, peer, worker, header, out);
        }
        if let Err(why) = self.check_push(worker, &push) {
            // With nobody left who computes finite numbers, it is not one worker's data.
            let alone = self.roster.ready() <= 1;
            if matches!(why, Refusal::NotFinite { .. }) && (alone || self.has_diverged()) {
                self.end(now, EndReason::Diverged(self.version()), out);
                return self.settle(now, out);
            }
            return self.refuse(now, peer, why, out);
        }
        self.take_push(now, peer, worker, push, out);
    }

    /// A push that was decided before: answered again, never applied again.
    fn on_repeated_push(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        header: PushHeader,
        out: &mut Outbox,
    ) {
        let Some(slot) = self.roster.slot(worker) else { return };
        let decided = slot.seat.decided;
        if !header.pull {
            out.push(Effect::Report(Event::Repeated { worker, sequence: header.sequence }));
            if let Some(decided) = decided {
                out.push(Effect::Send(peer, Message::Ack(decided)));
            }
        } else if slot.seat.grant.is_some() {
            self.grant_again(now, peer, worker, out);
        } else {
            out.push(Effect::Report(Event::Repeated { worker, sequence: header.sequence }));
            self.ask(now, worker);
            self.settle(now, out);
        }
    }

    fn check_push(&self, worker: WorkerId, push: &Push) -> Result<(), Refusal> {
        let header = &push.header;
        let granted = self.roster.slot(worker).and_then(|slot| slot.seat.grant);
        let Some(grant) = granted.filter(|grant| grant.sequence == header.sequence) else {
            let message = alloc::format!(
                "push {} came without parameters having been given out for it",
                header.sequence
            );
            return Err(Refusal::Unexpected { what: message });
        };
        if (grant.version, grant.batch) != (header.base, header.batch) {
            let what = alloc::format!(
                "push {} is for version {} and mini-batch {}, but {} and {} were given out",
                header.sequence,
                header.base,
                header.batch,
                grant.version,
                grant.batch
            );
            return Err(Refusal::Unexpected { what });
        }
        let values = push.gradient.len() as u64;
        if header.keys != self.keys || values != self.keys.len() {
            return Err(Refusal::Keys { given: header.keys, values, wanted: self.keys });
        }
        if header.samples == 0 || header.samples > self.job.batch_size {
            let what = alloc::format!(
                "push {} counts {} examples, but a mini-batch has 1 to {}",
                header.sequence,
                header.samples,
                self.job.batch_size
            );
            return Err(Refusal::Unexpected { what });
        }
        if let Some(key) = first_not_finite(&push.gradient) {
            return Err(Refusal::NotFinite { sequence: header.sequence, key });
        }
        Ok(())
    }

    /// Whether the parameters are no longer finite numbers.
    pub(super) fn has_diverged(&self) -> bool {
        first_not_finite(&self.parameters).is_some()
    }

    /// Whether more updates than a gradient may miss were made since version `base`.
    fn is_too_stale(&self, base: Version) -> bool {
        let staleness = self.version().since(base);
        self.job.mode.max_staleness.is_some_and(|most| staleness > most)
    }

    /// Decides a push that is in order.
    fn take_push(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        push: Push,
        out: &mut Outbox,
    ) {
        let header = push.header;
        let admission = if self.phase == Phase::Ending {
            Admission::Drop(DropReason::Over)
        } else {
            match self.policy.admit(&self.cohort, worker, header.base) {
                Admission::Contribute if self.is_too_stale(header.base) => {
                    Admission::Drop(DropReason::Stale)
                }
                admission => admission,
            }
        };
        let Some(slot) = self.roster.slot_mut(worker) else { return };
        let granted = slot.seat.grant.take().map_or(now, |grant| grant.at);
        self.busy -= 1;
        slot.since = now;
        let turnaround = now.since(granted);
        out.push(Effect::Report(Event::Pushed {
            worker,
            sequence: header.sequence,
            base: header.base,
            batch: header.batch,
            loss: header.loss,
            turnaround,
            compute: core::time::Duration::from_nanos(header.compute_ns).min(turnaround),
        }));
        let dropped = match admission {
            Admission::Contribute => {
                slot.batch = BatchId(header.batch.0 + 1);
                None
            }
            Admission::Drop(reason) => Some(reason),
        };
        let decided = Decided { sequence: header.sequence, dropped };
        slot.seat.decided = Some(decided);
        match dropped {
            None => {
                let contribution = Contribution {
                    worker,
                    incarnation: header.incarnation,
                    sequence: header.sequence,
                    batch: header.batch,
                    clock: slot.clock,
                    base: header.base,
                    base_parameters: None,
                    samples: header.samples,
                    granted,
                    gradient: push.gradient,
                };
                self.contribute(now, contribution);
            }
            Some(reason) => {
                self.ledger.outstanding -= 1;
                self.ledger.discarded += 1;
                let sequence = header.sequence;
                out.push(Effect::Report(Event::Dropped { worker, sequence, reason }));
            }
        }
        if header.pull {
            self.ask(now, worker);
        } else {
            out.push(Effect::Send(peer, Message::Ack(decided)));
        }
        self.settle(now, out);
    }
}

/// The first key whose value is NaN or infinite.
fn first_not_finite(values: &[f32]) -> Option<u64> {
    // One pass without branches first: the exponent of a bad value is all ones.
    const EXPONENT: u32 = 0x7f80_0000;
    let bad =
        values.iter().fold(0, |bad, value| bad | u32::from(value.to_bits() & EXPONENT == EXPONENT));
    if bad == 0 {
        return None;
    }
    values.iter().position(|value| !value.is_finite()).map(|key| key as u64)
}
