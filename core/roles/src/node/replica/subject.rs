//! What two processes keep: the server that coordinates, or one that does not.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::ReplicaConfig;
use crate::node::{Effect, Input, Node, Outbox, Server, Shard, ShardConfig, Target};
use pstrain_compute::id::{PeerId, ServerId, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_wire::group::Place;
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::{Combined, Elector, Electorate};
use pstrain_wire::{Message, Refusal, Status, job_digest};

/// A server of a job, as what leads and what stands by need it.
#[derive(Debug)]
pub(super) enum Subject {
    /// Its workers decide who leads it.
    Coordinator(Box<Server>),
    /// The coordinator decides who leads it.
    Shard(Box<Shard>),
}

impl Subject {
    /// The one that was saved, of `job`.
    pub(super) fn restore(
        server: ServerId,
        job: &Job,
        config: &ReplicaConfig,
        bytes: &[u8],
    ) -> Result<Self, String> {
        let saved = Saved::of_bytes(bytes).map_err(|error| error.to_string())?;
        if server == ServerId::COORDINATOR {
            let server = Server::restore(job.clone(), &saved).map_err(|error| error.to_string())?;
            return Ok(Self::Coordinator(Box::new(server)));
        }
        let mut archive = Archive::restore(&saved, 0);
        let mut shard = Self::blank_shard(job, config);
        let restored = shard.archive(&mut archive).and_then(|()| archive.finish());
        restored.map_err(|error| error.to_string())?;
        Ok(Self::Shard(Box::new(shard)))
    }

    /// One of `job` that does not coordinate, of which all else is yet to be restored.
    pub(super) fn blank_shard(job: &Job, config: &ReplicaConfig) -> Shard {
        let (place, lease) = (Place::Wanted, job.membership.lease);
        let stream = config.stream.fork("shard", 0);
        Shard::new(ShardConfig { place, address: config.address.clone(), lease, stream })
    }

    pub(super) fn save(&mut self) -> Vec<u8> {
        match self {
            Self::Coordinator(server) => server.save().to_bytes(),
            Self::Shard(shard) => shard.save().to_bytes(),
        }
    }

    /// Saves or restores everything.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        match self {
            Self::Coordinator(server) => server.archive(archive),
            Self::Shard(shard) => shard.archive(archive),
        }
    }

    /// Whether there is anything to save: a server that does not coordinate must have met the one
    /// that does.
    pub(super) fn has_begun(&self) -> bool {
        match self {
            Self::Coordinator(_) => true,
            Self::Shard(shard) => shard.following().is_some(),
        }
    }

    /// The one that coordinates.
    pub(super) fn coordinator(&self) -> Option<&Server> {
        match self {
            Self::Coordinator(server) => Some(server),
            Self::Shard(_) => None,
        }
    }

    pub(super) fn into_coordinator(self) -> Option<Server> {
        match self {
            Self::Coordinator(server) => Some(*server),
            Self::Shard(_) => None,
        }
    }

    pub(super) fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        match self {
            Self::Coordinator(server) => server.handle(now, input, out),
            Self::Shard(shard) => shard.handle(now, input, out),
        }
    }

    /// From now on until [`Self::given`], notes what updates are combined of, where whoever keeps
    /// the same stream can do with that.
    pub(super) fn give_combined(&mut self) {
        if let Self::Coordinator(server) = self {
            server.give_combined();
        }
    }

    /// What was noted.
    pub(super) fn given(&mut self) -> Vec<Combined> {
        match self {
            Self::Coordinator(server) => server.given(),
            Self::Shard(_) => Vec::new(),
        }
    }

    /// From now on until [`Self::left`], updates are made of these where they fit.
    pub(super) fn take_combined(&mut self, combined: VecDeque<Combined>) {
        if let Self::Coordinator(server) = self {
            server.take_combined(combined);
        }
    }

    /// How many no update was made of.
    pub(super) fn left(&mut self) -> usize {
        match self {
            Self::Coordinator(server) => server.left().len(),
            Self::Shard(_) => 0,
        }
    }

    /// The worker behind a connection, where it is known what becomes of its pushes.
    pub(super) fn worker_of(&self, peer: PeerId) -> Option<WorkerId> {
        self.coordinator()?.worker_of(peer)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Coordinator(server) => server.deadline(),
            Self::Shard(shard) => shard.deadline(),
        }
    }

    pub(super) fn lease(&self) -> Duration {
        match self {
            Self::Coordinator(server) => server.job().membership.lease,
            Self::Shard(shard) => shard.lease(),
        }
    }

    /// Which server of which run it is; of none before the coordinator has taken it in.
    pub(super) fn identity(&self) -> (u64, ServerId) {
        match self {
            Self::Coordinator(server) => (server.run(), ServerId::COORDINATOR),
            Self::Shard(shard) => shard
                .following()
                .map_or((0, ServerId::COORDINATOR), |(run, server, _)| (run, server)),
        }
    }

    pub(super) fn run(&self) -> u64 {
        self.identity().0
    }

    /// The digest of its job; none before it is known.
    pub(super) fn job_digest(&self) -> Option<[u8; 32]> {
        match self {
            Self::Coordinator(server) => Some(*server.job_digest()),
            Self::Shard(shard) => shard.following().map(|(.., job)| job_digest(job)),
        }
    }

    /// Why nobody can stand by for it now, in words.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self::Coordinator(_) => None,
            Self::Shard(shard) => (!shard.has_keys())
                .then_some("it has no keys yet, or none any more; stand by for one that has"),
        }
    }

    /// The connections that are up, as far as it knows.
    pub(super) fn peers(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => server.peers(),
            Self::Shard(shard) => shard.peers(),
        }
    }

    /// Those of the workers.
    pub(super) fn worker_peers(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => server.worker_peers().collect(),
            Self::Shard(shard) => shard.worker_peers().collect(),
        }
    }

    /// The connections on which it is told where the standby is. Workers need not know it of a
    /// server that does not coordinate: the coordinator tells them where that server is.
    pub(super) fn told_of_standby(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => {
                server.worker_peers().chain(server.server_peers()).collect()
            }
            Self::Shard(shard) => shard.coordinator().into_iter().collect(),
        }
    }

    /// Those of whoever decides who leads.
    pub(super) fn electors(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => server.worker_peers().collect(),
            Self::Shard(shard) => shard.coordinator().into_iter().collect(),
        }
    }

    /// Whether the one behind a connection may promise as `elector`.
    pub(super) fn is_elector(&self, peer: PeerId, elector: Elector) -> bool {
        match (self, elector) {
            (Self::Coordinator(server), Elector::Worker(worker, _)) => {
                server.worker_of(peer) == Some(worker)
            }
            (Self::Shard(shard), Elector::Coordinator) => shard.coordinator() == Some(peer),
            _ => false,
        }
    }

    /// Whose promises decide who leads.
    pub(super) fn electorate(&self) -> Electorate {
        match self {
            Self::Coordinator(server) => server.electorate(),
            Self::Shard(_) => [Elector::Coordinator].into(),
        }
    }

    /// Whether these are they.
    pub(super) fn has_electorate(&self, electorate: &Electorate) -> bool {
        match self {
            Self::Coordinator(server) => server.has_electorate(electorate),
            Self::Shard(_) => true, // always the same
        }
    }

    /// Where those are that decide, if whoever wants to lead must go there; empty if they come.
    pub(super) fn places_of_electors(&self) -> Vec<Target> {
        match self {
            Self::Coordinator(_) => Vec::new(),
            Self::Shard(shard) => shard.coordinators().all().cloned().collect(),
        }
    }

    /// A refusal for a message that a server which does not coordinate never answers.
    pub(super) fn elsewhere(&self, message: &Message) -> Option<Refusal> {
        match self {
            Self::Shard(shard) if !matches!(message, Message::Attach(_) | Message::Follow(_)) => {
                Some(shard.elsewhere(message))
            }
            Self::Coordinator(_) | Self::Shard(_) => None,
        }
    }

    /// Which server it is and which keys it has, where it does not coordinate.
    pub(super) fn holds(&self) -> Option<(ServerId, KeyRange)> {
        match self {
            Self::Coordinator(_) => None,
            Self::Shard(shard) => shard.holds(),
        }
    }

    /// Who is behind a connection that has not said anything yet.
    pub(super) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        match self {
            Self::Coordinator(server) => server.stranger(peer),
            Self::Shard(shard) => shard.stranger(peer),
        }
    }

    /// Whether the run is over, and nothing that matters to anybody changes any more.
    pub(super) const fn has_ended(&self) -> bool {
        match self {
            Self::Coordinator(server) => server.has_ended(),
            Self::Shard(_) => false, // it does not hear of that before it is told to go
        }
    }

    /// Whether an effect is the last of all, and nobody but its own process is concerned.
    pub(super) const fn is_last(&self, effect: &Effect) -> bool {
        matches!((self, effect), (Self::Shard(_), Effect::Done(_)))
    }

    /// What it has asked its driver for and not been answered.
    pub(super) fn unanswered(&self) -> Vec<Effect> {
        match self {
            Self::Coordinator(server) => server.unanswered(),
            Self::Shard(_) => Vec::new(),
        }
    }

    /// What must be told it of another process that has taken its place, beside that its
    /// connections are gone.
    pub(super) fn moved(&mut self, address: String) -> Option<Input> {
        match self {
            Self::Coordinator(_) => None,
            Self::Shard(shard) => {
                shard.serve_at(address);
                let why = String::from("another process dialled");
                shard.is_dialling().then_some(Input::DialFailed { why, permanent: false })
            }
        }
    }

    /// How the job is doing, for whoever asks; a server that does not coordinate does not know.
    pub(super) fn status(&self, now: Time) -> Option<Status> {
        self.coordinator().map(|server| server.status(now))
    }
}
