//! The whole state of a server: saves it, restores it, and lists the effects that are still due.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Server, ServerError};
use crate::node::{Durable, Effect, Evaluate, ExactPoint, Outbox, Point};
use crate::store::Store;
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_policy::auto::Auto;
use pstrain_policy::job::{Job, Redundancy};
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::{Elector, Electorate};

/// Why a server cannot be restored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RestoreError {
    /// No server can be built for the job.
    Server(ServerError),
    /// The saved state is not valid.
    Saved(SavedError),
}

impl core::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::Saved(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RestoreError {}

impl From<SavedError> for RestoreError {
    fn from(error: SavedError) -> Self {
        Self::Saved(error)
    }
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
        let unauthenticated = self.unauthenticated.iter().map(|&(_, peer)| peer);
        let askers = self.ordered.iter().flat_map(|ordered| &ordered.askers);
        let askers = askers.map(|(peer, _)| *peer).chain(self.group.changes.askers());
        let askers = askers.chain(self.pullers.peers()).chain(self.pushes.peers());
        self.roster.peers().chain(self.group.peers()).chain(unauthenticated).chain(askers).collect()
    }

    /// The members, whose votes elect the leader if there is a standby.
    pub(in crate::node) fn electorate(&self) -> Electorate {
        self.members().collect()
    }

    /// True if the members are exactly `electorate`.
    pub(in crate::node) fn has_electorate(&self, electorate: &Electorate) -> bool {
        self.members().eq(electorate.iter().copied())
    }

    fn members(&self) -> impl Iterator<Item = Elector> {
        let alive = self.roster.iter().filter(|(_, slot)| slot.presence.is_alive());
        alive.map(|(worker, slot)| Elector::Worker(worker, slot.incarnation))
    }

    /// The connections of the members.
    pub(in crate::node) fn worker_peers(&self) -> impl Iterator<Item = PeerId> {
        self.roster.peers()
    }

    /// The connections of the other servers.
    pub(in crate::node) fn server_peers(&self) -> impl Iterator<Item = PeerId> {
        self.group.peers()
    }

    /// The identity of a connection that has not sent its first valid request.
    pub(in crate::node) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        self.identities.get(&peer).copied()
    }

    /// True if the run has ended and only the goodbyes are left.
    pub(in crate::node) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the number that tells this run from others at the same address.
    #[must_use]
    pub const fn run(&self) -> u64 {
        self.run
    }

    /// Requests an evaluation from the driver.
    pub(super) fn request(&mut self, evaluate: Evaluate, out: &mut Outbox) {
        self.evaluating.push(evaluate.clone());
        out.push(Effect::Evaluate(evaluate));
    }

    /// Returns the number of evaluations that have not finished, with the one of an update in
    /// progress.
    pub(super) fn evaluations_due(&self) -> usize {
        self.evaluating.len() + self.group.shown() + usize::from(self.measuring.is_open())
    }

    /// Returns the requests to the driver that have not been answered.
    #[must_use]
    pub fn unanswered(&self) -> Vec<Effect> {
        let done = self.end.filter(|_| self.done).map(|reason| Effect::Done(Ok(reason)));
        self.evaluating.iter().cloned().map(Effect::Evaluate).chain(done).collect()
    }

    /// True if the run has ended and the server has nothing left to do.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.done
    }

    pub(in crate::node) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut digest = self.job_digest;
        archive.small(&mut digest)?;
        if digest != self.job_digest {
            return Err(SavedError::OtherJob);
        }
        archive.small(&mut self.run)?;
        self.group.archive(archive, self.keys.len() as usize)?;
        self.archive_store(archive)?;
        self.archive_mode(archive)?;
        self.archive_members(archive)?;
        self.archive_course(archive)
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

    /// Saves or restores the mode and the state that depends on it.
    fn archive_mode(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.mode)?;
        archive.small(&mut self.window)?;
        archive.small(&mut self.switched)?;
        if archive.restores() && self.job.redundancy == Redundancy::None {
            self.policy = self.mode.consistency.build();
        }
        self.policy.archive(archive)?;
        if let Some(assigner) = &mut self.assigner {
            assigner.archive(archive)?;
        }
        let mut has_auto = self.auto.is_some();
        archive.small(&mut has_auto)?;
        if archive.restores() {
            self.auto = has_auto.then(|| Auto::new(self.keys.len()));
        }
        if let Some(auto) = &mut self.auto {
            auto.archive(archive)?;
        }
        archive.small(&mut self.ordered)
    }

    /// Saves or restores the members and their state.
    fn archive_members(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.cohort)?;
        archive.small(&mut self.measuring)?;
        self.roster.archive(archive)?;
        archive.small(&mut self.unauthenticated)?;
        archive.small(&mut self.identities)?;
        archive.small(&mut self.waiting)?;
        archive.small(&mut self.newly_waiting)?;
        archive.small(&mut self.gate)?;
        archive.small(&mut self.next_turn)?;
        archive.small(&mut self.joining)?;
        archive.small(&mut self.finished)?;
        archive.small(&mut self.busy)?;
        archive.small(&mut self.short_since)?;
        archive.small(&mut self.awaited_back)?;
        archive.small(&mut self.lease_check)
    }

    /// Saves or restores the progress of the run.
    fn archive_course(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.phase)?;
        archive.small(&mut self.phase_since)?;
        archive.small(&mut self.ledger)?;
        archive.small(&mut self.samples)?;
        archive.small(&mut self.training_since)?;
        archive.small(&mut self.last_update)?;
        archive.small(&mut self.last_evaluated)?;
        archive.small(&mut self.evaluated)?;
        archive.small(&mut self.pullers)?;
        archive.small(&mut self.pushes)?;
        archive.small(&mut self.released_by)?;
        archive.small(&mut self.doubt)?;
        archive.small(&mut self.end)?;
        archive.small(&mut self.done)?;
        let mut asked: Vec<ExactPoint> =
            self.evaluating.iter().map(|asked| asked.point.into()).collect();
        archive.small(&mut asked)?;
        if archive.restores() {
            let empty = |point| Evaluate { point: Point::from(point), parameters: Arc::default() };
            self.evaluating = asked.into_iter().map(empty).collect();
        }
        let keys = self.keys.len() as usize;
        for asked in &mut self.evaluating {
            archive.shared_of("evaluated", &mut asked.parameters, keys)?;
        }
        Ok(())
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
