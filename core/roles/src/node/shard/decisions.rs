//! The coordinator's decisions at a shard, applied in their order.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Following, Shard};
use crate::node::{Effect, Outbox};
use pstrain_compute::id::{Sequence, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{Decisions, Exchanged, Followed, Measured, Slice, SliceHeader};
use pstrain_wire::worker::ParametersHeader;

/// Number of decisions applied before the shard acknowledges them to the coordinator.
const FOLLOWED_AT_ONCE: u64 = 64;

impl Shard {
    pub(super) fn on_decisions(&mut self, now: Time, decisions: Decisions, out: &mut Outbox) {
        let Decisions { first, decisions } = decisions;
        if first > self.followed {
            let what = alloc::format!("decision {} is missing before {first}", self.followed);
            return self.fail(what, out);
        }
        // Skip decisions that were applied before and are repeated.
        let known = (self.followed - first) as usize;
        for decision in decisions.into_iter().skip(known) {
            let checkpoint = match decision {
                Decision::Checkpoint { number, oldest } => Some((number, oldest)),
                _ => None,
            };
            if let Err(what) = self.follow(now, decision, out) {
                return self.fail(what, out);
            }
            self.followed += 1;
            self.damage.progressed();
            // After the count, so that the saved state includes this decision.
            if let Some((number, oldest)) = checkpoint {
                self.keep_state(number, oldest, out);
            }
        }
        if self.followed >= self.told + FOLLOWED_AT_ONCE {
            self.tell_followed(now, out);
        }
    }

    pub(super) fn tell_followed(&mut self, now: Time, out: &mut Outbox) {
        self.told = self.followed;
        let followed = Followed { decisions: self.followed };
        self.tell(now, Message::Followed(followed), out);
    }

    fn follow(&mut self, now: Time, decision: Decision, out: &mut Outbox) -> Result<(), String> {
        let Some(Following { store, moving, .. }) = &mut self.following else {
            return Err(String::from("it decided before it said of what"));
        };
        if let Some(worker) = decision.worker().filter(|worker| !self.workers.has(*worker)) {
            return Err(alloc::format!(
                "it decided on worker {worker}, which its job does not have"
            ));
        }
        moving.iter_mut().for_each(|moving| moving.remember(&decision));
        match decision {
            Decision::Admit { worker, incarnation } => self.admit(worker, incarnation, out),
            Decision::Give { worker, headers } => self.give(worker, headers, out),
            Decision::Gather { contribution, factor } => {
                let push = self.workers.take(contribution.worker, contribution.sequence);
                let push = push.zip(store.as_mut());
                let (push, store) =
                    push.ok_or_else(|| missing(contribution.worker, contribution.sequence))?;
                store.gather(contribution, push, factor);
            }
            Decision::Drop { worker, sequence } => {
                let push = self.workers.take(worker, sequence);
                push.ok_or_else(|| missing(worker, sequence))?;
            }
            Decision::Cut { moves } => self.on_cut(now, moves, out),
            Decision::Stay => *moving = None,
            Decision::Map(map) => self.on_map(&map, out)?,
            Decision::Show { version, keys } => {
                let Some(store) = store else { return Ok(()) }; // not before keys have moved here
                let (own, all) = (store.keys(), store.parameters());
                let Some(keys) = own.overlap(keys) else { return Ok(()) };
                let values = match keys.within(own).and_then(|places| all.get(places)) {
                    Some(part) if part.len() < all.len() => Arc::new(part.to_vec()),
                    _ => all.clone(),
                };
                let slice = Slice { header: SliceHeader { version, keys }, values };
                self.shown.push(slice.clone());
                self.tell_traffic(now, out);
                self.tell(now, Message::Slice(slice), out);
            }
            Decision::Pause => out.push(Effect::Pause),
            Decision::Seen { version } => {
                self.shown.retain(|slice| slice.header.version != version);
            }
            decision @ (Decision::Forget { .. }
            | Decision::Rows { .. }
            | Decision::Merge { .. }
            | Decision::Close { .. }
            | Decision::Found(_)
            | Decision::Discard
            | Decision::Mode(_)
            | Decision::Look(_)
            | Decision::ForgetLooks
            | Decision::GoBack
            | Decision::Initial(_)
            | Decision::Checkpoint { .. }) => {
                let sums = store.as_mut().and_then(|store| {
                    let sums = store.follow(&decision);
                    out.extend(store.spares().map(Effect::Recycle));
                    sums
                });
                if let Some(sums) = sums {
                    let measured = Measured { decision: self.followed, sums };
                    self.measured = Some(measured.clone());
                    self.tell(now, Message::Measured(measured), out);
                }
                if let Decision::Forget { worker } = decision {
                    out.extend(self.workers.forget(worker).map(Effect::Close));
                }
            }
        }
        Ok(())
    }

    fn give(&mut self, worker: WorkerId, headers: Vec<ParametersHeader>, out: &mut Outbox) {
        let Some(Following { store: Some(store), .. }) = &mut self.following else {
            return; // not before keys have moved here
        };
        for header in headers {
            store.gave(worker, header.version);
            if let Some(decided) = header.decided {
                self.workers.decide(worker, decided.sequence);
            }
            let last = Sequence(header.sequence.0.saturating_add(u64::from(header.ahead)));
            if let Some(peer) = self.workers.allow(worker, last) {
                // The keys may have moved here since the worker declared its working set.
                let Some(answer) = store.answer(worker) else { continue };
                let parameters = answer.message(header);
                let given = Exchanged { given: parameters.bytes(), ..Exchanged::default() };
                self.workers.count(worker, given);
                out.push(Effect::Send(peer, Message::Parameters(parameters)));
            }
        }
    }
}

/// The error of a decision about a push that is not here.
fn missing(worker: WorkerId, sequence: Sequence) -> String {
    alloc::format!("it decided on push {sequence} of worker {worker}, which has not come here")
}
