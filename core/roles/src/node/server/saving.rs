//! The whole state of a server: saves it, restores it, and lists the effects that are still due.

use alloc::vec::Vec;

use super::{Server, ServerError};
use crate::node::{Durable, Effect};
use crate::store::Store;
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_policy::job::{Job, Redundancy};
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::Electorate;

/// Why a server cannot be restored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// No server can be built for the job.
    #[error(transparent)]
    Server(ServerError),
    /// The saved state is not valid.
    #[error(transparent)]
    Saved(#[from] SavedError),
}

impl Server {
    /// Saves the whole state, which does not change. Shared arrays are not copied.
    #[must_use]
    pub fn save(&mut self) -> Saved {
        let mut saved = Saved::default();
        let keys = self.store.parameters().len();
        let done = self.archive(&mut Archive::save(&mut saved, keys));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        saved
    }

    /// Restores the server of `job` that was saved: it continues as that server would have.
    ///
    /// Its connections are those of the saved server: if its driver is gone, so are
    /// [`Self::peers`]. [`Self::unanswered`] repeats the requests that the driver has not answered.
    ///
    /// # Errors
    /// [`RestoreError`] if no server can be built for the job, or if the saved state is not of this
    /// job.
    pub fn restore(job: Job, saved: &Saved) -> Result<Self, RestoreError> {
        let mut server = Self::new(job, 0).map_err(RestoreError::Server)?;
        let mut archive = Archive::restore(saved, server.store.parameters().len());
        server.archive(&mut archive)?;
        archive.finish()?;
        Ok(server)
    }

    /// Returns the connections that are open, as far as the server knows.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerId> {
        let unauthenticated = self.members.unauthenticated.iter().map(|&(_, peer)| peer);
        let askers = self.modes.ordered.iter().flat_map(|ordered| &ordered.askers);
        let askers = askers.map(|(peer, _)| *peer).chain(self.group.changes.askers());
        let askers = askers.chain(self.pullers.peers());
        self.members
            .roster
            .peers()
            .chain(self.group.peers())
            .chain(unauthenticated)
            .chain(askers)
            .collect()
    }

    /// The members, whose votes elect the leader if there is a standby.
    pub(in crate::node) fn electorate(&self) -> Electorate {
        self.members.electors().collect()
    }

    /// True if the members are exactly `electorate`.
    pub(in crate::node) fn has_electorate(&self, electorate: &Electorate) -> bool {
        self.members.electors().eq(electorate.iter().copied())
    }

    /// The connections of the members.
    pub(in crate::node) fn worker_peers(&self) -> impl Iterator<Item = PeerId> {
        self.members.roster.peers()
    }

    /// The connections of the other servers.
    pub(in crate::node) fn server_peers(&self) -> impl Iterator<Item = PeerId> {
        self.group.peers()
    }

    /// The identity of a connection that has not sent its first valid request.
    pub(in crate::node) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        self.members.identities.get(&peer).copied()
    }

    /// True if the run has ended and members may be told: no state that matters to a peer changes
    /// any more.
    pub(in crate::node) fn is_final(&self) -> bool {
        self.lifecycle.end().is_some() && self.tells_end()
    }

    /// Returns the number that tells this run from others at the same address.
    #[must_use]
    pub const fn run(&self) -> u64 {
        self.run
    }

    /// Returns the number of evaluations that have not finished, with the one of an update in
    /// progress.
    pub(super) fn evaluations_due(&self) -> usize {
        self.evaluations.requested.len()
            + self.group.shown()
            + usize::from(self.measuring.is_open())
    }

    /// Returns the requests to the driver that have not been answered.
    #[must_use]
    pub fn unanswered(&self) -> Vec<Effect> {
        let done = self
            .lifecycle
            .end()
            .filter(|_| self.lifecycle.is_done())
            .map(|reason| Effect::Done(Ok(reason)));
        let requested = self.evaluations.requested.iter();
        let of_driver =
            requested.filter(|it| !self.evaluations.by_workers.has(it.point.version)).cloned();
        of_driver.map(Effect::Evaluate).chain(done).collect()
    }

    /// True if the run has ended and the server has nothing left to do.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.lifecycle.is_done()
    }

    pub(in crate::node) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.job.archive(archive)?;
        archive.small(&mut self.run)?;
        let keys = self.keys.len();
        self.group.archive(archive, keys as usize)?;
        self.archive_store(archive)?;
        self.modes.archive(archive, keys)?;
        if archive.restores() && self.job.redundancy == Redundancy::None {
            self.rounds.policy = self.modes.current.consistency.build();
        }
        self.rounds.archive(archive)?;
        self.members.archive(archive)?;
        archive.small(&mut self.measuring)?;
        archive.small(&mut self.lifecycle)?;
        archive.small(&mut self.progress)?;
        archive.small(&mut self.pullers)?;
        archive.small(&mut self.initial)?;
        archive.small(&mut self.doubt)?;
        archive.small(&mut self.early)?;
        self.evaluations.archive(archive, keys as usize)
    }

    /// Saves or restores the parameters; the key range may differ from the initial one.
    fn archive_store(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let keys = self.group.map.keys_of(ServerId::COORDINATOR).ok_or(SavedError::Small)?;
        if keys != self.store.keys() {
            self.store = Store::for_saved(&self.job, keys)?;
        }
        archive.set_keys(keys.len() as usize);
        self.store.archive(archive)
    }
}

impl Durable for Server {
    fn save(&mut self) -> Saved {
        self.save()
    }

    fn peers(&self) -> Vec<PeerId> {
        self.peers()
    }

    fn unanswered(&self) -> Vec<Effect> {
        self.unanswered()
    }

    /// True if the run has ended for good: it cannot be resumed to any advantage. A run that ended
    /// because a server was lost can, since the server may be found.
    fn is_over(&self) -> bool {
        self.stays_over()
    }
}
