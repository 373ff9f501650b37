//! The worker: pulls parameters, has gradients computed, pushes them; redials when cut off.

mod assembly;
mod connection;
mod early;
mod evaluating;
mod filtering;
mod group;
mod keys;
mod leader;
mod partition;
mod training;
mod work;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use early::EarlyValues;
use group::Servers;
use keys::Unknown;
use leader::Allegiance;
use work::{Grant, Work};

use super::damage::{Damage, is_foreign};
use super::dialler::{Dialler, Due};
use super::evaluating::Evaluating;
use super::{Effect, Input, Node, Outbox, Prepared, Ticket};
use pstrain_compute::examples::Examples;
use pstrain_compute::filter::FilterChain;
use pstrain_compute::id::{CheckpointId, Incarnation, PartId, PeerId, Term, WorkerId};
use pstrain_compute::params::{Coverage, KeyRange};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::Job;
use pstrain_wire::holders::Unreached;
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::{Bye, EndReason, Heartbeat};
use pstrain_wire::{Message, Refusal};

/// Configuration of a worker, known before it has met the server.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// A name for people, such as the host name.
    pub name: String,
    /// The requested worker id; without one the server chooses.
    pub worker: Option<WorkerId>,
    /// True if the server must send the examples, whatever the job says.
    pub wants_examples: bool,
    /// The lease until the job's is known.
    pub lease: Duration,
    /// Random stream for the jitter of the back-off.
    pub stream: Stream,
}

/// Reasons for a node to fail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The server could not be reached for longer than the job's patience.
    #[error(
        "cannot reach the server, or is not admitted there: {why} (tried {attempts} times in \
         {:.1} s)",
        .tried.as_secs_f64()
    )]
    Unreachable {
        /// The last error, in words.
        why: String,
        /// Attempts since the last connection.
        attempts: u32,
        /// How long the node has tried.
        tried: Duration,
    },
    /// The server refused the node.
    #[error("the server refused this worker: {0}")]
    Refused(Refusal),
    /// The server does not speak this protocol, or violates it.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    /// The node is none of the job's architecture.
    #[error("architecture = {architecture}: {cure}")]
    Architecture {
        /// The architecture of the job.
        architecture: Architecture,
        /// The required node.
        cure: &'static str,
    },
    /// The other end has another key, protocol or security, or is another program.
    #[error("{why} ({times} attempts in a row)")]
    Mismatch {
        /// Attempts in a row that ended so.
        times: u32,
        /// The difference, in words.
        why: String,
    },
    /// Messages were damaged in transit, over one connection after another.
    #[error(
        "{times} connections in a row ended with a damaged message, the last one with: {why}; \
         something on the way to the server changes bytes: see to it, or use --tls or --psk"
    )]
    Damaged {
        /// Connections that ended with a damaged message.
        times: u32,
        /// The error of the last of these messages, in words.
        why: String,
    },
    /// The job's data is not available.
    #[error("{0}")]
    Data(String),
    /// The worker's gradients cannot be computed.
    #[error("{0}")]
    Compute(String),
    /// The job has another number of workers than the worker was started for.
    #[error("the job has {workers} workers, and this one was started as one of {wanted}")]
    Workers {
        /// The number of workers that it was started for.
        wanted: u32,
        /// The number of workers of the job.
        workers: u32,
    },
    /// Another server leads in place of this one.
    #[error(
        "its standby leads in its place (term {term}): nothing that this one did since counts; \
         start it again as a standby of that one"
    )]
    Deposed {
        /// The term in which the other server leads.
        term: Term,
    },
    /// A server of a job that takes checkpoints: its state is useless, and it must resume from this
    /// checkpoint.
    #[error("the servers go back to {0}")]
    GoesBack(CheckpointId),
    /// The primary's standby is gone, and the electors did not vote in time for the primary to lead
    /// without it.
    #[error(
        "its standby is gone ({why}), and most of the workers have not promised to follow it alone"
    )]
    Abandoned {
        /// Why the standby is gone, in words.
        why: String,
    },
}

/// How far the servers have admitted a worker since it dialled the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The coordinator has not answered.
    Stranger,
    /// The coordinator has admitted it.
    Admitted,
    /// The other servers have, too.
    Attached,
}

/// A worker as a state machine.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    /// The number of workers that the job must have, if it matters.
    wanted: Option<u32>,
    dialler: Dialler,
    damage: Damage,
    allegiance: Allegiance,
    /// Connections to the servers other than the coordinator.
    servers: Servers,
    standing: Standing,
    member: Option<Member>,
    data: Data,
    /// Data preparations in progress: more than one if the worker got another partition meanwhile.
    preparations: u32,
    work: Work,
    /// Parameters to evaluate for the server.
    evaluating: Evaluating,
    /// The server that the worker could not reach in its last attempt, other than the coordinator.
    unreached: Option<Unreached>,
    /// Servers that do not know the worker's working set yet, if it has one.
    unknown: Unknown,
    /// Filters of the gradients, with their residual.
    filter_chain: Option<FilterChain>,
    /// The parameters that the current gradient is computed on.
    base: Option<Arc<Vec<f32>>>,
    /// The keys of the current gradient that were sent before the rest; none if it must be sent
    /// whole, because connections changed meanwhile.
    sent_ranges: Option<Coverage>,
    /// Values of the next version that have come before its update.
    early_values: EarlyValues,
    draining: bool,
    /// Deadline for the gradient in progress while draining.
    drain_by: Time,
    done: bool,
}

/// The worker's membership in the job.
#[derive(Debug)]
struct Member {
    worker: WorkerId,
    incarnation: Incarnation,
    run: u64,
    /// The keys of the model.
    model_keys: KeyRange,
    /// The keys of the worker's vectors: all keys of the model, unless it has a working set.
    keys: KeyRange,
    examples_from_server: bool,
    /// The parts of the data that the worker has.
    parts: Vec<PartId>,
    job: Box<Job>,
}

impl Member {
    const fn ticket(&self, grant: Grant) -> Ticket {
        let Grant { sequence, version: base, .. } = grant;
        Ticket { run: self.run, incarnation: self.incarnation, sequence, base }
    }
}

/// The membership of a worker that a server has admitted.
fn admitted(member: &Option<Member>) -> &Member {
    member.as_ref().unwrap_or_else(|| unreachable!("no server has admitted this worker"))
}

#[derive(Debug)]
enum Data {
    None,
    /// The server is sending the parts: the complete ones, and the one in progress.
    Fetching(Vec<Examples>, Examples),
    /// The driver is preparing the data.
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
            standing: Standing::Stranger,
            member: None,
            data: Data::None,
            preparations: 0,
            work: Work::default(),
            evaluating: Evaluating::default(),
            unreached: None,
            unknown: Unknown::new(),
            filter_chain: None,
            base: None,
            sent_ranges: None,
            early_values: EarlyValues::default(),
            draining: false,
            drain_by: Time::ZERO,
            done: false,
        }
    }

    /// Restricts the worker to jobs of this many workers; it ends with [`NodeError::Workers`] in
    /// others.
    #[must_use]
    pub const fn one_of(mut self, workers: u32) -> Self {
        self.wanted = Some(workers);
        self
    }

    /// The worker id, once the server has assigned one.
    #[must_use]
    pub fn id(&self) -> Option<WorkerId> {
        self.member.as_ref().map(|member| member.worker)
    }

    /// The incarnation, once the server has assigned one.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.member.as_ref().map(|member| member.incarnation)
    }

    fn lease(&self) -> Duration {
        self.member.as_ref().map_or(self.config.lease, |member| member.job.membership.lease)
    }

    /// The connection to the coordinator, if the worker is admitted on it.
    fn server(&self) -> Option<PeerId> {
        self.dialler.peer().filter(|_| self.standing == Standing::Attached)
    }

    fn send(&mut self, now: Time, message: Message, out: &mut Outbox) {
        if let Some(peer) = self.dialler.peer() {
            self.dialler.sent(now);
            out.push(Effect::Send(peer, message));
        }
    }

    fn finish(&mut self, result: Result<EndReason, NodeError>, out: &mut Outbox) {
        out.extend(self.dialler.peer().map(Effect::Close));
        self.servers.close(out);
        self.done = true;
        out.push(Effect::Done(result));
    }

    /// Leaves the run, which has ended or cannot continue on this machine.
    fn leave(&mut self, now: Time, ended: Result<EndReason, NodeError>, out: &mut Outbox) {
        if let Some(member) = self.member.as_ref().filter(|_| self.standing != Standing::Stranger) {
            let incarnation = member.incarnation;
            self.work.call_off(now);
            self.tell_called_off(now, out);
            self.say_goodbye(now, incarnation, ended.as_ref().err(), out);
        }
        self.finish(ended, out);
    }

    /// Tells the server that this worker leaves, and the error that makes it leave.
    fn say_goodbye(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        error: Option<&NodeError>,
        out: &mut Outbox,
    ) {
        let why = error.map(|error| as_reason(&error.to_string()));
        self.send(now, Message::Bye(Bye { incarnation, why }), out);
    }

    fn on_message(&mut self, now: Time, from: PeerId, message: Message, out: &mut Outbox) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Refused(Refusal::Frame { what }) => {
                self.on_damage(now, from, &what, false, out);
            }
            Message::Refused(why) if why.is_permanent() => {
                self.finish(Err(NodeError::Refused(why)), out);
            }
            Message::Refused(why) => self.on_turned_away(now, &why, out),
            Message::End(end) => self.leave(now, Ok(end.reason), out),
            Message::Welcome(welcome) => self.on_welcome(now, *welcome, out),
            Message::Examples(chunk) => self.on_examples(now, &chunk, out),
            Message::Parameters(parameters) => self.on_parameters(now, from, parameters, out),
            Message::KeysKnown(answer) => self.on_keys_known(now, from, answer, out),
            Message::Ack(decided) => self.on_ack(now, decided, out),
            Message::VoteRequest(asked) => self.on_candidacy(now, asked, out),
            Message::Standby(standby) => self.allegiance.note_standby(standby.address),
            Message::Holders(holders) => self.on_holders(now, holders, out),
            Message::PartDue(due) => self.on_initial_due(now, due, out),
            Message::EvaluationPart(part) => self.on_evaluation_part(now, from, part, out),
            other => {
                let what = alloc::format!("it sent a {:?} message to a worker", other.kind());
                self.finish(Err(NodeError::Protocol(what)), out);
            }
        }
    }

    /// Handles a temporary refusal: the server does not admit the worker now, or not at this
    /// address.
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
            self.leave(now, Ok(EndReason::Stopped), out);
        }
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        if self.draining && now >= self.drain_by {
            return self.leave(now, Ok(EndReason::Stopped), out);
        }
        match self.dialler.wake(now, self.lease(), out) {
            Due::Nothing => {}
            Due::Silence(silent) => {
                let why = alloc::format!("it has been silent for {silent:?}");
                return self.redial(now, why, out);
            }
            Due::Beat => {
                let incarnation = self.member.as_ref().map(|member| member.incarnation);
                self.send(now, Message::Heartbeat(Heartbeat::of(incarnation)), out);
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
            Input::DialFailed { why, fault } => self.on_dial_failed(now, why, fault, out),
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
            Input::Garbage(peer, error) => {
                let may_be_foreign = self.member.is_none() && is_foreign(error);
                self.on_damage(now, peer, &error.to_string(), may_be_foreign, out);
            }
            Input::Disconnected { peer, why } => {
                if self.dialler.lost(peer) {
                    self.redial(now, why, out);
                } else if let Some(server) = self.servers.lost(peer) {
                    self.come_back_from(now, server, why, out);
                }
            }
            Input::Prepared(prepared) => self.on_prepared(now, prepared, out),
            Input::ComputedRange(range) => self.on_computed_range(now, range, out),
            Input::Computed(computed) => self.on_computed(now, computed, out),
            Input::ComputeFailed(why) => self.leave(now, Err(NodeError::Compute(why)), out),
            Input::EvaluatedHere(ticket, result) => {
                self.on_evaluated_here(now, ticket, result, out);
            }
            Input::Overslept => {
                self.dialler.overslept(now);
                self.servers.overslept(now);
            }
            Input::Drain => self.drain(now, out),
            Input::Wake => self.on_wake(now, out),
            Input::Connected(..)
            | Input::Evaluated(_)
            | Input::Unevaluated { .. }
            | Input::Initial(_)
            | Input::Checkpoint(_)
            | Input::Written(_)
            | Input::WorkersDown
            | Input::Extend(_) => {}
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
