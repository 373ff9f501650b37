//! Lab for failover: servers, their standbys and workers in one random schedule. Processes are
//! killed or stopped, machines are cut off from one another, and new standbys start after a while.
//! Use it to test elections, takeovers and fencing.
//!
//! Two invariants hold in every schedule: a version of the parameters is the same for every worker
//! that sees it, and every server reports the same fate of a push. Two servers that lead at the
//! same time would soon break them.
//!
//! This is no configuration of `pstrain_transports::simulation`. Faults here depend on the state of
//! nodes: a process dies in the middle of an election, or when it receives its last vote but one.
//! A message may be lost in one direction without a sign, several standbys follow one another, and
//! a disk keeps a prefix of the inputs. The simulation takes faults at given times only, which is
//! what makes its runs comparable.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod crashes;
mod evaluations;
mod machines;
mod moves;
mod watching;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use pstrain_compute::id::{Incarnation, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::{
    Compute, Computed, Effect, Input, Ledger, Node, Outbox, Prepared, Replica, ReplicaConfig,
    Replicate, Target, Worker, WorkerConfig,
};
use pstrain_wire::Message;
use pstrain_wire::worker::{EndReason, Heartbeat};

use crate::toy::{Toy, parts_of};
use crashes::Disk;
use machines::{Item, Link, Return};

/// Faults of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbances {
    /// No faults, and no standbys.
    None,
    /// No faults, with standbys.
    Calm,
    /// All kinds of faults, but never of both replicas of a server at the same time.
    One,
    /// The replicas of a server lose each other, and the one of this rank dies during its election:
    /// when it receives so many votes, before it handles the last.
    Ambush(Rank, u32),
    /// The replicas of a server lose each other, and the primary binds the workers. Then the
    /// standby returns, and the primary dies before the standby learns of that.
    Return,
    /// Servers keep a log. One replica of a server or both at a time crash and restart.
    Crashes,
    /// Servers keep a log. The standby of the last server crashes and restarts at once.
    Blinks,
    /// There are no standbys, and the last server is cut off from all others for some leases.
    Away,
}

/// Role of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The replica that leads.
    Primary,
    /// The replica that stands by.
    Standby,
}

/// Result of a schedule.
#[derive(Debug)]
pub struct Replicated {
    /// How the run ended, as the last leader says.
    pub reason: Option<EndReason>,
    /// The parameters of that leader.
    pub parameters: Vec<f32>,
    /// The version of these parameters.
    pub version: Version,
    /// The ledger of mini-batches of that leader.
    pub ledger: Ledger,
    /// Takeovers by a standby.
    pub takeovers: u64,
    /// Requests for votes that standbys sent.
    pub asked: u64,
    /// Times that a primary continued without its standby.
    pub alone: u64,
    /// Servers that learned that they were deposed.
    pub deposed: u64,
    /// Workers that were given up.
    pub departed: u64,
    /// The form in which gradients went to standbys.
    pub replicate: Replicate,
    /// Pushes that a standby was sent without their values.
    pub bare: u64,
    /// Requests to workers to evaluate.
    pub evaluations: u64,
    /// Gradients that a standby was sent, combined or as they came.
    pub replicated: u64,
    /// Version and gradients applied when a standby joined the coordinator last.
    pub joined_at: (u64, u64),
    /// Primaries that died when workers were bound to them and the standby was back.
    pub returns: u64,
    /// Joins and leaves of servers, as the leader reported.
    pub moves: u64,
    /// Servers that were replaced by another replica.
    pub replaced: Vec<Replaced>,
}

/// A server that led until a fault hit it, and that was then replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The fault.
    pub fate: ReplicaFault,
    /// True if it was the coordinator.
    pub coordinated: bool,
    /// Time from the fault until another replica led.
    pub led: Duration,
    /// Time from the fault until the next update; `None` if there was none.
    pub updated: Option<Duration>,
    /// Least latency between two processes. A message takes up to twice as long.
    pub delay: Duration,
}

/// The fault that hits a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaFault {
    /// Its process is killed.
    Killed,
    /// Its process is stopped.
    Stopped,
    /// Its machine is cut off from all others.
    CutOff,
}

/// A process: a replica of a server, or a worker.
#[derive(Debug)]
struct Process {
    node: Box<Machine>,
    /// True while the process is alive.
    runs: bool,
    /// The end of its stop, with the inputs that came meanwhile.
    stopped: Option<(Time, Vec<(usize, Input)>)>,
    /// Times at which it is woken.
    wakes: BTreeSet<Time>,
    disk: Disk,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each is in a box of its own")]
enum Machine {
    /// A replica of `server`. `address` is that of the leader if it stands by, else empty;
    /// `coordinator` is the address of the coordinator.
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
    /// An input that does not come over a link.
    To(usize, Input),
    /// The next item on a link arrives at one of its ends.
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

/// The machines, their network and the schedule.
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
    /// Pairs of processes that cannot reach each other now.
    cut: Vec<(usize, usize)>,
    calm: bool,
    disturbed: bool,
    /// Time until which replicas recover from the last fault: simultaneous faults of both may end
    /// the run.
    settles_until: Time,
    delay: Duration,
    compute: Vec<Duration>,
    seen: BTreeMap<(Version, KeyRange), Vec<f32>>,
    decided: BTreeMap<(WorkerId, Incarnation, Sequence), bool>,
    /// The server to kill, and the votes until then. It happens once, and only if that server
    /// canvasses.
    ambush: Option<(Rank, u32)>,
    /// The primary that dies once its standby is back.
    returns: Option<Return>,
    /// The last server that a fault hit while it led.
    fallen: Option<Fallen>,
    /// True if servers keep a log.
    durable: bool,
    /// True if only a standby crashes, and restarts at once.
    blinks: bool,
    /// Servers so far, each counted once with its standbys.
    servers: u32,
    /// True if a leader has reported the end of the run.
    over: bool,
    /// Servers that hold keys and were not told to leave, by their number in the lab.
    holders: BTreeSet<u32>,
    result: Replicated,
    seed: u64,
}

/// A server that a fault hit while it led.
#[derive(Clone, Copy, Debug)]
struct Fallen {
    server: u32,
    fate: ReplicaFault,
    at: Time,
    /// True if another replica leads.
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

/// Does the same as [`run_replicated`] while servers join and leave.
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
                evaluations: 0,
                replicated: 0,
                joined_at: (0, 0),
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
            // A worker that has not met the first server yet knows of no standby.
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

    /// Starts a server that leads, or a standby of the leader at `address`.
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

    /// Starts a standby for each server that has a leader but no standby. One that restarts at once
    /// is not replaced.
    fn new_standby(&mut self) {
        let restarts = |it: &Happening| matches!(it, Happening::Resume(_));
        let waits = self.blinks && self.happenings.values().any(restarts);
        for server in (0..self.servers).filter(|_| !waits) {
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

    /// Running processes that lead a server or stand by for it.
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

    /// Hands an input to a process and carries out its effects.
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
            // The worker counts as alive, but its vote is lost.
            *message = Message::Heartbeat(Heartbeat::default());
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
                    Target::Address(address) | Target::Worker(address) => address,
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
                let input =
                    Input::Prepared(Ok(Prepared { rows, train, keys: None, initial: None }));
                self.after(self.delay, Happening::To(process, input));
            }
            Effect::Compute(order) => self.compute(process, order),
            Effect::Evaluate(order) => self.evaluate(process, &order),
            Effect::EvaluateHere(order) => self.evaluate_here(process, &order),
            Effect::Done(result) => self.done(process, result),
            Effect::Report(event) => self.report(process, &event),
            Effect::Limit(..) | Effect::Recycle(_) | Effect::Pause => {}
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
        // Slightly later than asked, as in every driver; never again and again in one instant.
        let at = at.max(now) + Duration::from_micros(1);
        if wakes.first().is_none_or(|first| *first > at) {
            wakes.insert(at);
            self.after(at - now, Happening::Wake(process));
        }
    }
}
