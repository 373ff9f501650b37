//! Rebalance of key ranges at a shard.
//!
//! From the decision that keys shall move until the decision that they have, a receiving shard
//! gathers the state of the keys, and remembers the decisions made meanwhile. Then it applies these
//! decisions to the gathered state, and holds its old and new keys as if it had always had them.
//! Until then nothing changes, so that a rebalance can be abandoned.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Following, Shard, Workers};
use crate::node::{Effect, Event, Outbox};
use crate::store::{IncomingKeys, PartError, Store};
use pstrain_compute::params::{KeyMap, KeyRange, Move};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{Begin, Leave, Portion, Taken};
use pstrain_wire::worker::EndReason;

/// A rebalance in progress.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Moving {
    /// The number of the decision that began it.
    cut: u64,
    /// The key ranges that this shard receives.
    coming: Vec<IncomingKeys>,
    /// The decisions made since.
    since: Vec<Decision>,
}

impl Moving {
    /// Remembers a decision, if this shard receives keys.
    pub(super) fn remember(&mut self, decision: &Decision) {
        if !self.coming.is_empty() {
            self.since.push(decision.clone());
        }
    }

    /// Saves or restores the received pieces, after serde has handled the other fields.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.coming.iter_mut().try_for_each(|coming| coming.archive(archive))
    }
}

impl Shard {
    /// The coordinator relies on this shard from here on.
    pub(super) fn on_begin(&mut self, begin: Begin, out: &mut Outbox) {
        let Begin { followed, slots } = begin;
        let Some(following) = self.following.as_mut().filter(|it| it.store.is_none()) else {
            return self.fail(String::from("it let a server begin twice"), out);
        };
        if slots.len() != following.job.membership.workers as usize {
            return self.fail(String::from("it has other workers than its job"), out);
        }
        following.begun = true;
        following.moving = None;
        (self.followed, self.told) = (followed, followed);
        self.workers = Workers::of(slots);
    }

    pub(super) fn on_cut(&mut self, now: Time, moves: Vec<Move>, out: &mut Outbox) {
        let cut = self.followed;
        let Some(Following { server, store, moving, .. }) = &mut self.following else {
            unreachable!("decisions are of a run")
        };
        let server = *server;
        let coming = moves.iter().filter(|it| it.to == server).map(|it| IncomingKeys::new(it.keys));
        *moving = Some(Moving { cut, coming: coming.collect(), since: Vec::new() });
        let mut sent = Vec::new();
        for Move { keys, .. } in moves.into_iter().filter(|it| it.from == server) {
            let part = store.as_mut().and_then(|store| store.part(keys));
            let bytes = part.map(|part| part.to_bytes()).unwrap_or_default();
            sent.extend(Portion::cut(cut, keys, &bytes));
        }
        if !sent.is_empty() {
            self.tell_traffic(now, out);
        }
        for portion in sent {
            self.tell(now, Message::Portion(portion), out);
        }
    }

    pub(super) fn on_portion(&mut self, now: Time, portion: Portion, out: &mut Outbox) {
        let moving = self.following.as_mut().and_then(|following| following.moving.as_mut());
        let Some(moving) = moving.filter(|moving| moving.cut == portion.header.cut) else {
            return; // the rebalance was abandoned
        };
        let cut = moving.cut;
        let taken = moving.coming.iter_mut().try_for_each(|coming| coming.take(&portion));
        if let Err(error) = taken {
            return self.fail(alloc::format!("keys that were to move did not come: {error}"), out);
        }
        if moving.coming.iter().all(IncomingKeys::is_whole) {
            self.tell(now, Message::Taken(Taken { cut }), out);
        }
    }

    /// Switches to the key map of a completed rebalance.
    pub(super) fn on_map(&mut self, map: &KeyMap, out: &mut Outbox) -> Result<(), String> {
        let Some(following) = &mut self.following else { unreachable!("decisions are of a run") };
        following.map = map.version();
        let moving = following.moving.take();
        let had = following.store.as_ref().map(Store::keys);
        let has = map.keys_of(following.server);
        if let Some(keys) = has.filter(|_| has != had) {
            let store = following.with_keys(keys, moving);
            let store = store.map_err(|error| alloc::format!("it moved keys, but {error}"))?;
            following.store = Some(store);
            let server = following.server;
            out.push(Effect::Report(match had {
                Some(_) => Event::Holds { keys },
                None => Event::Enlisted { job: following.job.clone(), server, keys },
            }));
        }
        if has.is_none() && had.is_some() {
            following.store = None; // the coordinator ends the shard later
        }
        self.workers.forget_held();
        for worker in self.workers.ids() {
            self.attach_waiting(worker, out);
        }
        Ok(())
    }

    /// Finishes in order at the operator's request: once other servers have the keys, or at once if
    /// it has no keys, or if it takes checkpoints and can resume from one. A second request ends it
    /// at once.
    pub(super) fn drain(&mut self, now: Time, out: &mut Outbox) {
        let is_alone = self.keys().is_none() || self.on_disk().is_some();
        if is_alone || core::mem::replace(&mut self.leaving, true) {
            return self.finish(Ok(EndReason::Stopped), out);
        }
        self.tell(now, Message::Leave(Leave), out);
    }
}

impl Following {
    /// The store of `keys`: from the keys held before and the keys received.
    fn with_keys(&mut self, keys: KeyRange, moving: Option<Moving>) -> Result<Store, PartError> {
        let Self { job, store, .. } = self;
        let model = job.build_model().map_err(|_error| PartError::Keys)?;
        let Moving { coming, since, .. } = moving.ok_or(PartError::Keys)?;
        let mut parts = Vec::new();
        if let Some(store) = store
            && let Some(kept) = store.keys().overlap(keys)
        {
            parts.extend(store.part(kept));
        }
        for coming in coming {
            parts.push(coming.finish(job, &model, &since)?);
        }
        Store::of_parts(job, &model, keys, parts)
    }
}
