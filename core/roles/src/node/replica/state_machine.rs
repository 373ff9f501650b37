//! The replicated state machine: the coordinator or a shard.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::ReplicaConfig;
use crate::node::{DialFault, Effect, Input, Node, Outbox, Server, Shard, ShardConfig, Target};
use pstrain_compute::id::{PeerId, ServerId, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::{Exchange, Job};
use pstrain_wire::group::Place;
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::{Combined, Elector, Electorate};
use pstrain_wire::{Message, Refusal, Status, job_digest};

/// A server as its primary and its standby handle it.
#[derive(Debug)]
pub(super) enum Replicated {
    /// The workers elect its leader.
    Coordinator(Box<Server>),
    /// The coordinator elects its leader.
    Shard(Box<Shard>),
}

impl Replicated {
    /// Restores a saved server of `job`.
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

    /// A shard of `job` into which a saved state is to be restored.
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

    /// Saves or restores the whole state.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        match self {
            Self::Coordinator(server) => server.archive(archive),
            Self::Shard(shard) => shard.archive(archive),
        }
    }

    /// True if there is a state to save: a shard must have met the coordinator.
    pub(super) fn has_begun(&self) -> bool {
        match self {
            Self::Coordinator(_) => true,
            Self::Shard(shard) => shard.following().is_some(),
        }
    }

    /// True if pushes arrive range by range: a standby needs their values.
    pub(super) fn takes_ranges(&self) -> bool {
        self.coordinator().is_some_and(|server| server.job().exchange == Exchange::Layers)
    }

    /// The coordinator; none for a shard.
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

    /// Records the combined gradient of each update until [`Self::given`] is called. A shard
    /// records none.
    pub(super) fn record_combined(&mut self) {
        if let Self::Coordinator(server) = self {
            server.record_combined();
        }
    }

    /// The combined gradients recorded.
    pub(super) fn given(&mut self) -> Vec<Combined> {
        match self {
            Self::Coordinator(server) => server.given(),
            Self::Shard(_) => Vec::new(),
        }
    }

    /// Applies these combined gradients to the next updates until [`Self::left`] is called.
    pub(super) fn apply_combined(&mut self, combined: VecDeque<Combined>) {
        if let Self::Coordinator(server) = self {
            server.apply_combined(combined);
        }
    }

    /// Number of combined gradients that no update consumed.
    pub(super) fn left(&mut self) -> usize {
        match self {
            Self::Coordinator(server) => server.left().len(),
            Self::Shard(_) => 0,
        }
    }

    /// The worker behind a connection, if this server knows the decisions about its pushes.
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

    /// The run and id of the server; those of no server before the coordinator has admitted a
    /// shard.
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

    /// The digest of the job; none before the job is known.
    pub(super) fn job_digest(&self) -> Option<[u8; 32]> {
        match self {
            Self::Coordinator(server) => Some(*server.job_digest()),
            Self::Shard(shard) => shard.following().map(|(.., job)| job_digest(job)),
        }
    }

    /// Why the server cannot have a standby now, in words.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self::Coordinator(_) => None,
            Self::Shard(shard) => (!shard.has_keys())
                .then_some("it has no keys yet, or none any more; stand by for one that has"),
        }
    }

    /// The open connections, as far as the server knows.
    pub(super) fn peers(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => server.peers(),
            Self::Shard(shard) => shard.peers(),
        }
    }

    /// The connections of the workers.
    pub(super) fn worker_peers(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => server.worker_peers().collect(),
            Self::Shard(shard) => shard.worker_peers().collect(),
        }
    }

    /// The connections on which the standby's address is announced. A shard does not announce it to
    /// workers: the coordinator tells them where each shard is.
    pub(super) fn told_of_standby(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => {
                server.worker_peers().chain(server.server_peers()).collect()
            }
            Self::Shard(shard) => shard.coordinator().into_iter().collect(),
        }
    }

    /// The connections of the electors.
    pub(super) fn electors(&self) -> Vec<PeerId> {
        match self {
            Self::Coordinator(server) => server.worker_peers().collect(),
            Self::Shard(shard) => shard.coordinator().into_iter().collect(),
        }
    }

    /// True if the peer behind a connection may vote as `elector`.
    pub(super) fn is_elector(&self, peer: PeerId, elector: Elector) -> bool {
        match (self, elector) {
            (Self::Coordinator(server), Elector::Worker(worker, _)) => {
                server.worker_of(peer) == Some(worker)
            }
            (Self::Shard(shard), Elector::Coordinator) => shard.coordinator() == Some(peer),
            _ => false,
        }
    }

    /// The electors, whose votes decide who leads.
    pub(super) fn electorate(&self) -> Electorate {
        match self {
            Self::Coordinator(server) => server.electorate(),
            Self::Shard(_) => [Elector::Coordinator].into(),
        }
    }

    /// True if `electorate` is the current one.
    pub(super) fn has_electorate(&self, electorate: &Electorate) -> bool {
        match self {
            Self::Coordinator(server) => server.has_electorate(electorate),
            Self::Shard(_) => true, // always the same
        }
    }

    /// The addresses of the electors, if a candidate must dial them; empty if they connect to it.
    pub(super) fn places_of_electors(&self) -> Vec<Target> {
        match self {
            Self::Coordinator(_) => Vec::new(),
            Self::Shard(shard) => shard.coordinators().all().cloned().collect(),
        }
    }

    /// A refusal of a message that a shard never answers.
    pub(super) fn elsewhere(&self, message: &Message) -> Option<Refusal> {
        match self {
            Self::Shard(shard) if !matches!(message, Message::Attach(_) | Message::Follow(_)) => {
                Some(shard.elsewhere(message))
            }
            Self::Coordinator(_) | Self::Shard(_) => None,
        }
    }

    /// The shard's id and key range; none for the coordinator.
    pub(super) fn holds(&self) -> Option<(ServerId, KeyRange)> {
        match self {
            Self::Coordinator(_) => None,
            Self::Shard(shard) => shard.holds(),
        }
    }

    /// The identity of a connection before its Hello.
    pub(super) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        match self {
            Self::Coordinator(server) => server.stranger(peer),
            Self::Shard(shard) => shard.stranger(peer),
        }
    }

    /// True if the run has ended and no state that matters to a peer changes any more.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Coordinator(server) => server.is_final(),
            Self::Shard(_) => false, // the coordinator's End message is the first notice
        }
    }

    /// True if the effect is the last one, and concerns only its own process.
    pub(super) const fn is_last(&self, effect: &Effect) -> bool {
        matches!((self, effect), (Self::Shard(_), Effect::Done(_)))
    }

    /// Effects that the driver has not answered yet.
    pub(super) fn unanswered(&self) -> Vec<Effect> {
        match self {
            Self::Coordinator(server) => server.unanswered(),
            Self::Shard(_) => Vec::new(),
        }
    }

    /// The input for the server after another process took it over, in addition to the loss of its
    /// connections.
    pub(super) fn moved(&mut self, address: String) -> Option<Input> {
        match self {
            Self::Coordinator(_) => None,
            Self::Shard(shard) => {
                shard.serve_at(address);
                let why = String::from("another process dialled");
                shard
                    .is_dialling()
                    .then_some(Input::DialFailed { why, fault: DialFault::Temporary })
            }
        }
    }

    /// The status of the job, for clients; a shard does not know it.
    pub(super) fn status(&self, now: Time) -> Option<Status> {
        self.coordinator().map(|server| server.status(now))
    }
}
