//! Virtual time: the server and the workers of a run driven by one event queue.
//!
//! The nodes are the very ones that run over sockets. Messages travel through the modelled links
//! of the [`Scenario`], gradients are real and take as long as the modelled machines take. One
//! seed gives one trace: nothing here reads a clock, and events due at the same time keep the
//! order in which they came up.

mod agenda;
mod connection;
mod error;
mod follower;
mod history;
mod host;
mod machine;
mod seat;
mod shared;
mod trace;
mod traffic;
mod way;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Input, Outbox, Replicate, Server, WorkerConfig, WorkerError};
use pstrain_wire::Message;
use pstrain_wire::worker::EndReason;

pub use error::SimulationError;
pub use history::{Failover, Failure};
pub use host::{Host, Laboratory, Origin};
pub use shared::LinkUsage;

use crate::scenario::{Fault, Scenario, Victim};
use agenda::Agenda;
use connection::{Connection, End};
use follower::Follower;
use history::History;
use machine::Machine;
use seat::Seat;
use shared::SharedLink;
use trace::Trace;
use way::Ways;

/// What is simulated.
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
    /// What gradients and parameters weigh on the wire, in bytes, where that is not their own
    /// size: a job of messages and times without arithmetic has one parameter and any weight.
    pub weight: Option<u64>,
    /// Raised by somebody who wants the run to finish in order.
    pub stop: &'a AtomicBool,
}

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    /// Why the run ended; none if its servers were gone before.
    pub reason: Option<EndReason>,
    /// The server of whoever leads; if nobody does, as it was last.
    pub server: Server,
    /// How each worker's last process ended; none if it died, or was still there.
    pub workers: Vec<Option<Result<EndReason, WorkerError>>>,
    /// When the server had finished, in virtual time.
    pub ended: Time,
    /// SHA-256 over everything that happened and the final parameters.
    pub trace: [u8; 32],
    /// Things that happened: messages arrived, gradients done, wake-ups, faults.
    pub events: u64,
    /// What went over the link that all share at the (first) server, to it; none if it has no rate.
    pub shared_up: Option<LinkUsage>,
    /// And from it.
    pub shared_down: Option<LinkUsage>,
    /// How the run came through what befell its servers, where there is a standby or a fault of
    /// one of them.
    pub failover: Option<Failover>,
}

/// Runs the job of `setup` in virtual time.
///
/// # Errors
/// [`SimulationError`] if the scenario lacks what the model needs: nothing is taken for zero.
pub fn simulate<H: Host>(setup: Setup<'_>, host: &mut H) -> Result<Outcome, SimulationError> {
    let stop = setup.stop;
    let mut simulation = Simulation::new(setup, host)?;
    simulation.begin();
    let mut stopping = false;
    while simulation.reason.is_none() && simulation.seats.iter().any(|seat| seat.runs) {
        simulation.step()?;
        let leader = simulation.leader;
        if !stopping && stop.load(Ordering::Relaxed) && simulation.seats[leader].runs {
            stopping = true;
            simulation.server_input(leader, Input::Drain);
        }
    }
    simulation.finish()
}

/// Something that will happen.
#[derive(Debug)]
enum Due {
    WakeServer(usize),
    Wake(usize),
    WakeFollower(usize),
    /// An input for a process of the server or its standby, if that one still runs.
    ToServer(usize, u32, Input),
    /// An input for a process of a machine, if that one still runs.
    ToWorker(usize, u32, Input),
    /// An item comes out of a link at one end.
    Arrive(u32, End, Item),
    /// An item of so many bytes reaches the link that all share at the server at one end.
    Merge(u32, End, Item, u64),
    /// Part of a large message has come.
    Receiving(u32, End),
    /// A dial has taken as long as one may.
    DialOver(u32),
    Fault(Victim, Fault),
}

/// What travels over a link.
#[derive(Debug)]
enum Item {
    /// The connection itself.
    Open,
    Message(Message),
    /// The other end has closed it.
    Hangup,
    /// The connection has broken: all else that is under way is lost.
    Reset,
}

#[derive(Debug)]
struct Simulation<'a, H> {
    host: &'a mut H,
    now: Time,
    agenda: Agenda<Due>,
    /// Where the server is, and its standby if there is one.
    seats: Vec<Seat>,
    /// The one of them that leads, or did last.
    leader: usize,
    /// The server of one that led, when its process ended.
    remains: Option<Server>,
    /// What of gradients goes to the standby.
    replicate: Replicate,
    /// The link between them.
    standby_ways: Option<Ways>,
    history: Option<History>,
    reason: Option<EndReason>,
    heartbeat: Duration,
    stream: Stream,
    machines: Vec<Machine>,
    /// The servers that do not coordinate: server 2 first.
    followers: Vec<Follower>,
    connections: Vec<Connection>,
    /// The link that all share at each server, each way; the coordinator's first.
    shared_up: Vec<Option<SharedLink>>,
    shared_down: Vec<Option<SharedLink>>,
    weight: Option<u64>,
    trace: Trace,
    outbox: Outbox,
    scratch: Vec<u8>,
}

/// How the kinds of events that are no messages are told apart in the trace.
mod kind {
    pub(super) const OPEN: u8 = 128;
    pub(super) const HANGUP: u8 = 129;
    pub(super) const WAKE: u8 = 130;
    pub(super) const INPUT: u8 = 131;
    pub(super) const COMPUTED: u8 = 132;
    pub(super) const FAULT: u8 = 133;
    pub(super) const RECEIVING: u8 = 135;
    pub(super) const RESET: u8 = 134;
}

/// What went over the coordinator's link.
fn first(links: Vec<Option<SharedLink>>) -> Option<LinkUsage> {
    links.into_iter().next().flatten().map(SharedLink::into_usage)
}

/// Whom an event of the trace concerns, if not a worker.
const fn traced(server: usize) -> u32 {
    u32::MAX - server as u32
}

impl<'a, H: Host> Simulation<'a, H> {
    fn new(setup: Setup<'a>, host: &'a mut H) -> Result<Self, SimulationError> {
        let Setup { server, scenario, stream, measured, weight, .. } = setup;
        let membership = server.job().membership;
        let config = |worker: WorkerId| WorkerConfig {
            name: format!("virtual-{worker}"),
            worker: Some(worker),
            wants_examples: false,
            lease: membership.lease,
            stream: stream.fork("worker", worker.0.into()),
        };
        let machines = (0..membership.workers)
            .map(WorkerId)
            .map(|worker| Machine::new(config(worker), worker, scenario, stream, measured))
            .collect::<Result<Vec<_>, _>>()?;
        let shared = scenario.links.server();
        let servers = server.job().servers;
        let followers: Vec<_> = (0..servers as usize - 1)
            .map(|place| Follower::new(place, servers, membership.lease, stream))
            .collect();
        let faults = scenario.faults.resolve(membership.workers, stream);
        let is_servers = |(_, victim, _): &(Time, Victim, Fault)| {
            matches!(victim, Victim::Server | Victim::Standby)
        };
        let standby = scenario.links.standby();
        let has_history = standby.is_some() || faults.iter().any(is_servers);
        let mut agenda = Agenda::new();
        for (at, victim, fault) in faults {
            agenda.put(at, Due::Fault(victim, fault));
        }
        let replicate = scenario.links.replicate();
        let seats = Seat::all(server, standby.is_some().then_some(replicate), stream)?;
        let links = seats.len() + followers.len();
        Ok(Self {
            host,
            now: Time::ZERO,
            agenda,
            seats,
            leader: 0,
            remains: None,
            replicate,
            standby_ways: standby.map(|link| Ways::of_standby(link, stream)),
            history: has_history.then(History::default),
            reason: None,
            heartbeat: membership.heartbeat(),
            stream,
            machines,
            followers,
            connections: Vec::new(),
            shared_up: (0..links).map(|_| shared.up.map(SharedLink::new)).collect(),
            shared_down: (0..links).map(|_| shared.down.map(SharedLink::new)).collect(),
            weight,
            trace: Trace::new(),
            outbox: Outbox::new(),
            scratch: Vec::new(),
        })
    }

    fn begin(&mut self) {
        for seat in 0..self.seats.len() {
            self.server_input(seat, Input::Start);
        }
        for place in 0..self.followers.len() {
            self.follower_input(place, Input::Start);
        }
        for machine in 0..self.machines.len() {
            self.start(machine);
        }
    }

    fn finish(mut self) -> Result<Outcome, SimulationError> {
        let at = self.now;
        let leader = &self.seats[self.leader];
        let survives = self.reason.is_some() || (leader.leads() && leader.runs);
        let last = self.last_place(survives);
        let replaced = self.remains.take();
        let server = self.seats.swap_remove(last).into_server().or(replaced);
        let server = server.ok_or(SimulationError::Stuck { at })?;
        let survivor = survives.then_some(&server);
        let events = self.trace.events();
        Ok(Outcome {
            trace: self.trace.finish(server.parameters()),
            reason: self.reason,
            failover: self.history.map(|history| history.finish(survivor)),
            server,
            workers: self.machines.into_iter().map(|machine| machine.ended).collect(),
            ended: self.now,
            events,
            shared_up: first(self.shared_up),
            shared_down: first(self.shared_down),
        })
    }

    /// Where the server is that the run has come to.
    fn last_place(&self, survives: bool) -> usize {
        let other = (self.seats.len() - 1).saturating_sub(self.leader);
        let is_whole = |place| self.history.as_ref().is_some_and(|it| it.is_whole(place));
        let has_all = is_whole(other) && self.seats[other].server().is_some();
        if survives || !has_all { self.leader } else { other }
    }

    /// Lets the next thing happen.
    fn step(&mut self) -> Result<(), SimulationError> {
        let Some((at, due)) = self.agenda.next() else {
            return Err(SimulationError::Stuck { at: self.now });
        };
        self.now = at;
        match due {
            Due::WakeServer(seat) => self.wake_server(seat, at),
            Due::Wake(machine) => self.wake(machine, at),
            Due::WakeFollower(place) => self.wake_follower(place, at),
            Due::ToServer(seat, life, input) if self.seats[seat].life == life => {
                self.trace.note(at, kind::INPUT, traced(seat), 0);
                self.server_input(seat, input);
            }
            Due::ToServer(..) => {}
            Due::ToWorker(machine, life, input) => self.done(machine, life, input),
            Due::Arrive(connection, end, item) => self.arrive(connection, end, item),
            Due::Merge(connection, end, item, bytes) => self.merge(connection, end, item, bytes),
            Due::Receiving(connection, end) => self.receiving(connection, end),
            Due::DialOver(connection) => self.dial_over(connection),
            Due::Fault(victim, fault) => {
                let whom = match victim {
                    Victim::Worker(worker) => worker.0,
                    Victim::Server => traced(0),
                    Victim::Standby => traced(1),
                };
                self.trace.note(at, kind::FAULT, whom, fault as u64);
                match victim {
                    Victim::Worker(worker) => self.worker_fault(worker, fault),
                    Victim::Server => self.server_fault(0, fault),
                    Victim::Standby => self.server_fault(1, fault),
                }
            }
        }
        Ok(())
    }

    fn peer(connection: u32) -> PeerId {
        PeerId(connection.into())
    }
}
