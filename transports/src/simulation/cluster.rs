//! The cluster of a job in virtual time: its servers, a standby and its workers.
//!
//! The only module that knows the roles of the nodes. Process 0 is the server that coordinates; a
//! standby or the other servers of the job follow, then the workers. A machine keeps its name
//! whichever of two servers leads: the server begins on the first.

mod outcome;
mod role;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PartId, PeerId, ServerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::{
    Compute, Computed, ComputedRange, Effect, Evaluate, EvaluateHere, Evaluated, Event, Input,
    NodeError, Prepare, Prepared, Replica, ReplicaConfig, Replicate, Server, Shard, ShardConfig,
    Target, Worker, WorkerConfig,
};
use pstrain_wire::Message;
use pstrain_wire::group::Place;
use pstrain_wire::range::RangePart;
use pstrain_wire::worker::{EndReason, ExamplesChunk};

use super::history::History;
use super::topology::{SiteLinks, Topology};
use super::{Ending, Environment, LinkId, Network, ProcessId, Simulation, SimulationError};
use crate::scenario::{Fault, Scenario, StragglerModel, Victim};
pub use outcome::Outcome;
use outcome::outcome;
use role::Role;

/// The addresses of the server and of its standby.
const ADDRESSES: [&str; 2] = ["virtual server", "virtual standby"];
/// The prefix of the other servers' addresses; the position in the group follows.
const SHARD_ADDRESS: &str = "virtual server ";
/// The process that coordinates at the start.
const FIRST: ProcessId = ProcessId(0);

/// The node that reports an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The server, or its standby.
    Server,
    /// A worker process.
    Worker(WorkerId),
}

/// The data and the arithmetic of a cluster, and an observer.
///
/// Everything is answered at once; the simulation decides when the answer reaches the node.
pub trait Host {
    /// Receives an event.
    fn report(&mut self, now: Time, from: Origin, event: Event);

    /// Gets the data of a worker ready.
    ///
    /// # Errors
    /// In words, if there are none.
    fn prepare(&mut self, worker: WorkerId, order: Box<Prepare>) -> Result<Prepared, String>;

    /// Computes a gradient. If ranges of it are wanted, appends the ranges that are final before
    /// the rest, each with the share of the computing that is done then. The computing time is
    /// replaced by the modelled one.
    ///
    /// # Errors
    /// Why there is none, in words for the user; the worker ends.
    fn compute(
        &mut self,
        worker: WorkerId,
        order: Compute,
        ranges: &mut Vec<(ComputedRange, f64)>,
    ) -> Result<Computed, String>;

    /// Evaluates parameters for the server.
    ///
    /// # Errors
    /// Why it cannot, in words; then a worker may.
    fn evaluate(&mut self, order: Evaluate) -> Result<Evaluated, String>;

    /// Evaluates parameters with the source of a worker's gradients.
    ///
    /// # Errors
    /// Why it cannot, in words.
    fn evaluate_here(
        &mut self,
        worker: WorkerId,
        order: &EvaluateHere,
    ) -> Result<Evaluation, String>;

    /// Rows of a part from row `from` on; none if there are none to give.
    fn examples(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk>;

    /// The server is about to handle an input. Not called if there is a standby.
    fn before_server(&mut self, _now: Time, _input: &Input) {}

    /// The server has handled an input, and has reported all its events. Not called if there is a
    /// standby.
    fn after_server(&mut self, _now: Time, _server: &Server) {}

    /// The run has ended, and this server led it; if none leads, it is the server as it was last.
    fn ended(&mut self, _server: Server) {}

    /// The server has closed a connection, or learnt that it is closed.
    fn closed(&mut self, _peer: PeerId) {}

    /// A worker process sends a message.
    fn sent(&mut self, _worker: WorkerId, _message: &Message) {}
}

/// A cluster before its start.
#[derive(Debug)]
pub struct Setup<'a> {
    /// The server, before its start.
    pub server: Server,
    /// Links, machines and faults.
    pub scenario: &'a Scenario,
    /// The stream of everything that is drawn for them.
    pub stream: Stream,
    /// How long a mini-batch takes on this machine, for a scenario that says `measured`.
    pub measured: Option<Duration>,
    /// Bytes of a gradient or of parameters on the wire, instead of their own size: a job of
    /// messages and times without arithmetic has one parameter and any weight.
    pub weight: Option<u64>,
    /// The initial parameters, if the job takes them from the server.
    pub initial: Option<Arc<Vec<f32>>>,
    /// Raised to finish the run in order.
    pub stop: &'a AtomicBool,
}

/// Runs the job of `setup` in virtual time.
///
/// # Errors
/// [`SimulationError`] if the scenario lacks what the model needs: nothing is taken for zero.
pub fn simulate(setup: Setup<'_>, host: &mut dyn Host) -> Result<Outcome, SimulationError> {
    let (stop, initial) = (setup.stop, setup.initial.clone());
    let (mut simulation, counted) = build(setup, host)?;
    for process in 0..simulation.environment().processes() {
        simulation.input(ProcessId(process), Input::Start);
    }
    for part in initial.iter().flat_map(|values| RangePart::all(values)) {
        simulation.input(FIRST, Input::Initial(Message::RangePart(part)));
    }
    let mut stopping = false;
    while !simulation.has_ended() && replicas(&simulation).any(|server| simulation.runs(server)) {
        simulation.step()?;
        let leader = simulation.environment().leader;
        if !stopping && stop.load(Ordering::Relaxed) && simulation.runs(leader) {
            stopping = true;
            simulation.input(leader, Input::Drain);
        }
    }
    outcome(simulation, &counted)
}

/// The server and its standby.
fn replicas(simulation: &Simulation<Role, Cluster<'_>>) -> impl Iterator<Item = ProcessId> + use<> {
    (0..simulation.environment().replicas).map(ProcessId)
}

/// The label of a server in the trace; the label of a worker is its number.
const fn label_of_server(server: u32) -> u32 {
    u32::MAX - server
}

/// The machine of a worker.
#[derive(Debug)]
struct Machine {
    config: WorkerConfig,
    pace: StragglerModel,
    /// The server that its process was started for: the leader when the process became a member.
    server: ProcessId,
    /// The answer to its next push will be lost together with the connection.
    loses_next_answer: bool,
    ended: Option<Result<EndReason, NodeError>>,
}

/// The environment of the nodes of a job.
struct Cluster<'a> {
    host: &'a mut dyn Host,
    job: Job,
    stream: Stream,
    /// How much of gradients goes to the standby.
    replicate: Replicate,
    /// The server and, if there is one, its standby.
    replicas: u32,
    /// These, and the servers that do not coordinate.
    servers: u32,
    machines: Vec<Machine>,
    /// The server that leads, or did last.
    leader: ProcessId,
    /// The server of a leader that crashed, if its process was replaced.
    remains: Option<Server>,
    history: Option<History>,
    /// When the input that is being handled happened, for the history.
    happened: Time,
    reason: Option<EndReason>,
}

/// The links whose bytes are counted.
#[derive(Debug)]
struct Counted {
    /// The link between the server and its standby.
    standby: Option<LinkId>,
    sites: SiteLinks,
}

/// The processes of a cluster, and the links whose bytes are counted.
type Built<'a> = (Simulation<Role, Cluster<'a>>, Counted);

fn build<'a>(setup: Setup<'a>, host: &'a mut dyn Host) -> Result<Built<'a>, SimulationError> {
    let Setup { server, scenario, stream, measured, weight, .. } = setup;
    let membership = server.job().membership;
    SimulationError::check(scenario, &membership)?;
    let workers: Vec<WorkerId> = (0..membership.workers).map(WorkerId).collect();
    let machine = |worker: &WorkerId| {
        let config = WorkerConfig {
            name: format!("virtual-{worker}"),
            worker: Some(*worker),
            wants_examples: false,
            lease: membership.lease,
            stream: stream.fork("worker", worker.0.into()),
        };
        let pace = pace(scenario, *worker, stream, measured)?;
        let (server, loses_next_answer, ended) = (FIRST, false, None);
        Ok(Machine { config, pace, server, loses_next_answer, ended })
    };
    let machines: Vec<Machine> = workers.iter().map(machine).collect::<Result<_, _>>()?;
    let standby = scenario.links.standby();
    let replicas = if standby.is_some() { 2 } else { 1 };
    let faults = scenario.faults.resolve(membership.workers, stream);
    let is_servers =
        |(_, victim, _): &(Time, Victim, Fault)| matches!(victim, Victim::Server | Victim::Standby);
    let has_history = standby.is_some() || faults.iter().any(is_servers);
    let cluster = Cluster {
        host,
        job: server.job().clone(),
        stream,
        replicate: scenario.links.replicate(),
        replicas,
        servers: replicas + server.job().servers - 1,
        machines,
        leader: FIRST,
        remains: None,
        history: has_history.then(History::default),
        happened: Time::ZERO,
        reason: None,
    };
    let mut network = Network::new(weight);
    let Topology { routes, sites } =
        Topology::add(&mut network, &scenario.links, membership.workers, stream)?;
    for (worker, route) in workers.into_iter().zip(routes) {
        let process = cluster.process_of(worker);
        for server in 0..cluster.servers {
            network.join_over((process, &route), (ProcessId(server), &[]));
        }
    }
    let standby = standby.map(|link| {
        let link = network.add(link, 0, stream.fork("standby", 0));
        network.join(ProcessId(1), FIRST, link);
        network.count(link);
        link
    });
    let shared = scenario.links.server();
    for server in 0..cluster.servers {
        network.give_access(ProcessId(server), shared.up, shared.down);
    }
    let nodes = cluster.nodes(server)?;
    let servers = cluster.servers;
    let mut simulation = Simulation::new(cluster, network, membership.heartbeat());
    for (at, victim, fault) in faults {
        let process = match victim {
            Victim::Server => FIRST,
            Victim::Standby => ProcessId(1),
            Victim::Worker(worker) => simulation.environment().process_of(worker),
        };
        simulation.plan(at, process, fault);
    }
    for (number, node) in (0..).zip(nodes) {
        let worker = number >= servers;
        simulation.add(node, if worker { number - servers } else { label_of_server(number) });
    }
    Ok((simulation, Counted { standby, sites }))
}

/// How fast a worker computes.
pub(super) fn pace(
    scenario: &Scenario,
    worker: WorkerId,
    stream: Stream,
    measured: Option<Duration>,
) -> Result<StragglerModel, SimulationError> {
    let compute = scenario.compute.of(worker).ok_or(SimulationError::Compute(worker))?;
    let compute = match (compute.needs_measurement(), measured) {
        (false, _) => compute,
        (true, Some(measured)) => compute.with_measured(measured),
        (true, None) => return Err(SimulationError::Measured(worker)),
    };
    Ok(compute.pace(worker, stream))
}

/// The configuration of a process of the server or its standby.
fn replica_config(process: u32, life: u32, replicate: Replicate, stream: Stream) -> ReplicaConfig {
    let stream = stream.fork("replica", process.into()).fork("life", life.into());
    // No two processes have the same number.
    let id = u64::from(life) * ADDRESSES.len() as u64 + u64::from(process);
    let name = |process: u32| ADDRESSES[process as usize].to_owned();
    ReplicaConfig { id, address: name(process), leader: name(1 - process), stream, replicate }
}

impl Cluster<'_> {
    fn processes(&self) -> u32 {
        self.servers + self.machines.len() as u32
    }

    const fn process_of(&self, worker: WorkerId) -> ProcessId {
        ProcessId(self.servers + worker.0)
    }

    /// The worker that a process is, if it is one.
    fn worker(&self, process: ProcessId) -> Option<WorkerId> {
        process.0.checked_sub(self.servers).map(WorkerId)
    }

    /// True if a process is the server or its standby.
    const fn is_replica(&self, process: ProcessId) -> bool {
        process.0 < self.replicas
    }

    /// The history, if a process is the server or its standby.
    fn history_of(&mut self, process: ProcessId) -> Option<&mut History> {
        let is_told = self.is_replica(process);
        self.history.as_mut().filter(|_| is_told)
    }

    fn machine(&mut self, worker: WorkerId) -> &mut Machine {
        &mut self.machines[worker.0 as usize]
    }

    /// All nodes, in the order of their processes.
    fn nodes(&self, server: Server) -> Result<Vec<Role>, SimulationError> {
        let mut nodes = Vec::new();
        if self.replicas > 1 {
            let config = replica_config(0, 0, self.replicate, self.stream);
            nodes.push(Role::Replica(Box::new(Replica::primary(config, server))));
            nodes.push(self.standby(1, 0)?);
        } else {
            nodes.push(Role::Server(Box::new(server)));
        }
        let shards = 0..self.servers - self.replicas;
        nodes.extend(shards.map(|position| Role::Shard(Box::new(self.shard(position)))));
        let worker =
            |machine: &Machine| Role::Worker(Box::new(Worker::new(machine.config.clone())));
        nodes.extend(self.machines.iter().map(worker));
        Ok(nodes)
    }

    fn standby(&self, process: u32, life: u32) -> Result<Role, SimulationError> {
        let config = replica_config(process, life, self.replicate, self.stream);
        let replica = Replica::standby(config, self.job.clone());
        let replica = replica.map_err(|_invalid| SimulationError::Standby)?;
        Ok(Role::Replica(Box::new(replica)))
    }

    /// A server that does not coordinate, by its position among them.
    fn shard(&self, position: u32) -> Shard {
        let server = ServerId(position + 1);
        Shard::new(ShardConfig {
            place: Place::First { server, servers: self.job.servers },
            address: format!("{SHARD_ADDRESS}{position}"),
            lease: self.job.membership.lease,
            stream: self.stream.fork("server", server.0.into()),
        })
    }

    /// The server at an address.
    fn server_at(&self, address: &str) -> Option<ProcessId> {
        let replica = ADDRESSES.iter().position(|own| *own == address);
        let shard = || Some(1 + address.strip_prefix(SHARD_ADDRESS)?.parse::<usize>().ok()?);
        let process = ProcessId(u32::try_from(replica.or_else(shard)?).ok()?);
        (process.0 < self.servers).then_some(process)
    }
}

impl Cluster<'_> {
    /// Passes on an event that belongs to the one history of the run.
    fn reported(&mut self, now: Time, process: ProcessId, event: Event) {
        if let Event::TookOver { .. } = event {
            self.leader = process;
        }
        let at = match &mut self.history {
            None => Some(self.happened),
            Some(history) if self.replicas == 1 => Some(history.note(self.happened, &event)),
            Some(history) => history.tells(process.0 as usize, now, self.happened, &event),
        };
        if let Some(at) = at {
            self.host.report(at, Origin::Server, event);
        }
    }

    fn perform_worker(
        &mut self,
        now: Time,
        worker: WorkerId,
        effect: Effect,
    ) -> Vec<(Time, Input)> {
        let pace = &mut self.machines[worker.0 as usize].pace;
        work(self.host, pace, now, worker, effect)
    }
}

/// Carries out an effect of a worker's node.
pub(super) fn work(
    host: &mut dyn Host,
    pace: &mut StragglerModel,
    now: Time,
    worker: WorkerId,
    effect: Effect,
) -> Vec<(Time, Input)> {
    let answer = match effect {
        Effect::Compute(order) => {
            let (amount, mut ranges) = (order.amount, Vec::new());
            let mut computed = match host.compute(worker, order, &mut ranges) {
                Ok(computed) => computed,
                Err(why) => return Vec::from([(now, Input::ComputeFailed(why))]),
            };
            // The worker that asks for another gradient does not want the one before.
            let took = pace.take(now, amount);
            computed.took = took;
            let range = |(range, done)| (now + took.mul_f64(done), Input::ComputedRange(range));
            let last = (now + took, Input::Computed(computed));
            return ranges.into_iter().map(range).chain([last]).collect();
        }
        // Off the training path: it costs no computing time.
        Effect::EvaluateHere(order) => {
            let result = host.evaluate_here(worker, &order);
            Input::EvaluatedHere(order.ticket, result)
        }
        Effect::Prepare(order) => Input::Prepared(host.prepare(worker, order)),
        Effect::Report(event) => {
            host.report(now, Origin::Worker(worker), event);
            return Vec::new();
        }
        _ => return Vec::new(),
    };
    Vec::from([(now, answer)])
}

/// Evaluates parameters for a server or a meeting point.
pub(super) fn evaluate(host: &mut dyn Host, order: Evaluate) -> Input {
    let version = order.point.version;
    let unable = |why| Input::Unevaluated { version, why };
    host.evaluate(order).map_or_else(unable, Input::Evaluated)
}

impl Environment<Role> for Cluster<'_> {
    fn resolve(&mut self, from: ProcessId, node: &Role, target: &Target) -> Option<ProcessId> {
        let worker = match node {
            Role::Worker(worker) => worker,
            Role::Replica(_) => return Some(ProcessId(self.replicas - 1 - from.0)),
            Role::Shard(_) | Role::Server(_) => return Some(FIRST),
        };
        match target {
            Target::Server => {
                let leader = self.leader;
                let machine = self.worker(from).map(|id| self.machine(id))?;
                if worker.incarnation().is_none() {
                    machine.server = leader;
                }
                Some(machine.server)
            }
            Target::Address(address) | Target::Worker(address) => self.server_at(address),
        }
    }

    fn perform(&mut self, now: Time, process: ProcessId, effect: Effect) -> Vec<(Time, Input)> {
        if let Some(worker) = self.worker(process) {
            return self.perform_worker(now, worker, effect);
        }
        match effect {
            // Off the training path: it costs no training time.
            Effect::Evaluate(order) => Vec::from([(now, evaluate(self.host, order))]),
            // The coordinator reports for all servers.
            Effect::Report(event) if self.is_replica(process) => {
                self.reported(now, process, event);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn examples(&mut self, _: ProcessId, part: PartId, from: u64) -> Option<ExamplesChunk> {
        self.host.examples(part, from)
    }

    fn finished(&mut self, process: ProcessId, result: Result<EndReason, NodeError>) -> Ending {
        if let Some(worker) = self.worker(process) {
            self.machine(worker).ended = Some(result);
        } else if let (true, Ok(reason)) = (self.is_replica(process), result) {
            self.leader = process;
            self.reason = Some(reason);
            return Ending::Run;
        }
        Ending::Process
    }

    fn restart(&mut self, process: ProcessId, life: u32) -> Option<Role> {
        let Some(worker) = self.worker(process) else {
            return self.standby(process.0, life).ok();
        };
        let machine = self.machine(worker);
        // A worker that has finished is not started again; one that gave up may be tried again.
        if matches!(machine.ended, Some(Ok(_))) {
            return None;
        }
        machine.ended = None;
        Some(Role::Worker(Box::new(Worker::new(machine.config.clone()))))
    }

    fn replaced(&mut self, process: ProcessId, old: Role) {
        if process == self.leader {
            self.remains = old.into_server();
        }
    }

    fn struck(&mut self, now: Time, process: ProcessId, node: &Role, fault: Fault) {
        if let (Fault::Duplicate, Some(worker)) = (fault, self.worker(process)) {
            self.machine(worker).loses_next_answer = true;
        }
        if let Some(history) = self.history_of(process) {
            match fault {
                Fault::Crash | Fault::Cut => history.failed(now, node.leads()),
                Fault::Heal => history.mended(),
                Fault::Restart | Fault::Duplicate => {}
            }
        }
    }

    fn before(&mut self, now: Time, process: ProcessId, node: &Role, input: &Input) {
        if !self.is_replica(process) {
            return;
        }
        self.happened = match self.history_of(process) {
            Some(history) => history.hears(process.0 as usize, now, input),
            None => now,
        };
        if let Role::Server(_) = node {
            self.host.before_server(now, input);
        }
    }

    fn after(&mut self, now: Time, _process: ProcessId, node: &Role) {
        if let Role::Server(server) = node {
            self.host.after_server(now, server);
        }
    }

    fn sends(&mut self, now: Time, process: ProcessId, peer: PeerId, message: &Message) {
        if let Some(worker) = self.worker(process) {
            self.host.sent(worker, message);
        } else if let Some(history) = self.history_of(process) {
            history.sends(process.0 as usize, now, peer.0 as u32, message);
        }
    }

    fn delivers(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        receiver: &Role,
        message: &Message,
    ) -> bool {
        if let (Some(worker), Role::Worker(node)) = (self.worker(to), receiver)
            && let (Some(history), Some(incarnation)) = (&mut self.history, node.incarnation())
        {
            history.told_worker(worker, incarnation, message);
        }
        let is_push = matches!(message, Message::Push(_)) && self.is_replica(to);
        let pusher = self.worker(from).filter(|_| is_push);
        pusher.is_some_and(|worker| std::mem::take(&mut self.machine(worker).loses_next_answer))
    }

    fn closed(&mut self, process: ProcessId, peer: PeerId) {
        if process == FIRST {
            self.host.closed(peer);
        }
    }
}
