//! Lab for workers without a server: peers and their meeting point in one random schedule.
//! Processes are killed or stopped, machines are cut off from one another in one direction or both,
//! and connections break. Use it to test how groups end and form.
//!
//! Two invariants hold in every schedule: a version of the parameters is the same for every member
//! of the group, and each update has the gradient of every member once. The checker derives updates
//! from the gradients by a formula of its own.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod apart;
mod checker;
mod faults;
mod line;
mod mesh;
mod network;
mod pairs;
mod restarts;
mod runs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::{InitialFrom, heartbeat};
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{
    Compute, Computed, ComputedRange, Effect, Event, Input, Meeting, Node, NodeError, Outbox, Peer,
    PeerConfig, Prepared, Target, Ticket,
};
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Status};

use crate::toy::{Toy, partition_of};
use apart::Apart;
use checker::Checker;
use faults::Fault;
use line::Line;
use mesh::Mesh;
use network::Link;
use pairs::Pairs;
use restarts::Disk;

pub use faults::{PeerFault, PeerFaults};
pub use runs::{PeersEnded, intervals, run_peer_cluster, simulate_toy_peers};

/// The meeting point; the process of worker `k` is `k + 1`.
const MEETING: usize = 0;
/// Stands for the version of parameters that end a run that is stopped.
const LAST: Version = Version(u64::MAX);
/// Stands for the version of initial parameters.
const FIRST: Version = Version(u64::MAX - 1);
/// The prefix of the workers' addresses.
const ADDRESS: &str = "lab worker ";
/// Events at one time that only nodes that wait for nothing cause.
const MOST_AT_ONCE: u32 = 20_000;

/// Result of a schedule.
#[derive(Debug)]
pub struct PeersRun {
    /// How the run ended, as the meeting point says.
    pub reason: EndReason,
    /// The final version.
    pub version: u64,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// Groups that were formed.
    pub groups: u64,
    /// When and why groups were formed again.
    pub reasons: Vec<(Time, String)>,
    /// Messages between workers that went by way of the meeting point.
    pub relayed: u64,
    /// Residuals of filters that were lost with a membership.
    pub forgot: u64,
    /// Members that were sent an update which they had missed.
    pub missed: u64,
    /// Updates without the gradients of some members.
    pub partial: u64,
    /// Updates of a lost member which no other member had made.
    pub dropped: u64,
    /// The longest time between two updates.
    pub longest: Duration,
    /// How each worker ended; none if it was killed.
    pub workers: Vec<Option<Result<EndReason, NodeError>>>,
    /// The faults that struck.
    pub faults: Vec<PeerFault>,
    /// Restarts of the meeting point from a checkpoint that it had written.
    pub restarts: u64,
    /// The longest latency, and the longest time of a gradient.
    pub pace: (Duration, Duration),
}

/// A node.
#[derive(Debug)]
enum Role {
    Meeting(Box<Meeting>),
    Peer(Box<Peer>),
}

impl Role {
    fn node(&mut self) -> &mut dyn Node {
        match self {
            Self::Meeting(node) => &mut **node,
            Self::Peer(node) => &mut **node,
        }
    }
}

#[derive(Debug)]
struct Process {
    role: Role,
    state: State,
    wake: Option<Time>,
    ended: Option<Result<EndReason, NodeError>>,
}

impl Process {
    fn outlook(&mut self, now: Time) -> Option<Status> {
        self.role.node().outlook(now)
    }
}

#[derive(Debug)]
enum State {
    Runs,
    /// Stopped since then, with the inputs that wait for it.
    Stopped(Time, Vec<Input>),
    Gone,
}

/// A future event.
#[derive(Debug)]
enum Happening {
    Wake(usize),
    Input(usize, Input),
    /// The next item of a connection arrives at one end.
    Arrives(usize, usize),
    Strikes(Fault),
    /// The meeting point dies, its process number since the start is up again, it is to take a
    /// checkpoint, or that process has written one.
    Restarts,
    Restored(u64),
    CheckpointDue,
    Written(u64),
    GoesOn(usize),
    DialOver(usize),
}

struct Lab<'a> {
    toy: &'a Toy,
    now: Time,
    agenda: BTreeMap<(Time, u64), Happening>,
    next: u64,
    random: Random,
    delay: Duration,
    compute: Duration,
    processes: Vec<Process>,
    trainers: Vec<Trainer>,
    links: Vec<Link>,
    /// Directions in which nothing arrives, and until when.
    cuts: BTreeMap<(usize, usize), Time>,
    checker: Box<dyn Checker>,
    struck: Vec<PeerFault>,
    reasons: Vec<(Time, String)>,
    duplicates: bool,
    /// A fault of the first worker that has a version.
    ambush: Option<(u64, Fault)>,
    /// The disk of the meeting point.
    disk: Disk,
    apart: Apart,
    /// The initial parameters, if a worker gave them.
    initial: Option<Vec<f32>>,
    /// Messages of workers to others by way of the meeting point.
    relayed: u64,
    /// Residuals that were lost.
    forgot: u64,
}

/// Runs `toy`, whose architecture has no server, in a schedule drawn from `seed`.
///
/// # Panics
/// If an invariant does not hold, or the run does not end.
#[must_use]
pub fn run_peers(toy: &Toy, faults: PeerFaults, seed: u64) -> PeersRun {
    let mut lab = Lab::new(toy, faults, seed);
    for process in 0..lab.processes.len() {
        let at = lab.span(lab.delay);
        lab.after(at, Happening::Input(process, Input::Start));
    }
    lab.run();
    lab.result()
}

impl<'a> Lab<'a> {
    fn new(toy: &'a Toy, faults: PeerFaults, seed: u64) -> Self {
        let mut random = Stream::new(seed).fork("peers", 0).rng();
        let job = &toy.job;
        let (workers, lease) = (job.membership.workers, job.membership.lease);
        let delay = lease / [2000, 200, 60][random.below(3) as usize];
        let compute = lease / [500, 50, 10][random.below(3) as usize];
        let meeting = Meeting::new(job.clone(), seed).expect("a valid job");
        let meeting = match faults {
            PeerFaults::Restarts | PeerFaults::ManyAndRestarts => meeting.with_checkpoints(),
            _ => meeting,
        };
        let model = job.build_model().expect("a valid model");
        let apart = Apart::draw(faults, seed, workers);
        let peer = |worker: u32| {
            let address = match apart.is_hidden(worker as usize + 1) {
                true => String::new(),
                false => format!("{ADDRESS}{worker}"),
            };
            Role::Peer(Box::new(Peer::new(PeerConfig {
                name: format!("lab-{worker}"),
                worker: Some(WorkerId(worker)),
                address,
                lease,
                stream: Stream::new(seed).fork("worker", worker.into()),
            })))
        };
        let roles = [Role::Meeting(Box::new(meeting))].into_iter().chain((0..workers).map(peer));
        let process = |role| Process { role, state: State::Runs, wake: None, ended: None };
        let trainer = |worker: u32| {
            let examples = partition_of(&toy.train, workers, WorkerId(worker));
            let seed = Stream::new(job.seed);
            Trainer::new(model.clone(), examples, seed, WorkerId(worker), job.batch_size)
                .expect("a valid part")
        };
        let initial = job.initial(&model);
        let checker: Box<dyn Checker> = match job.architecture {
            Architecture::AdPsgd => Box::new(Pairs::new(job, &initial)),
            Architecture::DPsgd => Box::new(Mesh::new(job, initial)),
            _ => Box::new(Line::new(job, initial)),
        };
        let mut lab = Self {
            toy,
            now: Time::ZERO,
            agenda: BTreeMap::new(),
            next: 0,
            random,
            delay,
            compute,
            processes: roles.map(process).collect(),
            trainers: (0..workers).map(trainer).collect(),
            links: Vec::new(),
            cuts: BTreeMap::new(),
            checker,
            struck: Vec::new(),
            reasons: Vec::new(),
            duplicates: matches!(faults, PeerFaults::Many | PeerFaults::ManyAndRestarts),
            ambush: None,
            disk: Disk::default(),
            apart,
            initial: None,
            relayed: 0,
            forgot: 0,
        };
        lab.plan(faults);
        lab
    }

    fn span(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.random.below(most.as_nanos() as u64 + 1))
    }

    fn after(&mut self, span: Duration, happening: Happening) {
        self.agenda.insert((self.now + span, self.next), happening);
        self.next += 1;
    }

    fn run(&mut self) {
        let membership = self.toy.job.membership;
        let limit = Time::ZERO + membership.lease * 400 + membership.start_patience();
        let mut at_once = 0;
        let is_there = |it: &Process| !matches!(it.state, State::Gone);
        while self.disk.is_down || self.processes.iter().any(is_there) {
            let Some(((at, _), happening)) = self.agenda.pop_first() else {
                panic!("all wait for nothing: {}", self.outlook(self.now));
            };
            at_once = if at > self.now { 0 } else { at_once + 1 };
            assert!(at_once < MOST_AT_ONCE, "no time passes at {at:?}: {happening:?}");
            assert!(at < limit, "the run does not end: {}", self.outlook(at));
            self.now = at;
            match happening {
                Happening::Wake(process) => self.wake(process),
                Happening::Input(process, input) => self.input(process, input),
                Happening::Arrives(link, end) => self.arrives(link, end),
                Happening::Strikes(fault) => self.strikes(fault),
                Happening::Restarts => self.dies(),
                Happening::Restored(process) => self.restored(process),
                Happening::CheckpointDue => self.checkpoint_due(),
                Happening::Written(process) => self.written(process),
                Happening::GoesOn(process) => self.goes_on(process),
                Happening::DialOver(link) => self.dial_over(link),
            }
        }
    }

    /// A description of a run that does not end.
    fn outlook(&mut self, at: Time) -> String {
        let status = self.processes[MEETING].outlook(at);
        let last = &self.reasons[self.reasons.len().saturating_sub(5)..];
        format!("{status:#?}\nafter {:?}, groups were formed again: {last:#?}", self.struck)
    }

    fn wake(&mut self, process: usize) {
        let it = &mut self.processes[process];
        if it.wake != Some(self.now) {
            return;
        }
        it.wake = None;
        let is_due = it.role.node().deadline().is_some_and(|at| at <= self.now);
        match (&it.state, is_due) {
            (State::Runs, true) => self.input(process, Input::Wake),
            _ => self.plan_wake(process),
        }
    }

    fn plan_wake(&mut self, process: usize) {
        let it = &mut self.processes[process];
        if let Some(at) = it.role.node().deadline()
            && matches!(it.state, State::Runs)
            && it.wake.is_none_or(|wake| at < wake)
        {
            let at = at.max(self.now);
            it.wake = Some(at);
            self.after(at.since(self.now), Happening::Wake(process));
        }
    }

    fn input(&mut self, process: usize, input: Input) {
        let it = &mut self.processes[process];
        match &mut it.state {
            State::Gone => return,
            State::Stopped(_, waiting) => return waiting.push(input),
            State::Runs => {}
        }
        let mut out = Outbox::new();
        it.role.node().handle(self.now, input, &mut out);
        for effect in out {
            self.obey(process, effect);
        }
        self.plan_wake(process);
    }

    fn obey(&mut self, process: usize, effect: Effect) {
        match effect {
            Effect::Dial(target) => {
                let target = match target {
                    Target::Server => MEETING,
                    Target::Address(address) | Target::Worker(address) => {
                        let worker = address.strip_prefix(ADDRESS).expect("an address of the lab");
                        worker.parse::<usize>().expect("a worker") + 1
                    }
                };
                self.dial(process, target);
            }
            Effect::Send(peer, message) => {
                self.observe(process, peer, &message);
                self.send(process, peer, message);
            }
            Effect::Close(peer) => self.close(process, peer),
            Effect::Done(result) => {
                self.processes[process].ended = Some(result);
                self.end(process);
            }
            Effect::Prepare(order) => {
                let rows = order.parts().into_iter().map(|part| {
                    partition_of(&self.toy.train, self.toy.job.parts(), part).len() as u64
                });
                let (rows, train) = (rows.collect(), Some(self.toy.job.data.train.clone()));
                let initial = self.initial_of(process);
                let prepared = Prepared { rows, train, keys: None, initial };
                let span = self.span(self.compute);
                self.after(span, Happening::Input(process, Input::Prepared(Ok(prepared))));
            }
            Effect::Compute(order) => self.computes(process, &order),
            Effect::EvaluateHere(order) => {
                let unable = Err(String::from("the lab evaluates nothing"));
                self.after(
                    self.delay,
                    Happening::Input(process, Input::EvaluatedHere(order.ticket, unable)),
                );
            }
            Effect::Checkpoint(checkpoint) => self.takes(*checkpoint),
            Effect::Write => self.writes(),
            Effect::Report(Event::Initialised { values, .. }) => {
                self.initial = Some(values.to_vec());
                self.checker.begins_with(values.to_vec());
            }
            Effect::Report(Event::Forgot { .. }) => self.forgot += 1,
            Effect::Report(Event::Regrouped { why, .. }) => self.reasons.push((self.now, why)),
            Effect::Evaluate(order) => {
                self.checker.evaluates(order.point.version, &order.parameters);
                self.does_not_evaluate(order.point.version);
            }
            _ => {}
        }
    }

    fn does_not_evaluate(&mut self, version: Version) {
        let why = String::from("the lab evaluates nothing");
        let refusal = Input::Unevaluated { version, why };
        self.after(self.delay, Happening::Input(MEETING, refusal));
    }

    /// The initial parameters of a worker, if a worker gives them: each has others.
    fn initial_of(&self, process: usize) -> Option<Arc<Vec<f32>>> {
        let job = &self.toy.job;
        if job.initial != InitialFrom::Worker {
            return None;
        }
        let mut initial = job.initial(&job.build_model().expect("a valid model"));
        initial.iter_mut().for_each(|value| *value += 0.01 * process as f32);
        Some(Arc::new(initial))
    }

    /// Shows the checker what a node sends.
    fn observe(&mut self, process: usize, peer: PeerId, message: &Message) {
        let to = self.other_end(process, peer).filter(|to| *to != MEETING);
        self.shows(process, to, message);
    }

    fn shows(&mut self, process: usize, to: Option<usize>, message: &Message) {
        match message {
            Message::Relayed(_) if process == MEETING => {} // its sender was observed
            // Initial parameters: the meeting point reports them.
            Message::Snapshot(it) if process == MEETING || it.version == FIRST => {}
            Message::Relayed(it) => {
                self.relayed += 1;
                let to = it.other.0 as usize + 1;
                self.shows(process, Some(to), &it.message.clone().into());
            }
            _ if process != MEETING && self.toy.job.architecture.is_asynchronous() => {
                self.checker.tells(process - 1, to.map(|to| to - 1), message);
            }
            Message::Ranks(ranks) => self.checker.forms(ranks),
            Message::Snapshot(it) if it.version == LAST => {
                self.checker.shows_last(process - 1, &it.values);
            }
            Message::Snapshot(it) => {
                self.checker.sees(self.now, process - 1, it.version, &it.values);
            }
            Message::Missed(_) => self.checker.missed(),
            // The models of the lab are of one piece.
            Message::Piece(it) if self.toy.job.architecture.is_gossip() => {
                self.checker.sees(self.now, process - 1, it.header.version, &it.values);
            }
            _ => {}
        }
    }

    fn computes(&mut self, process: usize, order: &Compute) {
        let worker = process - 1;
        let version = order.ticket.base;
        let is_first = self.checker.sees(self.now, worker, version, &order.parameters);
        if is_first && let Some(fault) = self.ambush.take_if(|(at, _)| *at == version.0) {
            self.strikes(Fault { process, ..fault.1 });
        }
        let mut gradient = Vec::new();
        let computed = self.trainers[worker].compute(order.task, &order.parameters, &mut gradient);
        let computed = computed.expect("a task of this worker");
        self.checker.computes(worker, order, &gradient, computed.samples);
        let took = self.span(self.compute);
        if order.by_range {
            self.finish_ranges(process, (order.ticket, computed.samples), &gradient, took);
        }
        let computed = Computed {
            ticket: order.ticket,
            gradient,
            loss: computed.loss,
            samples: computed.samples,
            took,
        };
        self.after(took, Happening::Input(process, Input::Computed(computed)));
    }

    /// Lets some ranges of a gradient, which takes so long, be final before the rest.
    fn finish_ranges(
        &mut self,
        process: usize,
        (ticket, samples): (Ticket, u32),
        gradient: &[f32],
        took: Duration,
    ) {
        let (mut end, mut at) = (gradient.len() as u64, Duration::ZERO);
        while end > 1 && self.random.below(4) > 0 {
            let begin = 1 + self.random.below(end - 1);
            let Ok(keys) = KeyRange::new(begin, end) else { return };
            at += (took - at).mul_f64(self.random.unit());
            let values = gradient[keys.indices()].to_vec();
            let range = ComputedRange { ticket, keys, values, samples };
            self.after(at, Happening::Input(process, Input::ComputedRange(range)));
            end = begin;
        }
    }

    fn result(mut self) -> PeersRun {
        let mut processes = self.processes.into_iter();
        let meeting = processes.next().expect("a meeting point");
        let Role::Meeting(node) = meeting.role else { panic!("it is the first process") };
        let reason = meeting.ended.expect("it has ended").expect("it ends with a reason");
        let trained = node.trained();
        let parameters = trained.parameters.expect("it has parameters");
        let version = trained.point.version;
        // Without an update it may not have had the initial parameters of a worker.
        let is_new = version == Version(0) && self.toy.job.initial == InitialFrom::Worker;
        if reason == EndReason::BudgetReached || !is_new {
            self.checker.ends(version, &parameters);
        }
        if reason == EndReason::BudgetReached {
            self.checker.used_up(&parameters);
        }
        PeersRun {
            reason,
            version: version.0,
            parameters: parameters.to_vec(),
            groups: self.checker.groups(),
            reasons: self.reasons,
            relayed: self.relayed,
            forgot: self.forgot,
            missed: self.checker.missed_updates(),
            partial: self.checker.partial(),
            dropped: self.checker.dropped(),
            longest: self.checker.longest(),
            workers: processes.map(|process| process.ended).collect(),
            faults: self.struck,
            restarts: self.disk.resumed,
            pace: (self.delay * 2, self.compute),
        }
    }

    fn beat(&self) -> Duration {
        heartbeat(self.toy.job.membership.lease)
    }
}
