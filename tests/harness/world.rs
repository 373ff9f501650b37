//! A small, hostile world in virtual time: the real server and real workers over links that delay
//! and break, on machines that are slow and die. Everything is drawn from the settings' seed, so a
//! run can be repeated exactly; the checkers observe it. Use it to test the server in random
//! schedules.
//!
//! `pstrain_transports::simulation` drives the same nodes, and [`crate::trial_of`] draws its fault
//! schedules. This world has what a simulator of training must not have: simultaneous events come
//! in random order, wake-ups are late, and a connection may break in one direction or without
//! notice. Unauthenticated connections and invalid bytes come, gradients are not finite, data
//! differ from the job's or cannot be read, nodes are drained, and processes without a worker id of
//! their own compete for one.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod checkpoints;
mod crashes;
mod evaluations;
mod links;
mod processes;
mod settings;
mod shards;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PartId, PeerId, Version, WorkerId};
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use pstrain_policy::job::InitialFrom;
use pstrain_roles::node::{
    Checkpoint, DialFault, Effect, Event, Input, Ledger, Node, NodeError, Outbox, STOP, Server,
    Worker,
};
use pstrain_wire::Message;
use pstrain_wire::client::Controlled;
use pstrain_wire::identity::Identity;
use pstrain_wire::range::{RangeOf, RangePart};
use pstrain_wire::worker::{EndReason, ExampleRows, ExamplesChunk};

use crate::checkers::Checker;
use crate::toy::{initial_of, partition_of, working_sets};
use checkpoints::Disk;
use crashes::Kept;
use evaluations::comparable;
use links::{End, Item, Link};
pub use settings::{Fault, Faults, Settings};
use shards::ShardProcess;

/// Result of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Aftermath {
    /// Why the run ended.
    pub reason: EndReason,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The final ledger of mini-batches.
    pub ledger: Ledger,
    /// The server's events, with their times.
    pub events: Vec<(Time, Event)>,
    /// How each worker process ended; `None` if it died.
    pub workers: Vec<Option<Result<EndReason, NodeError>>>,
    /// True if all workers were present at the start and none joined or departed before the end.
    pub membership_was_fixed: bool,
    /// Crashes of servers, each followed by a restart.
    pub crashes: u64,
    /// Number of times that the state of a server was saved.
    pub saves: u64,
    /// Longest time without an update although enough workers were present.
    pub longest_stall: Duration,
}

/// Runs a world with these settings.
///
/// # Panics
/// If a checker finds a fault, or the run does not end after the faults have stopped.
#[must_use]
pub fn let_happen(settings: &Settings) -> Aftermath {
    let mut world = World::new(settings);
    world.begin();
    while !world.is_over() {
        world.next();
    }
    world.aftermath()
}

/// Effects of the server, sorted for the checkers.
#[derive(Debug, Default)]
struct Obeyed {
    events: Vec<Event>,
    /// Results of orders.
    answers: Vec<(PeerId, Controlled)>,
    closed: Vec<PeerId>,
    pulled: Vec<RangeOf>,
    taken: Option<Checkpoint>,
    writes: bool,
    goes_back: bool,
}

/// Returns the checker of a world with these settings.
fn checker_of(settings: &Settings, server: &Server) -> Checker {
    let parts = settings.job.parts();
    let rows = |part| partition_of(&settings.train, parts, part).len() as u64;
    let rows = (0..parts).map(PartId).map(rows).collect();
    Checker::new(server, settings.late + settings.grain, rows)
        .of_working_sets(working_sets(&settings.job, &settings.train))
}

#[derive(Debug)]
struct World<'a> {
    settings: &'a Settings,
    rng: Random,
    now: Time,
    agenda: BinaryHeap<Reverse<(Time, u64, u64)>>,
    entries: BTreeMap<u64, Entry>,
    count: u64,
    server: Server,
    server_wake: Option<Time>,
    /// The server's last saved state and its inputs since, if a crash loses the memory only.
    kept: Kept,
    /// The server's disk, if only checkpoints are kept.
    disk: Disk,
    /// Crashes of servers so far.
    crashed: u64,
    reason: Option<EndReason>,
    /// Reasons that workers were told in place of the one that the run ended with.
    told: Vec<EndReason>,
    processes: Vec<Process>,
    /// The servers that do not coordinate, from server 2 on.
    shards: Vec<ShardProcess>,
    links: Vec<Link>,
    checker: Checker,
    events: Vec<(Time, Event)>,
    /// Statistics of the parameters of each version that were to be evaluated.
    to_evaluate: BTreeMap<Version, Evaluation>,
    calm: bool,
    faults_left: u64,
}

/// A worker process.
#[derive(Debug)]
struct Process {
    node: Worker,
    wake: Option<Time>,
    speed: Duration,
    /// The number of its next gradients that are not finite.
    bad: u32,
    /// When it begins the last order (to compute or to load), and until when it is busy with it.
    begins: Time,
    busy_until: Time,
    runs: bool,
    /// The run that it last computed for.
    run: u64,
    result: Option<Result<EndReason, NodeError>>,
}

#[derive(Debug)]
enum Entry {
    WakeServer,
    Wake(usize),
    ToServer(Input),
    To(usize, Input),
    Arrive(usize, End),
    Learn(usize, End),
    /// A checkpoint of the coordinator, or of a shard, is on its disk; the last number is the
    /// generation of the process that wrote it.
    Written(u64),
    ShardWritten(usize, u64),
    /// A worker dials the coordinator, or a shard.
    Dialled(usize, Option<usize>),
    /// A shard dials, in a generation of its process.
    ShardDialled(usize, u64),
    WakeShard(usize),
    Spawn(Option<WorkerId>),
    Fault,
    Calm,
}

impl<'a> World<'a> {
    fn new(settings: &'a Settings) -> Self {
        let mut server = Server::new(settings.job.clone(), 1).expect("a valid job");
        if settings.forgets {
            server = server.with_checkpoints();
        }
        Self {
            rng: Stream::new(settings.network).fork("world", 0).rng(),
            now: Time::ZERO,
            agenda: BinaryHeap::new(),
            entries: BTreeMap::new(),
            count: 0,
            checker: checker_of(settings, &server),
            server,
            server_wake: None,
            kept: Kept::default(),
            disk: Disk::default(),
            crashed: 0,
            reason: None,
            told: Vec::new(),
            processes: Vec::new(),
            shards: Vec::new(),
            links: Vec::new(),
            events: Vec::new(),
            to_evaluate: BTreeMap::new(),
            calm: false,
            faults_left: settings.faults.most,
            settings,
        }
    }

    /// Hands in the initial parameters, if the server's driver has them.
    fn hand_in_initial(&mut self) {
        let job = &self.settings.job;
        let given = initial_of(job).filter(|_| job.initial == InitialFrom::Server);
        for part in given.iter().flat_map(|values| RangePart::all(values)) {
            self.server_input(Input::Initial(Message::RangePart(part)), None);
        }
    }

    fn begin(&mut self) {
        self.server_input(Input::Start, None);
        self.hand_in_initial();
        self.begin_shards();
        for worker in 0..self.settings.job.membership.workers {
            let wish = self.settings.wishes.then_some(WorkerId(worker));
            let at = self.span(self.settings.starts);
            self.after(at, Entry::Spawn(wish));
        }
        self.after(self.settings.calm_at, Entry::Calm);
        self.next_fault();
    }

    fn is_over(&self) -> bool {
        self.reason.is_some() && self.calm && self.processes.iter().all(|process| !process.runs)
    }

    fn aftermath(self) -> Aftermath {
        let reason = self.reason.expect("it is over");
        assert!(self.told.iter().all(|told| *told == reason), "told {:?}: {reason}", self.told);
        Aftermath {
            reason,
            parameters: self.server.parameters().to_vec(),
            ledger: self.server.ledger(),
            events: self.events,
            workers: self.processes.into_iter().map(|process| process.result).collect(),
            crashes: self.crashed,
            saves: self.kept.saves,
            membership_was_fixed: self.checker.membership_was_fixed(),
            longest_stall: self.checker.longest_stall,
        }
    }

    /// Draws a span up to `most`, a whole number of grains.
    fn span(&mut self, most: Duration) -> Duration {
        let grain = self.settings.grain.as_nanos() as u64;
        Duration::from_nanos(self.rng.below(most.as_nanos() as u64 / grain + 1) * grain)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.rng.below(100) < chance
    }

    /// Puts an entry on the agenda. Entries for the same time come in random order.
    fn after(&mut self, span: Duration, entry: Entry) {
        let tie = self.rng.bits();
        self.agenda.push(Reverse((self.now + span, tie, self.count)));
        self.entries.insert(self.count, entry);
        self.count += 1;
    }

    fn next(&mut self) {
        let Some(Reverse((at, _, number))) = self.agenda.pop() else {
            panic!("nothing is under way any more, but the run is not over");
        };
        self.now = at;
        let lease = self.settings.job.membership.lease;
        let longest = lease * 200 + self.settings.longest_compute() * 2000;
        assert!(at <= Time::ZERO + self.settings.calm_at + longest, "it never ends");
        match self.entries.remove(&number).expect("an entry") {
            Entry::WakeServer => {
                self.server_wake = self.server_wake.filter(|wake| *wake != at);
                self.wake_server();
            }
            Entry::Wake(process) => {
                let wake = &mut self.processes[process].wake;
                *wake = wake.filter(|wake| *wake != at);
                self.wake(process);
            }
            Entry::ToServer(input) => self.server_input(input, None),
            Entry::To(process, input) => self.worker_input(process, input),
            Entry::Arrive(link, end) => {
                if let Some(item) = self.links[link].arrive(end, at) {
                    self.arrived(link, end, item);
                }
            }
            Entry::Learn(link, end) => {
                if self.links[link].close(end, at) {
                    self.disconnected(link, end, "connection reset");
                }
            }
            Entry::Dialled(process, callee) => self.dialled(process, callee),
            Entry::ShardDialled(shard, life) => self.shard_dialled(shard, life),
            Entry::Written(life) => self.written(life),
            Entry::ShardWritten(shard, life) => self.shard_written(shard, life),
            Entry::WakeShard(shard) => self.wake_shard(shard, at),
            Entry::Spawn(wish) => self.spawn(wish),
            Entry::Fault => self.fault(),
            Entry::Calm => self.calm_down(),
        }
    }

    fn arrived(&mut self, link: usize, end: End, item: Item) {
        let peer = PeerId(link as u64);
        let is_client = end == End::Worker && self.links[link].process.is_none();
        if is_client && self.links[link].shard.is_none() && matches!(item, Item::Message(_)) {
            return;
        }
        let input = match item {
            Item::Open if end == End::Worker => Input::Dialled(peer, Identity::Anyone),
            Item::Open => Input::Connected(peer, Identity::Anyone),
            Item::Message(message) => Input::Message(peer, message),
            Item::Hangup => {
                if self.links[link].close(end, self.now) {
                    self.disconnected(link, end, "closed by the other side");
                }
                return;
            }
        };
        if let Some(shard) = self.shard_at(link, end) {
            return self.shard_input(shard, input);
        }
        match (end, self.links[link].process) {
            (End::Server, _) => self.server_input(input, Some(peer)),
            (End::Worker, Some(process)) => self.worker_input(process, input),
            (End::Worker, None) => {}
        }
    }

    fn disconnected(&mut self, link: usize, end: End, why: &str) {
        let peer = PeerId(link as u64);
        let known = self.links[link].is_known(end);
        let input = Input::Disconnected { peer, why: why.into() };
        if let Some(shard) = self.shard_at(link, end) {
            match (known, end) {
                (true, _) => self.shard_input(shard, input),
                (false, End::Worker) => self.shard_dial_failed(shard, why),
                (false, End::Server) => {}
            }
            return;
        }
        match (end, self.links[link].process) {
            (End::Server, _) if known => {
                self.checker.closed(peer);
                self.checker.hung_up(peer);
                self.server_input(input, None);
            }
            (End::Worker, Some(process)) if known => self.worker_input(process, input),
            (End::Worker, Some(process)) => {
                let input = Input::DialFailed { why: why.into(), fault: DialFault::Temporary };
                self.worker_input(process, input);
            }
            _ => {}
        }
    }

    fn send(&mut self, link: usize, to: End, item: Item) {
        let mut delay = self.span(self.settings.delay);
        if !self.calm && self.rng.below(1000) < self.settings.spikes {
            delay += self.span(self.settings.job.membership.lease * 3 / 2);
        }
        if let Some(at) = self.links[link].send(to, item, self.now + delay) {
            self.after(at - self.now, Entry::Arrive(link, to));
        }
    }

    fn close(&mut self, link: usize, end: End) {
        if self.links[link].close(end, self.now) {
            self.send(link, end.other(), Item::Hangup);
        }
    }

    /// Hands an input to the server and carries out its effects.
    fn server_input(&mut self, input: Input, from: Option<PeerId>) {
        if self.reason.is_some() {
            return;
        }
        match &input {
            Input::Message(peer, Message::Control(control)) => self.checker.asked(*peer, control),
            Input::Message(peer, Message::PullRange(_)) => self.checker.pulls(*peer),
            Input::Connected(peer, _) => self.checker.connected(self.now, *peer),
            Input::Message(peer, _) | Input::Receiving(peer) => self.checker.heard(self.now, *peer),
            _ => {}
        }
        let stops =
            matches!(&input, Input::Message(_, Message::Control(order)) if order.key == STOP);
        let mut out = Outbox::new();
        self.keep(&input);
        self.server.handle(self.now, input, &mut out);
        // A stop is no part of what is kept.
        let pauses = out.iter().any(|effect| matches!(effect, Effect::Pause));
        let before = pauses.then(|| (self.checker.clone().undrained(), self.events.len()));
        let agrees =
            |effect: &Effect| matches!(effect, Effect::Send(_, Message::Controlled(Ok(_))));
        if stops && out.iter().any(agrees) {
            self.checker.drained();
        }
        let crashes = self.crashes();
        if crashes && self.percent(50) {
            // The input is on the disk, but its messages are never sent.
            out.retain(|effect| {
                !matches!(
                    effect,
                    Effect::Send(..) | Effect::SendExamples { .. } | Effect::SendStatus { .. }
                )
            });
        }
        let Obeyed { events, answers, closed, pulled, taken, writes, goes_back } = self.obey(out);
        if goes_back {
            return self.server_goes_back();
        }
        self.checker.step(self.now, &self.server, &events, from);
        pulled.iter().for_each(|answer| self.checker.pulled(answer));
        self.check_evaluations(&events);
        for (peer, result) in answers {
            self.checker.answered(&events, peer, &result);
        }
        closed.into_iter().for_each(|peer| self.checker.hung_up(peer));
        self.checker.check_askers();
        self.events.extend(events.into_iter().map(|event| (self.now, comparable(event))));
        if let Some(checkpoint) = taken {
            let seen = before.unwrap_or_else(|| (self.checker.clone(), self.events.len()));
            self.take_checkpoint(checkpoint, seen);
        }
        if writes {
            self.write_checkpoint();
        }
        self.save();
        if let Some(reason) = self.reason {
            self.checker.finish(&self.server, reason);
            (0..self.links.len()).for_each(|link| self.close(link, End::Server));
        } else if crashes {
            self.restart_cohort();
        } else if self.settings.forgets {
            self.order_checkpoint();
        }
        self.plan_server_wake();
    }

    /// Carries out the server's effects and returns the ones for the checkers.
    fn obey(&mut self, out: Outbox) -> Obeyed {
        let mut obeyed = Obeyed::default();
        for effect in out {
            match effect {
                Effect::Report(event) => obeyed.events.push(event),
                Effect::Send(peer, message) => {
                    if let Message::RangeOf(answer) = &message {
                        obeyed.pulled.push(answer.clone());
                    }
                    if let Message::Controlled(result) = &message {
                        obeyed.answers.push((peer, result.clone()));
                    }
                    self.send(peer.0 as usize, End::Worker, Item::Message(message));
                }
                Effect::Close(peer) => {
                    self.close(peer.0 as usize, End::Server);
                    self.checker.closed(peer);
                    obeyed.closed.push(peer);
                }
                Effect::SendExamples { peer, part, from } => {
                    let chunk = Message::Examples(self.chunk(part, from));
                    self.send(peer.0 as usize, End::Worker, Item::Message(chunk));
                }
                Effect::SendStatus { peer, status, .. } => {
                    let message = Message::Status(status);
                    self.send(peer.0 as usize, End::Worker, Item::Message(message));
                }
                Effect::Evaluate(order) => {
                    self.checker.evaluate();
                    self.evaluate(&order);
                }
                Effect::Checkpoint(checkpoint) => obeyed.taken = Some(*checkpoint),
                Effect::Write => obeyed.writes = true,
                Effect::Done(Err(NodeError::GoesBack(_))) if self.settings.forgets => {
                    obeyed.goes_back = true;
                }
                Effect::Done(result) => self.reason = Some(result.expect("servers do not fail")),
                Effect::Limit(..) | Effect::Recycle(_) | Effect::Pause => {}
                effect => panic!("no server asks for {effect:?}"),
            }
        }
        obeyed
    }

    fn chunk(&self, part: PartId, from: u64) -> ExamplesChunk {
        let parts = self.settings.job.parts();
        let examples = partition_of(&self.settings.train, parts, part);
        let total = examples.len();
        let mut packed = Vec::new();
        examples.pack(from as usize..total.min(from as usize + 7), &mut packed);
        ExamplesChunk { rows: ExampleRows { from, total: total as u64 }, packed }
    }

    fn plan_server_wake(&mut self) {
        let Some(at) = self.server.deadline() else { return };
        let may_be_late = self.server_wake.is_some() || self.settings.forgets;
        assert!(at > self.now || may_be_late, "the server wakes for ever");
        if self.server_wake.is_none_or(|wake| wake > at + self.settings.late) {
            let late = self.span(self.settings.late);
            // A restarted server may have missed the time.
            let wake = (at + late).max(self.now);
            self.server_wake = Some(wake);
            self.after(wake - self.now, Entry::WakeServer);
        }
    }

    fn wake_server(&mut self) {
        if self.server.deadline().is_some_and(|at| at <= self.now) {
            let before = self.crashed;
            self.server_input(Input::Wake, None);
            // A restarted server may have been overdue when it was saved.
            let is_due = self.server.deadline().is_some_and(|at| at <= self.now);
            assert!(!is_due || self.crashed > before, "woken for nothing");
        }
        self.plan_server_wake();
    }

    fn wake(&mut self, process: usize) {
        if self.processes[process].node.deadline().is_some_and(|at| at <= self.now) {
            self.worker_input(process, Input::Wake);
        }
        self.plan_wake(process);
    }

    fn plan_wake(&mut self, process: usize) {
        let late = self.span(self.settings.late);
        let Process { node, wake, runs, .. } = &mut self.processes[process];
        let Some(at) = node.deadline().filter(|_| *runs) else { return };
        let at = at.max(self.now); // a deferred wake-up may be overdue
        if wake.is_none_or(|wake| wake > at + self.settings.late) {
            *wake = Some(at + late);
            self.after((at + late) - self.now, Entry::Wake(process));
        }
    }
}
