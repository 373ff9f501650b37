//! The cluster of a job without servers, in virtual time: its meeting point and its workers.
//!
//! Process 0 is the meeting point; the workers follow. A message of one worker to another goes up
//! the link of the one and down the link of the other: their links meet at a switch, or at the
//! switches of their sites, whose links meet at another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    Effect, Input, Meeting, Node, NodeError, Outbox, Peer, PeerConfig, Target, Trained,
};
use pstrain_wire::Message;
use pstrain_wire::range::RangePart;
use pstrain_wire::worker::EndReason;

use super::cluster::{Host, Origin, Outcome, evaluate, pace, work};
use super::topology::{SiteLinks, Topology};
use super::{Ending, Environment, Network, ProcessId, Simulation, SimulationError};
use crate::scenario::{Scenario, StragglerModel, Victim};

/// The prefix of the workers' addresses; the worker follows.
const ADDRESS: &str = "virtual worker ";
/// The process of the meeting point.
const MEETING: ProcessId = ProcessId(0);

/// A cluster without servers, before its start.
#[derive(Debug)]
pub struct PeerSetup<'a> {
    /// The meeting point, before its start.
    pub meeting: Meeting,
    /// Links, machines and faults.
    pub scenario: &'a Scenario,
    /// The stream of everything that is drawn for them.
    pub stream: Stream,
    /// How long a mini-batch takes on this machine, for a scenario that says `measured`.
    pub measured: Option<Duration>,
    /// The initial parameters, if the job takes them from the meeting point.
    pub initial: Option<Arc<Vec<f32>>>,
    /// Raised to finish the run in order.
    pub stop: &'a AtomicBool,
}

/// A node of a job without servers.
#[derive(Debug)]
enum Role {
    Meeting(Box<Meeting>),
    Peer(Box<Peer>),
}

impl Node for Role {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        match self {
            Self::Meeting(node) => node.handle(now, input, out),
            Self::Peer(node) => node.handle(now, input, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Self::Meeting(node) => node.deadline(),
            Self::Peer(node) => node.deadline(),
        }
    }
}

/// The environment of the nodes.
struct Peers<'a> {
    host: &'a mut dyn Host,
    machines: Vec<Machine>,
    reason: Option<EndReason>,
}

/// The machine of a worker.
#[derive(Debug)]
struct Machine {
    config: PeerConfig,
    pace: StragglerModel,
    ended: Option<Result<EndReason, NodeError>>,
}

const fn process_of(worker: WorkerId) -> ProcessId {
    ProcessId(worker.0 + 1)
}

/// The worker that a process is, if it is one.
fn worker_of(process: ProcessId) -> Option<WorkerId> {
    process.0.checked_sub(1).map(WorkerId)
}

/// Runs the job of `setup` in virtual time.
///
/// # Errors
/// [`SimulationError`] if the scenario lacks what the model needs.
pub fn simulate_peers(
    setup: PeerSetup<'_>,
    host: &mut dyn Host,
) -> Result<Outcome, SimulationError> {
    let (stop, initial) = (setup.stop, setup.initial.clone());
    let workers = setup.meeting.job().membership.workers;
    let (mut simulation, sites) = build(setup, host)?;
    for process in 0..=workers {
        simulation.input(ProcessId(process), Input::Start);
    }
    for part in initial.iter().flat_map(|values| RangePart::all(values)) {
        simulation.input(MEETING, Input::Initial(Message::RangePart(part)));
    }
    let mut stopping = false;
    while !simulation.has_ended() {
        simulation.step()?;
        if !stopping && stop.load(Ordering::Relaxed) {
            stopping = true;
            simulation.input(MEETING, Input::Drain);
        }
    }
    outcome(simulation, &sites)
}

fn build<'a>(
    setup: PeerSetup<'_>,
    host: &'a mut dyn Host,
) -> Result<(Simulation<Role, Peers<'a>>, SiteLinks), SimulationError> {
    let PeerSetup { meeting, scenario, stream, measured, .. } = setup;
    let membership = meeting.job().membership;
    SimulationError::check(scenario, &membership)?;
    let workers = (0..membership.workers).map(WorkerId);
    let mut network = Network::new(None);
    let Topology { routes, sites } =
        Topology::add(&mut network, &scenario.links, membership.workers, stream)?;
    for (worker, route) in workers.clone().zip(&routes) {
        network.join_over((process_of(worker), route), (MEETING, &[]));
        for (other, theirs) in (0..worker.0).map(WorkerId).zip(&routes) {
            network.join_over((process_of(worker), route), (process_of(other), theirs));
        }
    }
    let shared = scenario.links.server();
    network.give_access(MEETING, shared.up, shared.down);
    let machine = |worker: WorkerId| {
        let config = PeerConfig {
            name: format!("virtual-{worker}"),
            worker: Some(worker),
            address: format!("{ADDRESS}{worker}"),
            lease: membership.lease,
            stream: stream.fork("worker", worker.0.into()),
        };
        let pace = pace(scenario, worker, stream, measured)?;
        Ok(Machine { config, pace, ended: None })
    };
    let machines: Vec<Machine> = workers.map(machine).collect::<Result<_, _>>()?;
    let mut nodes = vec![Role::Meeting(Box::new(meeting))];
    let peer = |machine: &Machine| Role::Peer(Box::new(Peer::new(machine.config.clone())));
    nodes.extend(machines.iter().map(peer));
    let peers = Peers { host, machines, reason: None };
    let mut simulation = Simulation::new(peers, network, membership.heartbeat());
    for (at, victim, fault) in scenario.faults.resolve(membership.workers, stream) {
        if let Victim::Worker(worker) = victim {
            simulation.plan(at, process_of(worker), fault);
        }
    }
    for (number, node) in (0_u32..).zip(nodes) {
        simulation.add(node, number.checked_sub(1).unwrap_or(u32::MAX));
    }
    Ok((simulation, sites))
}

fn outcome(
    simulation: Simulation<Role, Peers<'_>>,
    sites: &SiteLinks,
) -> Result<Outcome, SimulationError> {
    let ended = simulation.now();
    let mut remains = simulation.finish();
    let [shared_up, shared_down] = remains.network.usage(MEETING);
    let sites = sites.traffic(&remains.network);
    let Role::Meeting(meeting) = remains.nodes.swap_remove(MEETING.0 as usize) else {
        return Err(SimulationError::Stuck { at: ended });
    };
    let trained: Trained = meeting.trained();
    let machines = std::mem::take(&mut remains.environment.machines);
    let parameters = trained.parameters.clone().unwrap_or_default();
    Ok(Outcome {
        reason: remains.environment.reason,
        events: remains.events(),
        trace: remains.trace(&parameters),
        trained,
        workers: machines.into_iter().map(|machine| machine.ended).collect(),
        ended,
        shared_up,
        shared_down,
        sites,
        failover: None,
    })
}

impl Environment<Role> for Peers<'_> {
    fn resolve(&mut self, _: ProcessId, _: &Role, target: &Target) -> Option<ProcessId> {
        match target {
            Target::Server => Some(MEETING),
            Target::Address(address) | Target::Worker(address) => {
                let worker = address.strip_prefix(ADDRESS)?;
                (0..self.machines.len() as u32)
                    .map(WorkerId)
                    .find(|it| it.to_string() == worker)
                    .map(process_of)
            }
        }
    }

    fn perform(&mut self, now: Time, process: ProcessId, effect: Effect) -> Vec<(Time, Input)> {
        let Some(worker) = worker_of(process) else {
            return match effect {
                // Off the training path: it costs no training time.
                Effect::Evaluate(order) => Vec::from([(now, evaluate(self.host, order))]),
                Effect::Report(event) => {
                    self.host.report(now, Origin::Server, event);
                    Vec::new()
                }
                _ => Vec::new(),
            };
        };
        work(self.host, &mut self.machines[worker.0 as usize].pace, now, worker, effect)
    }

    fn finished(&mut self, process: ProcessId, result: Result<EndReason, NodeError>) -> Ending {
        match worker_of(process) {
            Some(worker) => {
                self.machines[worker.0 as usize].ended = Some(result);
                Ending::Process
            }
            None => {
                self.reason = result.ok();
                Ending::Run
            }
        }
    }

    fn restart(&mut self, process: ProcessId, _life: u32) -> Option<Role> {
        let machine = &mut self.machines[worker_of(process)?.0 as usize];
        if matches!(machine.ended, Some(Ok(_))) {
            return None;
        }
        machine.ended = None;
        Some(Role::Peer(Box::new(Peer::new(machine.config.clone()))))
    }

    fn closed(&mut self, process: ProcessId, peer: PeerId) {
        if process == MEETING {
            self.host.closed(peer);
        }
    }
}
