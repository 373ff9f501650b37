//! The worker slots of a meeting point, and the connection behind each.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use core::time::Duration;

use crate::node::flood::FloodControl;
use crate::node::server::Account;
use pstrain_compute::id::{Incarnation, PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::peers::Reduced;

/// A worker slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) name: String,
    /// The last incarnation issued.
    pub(super) incarnation: Incarnation,
    /// Set by [`Slots::set_presence`].
    pub(super) presence: Presence,
    /// Set by [`Slots::attach`] and [`Slots::detach`].
    pub(super) peer: Option<PeerId>,
    /// When the last message, or part of one, arrived.
    pub(super) heard: Time,
    /// When its state changed last.
    pub(super) since: Time,
    /// Where other workers reach it.
    pub(super) address: String,
    /// Examples of its part.
    pub(super) rows: u64,
    /// The latest version that it has reported.
    pub(super) version: Version,
    /// True until it has the state of training.
    pub(super) joins: bool,
    /// The worker whose answer to an exchange it awaited when it halted last.
    pub(super) awaits: Option<WorkerId>,
    /// The version of the run at its last update, if it makes updates alone, and its own version up
    /// to which it may make updates.
    pub(super) base: Version,
    pub(super) allowed: Version,
    /// The newest version from which this incarnation has computed a finite gradient.
    pub(super) finite: Option<Version>,
    /// Its reports of updates that not all members have made yet, and when they arrived.
    pub(super) reports: VecDeque<(Time, Reduced)>,
    /// Updates that it contributed to.
    pub(super) updates: u64,
    /// Where its time went.
    pub(super) account: Account,
    /// Why it left, in its words, or was refused, until its slot is taken again.
    pub(super) why_left: Option<String>,
    pub(super) idle: FloodControl,
}

impl Slot {
    /// The worker has a version.
    pub(super) fn made(&mut self, version: Version) {
        self.version = self.version.max(version);
        self.joins &= version == Version(0);
    }
}

/// State of a worker slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Presence {
    /// No worker has had it.
    #[default]
    Awaited,
    /// The worker loads its data.
    Preparing,
    Ready,
    Lost,
    Left,
    Refused,
}

impl Presence {
    pub(super) const fn is_alive(self) -> bool {
        matches!(self, Self::Preparing | Self::Ready)
    }
}

/// All worker slots, by worker id. A message costs no look at all of them.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Slot>,
    /// The worker behind each connection.
    peers: BTreeMap<PeerId, WorkerId>,
    /// Number of workers that load their data.
    preparing: u32,
    /// Number of workers that are ready.
    ready: u32,
    /// No lease expires before: leases are only ever extended.
    lease_check: Option<Time>,
}

/// The slot of a worker that the meeting point knows: it has admitted it, or it is of a group.
impl Index<WorkerId> for Slots {
    type Output = Slot;

    fn index(&self, worker: WorkerId) -> &Slot {
        &self.all[worker.0 as usize]
    }
}

impl IndexMut<WorkerId> for Slots {
    fn index_mut(&mut self, worker: WorkerId) -> &mut Slot {
        &mut self.all[worker.0 as usize]
    }
}

impl Slots {
    pub(super) fn new(workers: u32) -> Self {
        Self {
            all: (0..workers).map(|_| Slot::default()).collect(),
            peers: BTreeMap::new(),
            preparing: 0,
            ready: 0,
            lease_check: None,
        }
    }

    /// The slot of a worker that a message names; none if the job has no such worker.
    pub(super) fn get(&self, worker: WorkerId) -> Option<&Slot> {
        self.all.get(worker.0 as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Slot)> {
        (0..).map(WorkerId).zip(&self.all)
    }

    /// The workers that are there.
    fn alive(&self) -> impl Iterator<Item = (WorkerId, &Slot)> {
        self.iter().filter(|(_, slot)| slot.presence.is_alive())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.all.iter_mut()
    }

    /// The slot behind a connection.
    pub(super) fn of_peer(&mut self, peer: PeerId) -> Option<(WorkerId, &mut Slot)> {
        let worker = *self.peers.get(&peer)?;
        Some((worker, &mut self[worker]))
    }

    /// Attaches a worker to a connection; returns its previous one.
    pub(super) fn attach(&mut self, worker: WorkerId, peer: PeerId) -> Option<PeerId> {
        let before = self.detach(worker);
        self[worker].peer = Some(peer);
        self.peers.insert(peer, worker);
        before
    }

    /// Detaches a worker from its connection, which is returned.
    pub(super) fn detach(&mut self, worker: WorkerId) -> Option<PeerId> {
        let peer = self[worker].peer.take()?;
        self.peers.remove(&peer);
        Some(peer)
    }

    /// Sets the presence of a worker.
    pub(super) fn set_presence(&mut self, worker: WorkerId, presence: Presence, now: Time) {
        let slot = &mut self.all[worker.0 as usize];
        slot.since = now;
        let before = core::mem::replace(&mut slot.presence, presence);
        self.preparing += u32::from(presence == Presence::Preparing);
        self.preparing -= u32::from(before == Presence::Preparing);
        self.ready += u32::from(presence == Presence::Ready);
        self.ready -= u32::from(before == Presence::Ready);
    }

    /// A worker is there from now on: its lease begins.
    pub(super) fn begin_lease(&mut self, worker: WorkerId, now: Time, lease: Duration) {
        self[worker].heard = now;
        self.lease_check = Some(self.lease_check.map_or(now + lease, |at| at.min(now + lease)));
    }

    /// The workers whose leases have expired, if it is time to look.
    pub(super) fn expired(&mut self, now: Time, lease: Duration) -> Vec<WorkerId> {
        if self.lease_check.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let (late, in_time): (Vec<_>, Vec<_>) = self
            .alive()
            .map(|(worker, slot)| (worker, slot.heard + lease))
            .partition(|(_, ends)| now >= *ends);
        self.lease_check = in_time.into_iter().map(|(_, ends)| ends).min();
        late.into_iter().map(|(worker, _)| worker).collect()
    }

    /// When it is time to look for expired leases.
    pub(super) const fn lease_check(&self) -> Option<Time> {
        self.lease_check
    }

    /// The first slot that no worker has.
    pub(super) fn vacancy(&self) -> Option<WorkerId> {
        self.iter().find(|(_, slot)| !slot.presence.is_alive()).map(|(worker, _)| worker)
    }

    /// Workers with this presence, in the order of their ids.
    pub(super) fn with(&self, presence: Presence) -> impl Iterator<Item = (WorkerId, &Slot)> {
        self.iter().filter(move |(_, slot)| slot.presence == presence)
    }

    /// Number of workers that are ready.
    pub(super) const fn ready(&self) -> u32 {
        self.ready
    }

    /// True if a worker loads its data.
    pub(super) const fn is_any_preparing(&self) -> bool {
        self.preparing > 0
    }

    /// True if a worker is there.
    pub(super) const fn is_any_alive(&self) -> bool {
        self.preparing + self.ready > 0
    }
}
