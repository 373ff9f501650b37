//! The worker slots of a meeting point, and the connection behind each.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

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
    pub(super) presence: Presence,
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

/// All worker slots, by worker id.
#[derive(Debug)]
pub(super) struct Slots(Vec<Slot>);

/// The slot of a worker that the meeting point knows: it has admitted it, or it is of a group.
impl Index<WorkerId> for Slots {
    type Output = Slot;

    fn index(&self, worker: WorkerId) -> &Slot {
        &self.0[worker.0 as usize]
    }
}

impl IndexMut<WorkerId> for Slots {
    fn index_mut(&mut self, worker: WorkerId) -> &mut Slot {
        &mut self.0[worker.0 as usize]
    }
}

impl Slots {
    pub(super) fn new(workers: u32) -> Self {
        Self((0..workers).map(|_| Slot::default()).collect())
    }

    /// The slot of a worker that a message names; none if the job has no such worker.
    pub(super) fn get(&self, worker: WorkerId) -> Option<&Slot> {
        self.0.get(worker.0 as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Slot)> {
        (0..).map(WorkerId).zip(&self.0)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.0.iter_mut()
    }

    /// The slot behind a connection.
    pub(super) fn of_peer(&mut self, peer: PeerId) -> Option<(WorkerId, &mut Slot)> {
        let slots = (0..).map(WorkerId).zip(&mut self.0);
        slots.into_iter().find(|(_, slot)| slot.peer == Some(peer))
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
    pub(super) fn ready(&self) -> u32 {
        self.with(Presence::Ready).count() as u32
    }
}
