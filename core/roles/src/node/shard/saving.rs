//! The state of a server that does not coordinate as a whole, for its standby; and what that must
//! know of it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Following, Shard, ShardConfig};
use crate::node::places::Places;
use crate::node::{Durable, Effect};
use crate::store::Store;
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_policy::job::Job;
use pstrain_wire::group::{Place, Slice};
use pstrain_wire::identity::Identity;

impl Shard {
    /// The whole state. Arrays that it shares with others are not copied; it stays as it is.
    #[must_use]
    pub fn save(&mut self) -> Saved {
        let mut saved = Saved::default();
        let done = self.archive(&mut Archive::save(&mut saved, 0));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        saved
    }

    /// The server that was saved, in the place of this new one: it goes on as that one would have,
    /// from where this one is.
    ///
    /// # Errors
    /// [`SavedError`] if what was saved is no such server.
    pub fn restored(mut self, saved: &Saved) -> Result<Self, SavedError> {
        let mut archive = Archive::restore(saved, 0);
        self.archive_in_place(&mut archive)?;
        archive.finish()?;
        Ok(self)
    }

    /// Restores everything, and finds the coordinator where it was told that it is.
    pub(in crate::node) fn archive_in_place(
        &mut self,
        archive: &mut Archive<'_>,
    ) -> Result<(), SavedError> {
        let here = self.coordinators.all().next().cloned();
        self.archive(archive)?;
        if let Some(here) = here.filter(|here| self.coordinators.all().all(|it| it != here)) {
            self.dialler.turn_to(here.clone());
            self.coordinators = Places::new(here);
        }
        Ok(())
    }

    /// Which server of which run it is, and of which job, once the coordinator has taken it in.
    pub(in crate::node) fn following(&self) -> Option<(u64, ServerId, &Job)> {
        self.following.as_ref().map(|it| (it.run, it.server, &*it.job))
    }

    /// Whether there is anything to stand by for.
    pub(in crate::node) fn has_keys(&self) -> bool {
        self.keys().is_some()
    }

    /// Workers reach it elsewhere from now on.
    pub(in crate::node) fn serve_at(&mut self, address: alloc::string::String) {
        self.config.address = address;
    }

    /// The connections that are up, as far as it knows.
    pub(in crate::node) fn peers(&self) -> Vec<PeerId> {
        let strangers = self.strangers.iter().map(|&(_, peer)| peer);
        self.dialler.peer().into_iter().chain(self.workers.peers()).chain(strangers).collect()
    }

    /// Those of the workers.
    pub(in crate::node) fn worker_peers(&self) -> impl Iterator<Item = PeerId> {
        self.workers.peers()
    }

    /// That to the coordinator.
    pub(in crate::node) fn coordinator(&self) -> Option<PeerId> {
        self.dialler.peer()
    }

    /// Whether it waits for the answer to a dial.
    pub(in crate::node) const fn is_dialling(&self) -> bool {
        self.dialler.is_dialling()
    }

    /// Where the coordinator is.
    pub(in crate::node) const fn coordinators(&self) -> &Places {
        &self.coordinators
    }

    /// Who is behind a connection that has not said anything yet.
    pub(in crate::node) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        self.identities.get(&peer).copied()
    }

    /// Saves or restores everything but where it is, which whoever restores it knows better.
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
        archive.small(&mut self.strangers)?;
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
    /// One of this job, of which all else is yet to be restored.
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
