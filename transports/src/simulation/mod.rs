//! Virtual time: nodes driven by one event queue.
//!
//! A [`Simulation`] knows processes, connections and a [`Network`] of links, and no role: its
//! nodes are any [`Node`]s, the same that run over sockets, and an [`Environment`] knows their
//! roles. [`simulate`] is the cluster of a job: its servers and workers under a scenario.
//!
//! One seed gives one trace: nothing here reads a clock, and events due at the same time keep the
//! order in which they came up.

mod access;
mod agenda;
mod cluster;
mod connection;
mod environment;
mod error;
mod history;
mod network;
mod peers;
mod process;
mod topology;
mod trace;
mod traffic;
mod training_host;

use std::fmt;
use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_roles::node::{Effect, Input, Node, Outbox};
use pstrain_wire::Message;

pub use access::LinkUsage;
pub use cluster::{Host, Origin, Outcome, Setup, simulate};
pub use environment::{Ending, Environment};
pub use error::SimulationError;
pub use history::{Failover, Failure};
pub use network::{LinkId, Network};
pub use peers::{PeerSetup, simulate_peers};
pub use process::ProcessId;
pub use topology::SiteTraffic;
pub use training_host::TrainingHost;

use crate::scenario::Fault;
use crate::transport::dial_limit;
use agenda::Agenda;
use connection::{Connection, End};
use process::Process;
use trace::Trace;
use traffic::Item;

/// Processes in virtual time.
pub struct Simulation<N, E> {
    environment: E,
    network: Network,
    /// A message that is under way for longer arrives in parts.
    heartbeat: Duration,
    now: Time,
    agenda: Agenda<Due>,
    processes: Vec<Process<N>>,
    connections: Vec<Connection>,
    /// The run has ended: nothing is handed to a node any more.
    has_ended: bool,
    trace: Trace,
    outbox: Outbox,
}

impl<N, E> fmt::Debug for Simulation<N, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now).finish_non_exhaustive()
    }
}

/// A future event.
#[derive(Debug)]
enum Due {
    Wake(ProcessId),
    /// The answer to an effect reaches a process, in the life that it had then.
    Answer(ProcessId, u32, Input),
    /// An item comes out of a link at one end.
    Arrive(u32, End, Item),
    /// An item that has passed so many legs of its path, and has so many bytes, reaches the next
    /// one, or the access link of the process at one end.
    Merge(u32, End, Item, (usize, u64)),
    /// Part of a large message has come.
    Receiving(u32, End),
    /// A dial has taken as long as one may.
    DialOver(u32),
    Fault(ProcessId, Fault),
}

/// The state of a simulation after its end.
#[derive(Debug)]
pub struct Remains<N, E> {
    /// The environment.
    pub environment: E,
    /// The network, with the use of its links.
    pub network: Network,
    /// The nodes, by process. A node that has ended is as it was then.
    pub nodes: Vec<N>,
    trace: Trace,
}

impl<N, E> Remains<N, E> {
    /// Events: messages that arrived, gradients done, wake-ups, faults.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.trace.events()
    }

    /// SHA-256 over all events, and over `parameters`.
    #[must_use]
    pub fn trace(self, parameters: &[f32]) -> [u8; 32] {
        self.trace.finish(parameters)
    }
}

impl<N: Node, E: Environment<N>> Simulation<N, E> {
    /// A simulation without processes.
    #[must_use]
    pub fn new(environment: E, network: Network, heartbeat: Duration) -> Self {
        Self {
            environment,
            network,
            heartbeat,
            now: Time::ZERO,
            agenda: Agenda::new(),
            processes: Vec::new(),
            connections: Vec::new(),
            has_ended: false,
            trace: Trace::new(),
            outbox: Outbox::new(),
        }
    }

    /// Adds a process, which `label` names in the trace.
    pub fn add(&mut self, node: N, label: u32) -> ProcessId {
        self.processes.push(Process::new(node, label));
        ProcessId(self.processes.len() as u32 - 1)
    }

    /// Plans a fault.
    pub fn plan(&mut self, at: Time, process: ProcessId, fault: Fault) {
        self.agenda.put(at, Due::Fault(process, fault));
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// The environment.
    #[must_use]
    pub const fn environment(&self) -> &E {
        &self.environment
    }

    /// The node of a process.
    ///
    /// # Panics
    /// If there is no such process.
    #[must_use]
    pub fn node(&self, process: ProcessId) -> &N {
        &self.processes[process.0 as usize].node
    }

    /// True if a process has neither finished nor crashed.
    ///
    /// # Panics
    /// If there is no such process.
    #[must_use]
    pub fn runs(&self, process: ProcessId) -> bool {
        self.processes[process.0 as usize].runs
    }

    /// True if the run has ended, as the environment says ([`Ending::Run`]).
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ends the simulation.
    pub fn finish(self) -> Remains<N, E> {
        let Self { environment, network, processes, trace, .. } = self;
        let nodes = processes.into_iter().map(|process| process.node).collect();
        Remains { environment, network, nodes, trace }
    }

    /// Lets the next thing happen.
    ///
    /// # Errors
    /// [`SimulationError::Stuck`] if nothing will ever happen again.
    pub fn step(&mut self) -> Result<(), SimulationError> {
        let Some((at, due)) = self.agenda.next() else {
            return Err(SimulationError::Stuck { at: self.now });
        };
        self.now = at;
        match due {
            Due::Wake(process) => self.wake(process),
            Due::Answer(process, life, input) => self.answer(process, life, input),
            Due::Arrive(connection, end, item) => self.arrive(connection, end, item),
            Due::Merge(connection, end, item, so_far) => self.merge(connection, end, item, so_far),
            Due::Receiving(connection, end) => self.receiving(connection, end),
            Due::DialOver(connection) => self.dial_over(connection),
            Due::Fault(process, fault) => self.fault(process, fault),
        }
        Ok(())
    }

    /// Hands an input to the node of a process, if that runs, and carries out the effects.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn input(&mut self, id: ProcessId, input: Input) {
        let process = &mut self.processes[id.0 as usize];
        if self.has_ended || !process.runs {
            return;
        }
        self.environment.before(self.now, id, &process.node, &input);
        let mut outbox = std::mem::take(&mut self.outbox);
        process.node.handle(self.now, input, &mut outbox);
        for effect in outbox.drain(..) {
            self.obey(id, effect);
        }
        self.outbox = outbox;
        self.environment.after(self.now, id, &self.processes[id.0 as usize].node);
        self.plan_wake(id);
    }

    fn obey(&mut self, id: ProcessId, effect: Effect) {
        match effect {
            Effect::Send(peer, message) => {
                self.environment.sends(self.now, id, peer, &message);
                self.send(id, peer, message);
            }
            Effect::SendStatus { peer, status, .. } => {
                self.send(id, peer, Message::Status(status));
            }
            Effect::SendExamples { peer, part, from } => {
                match self.environment.examples(id, part, from) {
                    Some(chunk) => self.send(id, peer, Message::Examples(chunk)),
                    None => self.close(id, peer),
                }
            }
            Effect::Close(peer) => self.close(id, peer),
            Effect::Dial(target) => self.dial(id, &target),
            Effect::Done(result) => match self.environment.finished(id, result) {
                Ending::Process => self.end(id),
                Ending::Run => self.has_ended = true,
            },
            // Limits guard against hostile bytes, and there are no bytes here.
            Effect::Limit(..) | Effect::Recycle(_) => {}
            Effect::Pause => {} // no log is kept
            Effect::Prepare(_)
            | Effect::Compute(_)
            | Effect::Evaluate(_)
            | Effect::EvaluateHere(_)
            | Effect::Checkpoint(_)
            | Effect::Write
            | Effect::Report(_) => {
                if let Effect::Report(event) = &effect
                    && let Some(limit) = dial_limit(event)
                {
                    self.processes[id.0 as usize].dial_limit = limit;
                }
                for (at, input) in self.environment.perform(self.now, id, effect) {
                    let life = self.processes[id.0 as usize].life;
                    self.agenda.put(at, Due::Answer(id, life, input));
                }
            }
        }
    }

    /// The answer to an effect is there.
    fn answer(&mut self, id: ProcessId, life: u32, input: Input) {
        let (kind, what) = match &input {
            Input::Computed(computed) => {
                let loss = u64::from(computed.loss.to_bits());
                (trace::COMPUTED, computed.ticket.sequence.0 << 32 ^ loss)
            }
            _ => (trace::INPUT, 0),
        };
        self.trace.note(self.now, kind, self.label(id), what);
        if self.processes[id.0 as usize].life == life {
            self.input(id, input);
        }
    }

    fn label(&self, id: ProcessId) -> u32 {
        self.processes[id.0 as usize].label
    }

    fn wake(&mut self, id: ProcessId) {
        let process = &mut self.processes[id.0 as usize];
        if process.wake != Some(self.now) {
            return; // an earlier one was planned after this
        }
        process.wake = None;
        if process.runs && process.node.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.trace.note(self.now, trace::WAKE, process.label, 0);
            self.input(id, Input::Wake);
        } else {
            self.plan_wake(id);
        }
    }

    /// Most deadlines move on before they come, so one wake-up is planned and looks again then.
    fn plan_wake(&mut self, id: ProcessId) {
        let process = &mut self.processes[id.0 as usize];
        if let Some(at) = process.node.deadline()
            && process.runs
            && process.wake.is_none_or(|wake| at < wake)
        {
            let at = at.max(self.now);
            process.wake = Some(at);
            self.agenda.put(at, Due::Wake(id));
        }
    }

    /// Lets a fault happen. One that cannot (a crash of a process that does not run, say) changes
    /// nothing.
    fn fault(&mut self, id: ProcessId, fault: Fault) {
        self.trace.note(self.now, trace::FAULT, self.label(id), fault as u64);
        let process = &self.processes[id.0 as usize];
        let takes_effect = match fault {
            Fault::Crash => process.runs,
            Fault::Restart => !process.runs,
            Fault::Cut => !process.is_cut,
            Fault::Heal => process.is_cut,
            Fault::Duplicate => true,
        };
        if !takes_effect {
            return;
        }
        self.environment.struck(self.now, id, &process.node, fault);
        match fault {
            Fault::Crash => self.end(id),
            Fault::Restart => self.restart(id),
            Fault::Cut => self.processes[id.0 as usize].is_cut = true,
            Fault::Heal => {
                let process = &mut self.processes[id.0 as usize];
                process.is_cut = false;
                let held_back = std::mem::take(&mut process.held_back);
                self.arrive_late(held_back);
            }
            // The environment breaks the connection at the next delivery.
            Fault::Duplicate => {}
        }
    }

    /// A process is gone, and its system closes its connections.
    fn end(&mut self, id: ProcessId) {
        self.processes[id.0 as usize].runs = false;
        self.close_all(id);
    }

    fn restart(&mut self, id: ProcessId) {
        let life = self.processes[id.0 as usize].life + 1;
        if let Some(node) = self.environment.restart(id, life) {
            let old = self.processes[id.0 as usize].restart(node);
            self.environment.replaced(id, old);
            self.input(id, Input::Start);
        }
    }
}
