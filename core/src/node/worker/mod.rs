//! The worker: pulls parameters, has gradients computed, pushes them; dials again when cut off.

mod connection;
mod filtering;
mod partition;
mod training;
mod work;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use work::{Grant, Work};

use super::backoff::Backoff;
use super::{Effect, Input, Node, Outbox, Prepared, Ticket};
use crate::examples::Examples;
use crate::filter::Carrier;
use crate::id::{Incarnation, PartId, PeerId, WorkerId};
use crate::job::{Job, heartbeat, patience};
use crate::params::KeyRange;
use crate::protocol::message::{Bye, EndReason, Heartbeat};
use crate::protocol::{Message, Refusal};
use crate::rng::Stream;
use crate::time::Time;

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
    /// The data of the job cannot be had.
    Data(String),
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
            Self::Data(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for WorkerError {}

/// The worker as a state machine.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    backoff: Backoff,
    link: Link,
    /// Since when it has not been welcome anywhere.
    away_since: Option<Time>,
    /// What went wrong last.
    trouble: String,
    member: Option<Member>,
    data: Data,
    /// Preparations under way: more than one if the worker was given another partition meanwhile.
    preparations: u32,
    work: Work,
    /// What is done to its gradients before they travel.
    carrier: Option<Carrier>,
    draining: bool,
    /// Until when a gradient that is being computed is waited for.
    drain_by: Time,
    done: bool,
}

#[derive(Debug)]
enum Link {
    /// No connection; dial at the time given.
    Down { dial_at: Time },
    /// A dial is under way.
    Dialling,
    /// Connected.
    Up { peer: PeerId, welcome: bool, heard: Time, beat_at: Time },
}

/// A place in the job.
#[derive(Debug)]
struct Member {
    worker: WorkerId,
    incarnation: Incarnation,
    run: u64,
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
            backoff: Backoff::new(config.stream.fork("backoff", 0)),
            config,
            link: Link::Dialling,
            away_since: None,
            trouble: String::new(),
            member: None,
            data: Data::None,
            preparations: 0,
            work: Work::default(),
            carrier: None,
            draining: false,
            drain_by: Time::ZERO,
            done: false,
        }
    }

    /// The worker id, once the server has given one.
    #[must_use]
    pub fn id(&self) -> Option<WorkerId> {
        self.member.as_ref().map(|member| member.worker)
    }

    fn lease(&self) -> Duration {
        self.member.as_ref().map_or(self.config.lease, |member| member.job.membership.lease)
    }

    fn patience(&self) -> Duration {
        patience(self.lease())
    }

    /// The connection, if the server has taken this worker in on it.
    fn server(&self) -> Option<PeerId> {
        match self.link {
            Link::Up { peer, welcome: true, .. } => Some(peer),
            _ => None,
        }
    }

    fn send(&mut self, now: Time, message: Message, out: &mut Outbox) {
        let next = now + heartbeat(self.lease());
        if let Link::Up { peer, beat_at, .. } = &mut self.link {
            *beat_at = next;
            out.push(Effect::Send(*peer, message));
        }
    }

    fn finish(&mut self, result: Result<EndReason, WorkerError>, out: &mut Outbox) {
        if let Link::Up { peer, .. } = self.link {
            out.push(Effect::Close(peer));
        }
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

    fn on_message(&mut self, now: Time, message: Message, out: &mut Outbox) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Refused(why) if why.is_permanent() => {
                self.finish(Err(WorkerError::Refused(why)), out);
            }
            Message::Refused(why) => self.redial(now, why.to_string(), out),
            Message::End(end) => self.leave(now, end.reason, out),
            Message::Welcome(welcome) => self.on_welcome(now, *welcome, out),
            Message::Examples(chunk) => self.on_examples(now, &chunk, out),
            Message::Parameters(parameters) => self.on_parameters(now, parameters, out),
            Message::Ack(decided) => self.on_ack(now, decided, out),
            other => {
                let what = alloc::format!("it sent a {:?} message to a worker", other.kind());
                self.finish(Err(WorkerError::Protocol(what)), out);
            }
        }
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
        match self.link {
            Link::Down { dial_at } if now >= dial_at => {
                self.link = Link::Dialling;
                out.push(Effect::Dial);
            }
            Link::Up { heard, .. } if now >= heard + self.lease() => {
                let why = alloc::format!("it has been silent for {:?}", now.since(heard));
                self.redial(now, why, out);
            }
            Link::Up { beat_at, .. } if now >= beat_at => {
                let incarnation = self.member.as_ref().map(|member| member.incarnation);
                self.send(now, Message::Heartbeat(Heartbeat { incarnation }), out);
            }
            _ => {}
        }
    }
}

impl Node for Worker {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.done {
            return;
        }
        match input {
            Input::Start => {
                self.away_since = Some(now);
                out.push(Effect::Dial);
            }
            Input::Connected(peer) => self.on_connected(now, peer, out),
            Input::DialFailed { why, permanent: true } => {
                self.trouble = why;
                self.give_up(now, out);
            }
            Input::DialFailed { why, permanent: false } => self.redial(now, why, out),
            Input::Message(from, message) => {
                if let Link::Up { peer, heard, .. } = &mut self.link
                    && *peer == from
                {
                    *heard = now;
                    self.on_message(now, message, out);
                }
            }
            Input::Receiving(from) => {
                if let Link::Up { peer, heard, .. } = &mut self.link
                    && *peer == from
                {
                    *heard = now;
                }
            }
            Input::Garbage(_, error) => {
                self.finish(Err(WorkerError::Protocol(error.to_string())), out);
            }
            Input::Disconnected { peer: gone, why } => {
                if matches!(self.link, Link::Up { peer, .. } if peer == gone) {
                    self.link = Link::Dialling; // there is nothing left to close
                    self.redial(now, why, out);
                }
            }
            Input::Prepared(prepared) => self.on_prepared(now, prepared, out),
            Input::Computed(computed) => self.on_computed(now, computed, out),
            Input::Overslept => {
                if let Link::Up { heard, .. } = &mut self.link {
                    *heard = now;
                }
            }
            Input::Drain => self.drain(now, out),
            Input::Wake => self.on_wake(now, out),
            Input::Evaluated(_) => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.done {
            return None;
        }
        let link = match self.link {
            Link::Down { dial_at } => Some(dial_at),
            Link::Dialling => None,
            Link::Up { heard, beat_at, .. } => Some(beat_at.min(heard + self.lease())),
        };
        let drain = self.draining.then_some(self.drain_by);
        link.into_iter().chain(drain).min()
    }
}
