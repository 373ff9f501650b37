//! Servers, their standbys and workers in one random schedule: processes are killed or stopped,
//! machines are cut off from one another, and somebody starts a new standby after a while.
//!
//! What must hold whatever happens: a version of the parameters is the same to everybody who ever
//! sees it, and what a push has become is the same whoever says it. Two servers that lead at a time
//! could not keep that up for long.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod crashes;
mod machines;
mod moves;
mod watching;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{Incarnation, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::{
    Compute, Computed, Effect, Evaluate, Evaluated, Input, Ledger, Node, Outbox, Prepared, Replica,
    ReplicaConfig, Replicate, Target, Worker, WorkerConfig,
};
use pstrain_wire::Message;
use pstrain_wire::worker::{EndReason, Heartbeat};

use crate::toy::{Toy, parts_of};
use crashes::Disk;
use machines::{Item, Link, Return};

/// What may befall the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbances {
    /// Nothing, and there is no standby either.
    None,
    /// Nothing, with standbys.
    Calm,
    /// All there is, as long as no more than one of the two servers is concerned at a time.
    One,
    /// The two lose each other, and one of them dies while it asks the workers to follow it: before
    /// so many of them have promised.
    Ambush(Rank, u32),
    /// The two lose each other, and the one that leads binds the workers; then the other is back,
    /// and it dies before that hears of it.
    Return,
    /// Servers keep a log, and crash and begin anew: one of the two, or both at a time.
    Crashes,
    /// They keep a log, and the standby of the last crashes and is back at once.
    Blinks,
    /// There is no standby, and the last server is cut off from all others for some leases.
    Away,
}

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The one that leads.
    Primary,
    /// The one that stands by.
    Standby,
}

/// How a schedule went.
#[derive(Debug)]
pub struct Replicated {
    /// How the run ended, by whoever led then.
    pub reason: Option<EndReason>,
    /// The parameters there.
    pub parameters: Vec<f32>,
    /// The version they are.
    pub version: Version,
    /// What became of the mini-batches.
    pub ledger: Ledger,
    /// How often a standby took over.
    pub takeovers: u64,
    /// Requests of standbys to be followed.
    pub asked: u64,
    /// How often a primary went on without its standby.
    pub alone: u64,
    /// How often a server heard that it leads no more.
    pub deposed: u64,
    /// Workers that were given up.
    pub departed: u64,
    /// What of gradients went to standbys.
    pub replicate: Replicate,
    /// Pushes that a standby was sent without their values.
    pub bare: u64,
    /// Gradients that a standby was sent, combined or as they came.
    pub replicated: u64,
    /// Servers that died when workers were bound to them and the standby was back.
    pub returns: u64,
    /// How often a server came or went, by whoever led then.
    pub moves: u64,
    /// The servers that another took the place of.
    pub replaced: Vec<Replaced>,
}

/// A server that led until something befell it, and that another took the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The way in which it was replaced.
    pub fate: PushOutcome,
    /// Whether it coordinated.
    pub coordinated: bool,
    /// The time from that until another led.
    pub led: Duration,
    /// The time from that until there was an update again; none if there was none.
    pub updated: Option<Duration>,
    /// The way to another process takes as long as this, or up to twice as long.
    pub delay: Duration,
}

/// The fault that hits a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// Its process is killed.
    Killed,
    /// Its process is stopped.
    Stopped,
    /// Its machine is cut off from all others.
    CutOff,
}

/// A process: a replica of the server, or a worker.
#[derive(Debug)]
struct Process {
    node: Box<Machine>,
    /// The machine it runs on: two that are cut off cannot reach one another.
    runs: bool,
    /// Until when it is stopped, with what came meanwhile.
    stopped: Option<(Time, Vec<(usize, Input)>)>,
    /// When it is woken.
    wakes: BTreeSet<Time>,
    disk: Disk,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each is in a box of its own")]
enum Machine {
    /// One of `server`, which dials `address` if it stands by, and the coordinator.
    Replica {
        node: Replica,
        server: u32,
        address: String,
        coordinator: String,
        paired: bool,
    },
    Worker(Worker),
}

impl Machine {
    fn node(&mut self) -> &mut dyn Node {
        match self {
            Self::Replica { node, .. } => node,
            Self::Worker(node) => node,
        }
    }
}

#[derive(Debug)]
enum Happening {
    /// An input of a process's own.
    To(usize, Input),
    /// Something on a link arrives at one of its ends.
    Arrives {
        link: usize,
        at_callee: bool,
    },
    Dialled {
        by: usize,
        address: String,
    },
    Wake(usize),
    Disturb,
    CutOff,
    Heal,
    GoOn(usize),
    NewStandby,
    Resume(usize),
    Join,
    Leave,
}

/// The whole of it.
#[derive(Debug)]
struct Lab {
    toy: Toy,
    rng: Random,
    now: Time,
    order: u64,
    agenda: BinaryHeap<(std::cmp::Reverse<(Time, u64)>, u64)>,
    happenings: BTreeMap<u64, Happening>,
    processes: Vec<Process>,
    links: Vec<Link>,
    /// Pairs of processes that cannot reach one another now.
    cut: Vec<(usize, usize)>,
    calm: bool,
    disturbed: bool,
    /// Until when the two get over what befell them: what befalls both at a time may end the run.
    settles_until: Time,
    delay: Duration,
    compute: Vec<Duration>,
    seen: BTreeMap<(Version, KeyRange), Vec<f32>>,
    decided: BTreeMap<(WorkerId, Incarnation, Sequence), bool>,
    /// Who dies, and the promises it has until then; once, and only if it asks.
    ambush: Option<(Rank, u32)>,
    /// The server that dies once its standby is back.
    returns: Option<Return>,
    /// The server that something befell last while it led.
    fallen: Option<Fallen>,
    /// Whether servers keep a log.
    durable: bool,
    /// Whether no more than a standby crashes, and is back at once.
    blinks: bool,
    /// How many servers there have been.
    servers: u32,
    /// Whether whoever led has seen the end.
    over: bool,
    /// Those that have keys, as they are numbered here, and were not told to go.
    holders: BTreeSet<u32>,
    result: Replicated,
    seed: u64,
}

/// A server that something befell while it led.
#[derive(Clone, Copy, Debug)]
struct Fallen {
    server: u32,
    fate: PushOutcome,
    at: Time,
    /// Whether another leads.
    replaced: bool,
}

const SERVERS: &str = "replica ";

/// Runs the job of `toy` in the schedule that `seed` draws.
///
/// # Panics
/// If an invariant does not hold, or the run does not end.
#[must_use]
pub fn run_replicated(toy: &Toy, disturbances: Disturbances, seed: u64) -> Replicated {
    Lab::new(toy.clone(), seed).go(disturbances, false)
}

/// The same, while servers join and leave.
///
/// # Panics
/// As [`run_replicated`].
#[must_use]
pub fn run_moving(toy: &Toy, disturbances: Disturbances, seed: u64) -> Replicated {
    Lab::new(toy.clone(), seed).go(disturbances, true)
}

impl Lab {
    fn new(toy: Toy, seed: u64) -> Self {
        let mut rng = Stream::new(seed).fork("replicas", 0).rng();
        let delay = Duration::from_micros([50, 1000, 20_000][rng.below(3) as usize]);
        let replicate = match Stream::new(seed).fork("replicate", 0).rng().below(2) {
            0 => Replicate::Pushes,
            _ => Replicate::Updates,
        };
        let workers = toy.job.membership.workers;
        let compute = (0..workers).map(|_| Duration::from_micros(100 + rng.below(30_000)));
        let compute = compute.collect();
        Self {
            rng,
            now: Time::ZERO,
            order: 0,
            agenda: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            processes: Vec::new(),
            links: Vec::new(),
            cut: Vec::new(),
            calm: false,
            disturbed: false,
            settles_until: Time::ZERO,
            delay,
            compute,
            seen: BTreeMap::new(),
            decided: BTreeMap::new(),
            ambush: None,
            returns: None,
            fallen: None,
            durable: false,
            blinks: false,
            servers: toy.job.servers,
            over: false,
            holders: BTreeSet::new(),
            toy,
            result: Replicated {
                reason: None,
                parameters: Vec::new(),
                version: Version(0),
                ledger: Ledger::default(),
                takeovers: 0,
                asked: 0,
                alone: 0,
                deposed: 0,
                departed: 0,
                replicate,
                bare: 0,
                replicated: 0,
                returns: 0,
                moves: 0,
                replaced: Vec::new(),
            },
            seed,
        }
    }

    fn go(mut self, disturbances: Disturbances, moves: bool) -> Replicated {
        let (servers, workers) = (self.job().servers, self.job().membership.workers);
        for server in 0..servers {
            self.spawn_server(server, String::new());
        }
        if moves {
            self.begin_moves();
        }
        if disturbances == Disturbances::Away {
            let first = self.span(self.job().membership.lease);
            self.after(first, Happening::CutOff);
        } else if disturbances != Disturbances::None {
            self.after(Duration::from_millis(1), Happening::NewStandby);
            let every = self.job().membership.lease * 2;
            // Whoever has never met the first server knows of no standby.
            let later = moves || disturbances == Disturbances::Return;
            let first = self.span(every) + every * (2 * (servers - 1) + u32::from(later));
            if disturbances != Disturbances::Calm {
                self.after(first, Happening::Disturb);
            }
            self.disturbed = true;
        }
        if let Disturbances::Ambush(rank, promises) = disturbances {
            self.ambush = Some((rank, promises));
        }
        if disturbances == Disturbances::Return {
            self.returns = Some(Return { victim: None, binds: false });
        }
        self.blinks = disturbances == Disturbances::Blinks;
        self.durable = self.blinks || disturbances == Disturbances::Crashes;
        (0..workers).for_each(|worker| self.spawn_worker(worker));
        self.run();
        self.result
    }

    fn job(&self) -> &Job {
        &self.toy.job
    }

    fn span(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.unit())
    }

    fn after(&mut self, span: Duration, happening: Happening) {
        self.order += 1;
        self.happenings.insert(self.order, happening);
        self.agenda.push((std::cmp::Reverse((self.now + span, self.order)), self.order));
    }

    fn stream(&self, process: usize) -> Stream {
        Stream::new(self.seed).fork("process", process as u64)
    }

    fn replica(&self, process: usize) -> ReplicaConfig {
        ReplicaConfig {
            id: 1000 + process as u64,
            address: format!("{SERVERS}{process}"),
            leader: String::new(),
            stream: self.stream(process),
            replicate: self.result.replicate,
        }
    }

    fn spawn(&mut self, node: Machine) -> usize {
        let process = self.processes.len();
        self.processes.push(Process {
            node: Box::new(node),
            runs: true,
            stopped: None,
            wakes: BTreeSet::new(),
            disk: Disk::default(),
        });
        self.after(Duration::ZERO, Happening::To(process, Input::Start));
        process
    }

    /// Starts a server that leads, or one that stands by for that at `address`.
    fn spawn_server(&mut self, server: u32, address: String) {
        let coordinator = self.coordinator();
        let node = self.begins(self.processes.len(), server, [&address, &coordinator]);
        self.spawn(Machine::Replica { node, server, address, coordinator, paired: false });
    }

    fn spawn_worker(&mut self, worker: u32) {
        let config = WorkerConfig {
            name: format!("worker {worker}"),
            worker: Some(WorkerId(worker)),
            wants_examples: false,
            lease: self.job().membership.lease,
            stream: self.stream(self.processes.len()),
        };
        self.spawn(Machine::Worker(Worker::new(config)));
    }

    /// Starts a standby for whoever leads a server, if nobody stands by.
    fn new_standby(&mut self) {
        for server in 0..self.servers {
            let running: Vec<usize> = self.replicas_of(server).collect();
            if let &[leader] = &running[..]
                && self.leads(leader)
            {
                self.spawn_server(server, format!("{SERVERS}{leader}"));
            }
        }
        if !self.ended() {
            let span = self.job().membership.lease;
            self.after(span, Happening::NewStandby);
        }
    }

    /// The processes that lead a server or stand by for it.
    fn replicas_of(&self, of: u32) -> impl Iterator<Item = usize> {
        let is_one = move |process: &Process| matches!(*process.node, Machine::Replica { server, .. } if server == of);
        (0..).zip(&self.processes).filter(move |(_, it)| it.runs && is_one(it)).map(|(it, _)| it)
    }

    fn leads(&self, process: usize) -> bool {
        matches!(&*self.processes[process].node, Machine::Replica { node, .. } if node.leads())
    }

    fn ended(&self) -> bool {
        self.result.reason.is_some()
    }

    fn run(&mut self) {
        let limit = Time::ZERO + self.job().membership.lease * 4000;
        let calm_at = Time::ZERO + self.job().membership.lease * 60;
        while let Some((std::cmp::Reverse((at, _)), key)) = self.agenda.pop() {
            self.now = at;
            self.calm |= at > calm_at;
            let Some(happening) = self.happenings.remove(&key) else { continue };
            self.happens(happening);
            let comes_back = |it: &Happening| matches!(it, Happening::Resume(_));
            let working = self.processes.iter().any(|process| process.runs);
            if !working && !self.happenings.values().any(comes_back) {
                break;
            }
            assert!(at < limit, "seed {}: it never ends", self.seed);
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::To(process, input) => self.input(process, input),
            Happening::Arrives { link, at_callee } => self.arrives(link, at_callee),
            Happening::Dialled { by, address } => self.dialled(by, &address),
            Happening::Wake(process) => self.wake(process),
            Happening::Disturb if self.ambush.is_some() || self.returns.is_some() => self.part(),
            Happening::Disturb if self.blinks => self.blink(),
            Happening::Disturb if self.durable => self.crash_some(),
            Happening::Disturb => self.disturb(),
            Happening::CutOff => self.cut_off_last(),
            Happening::Heal => self.cut.clear(),
            Happening::GoOn(process) => self.go_on(process),
            Happening::NewStandby => self.new_standby(),
            Happening::Resume(process) => self.resume(process),
            Happening::Join => self.join(),
            Happening::Leave => self.leave(),
        }
    }

    /// Hands an input to a process and obeys what follows.
    fn input(&mut self, process: usize, mut input: Input) {
        let now = self.now;
        if !self.processes[process].runs {
            return;
        }
        if let Some((_, held)) = &mut self.processes[process].stopped {
            return held.push((process, input));
        }
        if let Input::Message(_, message) = &input {
            self.look_at(process, message);
            if matches!(message, Message::Vote(_)) && self.falls(process) {
                return;
            }
        }
        if let Input::Message(_, message) = &mut input
            && self.is_deaf(process, message)
        {
            // Whoever promises is heard, but not that.
            *message = Message::Heartbeat(Heartbeat { incarnation: None });
        }
        let dies = self.is_last_heard(process, &input);
        self.log(process, &input);
        let mut out = Outbox::new();
        self.processes[process].node.node().handle(now, input, &mut out);
        for effect in out {
            self.obey(process, effect);
        }
        if dies {
            self.cut.clear();
            return self.kill(process);
        }
        self.rests(process);
        self.plan_wake(process);
    }

    fn obey(&mut self, process: usize, effect: Effect) {
        match effect {
            Effect::Dial(target) => {
                let takes = self.span(self.delay) + self.delay;
                let address = match target {
                    Target::Address(address) => address,
                    Target::Server => match &*self.processes[process].node {
                        Machine::Replica { address, .. } => address.clone(),
                        Machine::Worker(_) => format!("{SERVERS}0"),
                    },
                };
                self.after(takes, Happening::Dialled { by: process, address });
            }
            Effect::Send(peer, message) => self.send(process, peer, Item::Message(message)),
            Effect::Close(peer) => self.close(process, peer),
            Effect::Prepare(order) => {
                let parts = parts_of(&self.toy.train, self.job().parts(), &order);
                let rows = parts.iter().map(|part| part.len() as u64).collect();
                let train = Some(self.job().data.train.clone());
                let input = Input::Prepared(Ok(Prepared { rows, train, keys: None }));
                self.after(self.delay, Happening::To(process, input));
            }
            Effect::Compute(order) => self.compute(process, order),
            Effect::Evaluate(Evaluate { point, .. }) => {
                let evaluation = Evaluation::default();
                let input = Input::Evaluated(Evaluated { point, evaluation });
                self.after(self.delay, Happening::To(process, input));
            }
            Effect::Done(result) => self.done(process, result),
            Effect::Report(event) => self.report(process, &event),
            Effect::Limit(..) | Effect::Recycle(_) => {}
            effect => panic!("nobody asks for {effect:?}"),
        }
    }

    fn compute(&mut self, process: usize, order: Compute) {
        let Compute { ticket, task, parameters, .. } = order;
        let gradient = (0_u64..).zip(parameters.iter()).map(|(key, value)| {
            let name = Stream::new(task.batch.0).fork("gradient", task.part.0.into());
            value * 0.1 + name.fork("key", key).rng().unit() as f32
        });
        let workers = self.compute.len();
        let took = self.compute[process % workers];
        let gradient = gradient.collect();
        let samples = self.job().batch_size.min(8);
        let computed = Computed { ticket, gradient, loss: 1.0, samples, took };
        self.after(took, Happening::To(process, Input::Computed(computed)));
    }

    fn wake(&mut self, process: usize) {
        let now = self.now;
        let Process { node, wakes, runs, stopped, .. } = &mut self.processes[process];
        wakes.retain(|at| *at > now);
        if !*runs || stopped.is_some() {
            return;
        }
        if node.node().deadline().is_some_and(|at| at <= now) {
            self.input(process, Input::Wake);
        }
        self.plan_wake(process);
    }

    fn plan_wake(&mut self, process: usize) {
        let now = self.now;
        let Process { node, wakes, runs, .. } = &mut self.processes[process];
        let Some(at) = node.node().deadline().filter(|_| *runs) else { return };
        // A moment later than asked, as everywhere; never at once again and again.
        let at = at.max(now) + Duration::from_micros(1);
        if wakes.first().is_none_or(|first| *first > at) {
            wakes.insert(at);
            self.after(at - now, Happening::Wake(process));
        }
    }
}
