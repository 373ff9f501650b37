//! The worker: pulls parameters, has gradients computed, pushes them; dials again when cut off.

mod allegiance;
mod assembly;
mod connection;
mod filtering;
mod group;
mod keys;
mod partition;
mod training;
mod work;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use allegiance::Allegiance;
use group::Servers;
use keys::Unknown;
use work::{Grant, Work};

use super::damage::{Damage, is_foreign};
use super::dialler::{Dialler, Due};
use super::{Effect, Input, Node, Outbox, Prepared, Ticket};
use pstrain_compute::examples::Examples;
use pstrain_compute::filter::Carrier;
use pstrain_compute::id::{CheckpointId, Incarnation, PartId, PeerId, Term, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_wire::holders::Unreached;
use pstrain_wire::worker::{Bye, EndReason, Heartbeat};
use pstrain_wire::{Message, Refusal};

/// What a worker knows before it has met the server.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// A name for people, such as the host's.
    pub name: String,
    /// The worker id it wants; without one the server chooses.
    pub worker: Option<WorkerId>,
    /// Whether the server shall send the examples, whatever the job says.
    pub wants_examples: bool,
    /// The lease until the job says another.
    pub lease: Duration,
    /// For the jitter of its back-off.
    pub stream: Stream,
}

/// Why a worker could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerError {
    /// The server cannot be reached, for longer than the patience of the job.
    Unreachable {
        /// What went wrong last, in words.
        why: String,
        /// Tries since the last connection.
        attempts: u32,
        /// How long it has tried.
        tried: Duration,
    },
    /// The server turned it away.
    Refused(Refusal),
    /// The server does not speak this protocol, or not correctly.
    Protocol(String),
    /// Messages were damaged on the way, over one connection after the other.
    Damaged {
        /// Connections that ended so.
        times: u32,
        /// The error of the last of these messages, in words.
        why: String,
    },
    /// The data of the job cannot be had.
    Data(String),
    /// The job has another number of workers than it was started as one of.
    Workers {
        /// How many it was started as one of.
        wanted: u32,
        /// How many the job has.
        workers: u32,
    },
    /// Another server leads in its place.
    Deposed {
        /// Since which term.
        term: Term,
    },
    /// A server of a job that takes checkpoints: what it has is of no use, and it goes on from this
    /// one.
    GoesBack(CheckpointId),
    /// Its standby is gone, and the workers have not promised in time to follow it alone.
    Abandoned {
        /// Why the standby is gone, in words.
        why: String,
    },
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { why, attempts, tried } => write!(
                f,
                "cannot reach the server, or find a place there: {why} (tried {attempts} times in \
                 {:.1} s)",
                tried.as_secs_f64()
            ),
            Self::Refused(why) => write!(f, "the server refused this worker: {why}"),
            Self::Protocol(what) => write!(f, "the server broke the protocol: {what}"),
            Self::Damaged { times, why } => write!(
                f,
                "{times} connections in a row ended with a damaged message, the last one with: \
                 {why}; something on the way to the server changes bytes: see to it, or use --tls \
                 or --psk"
            ),
            Self::Data(what) => f.write_str(what),
            Self::Workers { wanted, workers } => write!(
                f,
                "the job has {workers} workers, and this one was started as one of {wanted}"
            ),
            Self::GoesBack(checkpoint) => write!(f, "the servers go back to {checkpoint}"),
            Self::Abandoned { why } => write!(
                f,
                "its standby is gone ({why}), and most of the workers have not promised to follow \
                 it alone"
            ),
            Self::Deposed { term } => write!(
                f,
                "its standby leads in its place (term {term}): nothing that this one did since \
                 counts; start it again as a standby of that one"
            ),
        }
    }
}

impl core::error::Error for WorkerError {}

/// The worker as a state machine.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    /// How many workers the job must have, if it matters.
    wanted: Option<u32>,
    dialler: Dialler,
    damage: Damage,
    allegiance: Allegiance,
    /// The connections to the other servers.
    servers: Servers,
    /// Whether the server has taken it in on this connection, and the others have, too.
    welcome: bool,
    member: Option<Member>,
    data: Data,
    /// Preparations under way: more than one if the worker was given another partition meanwhile.
    preparations: u32,
    work: Work,
    /// The other server that it could not be with when it last tried.
    unreached: Option<Unreached>,
    /// Servers that do not know its working set yet, if it has one.
    unknown: Unknown,
    /// What is done to its gradients before they travel.
    carrier: Option<Carrier>,
    /// The parameters of the gradient that is being computed.
    base: Option<Arc<Vec<f32>>>,
    draining: bool,
    /// Until when a gradient that is being computed is waited for.
    drain_by: Time,
    done: bool,
}

/// A place in the job.
#[derive(Debug)]
struct Member {
    worker: WorkerId,
    incarnation: Incarnation,
    run: u64,
    /// Those of the model.
    model_keys: KeyRange,
    /// Those of its vectors: all of the model's, unless it has a working set.
    keys: KeyRange,
    examples_from_server: bool,
    /// The parts of the data that it has.
    parts: Vec<PartId>,
    job: Box<Job>,
}

impl Member {
    const fn ticket(&self, grant: Grant) -> Ticket {
        let Grant { sequence, version: base, .. } = grant;
        Ticket { run: self.run, incarnation: self.incarnation, sequence, base }
    }
}

#[derive(Debug)]
enum Data {
    None,
    /// The server is sending the parts: those that are whole, and the one under way.
    Fetching(Vec<Examples>, Examples),
    /// The driver is getting it ready.
    Preparing,
    Ready(Prepared),
}

impl Worker {
    /// A worker that will dial at [`Input::Start`].
    #[must_use]
    pub fn new(config: WorkerConfig) -> Self {
        Self {
            dialler: Dialler::new(config.stream),
            damage: Damage::default(),
            allegiance: Allegiance::default(),
            config,
            wanted: None,
            servers: Servers::default(),
            welcome: false,
            member: None,
            data: Data::None,
            preparations: 0,
            work: Work::default(),
            unreached: None,
            unknown: Unknown::new(),
            carrier: None,
            base: None,
            draining: false,
            drain_by: Time::ZERO,
            done: false,
        }
    }

    /// The same, but it takes part in jobs of so many workers only, and ends with
    /// [`WorkerError::Workers`] in others.
    #[must_use]
    pub const fn one_of(mut self, workers: u32) -> Self {
        self.wanted = Some(workers);
        self
    }

    /// The worker id, once the server has given one.
    #[must_use]
    pub fn id(&self) -> Option<WorkerId> {
        self.member.as_ref().map(|member| member.worker)
    }

    /// The incarnation, once the server has given one.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.member.as_ref().map(|member| member.incarnation)
    }

    fn lease(&self) -> Duration {
        self.member.as_ref().map_or(self.config.lease, |member| member.job.membership.lease)
    }

    /// The connection, if the server has taken this worker in on it.
    fn server(&self) -> Option<PeerId> {
        self.dialler.peer().filter(|_| self.welcome)
    }

    fn send(&mut self, now: Time, message: Message, out: &mut Outbox) {
        if let Some(peer) = self.dialler.peer() {
            self.dialler.sent(now);
            out.push(Effect::Send(peer, message));
        }
    }

    fn finish(&mut self, result: Result<EndReason, WorkerError>, out: &mut Outbox) {
        out.extend(self.dialler.peer().map(Effect::Close));
        self.servers.close(out);
        self.done = true;
        out.push(Effect::Done(result));
    }

    fn leave(&mut self, now: Time, reason: EndReason, out: &mut Outbox) {
        if let (Some(_), Some(member)) = (self.server(), &self.member) {
            let bye = Bye { incarnation: member.incarnation };
            self.send(now, Message::Bye(bye), out);
        }
        self.finish(Ok(reason), out);
    }

    fn on_message(&mut self, now: Time, from: PeerId, message: Message, out: &mut Outbox) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Refused(Refusal::Frame { what }) if self.member.is_some() => {
                self.on_damage(now, from, &what, out);
            }
            Message::Refused(why) if why.is_permanent() => {
                self.finish(Err(WorkerError::Refused(why)), out);
            }
            Message::Refused(why) => self.on_turned_away(now, &why, out),
            Message::End(end) => self.leave(now, end.reason, out),
            Message::Welcome(welcome) => self.on_welcome(now, *welcome, out),
            Message::Examples(chunk) => self.on_examples(now, &chunk, out),
            Message::Parameters(parameters) => self.on_parameters(now, from, parameters, out),
            Message::KeysKnown(answer) => self.on_keys_known(now, from, answer, out),
            Message::Ack(decided) => self.on_ack(now, decided, out),
            Message::Candidacy(asked) => self.on_candidacy(now, asked, out),
            Message::Standby(standby) => self.allegiance.note_standby(standby.address),
            Message::Holders(holders) => self.on_holders(now, holders, out),
            other => {
                let what = alloc::format!("it sent a {:?} message to a worker", other.kind());
                self.finish(Err(WorkerError::Protocol(what)), out);
            }
        }
    }

    /// The server does not take it now, or not here.
    fn on_turned_away(&mut self, now: Time, why: &Refusal, out: &mut Outbox) {
        match why {
            Refusal::ServerMoved { .. } => return self.come_back(now, why.to_string(), out),
            Refusal::Standby { leader } => self.allegiance.note_leader(leader.clone()),
            _ => {}
        }
        self.redial(now, why.to_string(), out);
    }

    fn drain(&mut self, now: Time, out: &mut Outbox) {
        if !self.draining {
            self.drain_by = now + self.lease();
        }
        self.draining = true;
        self.work.wind_up();
        if self.work.computing().is_none() || self.server().is_none() {
            self.leave(now, EndReason::Stopped, out);
        }
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        if self.draining && now >= self.drain_by {
            return self.leave(now, EndReason::Stopped, out);
        }
        match self.dialler.wake(now, self.lease(), out) {
            Due::Nothing => {}
            Due::Silence(silent) => {
                let why = alloc::format!("it has been silent for {silent:?}");
                return self.redial(now, why, out);
            }
            Due::Beat => {
                let incarnation = self.member.as_ref().map(|member| member.incarnation);
                self.send(now, Message::Heartbeat(Heartbeat { incarnation }), out);
            }
        }
        self.watch_servers(now, out);
    }
}

impl Node for Worker {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.done {
            return;
        }
        match input {
            Input::Start => self.dialler.start(now, out),
            Input::Dialled(peer, identity) if self.dialler.release() => {
                self.on_server_dialled(now, peer, identity, out);
            }
            Input::Dialled(peer, identity) => self.on_dialled(now, peer, identity, out),
            Input::DialFailed { why, permanent } => self.on_dial_failed(now, why, permanent, out),
            Input::Message(from, message) => {
                if self.dialler.heard(now, from) {
                    self.on_message(now, from, message, out);
                } else if self.servers.heard(now, from) {
                    self.on_server_message(now, from, message, out);
                }
            }
            Input::Receiving(from) => {
                let _is_known = self.dialler.heard(now, from) || self.servers.heard(now, from);
            }
            Input::Garbage(_, error) if self.member.is_none() && is_foreign(error) => {
                self.finish(Err(WorkerError::Protocol(error.to_string())), out);
            }
            Input::Garbage(peer, error) => self.on_damage(now, peer, &error.to_string(), out),
            Input::Disconnected { peer, why } => {
                if self.dialler.lost(peer) {
                    self.redial(now, why, out);
                } else if let Some(server) = self.servers.lost(peer) {
                    self.come_back_from(now, server, why, out);
                }
            }
            Input::Prepared(prepared) => self.on_prepared(now, prepared, out),
            Input::Computed(computed) => self.on_computed(now, computed, out),
            Input::Overslept => {
                self.dialler.overslept(now);
                self.servers.overslept(now);
            }
            Input::Drain => self.drain(now, out),
            Input::Wake => self.on_wake(now, out),
            Input::Connected(..)
            | Input::Evaluated(_)
            | Input::Checkpoint(_)
            | Input::Written(_) => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.done {
            return None;
        }
        let drain = self.draining.then_some(self.drain_by);
        let links = [self.dialler.deadline(self.lease()), self.servers.deadline(self.lease())];
        links.into_iter().flatten().chain(drain).min()
    }
}
