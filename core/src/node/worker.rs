//! The worker: pulls parameters, has gradients computed, pushes them; dials again when cut off.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::backoff::Backoff;
use super::{Compute, Computed, Effect, Event, Input, Node, Outbox, Prepare, Prepared, Ticket};
use crate::examples::Examples;
use crate::id::{BatchId, Incarnation, PeerId, Sequence, Version, WorkerId};
use crate::job::{Exchange, Job};
use crate::model::Model;
use crate::params::KeyRange;
use crate::protocol::message::{
    Bye, Decided, EndReason, ExamplesChunk, Heartbeat, Hello, Parameters, Pull, PullExamples, Push,
    PushHeader, Ready, Resume, Welcome,
};
use crate::protocol::{BUILD, Limits, Message, PROTOCOL_VERSION, Refusal, job_digest};
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
                "cannot reach the server: {why} (tried {attempts} times in {:.1} s)",
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
    /// Memory for the next gradient.
    scratch: Vec<f32>,
    draining: bool,
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
    job: Box<Job>,
}

impl Member {
    const fn ticket(&self, sequence: Sequence) -> Ticket {
        Ticket { run: self.run, incarnation: self.incarnation, sequence }
    }
}

#[derive(Debug)]
enum Data {
    None,
    /// The server is sending the partition.
    Fetching(Examples),
    /// The driver is getting it ready.
    Preparing,
    Ready(Prepared),
}

#[derive(Debug)]
enum Work {
    /// Wants parameters.
    Pulling,
    /// A gradient is being computed.
    Computing(Grant),
    /// A gradient is on its way, kept until it is answered.
    Pushing(Push),
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    sequence: Sequence,
    version: Version,
    batch: BatchId,
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
            work: Work::Pulling,
            scratch: Vec::new(),
            draining: false,
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
        self.lease() * 12
    }

    /// The connection, if the server has taken this worker in on it.
    fn server(&self) -> Option<PeerId> {
        match self.link {
            Link::Up { peer, welcome: true, .. } => Some(peer),
            _ => None,
        }
    }

    fn send(&mut self, now: Time, message: Message, out: &mut Outbox) {
        let next = now + self.lease() / 5;
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

    fn on_connected(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        let beat_at = now + self.lease() / 5;
        self.link = Link::Up { peer, welcome: false, heard: now, beat_at };
        out.push(Effect::Limit(peer, Limits::DIALER));
        let hello = Hello {
            protocol_min: PROTOCOL_VERSION,
            protocol_max: PROTOCOL_VERSION,
            build: String::from(BUILD),
            name: self.config.name.clone(),
            worker: self.config.worker,
            resume: self.member.as_ref().map(|member| Resume {
                worker: member.worker,
                incarnation: member.incarnation,
                run: member.run,
            }),
            wants_examples: self.config.wants_examples,
            credentials: Vec::new(),
        };
        self.send(now, Message::Hello(hello), out);
    }

    /// Goes away from the server and comes back after a pause, or gives up.
    fn redial(&mut self, now: Time, why: String, out: &mut Outbox) {
        if let Link::Up { peer, .. } = self.link {
            out.push(Effect::Close(peer));
        }
        self.trouble = why;
        let since = *self.away_since.get_or_insert(now);
        if self.draining {
            return self.finish(Ok(EndReason::Stopped), out);
        }
        if now >= since + self.patience() {
            return self.give_up(now, out);
        }
        let pause = self.backoff.pause(self.lease());
        self.link = Link::Down { dial_at: now + pause };
        let (attempt, why) = (self.backoff.attempt(), self.trouble.clone());
        out.push(Effect::Report(Event::Redialling { attempt, pause, why }));
    }

    fn give_up(&mut self, now: Time, out: &mut Outbox) {
        let tried = self.away_since.map_or_else(Default::default, |at| now.since(at));
        let attempts = self.backoff.attempt().max(1);
        let why = core::mem::take(&mut self.trouble);
        self.finish(Err(WorkerError::Unreachable { why, attempts, tried }), out);
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

    fn on_welcome(&mut self, now: Time, welcome: Welcome, out: &mut Outbox) {
        let Link::Up { peer, welcome: is_welcome, .. } = &mut self.link else { return };
        let peer = *peer;
        *is_welcome = true;
        if job_digest(&welcome.job) != welcome.digest {
            let what = String::from("its job means something else here; use the same release");
            return self.finish(Err(WorkerError::Protocol(what)), out);
        }
        let model = match Model::new(&welcome.job.model, welcome.job.data.shape) {
            Ok(model) => model,
            Err(error) => {
                let what = alloc::format!("its job has an impossible model: {error}");
                return self.finish(Err(WorkerError::Protocol(what)), out);
            }
        };
        let Ok(keys) = KeyRange::new(0, model.parameters() as u64) else {
            let what = String::from("its job has a model without parameters");
            return self.finish(Err(WorkerError::Protocol(what)), out);
        };
        out.push(Effect::Limit(peer, Limits::of_server(model.parameters())));
        self.away_since = None;
        self.backoff.reset();
        let (worker, resumed) = (welcome.worker, welcome.resumed);
        let same_data = self.member.as_ref().is_some_and(|member| {
            member.worker == worker
                && member.job.data == welcome.job.data
                && member.job.seed == welcome.job.seed
                && member.job.batch_size == welcome.job.batch_size
        });
        let job = Box::new(welcome.job);
        out.push(Effect::Report(Event::Welcomed { worker, resumed, job: job.clone() }));
        self.member = Some(Member {
            worker,
            incarnation: welcome.incarnation,
            run: welcome.run,
            keys,
            examples_from_server: welcome.examples_from_server,
            job,
        });
        if !resumed {
            // Whatever was under way belonged to another incarnation.
            self.work = Work::Pulling;
            if !same_data {
                self.data = Data::None;
            }
        }
        self.go_on(now, out);
    }

    /// Takes up the data or the work where they are, on a fresh connection.
    fn go_on(&mut self, now: Time, out: &mut Outbox) {
        let Some(member) = &self.member else { return };
        match &self.data {
            Data::None if member.examples_from_server => {
                self.data = Data::Fetching(Examples::new(member.job.data.shape));
                self.send(now, Message::PullExamples(PullExamples { from: 0 }), out);
            }
            Data::None => self.prepare(None, out),
            Data::Fetching(examples) => {
                let from = examples.len() as u64;
                self.send(now, Message::PullExamples(PullExamples { from }), out);
            }
            Data::Preparing => {}
            Data::Ready(prepared) => {
                let ready = Ready { rows: prepared.rows, train: prepared.train.clone() };
                self.send(now, Message::Ready(ready), out);
                match &self.work {
                    Work::Pulling => self.pull(now, out),
                    Work::Computing(_) => {}
                    Work::Pushing(push) => {
                        let push = push.clone();
                        self.send(now, Message::Push(push), out);
                    }
                }
            }
        }
    }

    fn prepare(&mut self, examples: Option<Examples>, out: &mut Outbox) {
        let Some(member) = &self.member else { return };
        self.data = Data::Preparing;
        self.preparations += 1;
        let (job, worker) = ((*member.job).clone(), member.worker);
        out.push(Effect::Prepare(Box::new(Prepare { job, worker, examples })));
    }

    fn on_examples(&mut self, now: Time, chunk: &ExamplesChunk, out: &mut Outbox) {
        let (Data::Fetching(examples), Some(member)) = (&mut self.data, &self.member) else {
            return;
        };
        let rows = chunk.rows;
        let fits = rows.from == examples.len() as u64 && rows.total <= member.job.data.train.rows;
        let unpacked = if fits && !chunk.packed.is_empty() {
            examples.unpack(&chunk.packed).map_err(|error| error.to_string())
        } else {
            Err(alloc::format!("rows from {} of {} were not asked for", rows.from, rows.total))
        };
        if let Err(what) = unpacked {
            let what = alloc::format!("its examples are unusable: {what}");
            return self.finish(Err(WorkerError::Protocol(what)), out);
        }
        if (examples.len() as u64) < rows.total {
            let from = examples.len() as u64;
            self.send(now, Message::PullExamples(PullExamples { from }), out);
        } else {
            let examples = core::mem::take(examples);
            self.prepare(Some(examples), out);
        }
    }

    fn on_prepared(&mut self, now: Time, prepared: Result<Prepared, String>, out: &mut Outbox) {
        self.preparations = self.preparations.saturating_sub(1);
        if self.preparations > 0 || !matches!(self.data, Data::Preparing) {
            return; // of a partition that is not this worker's any more
        }
        match prepared {
            Ok(prepared) => {
                self.data = Data::Ready(prepared);
                if self.server().is_some() {
                    self.go_on(now, out);
                }
            }
            Err(what) => {
                if let (Some(_), Some(member)) = (self.server(), &self.member) {
                    let bye = Bye { incarnation: member.incarnation };
                    self.send(now, Message::Bye(bye), out);
                }
                self.finish(Err(WorkerError::Data(what)), out);
            }
        }
    }

    fn pull(&mut self, now: Time, out: &mut Outbox) {
        self.work = Work::Pulling;
        if let Some(member) = &self.member {
            let pull = Pull { incarnation: member.incarnation, keys: member.keys };
            self.send(now, Message::Pull(pull), out);
        }
    }

    fn on_parameters(&mut self, now: Time, parameters: Parameters, out: &mut Outbox) {
        let Some(member) = &self.member else { return };
        let header = parameters.header;
        if header.keys != member.keys || parameters.values.len() as u64 != member.keys.len() {
            let what = alloc::format!(
                "it sent {} values for keys {} of a model with keys {}",
                parameters.values.len(),
                header.keys,
                member.keys
            );
            return self.finish(Err(WorkerError::Protocol(what)), out);
        }
        let ticket = member.ticket(header.sequence);
        match core::mem::replace(&mut self.work, Work::Pulling) {
            Work::Computing(grant) => {
                self.work = Work::Computing(grant); // a second answer to a repeated question
                return;
            }
            // The server has the gradient or does not want it; either way its memory is free.
            Work::Pushing(push) => self.reuse(push.gradient),
            Work::Pulling => {}
        }
        if self.draining {
            return self.leave(now, EndReason::Stopped, out);
        }
        let grant =
            Grant { sequence: header.sequence, version: header.version, batch: header.batch };
        self.work = Work::Computing(grant);
        out.push(Effect::Compute(Compute {
            ticket,
            batch: grant.batch,
            parameters: parameters.values,
            scratch: core::mem::take(&mut self.scratch),
        }));
    }

    /// Keeps the memory of a gradient if nobody else holds it.
    fn reuse(&mut self, gradient: Arc<Vec<f32>>) {
        if let Ok(gradient) = Arc::try_unwrap(gradient) {
            self.scratch = gradient;
        }
    }

    fn on_computed(&mut self, now: Time, computed: Computed, out: &mut Outbox) {
        let (Work::Computing(grant), Some(member)) = (&self.work, &self.member) else { return };
        if computed.ticket != member.ticket(grant.sequence) {
            return; // for an incarnation that is no more
        }
        let header = PushHeader {
            incarnation: member.incarnation,
            sequence: grant.sequence,
            base: grant.version,
            batch: grant.batch,
            samples: computed.samples,
            loss: computed.loss,
            compute_ns: u64::try_from(computed.took.as_nanos()).unwrap_or(u64::MAX),
            keys: member.keys,
            pull: member.job.exchange == Exchange::Combined && !self.draining,
        };
        let push = Push { header, gradient: Arc::new(computed.gradient) };
        self.work = Work::Pushing(push.clone());
        if self.server().is_some() {
            self.send(now, Message::Push(push), out);
        }
        let PushHeader { sequence, base, samples, loss, .. } = header;
        out.push(Effect::Report(Event::Sent { sequence, base, samples, loss }));
    }

    fn on_ack(&mut self, now: Time, decided: Decided, out: &mut Outbox) {
        match core::mem::replace(&mut self.work, Work::Pulling) {
            Work::Pushing(push) if push.header.sequence == decided.sequence => {
                self.reuse(push.gradient);
                if self.draining {
                    self.leave(now, EndReason::Stopped, out);
                } else {
                    self.pull(now, out);
                }
            }
            other => self.work = other,
        }
    }

    fn drain(&mut self, now: Time, out: &mut Outbox) {
        self.draining = true;
        if !matches!((&self.work, self.server()), (Work::Computing(_), Some(_))) {
            self.leave(now, EndReason::Stopped, out);
        }
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
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
            Input::Drain => self.drain(now, out),
            Input::Wake => self.on_wake(now, out),
            Input::Evaluated(_) => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.done {
            return None;
        }
        match self.link {
            Link::Down { dial_at } => Some(dial_at),
            Link::Dialling => None,
            Link::Up { heard, beat_at, .. } => Some(beat_at.min(heard + self.lease())),
        }
    }
}
