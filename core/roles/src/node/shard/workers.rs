//! Worker slots of a shard: the workers as the coordinator's decisions describe them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Shard;
use crate::node::flood::FloodControl;
use crate::node::incoming::Incoming;
use crate::node::server::no_standby;
use crate::node::{Effect, Outbox, Target};
use pstrain_compute::id::{Incarnation, PeerId, Sequence, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::heartbeat;
use pstrain_wire::group::{Attach, Attached, Exchanged, Traffic};
use pstrain_wire::worker::{Heartbeat, Push, PushHeader};
use pstrain_wire::{Limits, Message, PROTOCOL_VERSION, Refusal};

/// The slots of all worker ids of the job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Workers {
    slots: Vec<Slot>,
    peers: BTreeMap<PeerId, WorkerId>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Slot {
    /// The last incarnation that the coordinator admitted.
    incarnation: Incarnation,
    peer: Option<PeerId>,
    /// A connection whose incarnation or key map is not known here yet.
    early: Option<(PeerId, Attach)>,
    /// The last push that is allowed.
    allowed: Sequence,
    /// The last push that is decided.
    decided: Sequence,
    /// This shard's parts of pushes that are not decided.
    #[serde(skip)]
    held: BTreeMap<Sequence, Push>,
    /// The ranges of the next push that have arrived here.
    incoming: Incoming,
    /// When the worker was last sent a heartbeat during one of its long messages.
    told: Time,
    /// Flood control.
    idle: FloodControl,
    /// The last push of the incarnation that came.
    came: Sequence,
    /// Bytes exchanged with all incarnations of the worker.
    exchanged: Exchanged,
}

impl Slot {
    /// Counts the bytes of a push that came for the first time; without filters it has as many as
    /// `all` keys need.
    fn count(&mut self, push: &Push, all: KeyRange) {
        if push.header.sequence > self.came {
            self.came = push.header.sequence;
            let unfiltered = all.len() * size_of::<f32>() as u64;
            self.exchanged +=
                Exchanged { pushed: push.bytes(), unfiltered, ..Exchanged::default() };
        }
    }
}

impl Workers {
    pub(super) fn new(workers: u32) -> Self {
        let slots = (0..workers).map(|_| Slot::default()).collect();
        Self { slots, peers: BTreeMap::new() }
    }

    /// The slot of a worker that has attached, or that a decision names: both are checked.
    fn slot(&mut self, worker: WorkerId) -> &mut Slot {
        &mut self.slots[worker.0 as usize]
    }

    /// True if the job has a worker with this id.
    pub(super) fn has(&self, worker: WorkerId) -> bool {
        (worker.0 as usize) < self.slots.len()
    }

    /// Saves or restores the whole state.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)?;
        for slot in &mut self.slots {
            let mut headers = slot.held.values().map(|push| push.header).collect();
            archive.small::<Vec<PushHeader>>(&mut headers)?;
            for header in headers {
                let held = slot.held.entry(header.sequence);
                let gradient = Arc::default();
                let push = held.or_insert_with(|| Push::new(header, gradient));
                let mut encoded = push.encoded.take().map(Arc::unwrap_or_clone);
                archive.small(&mut encoded)?;
                push.encoded = encoded.map(Arc::new);
                let values = header.keys.len() as usize;
                archive.shared_of("held", &mut push.gradient, values)?;
            }
            slot.incoming.archive(archive)?;
        }
        Ok(())
    }

    /// The connections of all workers.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.keys().copied()
    }

    /// The slots as the coordinator describes them when the shard begins; later changes are
    /// decisions.
    pub(super) fn of(slots: Vec<(Incarnation, Sequence)>) -> Self {
        let slot = |(incarnation, decided)| Slot {
            incarnation,
            allowed: decided,
            decided,
            came: decided,
            ..Slot::default()
        };
        Self { slots: slots.into_iter().map(slot).collect(), peers: BTreeMap::new() }
    }

    /// Drops undecided parts of pushes after a rebalance: they have the keys of the old range, and
    /// will not be decided.
    pub(super) fn forget_held(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.held.clear());
    }

    /// All worker ids.
    pub(super) fn ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.slots.len() as u32).map(WorkerId)
    }

    /// Undecided parts of pushes, with their worker and its incarnation.
    pub(super) fn held(&self) -> impl Iterator<Item = (WorkerId, Incarnation, Push)> {
        (0..).map(WorkerId).zip(&self.slots).flat_map(|(worker, slot)| {
            slot.held.values().map(move |push| (worker, slot.incarnation, push.clone()))
        })
    }

    /// Records that pushes up to `last` are decided. Parts still held belong to pushes that were
    /// called off.
    pub(super) fn decide(&mut self, worker: WorkerId, last: Sequence) {
        let slot = self.slot(worker);
        slot.decided = slot.decided.max(last);
        slot.held.retain(|&sequence, _| sequence > last);
    }

    /// Removes and returns a part of a push whose decision has arrived.
    pub(super) fn take(&mut self, worker: WorkerId, sequence: Sequence) -> Option<Push> {
        let slot = self.slot(worker);
        slot.decided = slot.decided.max(sequence);
        slot.held.remove(&sequence)
    }

    /// Records that pushes up to `last` are allowed; returns the worker's connection.
    pub(super) fn allow(&mut self, worker: WorkerId, last: Sequence) -> Option<PeerId> {
        let slot = self.slot(worker);
        slot.allowed = slot.allowed.max(last);
        slot.peer
    }

    /// Records bytes exchanged with `worker`.
    pub(super) fn count(&mut self, worker: WorkerId, bytes: Exchanged) {
        self.slot(worker).exchanged += bytes;
    }

    /// The bytes exchanged with all workers so far.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic { workers: self.slots.iter().map(|slot| slot.exchanged).collect() }
    }

    /// Receives a part of a push, or a range of it, of which `whole` are the keys; returns the part
    /// once it is whole.
    pub(super) fn take_range(
        &mut self,
        worker: WorkerId,
        push: Push,
        whole: KeyRange,
    ) -> Result<Option<Push>, Refusal> {
        let slot = self.slot(worker);
        let PushHeader { incarnation, sequence, keys, .. } = push.header;
        let is_due = incarnation == slot.incarnation
            && (slot.decided.next()..=slot.allowed).contains(&sequence);
        // A push that is not due is judged as a whole one.
        if keys != whole && !is_due { Ok(Some(push)) } else { slot.incoming.add(push, whole) }
    }

    /// Holds a part of a push until it is decided; returns it, or none if it already is. The part
    /// must have the values of `keys`; the shard holds the parameters of `all`.
    pub(super) fn hold(
        &mut self,
        worker: WorkerId,
        push: Push,
        (keys, all): (KeyRange, KeyRange),
    ) -> Result<Option<Push>, Refusal> {
        let (header, values) = (push.header, push.gradient.len() as u64);
        let slot = self.slot(worker);
        if header.incarnation != slot.incarnation {
            return Err(Refusal::Fenced { incarnation: header.incarnation });
        }
        if header.sequence <= slot.decided {
            slot.count(&push, all); // it was called off before it came
            return Ok(None);
        }
        if header.sequence > slot.allowed {
            let sequence = header.sequence;
            let what = alloc::format!("push {sequence} came before parameters for it");
            return Err(Refusal::Unexpected { what });
        }
        if header.keys != keys || values != keys.len() {
            return Err(Refusal::Keys { given: header.keys, values, wanted: keys });
        }
        slot.count(&push, all);
        // A repetition after a reconnect has the same gradient, so that the first one is kept.
        Ok(Some(slot.held.entry(header.sequence).or_insert(push).clone()))
    }

    /// True if the worker's incarnation has been allowed a push.
    pub(super) fn has_begun(&mut self, worker: WorkerId) -> bool {
        self.slot(worker).allowed > Sequence(0)
    }

    /// Drops the pushes of `worker`, which is gone; returns its connection, to be closed.
    pub(super) fn forget(&mut self, worker: WorkerId) -> Option<PeerId> {
        let slot = self.slot(worker);
        slot.held.clear();
        let peer = slot.peer.take()?;
        self.peers.remove(&peer);
        Some(peer)
    }

    /// Removes a connection.
    pub(super) fn detach(&mut self, peer: PeerId) {
        let Some(worker) = self.peers.remove(&peer) else { return };
        let slot = self.slot(worker);
        slot.peer.take_if(|it| *it == peer);
        slot.early.take_if(|(it, _)| *it == peer);
    }

    /// Sends a heartbeat to a worker whose long message is being received.
    pub(super) fn hear(&mut self, now: Time, peer: PeerId, lease: Duration, out: &mut Outbox) {
        let Some(worker) = self.peers.get(&peer).copied() else { return };
        let slot = self.slot(worker);
        if now >= slot.told + heartbeat(lease) {
            slot.told = now;
            out.push(Effect::Send(peer, Message::Heartbeat(Heartbeat::default())));
        }
    }
}

impl Shard {
    /// Handles a message of a peer that dialled this shard.
    pub(super) fn on_message(
        &mut self,
        now: Time,
        from: PeerId,
        message: Message,
        out: &mut Outbox,
    ) {
        let (worker, lease) = (self.workers.peers.get(&from).copied(), self.lease());
        let slot = worker.map(|worker| self.workers.slot(worker));
        if slot.is_some_and(|slot| slot.idle.is_flood(now, lease, &message)) {
            return self.refuse(from, Refusal::Flooding, out);
        }
        match (worker, message) {
            (None, Message::Attach(attach)) => self.on_attach(from, attach, out),
            (Some(worker), Message::Attach(attach)) if attach.worker == worker => {
                self.on_attach(from, attach, out);
            }
            (Some(worker), Message::Push(push)) => self.on_push(now, from, worker, push, out),
            (Some(worker), Message::UseKeys(header)) => {
                self.on_use_keys(from, worker, header, out);
            }
            (Some(worker), Message::Keys(keys)) => self.on_keys(from, worker, &keys, out),
            (Some(_), Message::Heartbeat(heartbeat)) => {
                out.push(Effect::Send(from, Message::Heartbeat(heartbeat)));
            }
            (None, Message::Follow(_)) if self.on_disk().is_some() => {
                self.refuse(from, no_standby(), out);
            }
            (_, message) => self.refuse(from, self.elsewhere(&message), out),
        }
    }

    /// The refusal of a message that only the coordinator answers.
    pub(in crate::node) fn elsewhere(&self, message: &Message) -> Refusal {
        let there = match self.coordinators.all().next() {
            Some(Target::Address(address)) => alloc::format!(", at {address}"),
            _ => String::new(),
        };
        let what = match message {
            Message::Hello(_) => alloc::format!(
                "it does not coordinate; dial the server that does{there}, and that one names all \
                 others"
            ),
            message => alloc::format!(
                "a {:?} message came to a server that does not coordinate; ask the one that \
                 does{there}",
                message.kind()
            ),
        };
        Refusal::Unexpected { what }
    }

    /// Removes a connection from the unauthenticated ones: it has introduced itself, or is closed.
    pub(super) fn forget_stranger(&mut self, peer: PeerId) {
        if self.identities.remove(&peer).is_some() {
            self.unauthenticated.retain(|&(_, stranger)| stranger != peer);
        }
    }

    pub(super) fn refuse(&mut self, peer: PeerId, why: Refusal, out: &mut Outbox) {
        self.forget_stranger(peer);
        self.workers.detach(peer);
        out.push(Effect::Send(peer, Message::Refused(why)));
        out.push(Effect::Close(peer));
    }

    /// Handles a worker's introduction; an attached worker repeats it after each rebalance.
    fn on_attach(&mut self, peer: PeerId, attach: Attach, out: &mut Outbox) {
        let Attach { protocol, run, worker, incarnation, .. } = attach;
        if protocol != PROTOCOL_VERSION {
            let theirs = (protocol, protocol);
            return self.refuse(peer, Refusal::Protocol { theirs, ours: PROTOCOL_VERSION }, out);
        }
        let is_known = self.workers.peers.contains_key(&peer);
        let identity = self.identities.get(&peer).copied().unwrap_or_default();
        if let Err(why) = identity.claim(Some(worker))
            && !is_known
        {
            return self.refuse(peer, why.into(), out);
        }
        let is_run = self.following.as_ref().is_some_and(|following| following.run == run);
        if !is_run || !self.workers.has(worker) {
            let what = String::from("this server does not follow that run, or not yet");
            return self.refuse(peer, Refusal::Server { what }, out);
        }
        let slot = self.workers.slot(worker);
        if incarnation < slot.incarnation {
            return self.refuse(peer, Refusal::Fenced { incarnation }, out);
        }
        let older = slot.early.replace((peer, attach)).map(|(early, _)| early);
        self.identities.remove(&peer);
        self.unauthenticated.retain(|&(_, stranger)| stranger != peer);
        self.workers.peers.insert(peer, worker);
        if let Some(older) = older.filter(|older| *older != peer) {
            self.workers.peers.remove(&older);
            out.push(Effect::Close(older));
        }
        self.attach_waiting(worker, out);
    }

    /// The coordinator has admitted an incarnation.
    pub(super) fn admit(&mut self, worker: WorkerId, incarnation: Incarnation, out: &mut Outbox) {
        let slot = self.workers.slot(worker);
        slot.incarnation = incarnation;
        (slot.allowed, slot.decided, slot.came) = (Sequence(0), Sequence(0), Sequence(0));
        slot.held.clear();
        self.attach_waiting(worker, out);
    }

    /// Attaches a waiting worker if its incarnation and key map are known here by now.
    pub(super) fn attach_waiting(&mut self, worker: WorkerId, out: &mut Outbox) {
        let (Some(keys), map) = (self.keys(), self.map()) else {
            return; // until keys have moved here
        };
        let slot = self.workers.slot(worker);
        let admitted = slot.incarnation;
        let is_due = |(_, it): &mut (PeerId, Attach)| it.incarnation == admitted && it.map <= map;
        let Some((peer, _)) = slot.early.take_if(is_due) else { return };
        let older = slot.peer.replace(peer).filter(|older| *older != peer);
        if let Some(store) = self.store_mut() {
            store.reconnected(worker);
        }
        if let Some(older) = older {
            self.workers.peers.remove(&older);
            out.push(Effect::Close(older));
        }
        // A repeated push may belong to an earlier key map, when this shard had more keys.
        let most = self.following.as_ref().map_or(0, |following| following.parameters);
        out.push(Effect::Limit(peer, Limits::of_worker(most)));
        out.push(Effect::Send(peer, Message::Attached(Attached { map, keys })));
    }
}
