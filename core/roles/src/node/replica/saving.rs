//! Saving and restoring a replica.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::primary::Primary;
use super::standby::Standby;
use super::state_machine::Replicated;
use super::{Copy, FIRST, Replica, ReplicaConfig, Role};
use crate::node::{Durable, Effect, RestoreError, Server, Shard};
use pstrain_compute::id::PeerId;
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;

impl Replica {
    /// Restores a saved replica of `job`, which continues as the saved one would have.
    ///
    /// # Errors
    /// [`RestoreError`] if the job cannot have a server, or the saved state belongs to another job.
    pub fn restore(config: ReplicaConfig, job: Job, saved: &Saved) -> Result<Self, RestoreError> {
        let mut archive = Archive::restore(saved, 0);
        let Kind { leads, coordinates } = Kind::read(&mut archive)?;
        let mut server = if coordinates {
            let server = Server::new(job.clone(), 0).map_err(RestoreError::Server)?;
            Replicated::Coordinator(Box::new(server))
        } else {
            Replicated::Shard(Box::new(Replicated::blank_shard(&job, &config)))
        };
        server.archive(&mut archive)?;
        if leads {
            return Self::restore_primary(config, server, archive);
        }
        let mut standby = Standby::new(config.clone(), job).map_err(RestoreError::Server)?;
        standby.copy = Some(Copy::restore(server, &mut archive)?);
        standby.archive(&mut archive)?;
        archive.finish()?;
        Ok(Self { config, role: Role::StandsBy(Box::new(standby)), done: false })
    }

    /// Restores the primary of a shard in place of the new `shard`; the job is part of the saved
    /// state.
    ///
    /// # Errors
    /// [`RestoreError`] if the saved state is not one of a shard's primary.
    pub fn restore_shard(
        config: ReplicaConfig,
        mut shard: Shard,
        saved: &Saved,
    ) -> Result<Self, RestoreError> {
        let mut archive = Archive::restore(saved, 0);
        if Kind::read(&mut archive)? != (Kind { leads: true, coordinates: false }) {
            return Err(SavedError::OtherJob.into());
        }
        shard.archive_in_place(&mut archive)?;
        Self::restore_primary(config, Replicated::Shard(Box::new(shard)), archive)
    }

    fn restore_primary(
        config: ReplicaConfig,
        server: Replicated,
        mut archive: Archive<'_>,
    ) -> Result<Self, RestoreError> {
        let mut primary =
            Primary::new(Copy::restore(server, &mut archive)?, FIRST, config.replicate);
        primary.archive(&mut archive, config.stream)?;
        archive.finish()?;
        Ok(Self { config, role: Role::Leads(Box::new(primary)), done: false })
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let leads = self.leads();
        let coordinates = self.server().is_some();
        archive.small(&mut Kind { leads, coordinates })?;
        match &mut self.role {
            Role::Leads(primary) => {
                primary.copy.archive(archive)?;
                primary.archive(archive, self.config.stream)
            }
            Role::StandsBy(standby) => {
                standby.copy.iter_mut().try_for_each(|copy| copy.archive(archive))?;
                standby.archive(archive)
            }
        }
    }

    fn subject(&self) -> Option<&Replicated> {
        match &self.role {
            Role::Leads(primary) => Some(&primary.copy.server),
            Role::StandsBy(standby) => standby.subject(),
        }
    }
}

impl Durable for Replica {
    /// False while something waits for the partner.
    fn can_save(&self) -> bool {
        let rests = match &self.role {
            Role::Leads(primary) => primary.rests(),
            Role::StandsBy(standby) => standby.rests(),
        };
        rests && self.subject().is_some_and(Replicated::has_begun)
    }

    fn save(&mut self) -> Saved {
        let keys = self.server().map_or(0, |server| server.parameters().len());
        let mut saved = Saved::default();
        let done = self.archive(&mut Archive::save(&mut saved, keys));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        saved
    }

    fn peers(&self) -> Vec<PeerId> {
        match &self.role {
            Role::Leads(primary) => primary.peers(),
            Role::StandsBy(standby) => standby.peers(),
        }
    }

    fn is_dialling(&self) -> bool {
        match &self.role {
            Role::Leads(primary) => primary.dials.is_dialling(),
            Role::StandsBy(standby) => standby.dialler.is_dialling(),
        }
    }

    fn unanswered(&self) -> Vec<Effect> {
        match &self.role {
            Role::Leads(primary) => primary.unanswered(),
            Role::StandsBy(_) => Vec::new(),
        }
    }
}

/// The kind of saved replica: the first item of its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kind {
    leads: bool,
    coordinates: bool,
}

impl Kind {
    fn read(archive: &mut Archive<'_>) -> Result<Self, SavedError> {
        let mut kind = Self::default();
        archive.small(&mut kind)?;
        Ok(kind)
    }
}

impl Copy {
    /// Restores the stream position, after the server.
    fn restore(server: Replicated, archive: &mut Archive<'_>) -> Result<Self, SavedError> {
        let mut copy = Self { server, entries: 0, clock: (Time::ZERO, Time::ZERO) };
        copy.archive_stream(archive)?;
        Ok(copy)
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.server.archive(archive)?;
        self.archive_stream(archive)
    }

    fn archive_stream(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.entries)?;
        archive.small(&mut self.clock)
    }
}
