//! The machines that the workers run on: their processes, their speed, what befalls them.

use std::time::Duration;

use pstrain_compute::id::{Incarnation, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Effect, Input, Node, Worker, WorkerConfig, WorkerError};
use pstrain_wire::worker::EndReason;

use super::connection::End;
use super::way::Ways;
use super::{Due, Host, Item, Origin, Simulation, SimulationError, kind};
use crate::scenario::{Fault, Pace, Scenario};

/// A machine with a worker on it.
#[derive(Debug)]
pub(super) struct Machine {
    worker: WorkerId,
    config: WorkerConfig,
    /// Its process; none if that has ended or died.
    node: Option<Worker>,
    /// Counts its processes. What is meant for an earlier one is void.
    pub(super) life: u32,
    wake: Option<Time>,
    /// The connections that its process dialled.
    pub(super) connections: Vec<u32>,
    pub(super) ways: Ways,
    /// The server whose address its process was given: whoever led when it became a member.
    pub(super) server: usize,
    pace: Pace,
    pub(super) is_cut: bool,
    /// What would have arrived since the link was cut.
    pub(super) held_back: Vec<(u32, End, Item)>,
    /// Whether the answer to its next push will be lost together with the connection.
    pub(super) loses_next_answer: bool,
    pub(super) ended: Option<Result<EndReason, WorkerError>>,
}

impl Machine {
    pub(super) fn new(
        config: WorkerConfig,
        worker: WorkerId,
        scenario: &Scenario,
        stream: Stream,
        measured: Option<Duration>,
    ) -> Result<Self, SimulationError> {
        let link = scenario.links.of(worker).ok_or(SimulationError::Link(worker))?;
        let compute = scenario.compute.of(worker).ok_or(SimulationError::Compute(worker))?;
        let compute = match (compute.needs_measurement(), measured) {
            (false, _) => compute,
            (true, Some(measured)) => compute.with_measured(measured),
            (true, None) => return Err(SimulationError::Measured(worker)),
        };
        Ok(Self {
            worker,
            config,
            node: None,
            life: 0,
            wake: None,
            connections: Vec::new(),
            ways: Ways::new(link, worker, stream),
            server: 0,
            pace: compute.pace(worker, stream),
            is_cut: false,
            held_back: Vec::new(),
            loses_next_answer: false,
            ended: None,
        })
    }

    /// The incarnation of its process, once that is a member.
    pub(super) fn incarnation(&self) -> Option<Incarnation> {
        self.node.as_ref().and_then(Worker::incarnation)
    }
}

impl<H: Host> Simulation<'_, H> {
    /// Starts a process on a machine that has none.
    pub(super) fn start(&mut self, machine: usize) {
        let host = &mut self.machines[machine];
        host.life += 1;
        host.ended = None;
        host.node = Some(Worker::new(host.config.clone()));
        host.wake = None;
        let life = host.life;
        self.worker_input(machine, life, Input::Start);
    }

    /// Something that a process was asked for, or heard of, is there.
    pub(super) fn done(&mut self, machine: usize, life: u32, input: Input) {
        let (kind, what) = match &input {
            Input::Computed(computed) => {
                let loss = u64::from(computed.loss.to_bits());
                (kind::COMPUTED, computed.ticket.sequence.0 << 32 ^ loss)
            }
            _ => (kind::INPUT, 0),
        };
        self.trace.note(self.now, kind, machine as u32, what);
        self.worker_input(machine, life, input);
    }

    /// Hands an input to a process, if it is still there, and obeys what follows.
    pub(super) fn worker_input(&mut self, machine: usize, life: u32, input: Input) {
        let Machine { worker, node, life: current, .. } = &mut self.machines[machine];
        let Some(node) = node.as_mut().filter(|_| *current == life) else { return };
        let worker = *worker;
        let mut outbox = std::mem::take(&mut self.outbox);
        node.handle(self.now, input, &mut outbox);
        for effect in outbox.drain(..) {
            match effect {
                Effect::Send(peer, message) => {
                    self.host.sent(worker, &message);
                    self.send(peer.0 as u32, End::Server, Item::Message(message));
                }
                Effect::Compute(order) => {
                    let amount = order.amount;
                    let mut computed = self.host.compute(worker, order);
                    let host = &mut self.machines[machine];
                    // Whoever asks for another does not want the one before.
                    computed.took = host.pace.take(self.now, amount);
                    let at = self.now + computed.took;
                    self.agenda.put(at, Due::ToWorker(machine, life, Input::Computed(computed)));
                }
                Effect::Report(event) => {
                    self.host.report(self.now, Origin::Worker(worker), event);
                }
                Effect::Dial(target) => self.dial(machine, &target),
                Effect::Close(peer) => self.close(peer.0 as u32, End::Worker),
                Effect::Prepare(order) => {
                    let prepared = self.host.prepare(worker, order);
                    let due = Due::ToWorker(machine, life, Input::Prepared(prepared));
                    self.agenda.put(self.now, due);
                }
                Effect::Done(result) => {
                    self.machines[machine].ended = Some(result);
                    self.end_process(machine);
                }
                // The others are a server's.
                Effect::Limit(..)
                | Effect::SendExamples { .. }
                | Effect::SendStatus { .. }
                | Effect::Checkpoint(_)
                | Effect::Write
                | Effect::Spare(_)
                | Effect::Evaluate(_) => {}
            }
        }
        self.outbox = outbox;
        self.plan_wake(machine);
    }

    /// A process is gone, and its system closes its connections.
    fn end_process(&mut self, machine: usize) {
        self.machines[machine].node = None;
        for connection in std::mem::take(&mut self.machines[machine].connections) {
            self.close(connection, End::Worker);
        }
    }

    pub(super) fn wake(&mut self, machine: usize, at: Time) {
        let host = &mut self.machines[machine];
        if host.wake != Some(at) {
            return; // an earlier one was planned after this
        }
        host.wake = None;
        let Some(node) = &host.node else { return };
        if node.deadline().is_some_and(|deadline| deadline <= at) {
            let life = host.life;
            self.trace.note(at, kind::WAKE, machine as u32, 0);
            self.worker_input(machine, life, Input::Wake);
        } else {
            self.plan_wake(machine);
        }
    }

    fn plan_wake(&mut self, machine: usize) {
        let host = &mut self.machines[machine];
        let deadline = host.node.as_ref().and_then(Node::deadline);
        if let Some(at) = deadline
            && host.wake.is_none_or(|wake| at < wake)
        {
            let at = at.max(self.now);
            host.wake = Some(at);
            self.agenda.put(at, Due::Wake(machine));
        }
    }

    /// Lets a fault happen. One that cannot (a crash of what does not run, say) changes nothing.
    pub(super) fn worker_fault(&mut self, worker: WorkerId, fault: Fault) {
        let machine = worker.0 as usize;
        let Some(host) = self.machines.get_mut(machine) else { return };
        // Nobody starts again what has come to its end; one that gave up may be tried again.
        let has_succeeded = matches!(host.ended, Some(Ok(_)));
        match fault {
            Fault::Crash if host.node.is_some() => self.end_process(machine),
            Fault::Restart if host.node.is_none() && !has_succeeded => self.start(machine),
            Fault::Cut => host.is_cut = true,
            Fault::Heal if host.is_cut => self.heal(machine),
            Fault::Duplicate => host.loses_next_answer = true,
            Fault::Crash | Fault::Restart | Fault::Heal => {}
        }
    }
}
