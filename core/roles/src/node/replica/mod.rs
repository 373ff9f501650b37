//! A server that has a standby, or is one: two processes that keep the same stream of inputs, of
//! which one leads.
//!
//! The primary hands each input to its [`Server`] and to the standby, and nobody sees an effect of
//! it before the standby has it. So the standby has been told all that anybody knows, and can go on
//! where the primary was.
//!
//! # Who leads
//! Neither can tell a dead partner from one that it cannot reach, so neither decides alone. Whoever
//! wants to go on without the other asks the workers for a
//! [`Promise`](pstrain_wire::replica::Promise) to follow it in a new [`Term`]: a standby that has
//! lost its primary asks those that come to it, for they have lost it, too; a primary that has lost
//! its standby asks those it has. A standby needs half of the workers, a primary more than half, so
//! that both cannot have enough. Whoever has enough of them asks them once more, to bind them
//! ([`Stage::Binds`]), and leads once enough have heard that: from then on they promise nothing to
//! whoever keeps less ([`Candidacy::kept`]), unless a primary whose standby is back lets go of them
//! ([`Stage::Releases`]). So one that dies while it asks has done nothing that the other would have
//! to know. (The two rounds are those of Lamport, "The part-time parliament", 1998.) No third
//! machine is needed, and an old primary can do nothing: what it does has no effect until its
//! standby has it, or the workers have promised.
//!
//! # One of several servers
//! Of those that do not coordinate the coordinator decides who leads: it is the only elector. Its
//! promises are inputs of it like any other, so its own standby knows them. Where it cannot be
//! reached nothing goes on anyway. It does not come to a standby, so that goes there ([`asking`]);
//! whoever leads asks it over the connection that the server has, or dials for.
//!
//! # What is sent
//! An input is sent once it has an effect that somebody waits for, with all before it. So of a push
//! whose round closes with it nothing need be sent but what it became part of
//! ([`Replicate::Updates`]): whoever has sent it has heard nothing of it by then, and will send it
//! again if this one dies.
//!
//! # Whose promises count
//! Of workers those of the members, as an entry of the stream says: of one list at a time, and the
//! next comes only once the standby has the last. Whoever leads counts by the newest list that both
//! have; a standby cannot know which that is, and needs half of each that may be it. (The argument
//! is that of joint consensus: Ongaro and Ousterhout, "In search of an understandable consensus
//! algorithm", 2014, section 6.) A process promises as each incarnation that it has had: it may be
//! another by the next list, and remembers what it promised as the one before.
//!
//! [`Candidacy::kept`]: pstrain_wire::replica::Candidacy
//! [`Stage::Releases`]: pstrain_wire::replica::Stage::Releases
//! [`Stage::Binds`]: pstrain_wire::replica::Stage::Binds

mod alone;
mod asking;
mod contest;
mod dials;
mod entries;
mod following;
mod held;
mod loss;
mod other;
mod pairing;
mod primary;
mod saving;
mod standby;
mod stream;
mod subject;
mod succession;

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use self::primary::Primary;
use self::standby::Standby;
use self::subject::Subject;
use super::{Effect, Input, Node, Outbox, Server, ServerError, Shard, WorkerError};
use pstrain_compute::id::{PeerId, ServerId, Term};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::job::{Job, heartbeat};
use pstrain_wire::Status;

/// What a replica knows before it has met anybody.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// A number that no other process has.
    pub id: u64,
    /// Where workers reach it.
    pub address: String,
    /// Where the server is that it stands by for; empty if it leads from the beginning.
    pub leader: String,
    /// For the jitter of its back-off.
    pub stream: Stream,
    /// What of gradients it sends to its standby, while it has one.
    pub replicate: Replicate,
}

/// What of gradients goes to a standby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replicate {
    /// Each push, as it comes.
    Pushes,
    #[default]
    /// Of a round what its gradients were combined to, once it closes, where that is shorter. A
    /// push is sent with its values all the same if something else has an effect before its round
    /// closes, if what is remembered or asked of gradients is more than their sum, and always by
    /// servers that do not coordinate: the coordinator counts on a push the moment it hears of it.
    Updates,
}

/// A server that has a standby or is one, as a state machine.
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

/// A server's state, and how far in the stream it is.
#[derive(Debug)]
struct Copy {
    server: Subject,
    /// Entries handed in so far.
    entries: u64,
    /// The same moment by the clock of this process and by that of the stream.
    clock: (Time, Time),
}

impl Copy {
    /// The time of the stream, which goes on from where the last primary was.
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
    /// One that leads, and has no standby yet.
    #[must_use]
    pub fn primary(config: ReplicaConfig, server: Server) -> Self {
        Self::leading(config, Subject::Coordinator(Box::new(server)))
    }

    /// One that leads and does not coordinate, and has no standby yet.
    #[must_use]
    pub fn primary_shard(config: ReplicaConfig, shard: Shard) -> Self {
        Self::leading(config, Subject::Shard(Box::new(shard)))
    }

    fn leading(config: ReplicaConfig, server: Subject) -> Self {
        let copy = Copy { server, entries: 0, clock: (Time::ZERO, Time::ZERO) };
        let role = Role::Leads(Box::new(Primary::new(copy, FIRST, config.replicate)));
        Self { config, role, done: false }
    }

    /// One that stands by for the server that its driver dials; of the same job.
    ///
    /// # Errors
    /// [`ServerError`] if there can be no server for the job.
    pub fn standby(config: ReplicaConfig, job: Job) -> Result<Self, ServerError> {
        let standby = Standby::new(config.clone(), job)?;
        Ok(Self { config, role: Role::StandsBy(Box::new(standby)), done: false })
    }

    /// Sends, while it leads, this of gradients to its standby.
    pub const fn set_replicate(&mut self, replicate: Replicate) {
        self.config.replicate = replicate;
        if let Role::Leads(primary) = &mut self.role {
            primary.replicate = replicate;
        }
    }

    /// The server as it is here; none until the primary has sent its state, and for one that does
    /// not coordinate.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        match &self.role {
            Role::Leads(primary) => primary.server(),
            Role::StandsBy(standby) => standby.subject()?.coordinator(),
        }
    }

    /// Which server it is and which keys it has, where it does not coordinate and has some.
    #[must_use]
    pub fn holds(&self) -> Option<(ServerId, KeyRange)> {
        match &self.role {
            Role::Leads(primary) => primary.copy.server.holds(),
            Role::StandsBy(standby) => standby.subject()?.holds(),
        }
    }

    /// The server as it is here, when all is done.
    #[must_use]
    pub fn into_server(self) -> Option<Server> {
        match self.role {
            Role::Leads(primary) => primary.into_server(),
            Role::StandsBy(standby) => standby.into_server(),
        }
    }

    /// Whether it leads, as far as it knows.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self.role, Role::Leads(_))
    }
}

impl Node for Replica {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.done {
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

/// The term of a run that begins.
const FIRST: Term = Term(1);

/// How long a partner that was cut off is given to come back before the workers are asked: workers
/// are silent for longer than that before they give anybody up.
fn grace(lease: Duration) -> Duration {
    heartbeat(lease)
}

/// How long a partner may be silent: shorter than a worker waits, so that it need not notice.
fn silence(lease: Duration) -> Duration {
    lease / 2
}

/// The peer of the server behind a connection of the driver. Each term counts anew, so that nobody
/// is taken for a connection of the primary before.
fn inner(term: Term, peer: PeerId) -> PeerId {
    PeerId(peer.0 + (term.0.saturating_sub(FIRST.0) << PEER_BITS))
}

/// The connection of the driver behind a peer of the server; none if it was of an earlier term.
fn outer(term: Term, peer: PeerId) -> Option<PeerId> {
    peer.0.checked_sub(term.0.saturating_sub(FIRST.0) << PEER_BITS).map(PeerId)
}

/// Connections in one term: 2^36.
const PEER_BITS: u32 = 36;

/// Ends a replica that cannot go on.
fn fail(error: WorkerError, out: &mut Outbox) {
    out.push(Effect::Done(Err(error)));
}
