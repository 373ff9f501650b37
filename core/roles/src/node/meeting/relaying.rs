//! Messages between members that do not reach each other.
//!
//! They come in order and once, as long as the connections of both members last. A member whose
//! connection breaks halts its group.

use super::Meeting;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::{Message, Refusal, Relayed};

impl Meeting {
    /// True if a message is one between two members of the group that do not reach each other.
    pub(super) fn is_relayed(&self, from: WorkerId, relayed: &Relayed) -> bool {
        let rank = |worker| self.group.rank(worker, relayed.generation);
        let both = rank(from).zip(rank(relayed.other));
        both.is_some_and(|(own, other)| self.group.relays(own, other))
    }

    /// Passes a message of a member on to another one.
    pub(super) fn on_relayed(
        &mut self,
        now: Time,
        peer: PeerId,
        from: WorkerId,
        relayed: Relayed,
        out: &mut Outbox,
    ) {
        let is_current = relayed.generation == *self.group.generation();
        if !is_current || !self.group.is_training() || !self.group.has(relayed.other) {
            return; // the group has halted, or the other member is gone
        }
        if !self.is_relayed(from, &relayed) {
            let what = alloc::format!("a message for worker {}, which it reaches", relayed.other);
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        let Relayed { generation, other: to, message } = relayed;
        // Without a connection the other member halts the group once it is back.
        let Some(peer) = self.slots[to].peer else { return };
        out.push(Effect::Report(Event::Relayed { worker: from, bytes: message.bytes() }));
        let relayed = Relayed { generation, other: from, message };
        out.push(Effect::Send(peer, Message::Relayed(relayed)));
    }
}
