//! Working sets: the keys for which a worker's vectors have values, if the model is sparse.

use alloc::string::String;

use super::Server;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_wire::keys::{Keys, KeysHeader, KeysKnown};
use pstrain_wire::{Message, Refusal};

impl Server {
    /// Handles the announcement of a worker's working set.
    pub(super) fn on_use_keys(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        header: KeysHeader,
        out: &mut Outbox,
    ) {
        let known = self.store.knows(worker, &header);
        if !known && !self.may_change_keys(worker) {
            let what = String::from("it changed its working set, and must join again");
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        let known = KeysKnown { digest: header.digest, known };
        out.push(Effect::Send(peer, Message::KeysKnown(known)));
    }

    /// Receives the list of keys that was requested.
    pub(super) fn on_keys(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        keys: &Keys,
        out: &mut Outbox,
    ) {
        let learnt = match self.store.knows(worker, &keys.header) || self.may_change_keys(worker) {
            true => self.store.learn(worker, keys),
            false => Err(String::from("it changed its working set, and must join again")),
        };
        if let Err(what) = learnt {
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        let bytes = keys.bytes.len() as u64;
        out.push(Effect::Report(Event::Keyed { worker, bytes }));
        let known = KeysKnown { digest: keys.header.digest, known: true };
        out.push(Effect::Send(peer, Message::KeysKnown(known)));
    }

    /// True if the worker's incarnation may declare its working set: until it has been given
    /// parameters.
    fn may_change_keys(&self, worker: WorkerId) -> bool {
        self.members
            .roster
            .slot(worker)
            .is_some_and(|slot| slot.pushes.decided.is_none() && slot.pushes.grants.is_empty())
    }

    /// The keys of `worker`'s vectors; those of the model if it has not declared a working set.
    pub(super) fn keys_of(&self, worker: WorkerId) -> KeyRange {
        self.store.all_of(worker, self.keys).unwrap_or(self.keys)
    }

    /// The keys of `worker`'s vectors that this server holds; all keys of this server if the worker
    /// has not declared a working set.
    pub(super) fn place_of(&self, worker: WorkerId) -> KeyRange {
        self.store.place_of(worker).unwrap_or_else(|| self.store.keys())
    }
}
