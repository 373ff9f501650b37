//! Who is who: the job's workers, and the connections they are behind.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::arriving::Arriving;
use crate::node::idle::Idle;
use pstrain_compute::decided::{Decided, DropReason};
use pstrain_compute::id::{BatchId, Clock, Incarnation, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_wire::holders::Unreached;
use pstrain_wire::worker::Resume;

/// A worker id of the job, and whoever holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    /// The name of its holder; empty if it never had one.
    pub(super) name: String,
    /// The last incarnation issued. Never forgotten, so that an older one is known as such.
    pub(super) incarnation: Incarnation,
    pub(super) presence: Presence,
    /// Whether its holder would have taken any other place as well.
    pub(super) roams: bool,
    /// The connection, while there is one.
    pub(super) peer: Option<PeerId>,
    /// When it was last heard.
    pub(super) heard: Time,
    /// When it was last told that a message of its is being received.
    pub(super) told: Time,
    /// Since when it does what it does.
    pub(super) since: Time,
    /// Iterations, while it does not count in the cohort.
    pub(super) clock: Clock,
    /// Its mini-batches. They outlive incarnations, so that a worker that comes back goes on in
    /// its data where the last accepted push was.
    pub(super) batches: Batches,
    /// Examples in its partition.
    pub(super) rows: u64,
    /// Whether it has its own copy of the data, which must be that of the job.
    pub(super) has_own_data: bool,
    /// Updates it contributed to.
    pub(super) updates: u64,
    /// Where its time goes.
    pub(super) account: Account,
    /// The other server that it says it cannot be with, and since when.
    pub(super) unreached: Option<(Unreached, Time)>,
    /// The part that begins anew with each incarnation.
    pub(super) seat: Seat,
}

/// What an incarnation is in the middle of.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Seat {
    /// What became of its last push.
    pub(super) decided: Option<Decided>,
    /// The last push that came. Later pushes up to [`Self::decided`] were called off on their way,
    /// or before they were sent.
    pub(super) came: Sequence,
    /// The pushes it may make now, in order.
    pub(super) grants: VecDeque<Grant>,
    /// The pushes that have come in part.
    pub(super) arriving: BTreeMap<Sequence, Arriving>,
    /// Since when it has been waiting for parameters.
    pub(super) asked: Option<Time>,
    /// The newest version it was given.
    pub(super) given: Version,
    /// Whether it was sent a newer version for what it computes, and has not been heard since.
    pub(super) is_superseding: bool,
    /// When it was last sent a newer version for what it computes.
    pub(super) superseded: Time,
    /// Whether it was told of a key map, and has not said that it goes by it.
    pub(super) remapping: bool,
    /// Whether its connection broke since it was last heard of what it knows to be allowed.
    pub(super) unsure: bool,
    /// The version that its last finite gradient was computed on.
    pub(super) finite: Option<Version>,
    /// Messages without a gradient of late.
    pub(super) idle: Idle,
}

/// The permission to push once, not made use of yet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) sequence: Sequence,
    /// The version that came with it. The gradient may be computed on a later one that came since.
    pub(super) version: Version,
    pub(super) task: Task,
    /// Whether it was for something else before a new version came.
    pub(super) renewed: bool,
    pub(super) at: Time,
}

/// Which mini-batches a worker id has still to compute.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Batches {
    /// The first that was never given out.
    next: BatchId,
    /// Those that were given out and did not come back, or not to any use; the earliest first.
    again: BTreeSet<BatchId>,
    /// How many have been accepted.
    accepted: u64,
}

impl Batches {
    /// The mini-batch to give out next.
    pub(super) fn first(&self) -> BatchId {
        self.again.first().copied().unwrap_or(self.next)
    }

    /// Gives out the next mini-batch, if it is not beyond the `quota` first.
    pub(super) fn take(&mut self, quota: u64) -> Option<BatchId> {
        if let Some(batch) = self.again.pop_first() {
            return Some(batch);
        }
        let batch = self.next;
        (batch.0 < quota).then(|| {
            self.next = BatchId(batch.0 + 1);
            batch
        })
    }

    /// Whether there is one to give out within the `quota` first.
    pub(super) fn has_more(&self, quota: u64) -> bool {
        self.first().0 < quota
    }

    /// Takes back a mini-batch that has to be computed again.
    pub(super) fn put_back(&mut self, batch: BatchId) {
        self.again.insert(batch);
    }

    /// Notes that one was accepted.
    pub(super) const fn accept(&mut self) {
        self.accepted += 1;
    }

    /// How many have been accepted.
    pub(super) const fn accepted(&self) -> u64 {
        self.accepted
    }
}

/// Whether the holder of a worker id is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Presence {
    Awaited,
    Preparing,
    Ready,
    Lost,
    Left,
}

impl Presence {
    /// Whether there is a holder with a lease.
    pub(super) const fn is_alive(self) -> bool {
        matches!(self, Self::Preparing | Self::Ready)
    }
}

impl Seat {
    /// The number of the next push.
    pub(super) fn next_sequence(&self) -> Sequence {
        let decided = self.decided.map_or(Sequence(0), |decided| decided.sequence);
        self.grants.back().map_or(decided, |grant| grant.sequence).next()
    }

    /// Whether a worker with the same incarnation knows no more than this one does.
    pub(super) fn has_all_of(&self, resume: &Resume) -> bool {
        let decided = self.decided.map_or(Sequence(0), |decided| decided.sequence);
        resume.allowed < self.next_sequence() && resume.decided <= decided
    }

    /// Pushes that may be made now, and have not come.
    pub(super) fn under_way(&self) -> u32 {
        self.grants.len() as u32
    }

    /// Calls off the pushes that have not come and allows as many on `version` for the same tasks.
    /// Returns the parts of called-off pushes that are here.
    pub(super) fn call_off(&mut self, version: Version, now: Time) -> BTreeMap<Sequence, Arriving> {
        let mut next = self.next_sequence();
        for grant in &mut self.grants {
            let void = core::mem::replace(&mut grant.sequence, next);
            self.decided = Some(Decided::after(self.decided, void, Some(DropReason::Stale)));
            grant.version = version;
            next = next.next();
        }
        self.superseded = now;
        core::mem::take(&mut self.arriving)
    }

    /// Notes that push `sequence` came after it was called off. Returns the time its parameters
    /// were given out. The push in its place counts from the time of the call.
    pub(super) fn came_late(&mut self, sequence: Sequence) -> Time {
        self.came = sequence;
        let superseded = self.superseded;
        let it = self.grants.iter_mut().find(|grant| grant.at < superseded);
        it.map_or(superseded, |grant| core::mem::replace(&mut grant.at, superseded))
    }
}

/// All worker ids of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Roster {
    slots: Vec<Slot>,
    peers: BTreeMap<PeerId, WorkerId>,
    ready: u32,
}

impl Roster {
    pub(super) fn new(workers: u32) -> Self {
        let slots = (0..workers).map(|_| Slot {
            name: String::new(),
            incarnation: Incarnation(0),
            presence: Presence::Awaited,
            roams: false,
            peer: None,
            heard: Time::ZERO,
            told: Time::ZERO,
            since: Time::ZERO,
            clock: Clock(0),
            batches: Batches::default(),
            rows: 0,
            has_own_data: false,
            updates: 0,
            account: Account::default(),
            unreached: None,
            seat: Seat::default(),
        });
        Self { slots: slots.collect(), peers: BTreeMap::new(), ready: 0 }
    }

    /// Workers that are there and have their data.
    pub(super) const fn ready(&self) -> u32 {
        self.ready
    }

    pub(super) fn slot(&self, worker: WorkerId) -> Option<&Slot> {
        self.slots.get(worker.0 as usize)
    }

    pub(super) fn slot_mut(&mut self, worker: WorkerId) -> Option<&mut Slot> {
        self.slots.get_mut(worker.0 as usize)
    }

    /// Every worker id with its slot, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Slot)> {
        (0..).map(WorkerId).zip(&self.slots)
    }

    /// The first that says that it cannot be with another server, with which, and since when.
    pub(super) fn first_unreached(&self) -> Option<(&Unreached, Time)> {
        let those = self.slots.iter().filter(|slot| slot.presence.is_alive());
        let those = those.filter_map(|slot| slot.unreached.as_ref());
        those.min_by_key(|(_, since)| *since).map(|(unreached, since)| (unreached, *since))
    }

    /// Takes everybody who is there as heard just now.
    pub(super) fn renew(&mut self, now: Time) {
        for slot in self.slots.iter_mut().filter(|slot| slot.presence.is_alive()) {
            slot.heard = now;
        }
    }

    /// Saves or restores everything.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)?;
        let seats = self.slots.iter_mut().map(|slot| &mut slot.seat);
        let mut arriving = seats.flat_map(|seat| seat.arriving.values_mut());
        arriving.try_for_each(|arriving| arriving.archive(archive))
    }

    /// The connections that have a worker behind them.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.keys().copied()
    }

    /// The worker behind a connection.
    pub(super) fn worker_of(&self, peer: PeerId) -> Option<WorkerId> {
        self.peers.get(&peer).copied()
    }

    /// The connection's worker and its slot.
    pub(super) fn of_peer(&mut self, peer: PeerId) -> Option<(WorkerId, &mut Slot)> {
        let worker = self.worker_of(peer)?;
        Some((worker, self.slot_mut(worker)?))
    }

    /// Puts `worker` behind `peer`; returns the connection it was behind before.
    pub(super) fn attach(&mut self, worker: WorkerId, peer: PeerId) -> Option<PeerId> {
        let before = self.slot_mut(worker)?.peer.replace(peer);
        if let Some(before) = before {
            self.peers.remove(&before);
        }
        self.peers.insert(peer, worker);
        before
    }

    /// Forgets a connection; returns the worker that was behind it.
    pub(super) fn detach(&mut self, peer: PeerId) -> Option<WorkerId> {
        let worker = self.peers.remove(&peer)?;
        if let Some(slot) = self.slot_mut(worker) {
            slot.peer = None;
        }
        Some(worker)
    }

    /// Changes whether the holder of `worker` is there.
    pub(super) fn set_presence(&mut self, worker: WorkerId, presence: Presence, now: Time) {
        let Some(slot) = self.slots.get_mut(worker.0 as usize) else { return };
        if slot.presence == Presence::Ready {
            self.ready -= 1;
        }
        if presence == Presence::Ready {
            self.ready += 1;
        }
        slot.presence = presence;
        slot.since = now;
    }

    /// The worker id for a newcomer without a wish: one that nobody ever had, or else one whose
    /// holder is gone for good.
    pub(super) fn vacancy(&self) -> Option<WorkerId> {
        let first = |wanted: fn(Presence) -> bool| {
            self.iter().find(|(_, slot)| wanted(slot.presence)).map(|(worker, _)| worker)
        };
        first(|presence| presence == Presence::Awaited).or_else(|| first(|p| !p.is_alive()))
    }
}
