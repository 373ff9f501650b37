//! The state of a server that does not coordinate as a whole, for its standby; and what that must know
//! of it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Following, Shard, ShardConfig};
use crate::id::{PeerId, ServerId};
use crate::job::Job;
use crate::model::Model;
use crate::node::Identity;
use crate::params::KeyRange;
use crate::protocol::group::{Place, Slice};
use crate::saved::{Archive, Saved, SavedError};
use crate::store::Store;

impl Shard {
    /// The whole state. Arrays that it shares with others are not copied; it stays as it is.
    pub(in crate::node) fn save(&mut self) -> Saved {
        let mut saved = Saved::default();
        let done = self.archive(&mut Archive::save(&mut saved, 0));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        saved
    }

    /// The server that was saved, of `job`; `config` says what is not saved of it: the jitter of its
    /// back-off.
    pub(in crate::node) fn restore(
        config: ShardConfig,
        job: &Job,
        saved: &Saved,
    ) -> Result<Self, SavedError> {
        let mut shard = Self::new(config);
        let job = Box::new(job.clone());
        let server = ServerId::COORDINATOR;
        shard.following = Some(Following {
            run: 0,
            server,
            job,
            parameters: 0,
            map: 0,
            store: None,
            begun: false,
            moving: None,
        });
        let mut archive = Archive::restore(saved, 0);
        shard.archive(&mut archive)?;
        archive.finish()?;
        Ok(shard)
    }

    /// Which server of which run it is, and of which job, once the coordinator has taken it in.
    pub(in crate::node) fn following(&self) -> Option<(u64, ServerId, &Job)> {
        self.following.as_ref().map(|it| (it.run, it.server, &*it.job))
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
    pub(in crate::node) const fn coordinators(&self) -> &crate::node::places::Places {
        &self.coordinators
    }

    /// Who is behind a connection that has not said anything yet.
    pub(in crate::node) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        self.identities.get(&peer).copied()
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let ShardConfig { place, address, lease, stream: _ } = &mut self.config;
        archive.small::<Place>(place)?;
        archive.small(address)?;
        archive.small(lease)?;
        archive.small(&mut self.coordinators)?;
        self.dialler.archive(archive)?;
        archive.small(&mut self.welcome)?;
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

impl Following {
    /// Saves or restores everything but the job, which whoever restores it has.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.run)?;
        archive.small(&mut self.server)?;
        archive.small(&mut self.parameters)?;
        archive.small(&mut self.map)?;
        archive.small(&mut self.begun)?;
        let mut keys: Option<KeyRange> = self.store.as_ref().map(Store::keys);
        archive.small(&mut keys)?;
        if let (true, Some(keys)) = (archive.restores(), keys) {
            let model = Model::new(&self.job.model, self.job.data.shape);
            let model = model.map_err(|_error| SavedError::OtherJob)?;
            if keys.end() > model.parameters() as u64 {
                return Err(SavedError::OtherJob);
            }
            let store = Store::new(&self.job, &model, keys);
            self.store = Some(store.map_err(|_error| SavedError::OtherJob)?);
        }
        if let Some(store) = &mut self.store {
            archive.set_keys(store.keys().len() as usize);
            store.archive(archive)?;
        }
        archive.small(&mut self.moving)?;
        self.moving.iter_mut().try_for_each(|moving| moving.archive(archive))
    }
}
