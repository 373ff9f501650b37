//! Working sets of workers at a shard.

use alloc::string::String;

use super::Shard;
use crate::node::{Effect, Outbox};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_wire::group::Exchanged;
use pstrain_wire::keys::{Keys, KeysHeader, KeysKnown};
use pstrain_wire::{Message, Refusal};

impl Shard {
    /// Handles a worker's announcement of its working set.
    pub(super) fn on_use_keys(
        &mut self,
        peer: PeerId,
        worker: WorkerId,
        header: KeysHeader,
        out: &mut Outbox,
    ) {
        let Some(store) = self.store() else {
            return; // the keys have moved away, which the worker does not know yet
        };
        let known = store.knows(worker, &header);
        if !known && self.workers.has_begun(worker) {
            return self.refuse_change(peer, out);
        }
        let known = KeysKnown { digest: header.digest, known };
        out.push(Effect::Send(peer, Message::KeysKnown(known)));
    }

    /// Handles the requested list of keys.
    pub(super) fn on_keys(
        &mut self,
        peer: PeerId,
        worker: WorkerId,
        keys: &Keys,
        out: &mut Outbox,
    ) {
        let has_begun = self.workers.has_begun(worker);
        let Some(store) = self.store_mut() else {
            return; // the keys have moved away
        };
        if has_begun && !store.knows(worker, &keys.header) {
            return self.refuse_change(peer, out);
        }
        if let Err(what) = store.learn(worker, keys) {
            return self.refuse(peer, Refusal::Unexpected { what }, out);
        }
        let keyed = keys.bytes.len() as u64;
        self.workers.count(worker, Exchanged { keyed, ..Exchanged::default() });
        let known = KeysKnown { digest: keys.header.digest, known: true };
        out.push(Effect::Send(peer, Message::KeysKnown(known)));
    }

    fn refuse_change(&mut self, peer: PeerId, out: &mut Outbox) {
        let what = String::from("it changed its working set, and must join again");
        self.refuse(peer, Refusal::Unexpected { what }, out);
    }
}
