//! The members of a run, and the connections that may become members.

use alloc::collections::{BTreeMap, BTreeSet};

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::Elector;

use super::roster::{Presence, Roster};

/// Who takes part, who is awaited, who has finished.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) roster: Roster,
    /// Connections before their first valid request (Hello, Enlist or a client's), with the time
    /// they were accepted; the oldest first.
    pub(super) unauthenticated: BTreeSet<(Time, PeerId)>,
    /// The authenticated identity of each connection in `unauthenticated`.
    pub(super) identities: BTreeMap<PeerId, Identity>,
    /// Members that join the cohort with the next round.
    pub(super) joining: BTreeSet<WorkerId>,
    /// Members that have used up their share of a partition budget.
    pub(super) finished: BTreeSet<WorkerId>,
    /// Departed workers whose slot in the cohort is kept (`on-worker-loss = wait`), with the time
    /// of their departure.
    pub(super) awaited_back: BTreeSet<(Time, WorkerId)>,
    /// The earliest time at which a lease can expire.
    pub(super) lease_check: Option<Time>,
    /// Since when too few workers are present; none while there are enough.
    pub(super) short_since: Option<Time>,
}

impl Members {
    /// A run of so many workers, before any has joined.
    pub(super) fn new(workers: u32) -> Self {
        Self {
            roster: Roster::new(workers),
            unauthenticated: BTreeSet::new(),
            identities: BTreeMap::new(),
            joining: BTreeSet::new(),
            finished: BTreeSet::new(),
            awaited_back: BTreeSet::new(),
            lease_check: None,
            short_since: None,
        }
    }

    /// A connection was accepted.
    pub(super) fn connected(&mut self, now: Time, peer: PeerId, identity: Identity) {
        self.unauthenticated.insert((now, peer));
        self.identities.insert(peer, identity);
    }

    /// The number of present workers with their data. A worker that has finished its share and
    /// left counts, since no other could take its place.
    pub(super) fn present(&self) -> u32 {
        let gone = |worker: &&WorkerId| self.roster[**worker].presence != Presence::Ready;
        self.roster.ready() + self.finished.iter().filter(gone).count() as u32
    }

    /// The members, whose votes elect the leader if there is a standby.
    pub(super) fn electors(&self) -> impl Iterator<Item = Elector> {
        let alive = self.roster.iter().filter(|(_, slot)| slot.presence.is_alive());
        alive.map(|(worker, slot)| Elector::Worker(worker, slot.incarnation))
    }

    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.roster.archive(archive)?;
        archive.small(&mut self.unauthenticated)?;
        archive.small(&mut self.identities)?;
        archive.small(&mut self.joining)?;
        archive.small(&mut self.finished)?;
        archive.small(&mut self.awaited_back)?;
        archive.small(&mut self.lease_check)?;
        archive.small(&mut self.short_since)
    }
}
