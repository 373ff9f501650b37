//! The state of a server that has a standby, or is one, as something that can be kept.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::primary::Primary;
use super::standby::Standby;
use super::subject::Subject;
use super::{Copy, FIRST, Replica, ReplicaConfig, Role};
use crate::id::PeerId;
use crate::job::Job;
use crate::node::{Durable, Effect, RestoreError, Server};
use crate::saved::{Archive, Saved, SavedError};
use crate::time::Time;

impl Replica {
    /// The one of `job` that was saved: it goes on as that one would have.
    ///
    /// # Errors
    /// [`RestoreError`] if there can be no server for the job, or what was saved is not of it.
    pub fn restore(config: ReplicaConfig, job: Job, saved: &Saved) -> Result<Self, RestoreError> {
        let server = Server::new(job.clone(), 0).map_err(RestoreError::Server)?;
        let mut archive = Archive::restore(saved, server.parameters().len());
        let mut leads = false;
        archive.small(&mut leads)?;
        let server = Subject::Coordinator(Box::new(server));
        let mut copy = Copy { server, entries: 0, clock: (Time::ZERO, Time::ZERO) };
        copy.archive(&mut archive)?;
        let role = if leads {
            let mut primary = Primary::new(copy, FIRST);
            primary.archive(&mut archive, config.stream)?;
            Role::Leads(Box::new(primary))
        } else {
            let standby = Standby::new(config.clone(), job);
            let mut standby = standby.map_err(RestoreError::Server)?;
            standby.copy = Some(copy);
            standby.archive(&mut archive)?;
            Role::StandsBy(Box::new(standby))
        };
        archive.finish()?;
        Ok(Self { config, role, done: false })
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut leads = self.leads();
        archive.small(&mut leads)?;
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

    fn subject(&self) -> Option<&Subject> {
        match &self.role {
            Role::Leads(primary) => Some(&primary.copy.server),
            Role::StandsBy(standby) => standby.subject(),
        }
    }
}

impl Durable for Replica {
    /// Not while something waits for the other, nor where it does not coordinate.
    fn can_save(&self) -> bool {
        let rests = match &self.role {
            Role::Leads(primary) => primary.rests(),
            Role::StandsBy(standby) => standby.rests(),
        };
        rests && self.subject().is_some_and(|subject| subject.coordinator().is_some())
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

impl Copy {
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        if let Subject::Coordinator(server) = &mut self.server {
            server.archive(archive)?;
        }
        archive.small(&mut self.entries)?;
        archive.small(&mut self.clock)
    }
}
