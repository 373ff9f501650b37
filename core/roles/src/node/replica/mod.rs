//! A pair of servers, primary and standby: two processes that replicate one stream of inputs.
//!
//! The primary hands each input to its [`Server`] and to the standby, and withholds the effects of
//! the input until the standby has it. So the standby knows everything that any peer has seen, and
//! can continue where the primary was.
//!
//! # Who leads
//! Neither server can tell a dead partner from an unreachable one, so neither decides alone. A
//! server that wants to continue without its partner asks the workers for votes
//! ([`Vote`](pstrain_wire::replica::Vote)) to follow it in a new [`Term`]. A standby that has
//! lost its primary asks the workers that connect to it, for they have lost the primary, too; a
//! primary that has lost its standby asks its workers. A standby needs half of the workers, a
//! primary more than half, so that both cannot win. A candidate with enough votes asks once more,
//! to bind the voters ([`Stage::Binds`]), and leads once enough have confirmed. From then on they
//! refuse every candidate that keeps less ([`VoteRequest::kept`]), unless a primary whose standby
//! is back releases them ([`Stage::Releases`]). So a candidate that dies in the first round leaves
//! nothing behind that its partner would have to know. (The two rounds are those of Lamport, "The
//! part-time parliament", 1998.) No third machine is needed, and a deposed primary is fenced: its
//! inputs have no effect until its standby has them, or the workers have voted for it.
//!
//! # Shards
//! The coordinator decides who leads a shard: it is the only elector. Its votes are inputs of its
//! own stream, so its standby knows them. Where the coordinator cannot be reached, training stops
//! anyway. A coordinator does not connect to a shard's standby, so the standby connects to the
//! coordinator ([`canvass`]); a shard's primary asks over its existing connection, or dials.
//!
//! # What is sent
//! An input is sent, with all inputs before it, once a peer waits for one of its effects. So of the
//! pushes of a round only the combined gradient need be sent, when the round closes
//! ([`Replicate::Updates`]): the workers have received no answer by then, and repeat their pushes
//! if the primary dies.
//!
//! # Whose votes count
//! The electors are the member workers that an entry of the stream lists. One list is in force at a
//! time, and the next is proposed only once the standby has the last. The primary counts by the
//! newest list that both have; a standby cannot know which list that is, and needs half of each
//! list that it may be. (The argument is that of joint consensus: Ongaro and Ousterhout, "In search
//! of an understandable consensus algorithm", 2014, section 6.) A process votes as each incarnation
//! that it has had: it may have a new incarnation by the next list, and it remembers its earlier
//! votes.
//!
//! [`VoteRequest::kept`]: pstrain_wire::replica::VoteRequest
//! [`Stage::Releases`]: pstrain_wire::replica::Stage::Releases
//! [`Stage::Binds`]: pstrain_wire::replica::Stage::Binds

mod canvass;
mod dials;
mod election;
mod entries;
mod failover;
mod fencing;
mod follower;
mod loss;
mod pairing;
mod primary;
mod saving;
mod standby;
mod state_machine;
mod stream;
mod withheld;
mod without_standby;

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use self::primary::Primary;
use self::standby::Standby;
use self::state_machine::Replicated;
use super::{Effect, Input, Node, NodeError, Outbox, Server, ServerError, Shard};
use pstrain_compute::id::{PeerId, ServerId, Term};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::job::{Job, heartbeat};
use pstrain_wire::Status;

/// Configuration of a replica, known before it has met a peer.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The replica's id; unique among all processes.
    pub id: u64,
    /// The address at which workers reach it.
    pub address: String,
    /// The address of the primary that it stands by for; empty if it leads from the beginning.
    pub leader: String,
    /// Random stream for the jitter of the back-off.
    pub stream: Stream,
    /// The form in which gradients are sent to its standby, while it leads.
    pub replicate: Replicate,
}

/// The form in which gradients are sent to a standby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replicate {
    /// Each push, on arrival.
    Pushes,
    #[default]
    /// The combined gradient of each round, once the round closes, where that is shorter. A push is
    /// sent with its values all the same if another effect is due before its round closes, if the
    /// update needs more of the gradients than their sum, and always by servers that do not
    /// coordinate: the coordinator counts on a push the moment it hears of it.
    Updates,
}

/// A server with a standby, or a standby, as a state machine.
#[derive(Debug)]
pub struct Replica {
    config: ReplicaConfig,
    role: Role,
    done: bool,
}

#[derive(Debug)]
enum Role {
    Leads(Box<Primary>),
    StandsBy(Box<Standby>),
}

/// A server's state, and its position in the stream.
#[derive(Debug)]
struct Copy {
    server: Replicated,
    /// Number of entries applied.
    entries: u64,
    /// One moment, by the clock of this process and by the clock of the stream.
    clock: (Time, Time),
}

impl Copy {
    /// The time of the stream, which continues from the last primary's.
    fn stream_time(&self, now: Time) -> Time {
        let (own, stream) = self.clock;
        stream + now.since(own)
    }

    /// The time of this process.
    fn own_time(&self, at: Time) -> Time {
        let (own, stream) = self.clock;
        own + at.since(stream)
    }
}

impl Replica {
    /// A primary of the coordinator, without a standby yet.
    #[must_use]
    pub fn primary(config: ReplicaConfig, server: Server) -> Self {
        Self::leading(config, Replicated::Coordinator(Box::new(server)))
    }

    /// A primary of a shard, without a standby yet.
    #[must_use]
    pub fn primary_shard(config: ReplicaConfig, shard: Shard) -> Self {
        Self::leading(config, Replicated::Shard(Box::new(shard)))
    }

    fn leading(config: ReplicaConfig, server: Replicated) -> Self {
        let copy = Copy { server, entries: 0, clock: (Time::ZERO, Time::ZERO) };
        let role = Role::Leads(Box::new(Primary::new(copy, FIRST, config.replicate)));
        Self { config, role, done: false }
    }

    /// A standby of the server that its driver dials; both have the same job.
    ///
    /// # Errors
    /// [`ServerError`] if the job cannot have a server.
    pub fn standby(config: ReplicaConfig, job: Job) -> Result<Self, ServerError> {
        let standby = Standby::new(config.clone(), job)?;
        Ok(Self { config, role: Role::StandsBy(Box::new(standby)), done: false })
    }

    /// Sets the form in which gradients are sent to the standby, while this replica leads.
    pub const fn set_replicate(&mut self, replicate: Replicate) {
        self.config.replicate = replicate;
        if let Role::Leads(primary) = &mut self.role {
            primary.replicate = replicate;
        }
    }

    /// This replica's copy of the server; none until the primary has sent its state, and none for a
    /// shard.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        match &self.role {
            Role::Leads(primary) => primary.server(),
            Role::StandsBy(standby) => standby.subject()?.coordinator(),
        }
    }

    /// The shard's id and key range; none for a coordinator, and for a shard without keys.
    #[must_use]
    pub fn holds(&self) -> Option<(ServerId, KeyRange)> {
        match &self.role {
            Role::Leads(primary) => primary.copy.server.holds(),
            Role::StandsBy(standby) => standby.subject()?.holds(),
        }
    }

    /// This replica's copy of the server, after the end.
    #[must_use]
    pub fn into_server(self) -> Option<Server> {
        match self.role {
            Role::Leads(primary) => primary.into_server(),
            Role::StandsBy(standby) => standby.into_server(),
        }
    }

    /// True if it leads, as far as it knows.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self.role, Role::Leads(_))
    }
}

impl Node for Replica {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.done && !matches!(input, Input::Extend(_)) {
            return;
        }
        match &mut self.role {
            Role::Leads(primary) => primary.handle(now, input, &self.config, out),
            Role::StandsBy(standby) => {
                standby.handle(now, input, out);
                if let Some(primary) = standby.take_over(now, &self.config, out) {
                    self.role = Role::Leads(Box::new(primary));
                }
            }
        }
        self.done = out.iter().any(|effect| matches!(effect, Effect::Done(_)));
    }

    fn deadline(&self) -> Option<Time> {
        if self.done {
            return None;
        }
        match &self.role {
            Role::Leads(primary) => primary.deadline(),
            Role::StandsBy(standby) => standby.deadline(),
        }
    }

    fn outlook(&self, now: Time) -> Option<Status> {
        match &self.role {
            Role::Leads(primary) => primary.outlook(now),
            Role::StandsBy(standby) => standby.outlook(now),
        }
    }
}

/// The first term of a run.
const FIRST: Term = Term(1);

/// How long a lost partner has to come back before the workers are asked for votes: shorter than
/// the silence after which a worker gives up a server.
fn grace(lease: Duration) -> Duration {
    heartbeat(lease)
}

/// How long a partner may be silent: shorter than a worker waits, so that it need not notice.
fn silence(lease: Duration) -> Duration {
    lease / 2
}

/// Maps a connection of the driver to a peer id of the server. Each term has its own ids, so that a
/// new connection is not mistaken for one of the previous primary.
fn inner(term: Term, peer: PeerId) -> PeerId {
    PeerId(peer.0 + (term.0.saturating_sub(FIRST.0) << PEER_BITS))
}

/// Maps a peer id of the server to a connection of the driver; none if it belongs to an earlier
/// term.
fn outer(term: Term, peer: PeerId) -> Option<PeerId> {
    peer.0.checked_sub(term.0.saturating_sub(FIRST.0) << PEER_BITS).map(PeerId)
}

/// Peer ids in one term: 2^36.
const PEER_BITS: u32 = 36;

/// Ends a replica that cannot continue.
fn fail(error: NodeError, out: &mut Outbox) {
    out.push(Effect::Done(Err(error)));
}
