//! Saving and restoring a shard, for its standby and its checkpoints; and accessors for its
//! replica.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Following, Shard, ShardConfig};
use crate::node::addresses::Addresses;
use crate::node::{Durable, Effect};
use crate::store::Store;
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_policy::job::Job;
use pstrain_wire::group::{Place, Slice};
use pstrain_wire::identity::Identity;

impl Shard {
    /// Returns the whole state. Shared arrays are not copied; the state stays unchanged.
    #[must_use]
    pub fn save(&mut self) -> Saved {
        let mut saved = Saved::default();
        let done = self.archive(&mut Archive::save(&mut saved, 0));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        saved
    }

    /// Restores a saved shard in place of this new one: it continues as the saved one would have,
    /// from this one's address.
    ///
    /// # Errors
    /// [`SavedError`] if the saved state is not one of a shard.
    pub fn restored(mut self, saved: &Saved) -> Result<Self, SavedError> {
        let mut archive = Archive::restore(saved, 0);
        self.archive_in_place(&mut archive)?;
        archive.finish()?;
        Ok(self)
    }

    /// Restores everything, and adopts the coordinator's address that this new shard was given.
    pub(in crate::node) fn archive_in_place(
        &mut self,
        archive: &mut Archive<'_>,
    ) -> Result<(), SavedError> {
        let here = self.coordinators.all().next().cloned();
        self.archive(archive)?;
        if let Some(here) = here.filter(|here| self.coordinators.all().all(|it| it != here)) {
            self.dialler.turn_to(here.clone());
            self.coordinators = Addresses::new(here);
        }
        Ok(())
    }

    /// The run, id and job, once the coordinator has admitted the shard.
    pub(in crate::node) fn following(&self) -> Option<(u64, ServerId, &Job)> {
        self.following.as_ref().map(|it| (it.run, it.server, &*it.job))
    }

    /// True if it has keys, so that a standby is of use.
    pub(in crate::node) fn has_keys(&self) -> bool {
        self.keys().is_some()
    }

    /// Changes the address at which workers reach it.
    pub(in crate::node) fn serve_at(&mut self, address: alloc::string::String) {
        self.config.address = address;
    }

    /// The open connections, as far as the shard knows.
    pub(in crate::node) fn peers(&self) -> Vec<PeerId> {
        let unauthenticated = self.unauthenticated.iter().map(|&(_, peer)| peer);
        self.dialler.peer().into_iter().chain(self.workers.peers()).chain(unauthenticated).collect()
    }

    /// The connections of the workers.
    pub(in crate::node) fn worker_peers(&self) -> impl Iterator<Item = PeerId> {
        self.workers.peers()
    }

    /// The connection to the coordinator.
    pub(in crate::node) fn coordinator(&self) -> Option<PeerId> {
        self.dialler.peer()
    }

    /// True if it waits for the answer to a dial.
    pub(in crate::node) const fn is_dialling(&self) -> bool {
        self.dialler.is_dialling()
    }

    /// The addresses of the coordinator and its standby.
    pub(in crate::node) const fn coordinators(&self) -> &Addresses {
        &self.coordinators
    }

    /// The identity of a connection before its first message.
    pub(in crate::node) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        self.identities.get(&peer).copied()
    }

    /// Saves or restores everything but the shard's own address, which its new process knows.
    pub(in crate::node) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let ShardConfig { place, address: _, lease, stream: _ } = &mut self.config;
        archive.small::<Place>(place)?;
        archive.small(lease)?;
        archive.small(&mut self.coordinators)?;
        self.dialler.archive(archive)?;
        archive.small(&mut self.welcome)?;
        let mut job = self.following.as_ref().map(|following| (*following.job).clone());
        archive.small(&mut job)?;
        if archive.restores() {
            self.following = job.map(Following::of_saved);
        }
        if let Some(following) = &mut self.following {
            following.archive(archive)?;
        }
        archive.small(&mut self.followed)?;
        archive.small(&mut self.told)?;
        self.workers.archive(archive)?;
        self.archive_shown(archive)?;
        archive.small(&mut self.measured)?;
        archive.small(&mut self.unauthenticated)?;
        archive.small(&mut self.identities)?;
        archive.small(&mut self.leaving)?;
        archive.small(&mut self.done)
    }

    fn archive_shown(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut headers = self.shown.iter().map(|slice| slice.header).collect();
        archive.small::<Vec<_>>(&mut headers)?;
        if archive.restores() {
            let empty = |header| Slice { header, values: Default::default() };
            self.shown = headers.into_iter().map(empty).collect();
        }
        for Slice { header, values } in &mut self.shown {
            archive.shared_of("shown", values, header.keys.len() as usize)?;
        }
        Ok(())
    }
}

impl Durable for Shard {
    fn save(&mut self) -> Saved {
        self.save()
    }

    fn peers(&self) -> Vec<PeerId> {
        self.peers()
    }

    fn is_dialling(&self) -> bool {
        self.is_dialling()
    }

    fn unanswered(&self) -> Vec<Effect> {
        Vec::new()
    }
}

impl Following {
    /// A run of this job into which a saved state is to be restored.
    fn of_saved(job: Job) -> Self {
        let (server, job) = (ServerId::COORDINATOR, Box::new(job));
        let (store, moving) = (None, None);
        Self { run: 0, server, job, parameters: 0, map: 0, store, begun: false, moving }
    }

    /// Saves or restores everything but the job.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.run)?;
        archive.small(&mut self.server)?;
        archive.small(&mut self.parameters)?;
        archive.small(&mut self.map)?;
        archive.small(&mut self.begun)?;
        let mut keys: Option<KeyRange> = self.store.as_ref().map(Store::keys);
        archive.small(&mut keys)?;
        if let (true, Some(keys)) = (archive.restores(), keys) {
            self.store = Some(Store::for_saved(&self.job, keys)?);
        }
        if let Some(store) = &mut self.store {
            archive.set_keys(store.keys().len() as usize);
            store.archive(archive)?;
        }
        archive.small(&mut self.moving)?;
        self.moving.iter_mut().try_for_each(|moving| moving.archive(archive))
    }
}
