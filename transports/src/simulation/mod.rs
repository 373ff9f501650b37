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
mod host;
mod machine;
mod shared;
mod trace;
mod traffic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pstrain_core::id::{PeerId, WorkerId};
use pstrain_core::node::{Effect, Input, Node, Outbox, Server, WorkerConfig, WorkerError};
use pstrain_core::protocol::Message;
use pstrain_core::protocol::message::EndReason;
use pstrain_core::rng::Stream;
use pstrain_core::time::Time;

pub use error::SimulationError;
pub use host::{Host, Laboratory, Origin};
pub use shared::LinkUsage;

use crate::scenario::{Fault, Scenario};
use agenda::Agenda;
use connection::{Connection, End};
use follower::Follower;
use machine::Machine;
use shared::SharedLink;
use trace::Trace;

/// What is simulated.
#[derive(Debug)]
pub struct Setup<'a> {
    /// The server, before its start.
    pub server: &'a mut Server,
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
    /// Why the run ended.
    pub reason: EndReason,
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
    while simulation.reason.is_none() {
        simulation.step()?;
        if !stopping && stop.load(Ordering::Relaxed) {
            stopping = true;
            simulation.server_input(Input::Drain);
        }
    }
    Ok(simulation.finish())
}

/// Something that will happen.
#[derive(Debug)]
enum Due {
    WakeServer,
    Wake(usize),
    WakeFollower(usize),
    ToServer(Input),
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
    Fault(WorkerId, Fault),
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
    server: &'a mut Server,
    server_wake: Option<Time>,
    reason: Option<EndReason>,
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
const SERVER: u32 = u32::MAX;

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
        let followers = (0..servers as usize - 1)
            .map(|place| Follower::new(place, servers, membership.lease, stream))
            .collect();
        let mut agenda = Agenda::new();
        for (at, worker, fault) in scenario.faults.resolve(membership.workers, stream) {
            agenda.put(at, Due::Fault(worker, fault));
        }
        Ok(Self {
            host,
            now: Time::ZERO,
            agenda,
            server,
            server_wake: None,
            reason: None,
            machines,
            followers,
            connections: Vec::new(),
            shared_up: (0..servers).map(|_| shared.up.map(SharedLink::new)).collect(),
            shared_down: (0..servers).map(|_| shared.down.map(SharedLink::new)).collect(),
            weight,
            trace: Trace::new(),
            outbox: Outbox::new(),
            scratch: Vec::new(),
        })
    }

    fn begin(&mut self) {
        self.server_input(Input::Start);
        for place in 0..self.followers.len() {
            self.follower_input(place, Input::Start);
        }
        for machine in 0..self.machines.len() {
            self.start(machine);
        }
    }

    fn finish(self) -> Outcome {
        let events = self.trace.events();
        Outcome {
            trace: self.trace.finish(self.server.parameters()),
            reason: self.reason.unwrap_or(EndReason::Stopped),
            workers: self.machines.into_iter().map(|machine| machine.ended).collect(),
            ended: self.now,
            events,
            shared_up: first(self.shared_up),
            shared_down: first(self.shared_down),
        }
    }

    /// Lets the next thing happen.
    fn step(&mut self) -> Result<(), SimulationError> {
        let Some((at, due)) = self.agenda.next() else {
            return Err(SimulationError::Stuck { at: self.now });
        };
        self.now = at;
        match due {
            Due::WakeServer => self.wake_server(at),
            Due::Wake(machine) => self.wake(machine, at),
            Due::WakeFollower(place) => self.wake_follower(place, at),
            Due::ToServer(input) => {
                self.trace.note(at, kind::INPUT, SERVER, 0);
                self.server_input(input);
            }
            Due::ToWorker(machine, life, input) => self.done(machine, life, input),
            Due::Arrive(connection, end, item) => self.arrive(connection, end, item),
            Due::Merge(connection, end, item, bytes) => self.merge(connection, end, item, bytes),
            Due::Receiving(connection, end) => self.receiving(connection, end),
            Due::DialOver(connection) => self.dial_over(connection),
            Due::Fault(worker, fault) => {
                self.trace.note(at, kind::FAULT, worker.0, fault as u64);
                self.fault(worker, fault);
            }
        }
        Ok(())
    }

    /// Hands an input to the server and obeys what follows.
    fn server_input(&mut self, input: Input) {
        if self.reason.is_some() {
            return;
        }
        self.host.before_server(self.now, &input);
        let mut outbox = std::mem::take(&mut self.outbox);
        self.server.handle(self.now, input, &mut outbox);
        for effect in outbox.drain(..) {
            match effect {
                Effect::Send(peer, message) => {
                    self.send(peer.0 as u32, End::Worker, Item::Message(message));
                }
                Effect::SendStatus { peer, status, .. } => {
                    let item = Item::Message(Message::Status(status));
                    self.send(peer.0 as u32, End::Worker, item);
                }
                Effect::Report(event) => self.host.report(self.now, Origin::Server, event),
                Effect::Close(peer) => self.close(peer.0 as u32, End::Server),
                Effect::Evaluate(order) => {
                    // Off the training path: it costs no training time.
                    let evaluated = self.host.evaluate(order);
                    self.agenda.put(self.now, Due::ToServer(Input::Evaluated(evaluated)));
                }
                Effect::SendExamples { peer, part, from } => match self.host.examples(part, from) {
                    Some(chunk) => {
                        let item = Item::Message(Message::Examples(chunk));
                        self.send(peer.0 as u32, End::Worker, item);
                    }
                    None => self.close(peer.0 as u32, End::Server),
                },
                Effect::Done(result) => self.reason = result.ok(),
                // Limits guard against hostile bytes, and there are no bytes here. The others are
                // a worker's.
                Effect::Limit(..) | Effect::Dial(_) | Effect::Prepare(_) | Effect::Compute(_) => {}
            }
        }
        self.outbox = outbox;
        self.host.after_server(self.now, self.server);
        self.plan_server_wake();
    }

    fn wake_server(&mut self, at: Time) {
        if self.server_wake != Some(at) {
            return; // an earlier one was planned after this
        }
        self.server_wake = None;
        if self.server.deadline().is_some_and(|deadline| deadline <= at) {
            self.trace.note(at, kind::WAKE, SERVER, 0);
            self.server_input(Input::Wake);
        } else {
            self.plan_server_wake();
        }
    }

    /// Most deadlines move on before they come, so one wake-up is planned and looks again then.
    fn plan_server_wake(&mut self) {
        if let Some(at) = self.server.deadline()
            && self.server_wake.is_none_or(|wake| at < wake)
        {
            let at = at.max(self.now);
            self.server_wake = Some(at);
            self.agenda.put(at, Due::WakeServer);
        }
    }

    fn peer(connection: u32) -> PeerId {
        PeerId(connection.into())
    }
}
