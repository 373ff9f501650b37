//! Worker slots of the job, and the connection behind each.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::arriving::Arriving;
use crate::node::flood::FloodControl;
use crate::node::incoming::Incoming;
use pstrain_compute::decided::{Decided, DropReason};
use pstrain_compute::id::{BatchId, Clock, Incarnation, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::Coverage;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::{MOST_IN_FLIGHT, Task};
use pstrain_compute::time::Time;
use pstrain_wire::holders::Unreached;
use pstrain_wire::worker::{Departure, Resume};

/// A worker slot: a worker id of the job, and the worker that holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    /// The name of the worker that holds it; empty if there never was one.
    pub(super) name: String,
    /// The last incarnation issued. It is never reset, so that an older incarnation is recognised.
    pub(super) incarnation: Incarnation,
    pub(super) presence: Presence,
    /// The client did not ask for a specific worker id.
    pub(super) any_id: bool,
    /// The connection of the worker, while there is one.
    pub(super) peer: Option<PeerId>,
    /// When the last message, or part of one, arrived.
    pub(super) heard: Time,
    /// When the worker was last told that a long message of its is arriving.
    pub(super) told: Time,
    /// When the activity that the status shows last changed.
    pub(super) since: Time,
    /// The worker's clock (iterations), while it is not in the cohort.
    pub(super) clock: Clock,
    /// Its mini-batches. They outlive incarnations: a worker that comes back continues in its data
    /// after the last accepted push.
    pub(super) batches: Batches,
    /// Examples in the worker's partition.
    pub(super) rows: u64,
    /// The worker has its own copy of the data, which must match the job's.
    pub(super) has_own_data: bool,
    /// Updates that the worker contributed to.
    pub(super) updates: u64,
    /// Accounts for the worker's time.
    pub(super) account: Account,
    /// Why the worker left or was refused, until its slot is taken again.
    pub(super) why_left: Option<String>,
    /// The other server that the worker reports it cannot reach, and since when.
    pub(super) unreached: Option<(Unreached, Time)>,
    /// The state that starts afresh with each incarnation.
    pub(super) pushes: PushState,
}

/// The pushes of one incarnation of a worker: allowed, arriving, decided.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct PushState {
    /// The outcome of the last push that was decided.
    pub(super) decided: Option<Decided>,
    /// The last push that arrived. Later pushes up to [`Self::decided`] were called off before they
    /// arrived.
    pub(super) came: Sequence,
    /// Pushes that the worker may make now, in order.
    pub(super) grants: VecDeque<Grant>,
    /// Pushes that have arrived in part, from some of the servers.
    pub(super) arriving: BTreeMap<Sequence, Arriving>,
    /// The ranges of the next push that have arrived here.
    pub(super) incoming: Incoming,
    /// The version and keys of values that the worker was sent early over this connection.
    pub(super) early: Option<(Version, Coverage)>,
    /// Since when the worker has been waiting for parameters.
    pub(super) asked: Option<Time>,
    /// The newest version that the worker was sent.
    pub(super) given: Version,
    /// The worker was sent a newer version for the work under way, and has not been heard since.
    pub(super) is_superseding: bool,
    /// Pushes that were called off, as long as the worker has not told what became of them or of
    /// later ones: at most [`MOST_IN_FLIGHT`].
    pub(super) called_off: VecDeque<Grant>,
    /// The worker was sent a key map and has not confirmed it.
    pub(super) remapping: bool,
    /// The connection broke, and the worker has not said since which pushes it knows it may make.
    pub(super) grants_unconfirmed: bool,
    /// The worker went down together with this server ([`Input::WorkersDown`]), and has not come
    /// back since.
    ///
    /// [`Input::WorkersDown`]: crate::node::Input::WorkersDown
    pub(super) went_down: bool,
    /// The newest version on which the worker computed a finite gradient.
    pub(super) finite: Option<Version>,
    /// Flood control: counts messages between two pushes.
    pub(super) idle: FloodControl,
}

/// Permission to push once, not used yet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) sequence: Sequence,
    /// The version that was sent with it. The gradient may be computed on a later version that was
    /// sent since.
    pub(super) version: Version,
    pub(super) task: Task,
    /// The task was another one before a new version was sent.
    pub(super) renewed: bool,
    pub(super) at: Time,
}

/// Mini-batches that a worker slot still has to compute.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Batches {
    /// The first mini-batch that was never assigned.
    next: BatchId,
    /// Mini-batches that were assigned and lost or dropped, and must be computed again; the
    /// earliest first.
    again: BTreeSet<BatchId>,
    /// Mini-batches whose gradients have been accepted.
    accepted: u64,
}

impl Batches {
    /// Returns the mini-batch to assign next.
    pub(super) fn first(&self) -> BatchId {
        self.again.first().copied().unwrap_or(self.next)
    }

    /// Assigns the next mini-batch, if it is within the first `quota`.
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

    /// True if there is one to assign within the first `quota`.
    pub(super) fn has_more(&self, quota: u64) -> bool {
        self.first().0 < quota
    }

    /// Takes back a mini-batch that must be computed again.
    pub(super) fn put_back(&mut self, batch: BatchId) {
        self.again.insert(batch);
    }

    /// Counts an accepted mini-batch.
    pub(super) const fn accept(&mut self) {
        self.accepted += 1;
    }

    /// Returns the number of accepted mini-batches.
    pub(super) const fn accepted(&self) -> u64 {
        self.accepted
    }
}

/// The presence of the worker that holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Presence {
    Awaited,
    Preparing,
    Ready,
    Gone(Departure),
}

impl Presence {
    /// True if a worker holds the slot and has a lease.
    pub(super) const fn is_alive(self) -> bool {
        matches!(self, Self::Preparing | Self::Ready)
    }
}

impl PushState {
    /// Returns the number of the next push.
    pub(super) fn next_sequence(&self) -> Sequence {
        let decided = self.decided.map_or(Sequence(0), |decided| decided.sequence);
        self.grants.back().map_or(decided, |grant| grant.sequence).next()
    }

    /// True if a worker of this incarnation that resumes knows no more than this server. If it
    /// knows more, this server has lost the end of its log.
    pub(super) fn has_all_of(&self, resume: &Resume) -> bool {
        let decided = self.decided.map_or(Sequence(0), |decided| decided.sequence);
        resume.allowed < self.next_sequence() && resume.decided <= decided
    }

    /// Returns the number of pushes that are allowed and have not arrived.
    pub(super) fn under_way(&self) -> u32 {
        self.grants.len() as u32
    }

    /// The connection is lost: the worker sends again what has arrived in part, and must be sent
    /// all values.
    pub(super) fn cut_off(&mut self) {
        self.arriving.values_mut().for_each(Arriving::cut_off);
        self.early = None;
    }

    /// Calls off the pushes that have not arrived and allows as many on `version` for the same
    /// tasks. Returns the parts of called-off pushes that are here.
    pub(super) fn call_off(&mut self, version: Version, now: Time) -> BTreeMap<Sequence, Arriving> {
        // Each grant keeps its task and gets a new number after all others; the old number counts
        // as decided, so that a push under it is recognised when it arrives late.
        let mut next = self.next_sequence();
        for grant in &mut self.grants {
            let new = Grant { sequence: next, version, at: now, ..*grant };
            let void = core::mem::replace(grant, new);
            next = next.next();
            let decided = Decided::after(self.decided, void.sequence, Some(DropReason::Stale));
            self.decided = Some(decided);
            if self.called_off.len() == MOST_IN_FLIGHT as usize {
                self.called_off.pop_front();
            }
            self.called_off.push_back(void);
        }
        core::mem::take(&mut self.arriving)
    }

    /// Takes the record of push `sequence`, which was called off. Earlier ones are forgotten: the
    /// worker tells what became of its pushes in their order.
    pub(super) fn take_called_off(&mut self, sequence: Sequence) -> Option<Grant> {
        let earlier = self.called_off.iter().take_while(|grant| grant.sequence < sequence).count();
        self.called_off.drain(..earlier);
        let is_next = self.called_off.front().is_some_and(|grant| grant.sequence == sequence);
        if is_next { self.called_off.pop_front() } else { None }
    }
}

/// All worker slots of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Roster {
    slots: Vec<Slot>,
    peers: BTreeMap<PeerId, WorkerId>,
    ready: u32,
}

/// The slot of a member: the handshake checks ids, so that there is one.
impl Index<WorkerId> for Roster {
    type Output = Slot;

    fn index(&self, worker: WorkerId) -> &Slot {
        &self.slots[worker.0 as usize]
    }
}

impl IndexMut<WorkerId> for Roster {
    fn index_mut(&mut self, worker: WorkerId) -> &mut Slot {
        &mut self.slots[worker.0 as usize]
    }
}

impl Roster {
    pub(super) fn new(workers: u32) -> Self {
        let slots = (0..workers).map(|_| Slot {
            name: String::new(),
            incarnation: Incarnation(0),
            presence: Presence::Awaited,
            any_id: false,
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
            why_left: None,
            unreached: None,
            pushes: PushState::default(),
        });
        Self { slots: slots.collect(), peers: BTreeMap::new(), ready: 0 }
    }

    /// Returns the number of workers that are present and have their data.
    pub(super) const fn ready(&self) -> u32 {
        self.ready
    }

    /// The slot of an id from outside; `None` if the job has no such worker.
    pub(super) fn slot(&self, worker: WorkerId) -> Option<&Slot> {
        self.slots.get(worker.0 as usize)
    }

    /// Returns every worker id with its slot, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Slot)> {
        (0..).map(WorkerId).zip(&self.slots)
    }

    /// The ready workers that are connected, with their connections.
    pub(super) fn connected(&self) -> impl Iterator<Item = (WorkerId, PeerId)> {
        self.iter().filter_map(|(worker, slot)| {
            slot.peer.filter(|_| slot.presence == Presence::Ready).map(|peer| (worker, peer))
        })
    }

    /// The earliest report of a present worker that it cannot reach another server, and since when.
    pub(super) fn first_unreached(&self) -> Option<(&Unreached, Time)> {
        let those = self.slots.iter().filter(|slot| slot.presence.is_alive());
        let those = those.filter_map(|slot| slot.unreached.as_ref());
        those.min_by_key(|(_, since)| *since).map(|(unreached, since)| (unreached, *since))
    }

    /// Counts every present worker as heard just now.
    pub(super) fn renew(&mut self, now: Time) {
        for slot in self.slots.iter_mut().filter(|slot| slot.presence.is_alive()) {
            slot.heard = now;
        }
    }

    /// Mean loss of the last mini-batches of all workers.
    pub(super) fn loss(&self) -> Option<f64> {
        Account::loss_of(self.slots.iter().map(|slot| &slot.account))
    }

    /// Notes that every present worker went down together with this server.
    pub(super) fn went_down(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| slot.presence.is_alive()) {
            slot.pushes.went_down = true;
        }
    }

    /// A worker has come back as it was: the workers did not go down with this server, and each has
    /// a fresh lease. Returns true if that is news.
    pub(super) fn are_up(&mut self, now: Time) -> bool {
        let mut is_news = false;
        for slot in self.slots.iter_mut().filter(|slot| slot.pushes.went_down) {
            (slot.pushes.went_down, slot.heard, is_news) = (false, now, true);
        }
        is_news
    }

    /// Saves or restores the roster.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)?;
        let states = self.slots.iter_mut().map(|slot| &mut slot.pushes);
        for PushState { arriving, incoming, .. } in states {
            arriving.values_mut().try_for_each(|arriving| arriving.archive(archive))?;
            incoming.archive(archive)?;
        }
        Ok(())
    }

    /// The connections of workers.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.keys().copied()
    }

    /// The worker behind a connection.
    pub(super) fn worker_of(&self, peer: PeerId) -> Option<WorkerId> {
        self.peers.get(&peer).copied()
    }

    /// Returns the worker behind a connection, and its slot.
    pub(super) fn of_peer(&mut self, peer: PeerId) -> Option<(WorkerId, &mut Slot)> {
        let worker = self.worker_of(peer)?;
        Some((worker, &mut self[worker]))
    }

    /// Attaches `worker` to the connection `peer`, and returns its previous connection.
    pub(super) fn attach(&mut self, worker: WorkerId, peer: PeerId) -> Option<PeerId> {
        let before = self[worker].peer.replace(peer);
        if let Some(before) = before {
            self.peers.remove(&before);
        }
        self.peers.insert(peer, worker);
        before
    }

    /// Removes a connection, and returns the worker behind it.
    pub(super) fn detach(&mut self, peer: PeerId) -> Option<WorkerId> {
        let worker = self.peers.remove(&peer)?;
        self[worker].peer = None;
        Some(worker)
    }

    /// Sets the presence of the worker in slot `worker`.
    pub(super) fn set_presence(&mut self, worker: WorkerId, presence: Presence, now: Time) {
        let slot = &mut self.slots[worker.0 as usize];
        if slot.presence == Presence::Ready {
            self.ready -= 1;
        }
        if presence == Presence::Ready {
            self.ready += 1;
        }
        if presence.is_alive() {
            slot.why_left = None;
        }
        slot.presence = presence;
        slot.since = now;
    }

    /// Returns the slot for a newcomer that asks for none in particular: one that was never held,
    /// else one whose holder has departed, else one whose holder went down with the server.
    pub(super) fn vacancy(&self) -> Option<WorkerId> {
        let first = |wanted: fn(&Slot) -> bool| {
            self.iter().find(|(_, slot)| wanted(slot)).map(|(worker, _)| worker)
        };
        first(|slot| slot.presence == Presence::Awaited)
            .or_else(|| first(|slot| !slot.presence.is_alive()))
            .or_else(|| first(|slot| slot.pushes.went_down && slot.peer.is_none()))
    }
}
