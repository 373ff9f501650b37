//! A job in virtual time, as `pstrain simulate` runs it, observed by every checker. Use it for
//! closed forms, links, traffic and fault schedules.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::Examples;
use pstrain_compute::id::{PartId, PeerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::source::Local;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::{
    Compute, Computed, ComputedRange, Evaluate, EvaluateHere, Evaluated, Event, Input, Ledger,
    Node, NodeError, Point, Prepare, Prepared, Server,
};
use pstrain_transports::scenario::Scenario;
use pstrain_transports::simulation::{
    Host, Origin, Outcome, Setup, SimulationError, TrainingHost, simulate,
};
use pstrain_wire::worker::{EndReason, ExamplesChunk};
use pstrain_wire::{Message, frame_len};

use crate::checkers::Checker;
use crate::toy::{Toy, partition_of};
use crate::wire::Wire;

/// A run in virtual time, before it begins.
#[derive(Clone, Debug)]
pub struct VirtualRun {
    /// The job.
    pub job: Job,
    /// The examples of each part of the data.
    pub partitions: Vec<Examples>,
    /// The examples that the server evaluates on.
    pub evaluation: Examples,
    /// Links, machines and faults.
    pub scenario: Scenario,
    /// The random stream of links, machines and faults.
    pub stream: Stream,
    /// The time of a mini-batch as measured on this machine, if it was.
    pub measured: Option<Duration>,
    /// Bytes of gradients and parameters on the wire, if not their real size.
    pub weight: Option<u64>,
    /// Time by which the run must have ended.
    pub limit: Time,
}

/// Result of a run in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Why it ended.
    pub reason: EndReason,
    /// When it ended.
    pub ended: Time,
    /// Hash of everything that happened.
    pub trace: [u8; 32],
    /// Number of simulated events.
    pub happened: u64,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The end of the training curve. Its time runs from the first grant of parameters to the last
    /// update.
    pub point: Point,
    /// The final ledger of mini-batches.
    pub ledger: Ledger,
    /// All reported events.
    pub events: Vec<(Time, Origin, Event)>,
    /// The messages that reached the server.
    pub arrivals: Vec<Arrival>,
    /// How each worker's last process ended.
    pub workers: Vec<Option<Result<EndReason, NodeError>>>,
    /// True if all workers were present at the start and none joined or departed before the end.
    pub membership_was_fixed: bool,
}

/// A message that reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it had arrived completely.
    pub at: Time,
    /// The connection over which it came.
    pub peer: PeerId,
    /// True if it carries a gradient.
    pub is_push: bool,
    /// Its bytes, with the real size of its gradient.
    pub bytes: u64,
}

impl Simulated {
    /// Times at which a worker was granted parameters.
    #[must_use]
    pub fn grants(&self, worker: u32) -> Vec<Time> {
        let granted = |(at, _, event): &(Time, Origin, Event)| match event {
            Event::Granted { worker: who, .. } if who.0 == worker => Some(*at),
            _ => None,
        };
        self.events.iter().filter_map(granted).collect()
    }

    /// Times at which gradients of a worker were applied, with their staleness.
    #[must_use]
    pub fn applied(&self, worker: u32) -> Vec<(Time, u64)> {
        let applied = |(at, _, event): &(Time, Origin, Event)| match event {
            Event::Applied { worker: who, staleness, .. } if who.0 == worker => {
                Some((*at, *staleness))
            }
            _ => None,
        };
        self.events.iter().filter_map(applied).collect()
    }

    /// Times of the updates.
    #[must_use]
    pub fn updates(&self) -> Vec<Time> {
        let updated = |(at, _, event): &(Time, Origin, Event)| {
            matches!(event, Event::Updated { .. }).then_some(*at)
        };
        self.events.iter().filter_map(updated).collect()
    }
}

impl VirtualRun {
    /// The job of `toy` over `link` with the computation times `compute`.
    ///
    /// # Panics
    /// If a text does not parse.
    #[must_use]
    #[expect(clippy::unwrap_used, reason = "a test's own texts are right")]
    pub fn new(toy: &Toy, link: &str, compute: &str) -> Self {
        let parts = toy.job.parts();
        let partition = |part| partition_of(&toy.train, parts, PartId(part));
        Self {
            stream: Stream::new(toy.job.seed).fork("scenario", 0),
            job: toy.job.clone(),
            partitions: (0..parts).map(partition).collect(),
            evaluation: toy.train.clone(),
            scenario: Scenario::parse(link, compute, "none").unwrap(),
            measured: None,
            weight: None,
            limit: Time::from_nanos(u64::MAX),
        }
    }

    /// Adds these faults.
    ///
    /// # Panics
    /// If the text does not parse.
    #[must_use]
    #[expect(clippy::unwrap_used, reason = "a test's own texts are right")]
    pub fn with_faults(mut self, faults: &str) -> Self {
        self.scenario.faults = faults.parse().unwrap();
        self
    }

    /// Runs it, with all checkers.
    ///
    /// # Errors
    /// If the scenario lacks something, or the run gets stuck.
    ///
    /// # Panics
    /// If a checker finds a fault.
    #[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
    pub fn try_run(&self) -> Result<Simulated, SimulationError> {
        let server = self.server();
        let rows: Vec<u64> = self.partitions.iter().map(|part| part.len() as u64).collect();
        let mut watcher = Watcher {
            training_host: self.training_host(),
            checker: Checker::new(&server, Duration::ZERO, rows),
            wire: (self.job.servers == 1).then(Wire::default),
            step: Vec::new(),
            peer: None,
            events: Vec::new(),
            arrivals: Vec::new(),
            evaluations: 0,
            limit: self.limit,
            scratch: Vec::new(),
            server: None,
        };
        let stop = AtomicBool::new(false);
        let outcome = simulate(self.setup(server, &stop), &mut watcher)?;
        let (server, reason) = (watcher.server.unwrap(), outcome.reason.unwrap());
        watcher.checker.finish(&server, reason);
        Ok(Simulated {
            reason,
            ended: outcome.ended,
            trace: outcome.trace,
            happened: outcome.events,
            parameters: server.parameters().to_vec(),
            point: server.point(),
            ledger: server.ledger(),
            events: watcher.events,
            arrivals: watcher.arrivals,
            workers: outcome.workers,
            membership_was_fixed: watcher.checker.membership_was_fixed(),
        })
    }

    /// Runs it, with all checkers.
    ///
    /// # Panics
    /// If the scenario lacks something, the run gets stuck, or a checker finds a fault.
    #[must_use]
    #[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
    pub fn run(&self) -> Simulated {
        self.try_run().unwrap()
    }

    /// Runs it without checkers, as `pstrain simulate` does.
    ///
    /// # Panics
    /// If the scenario lacks something, or the run gets stuck.
    #[must_use]
    #[expect(clippy::unwrap_used, reason = "a test's own job runs")]
    pub fn run_unseen(&self) -> Outcome {
        let stop = AtomicBool::new(false);
        simulate(self.setup(self.server(), &stop), &mut self.training_host()).unwrap()
    }

    #[expect(clippy::unwrap_used, reason = "a test's own job is one")]
    fn server(&self) -> Server {
        let mut job = self.job.clone();
        job.scenario = self.scenario.to_text();
        let seed = job.seed;
        Server::new(job, seed).unwrap()
    }

    fn setup<'a>(&'a self, server: Server, stop: &'a AtomicBool) -> Setup<'a> {
        Setup {
            server,
            scenario: &self.scenario,
            stream: self.stream,
            measured: self.measured,
            weight: self.weight,
            initial: None,
            stop,
        }
    }

    #[expect(clippy::unwrap_used, reason = "a test's own model fits its examples")]
    fn training_host(&self) -> TrainingHost<'_> {
        let model = self.job.build_model().unwrap();
        let load = |order: &Prepare| {
            let part = |part: PartId| self.partitions[part.0 as usize].clone();
            let parts = order.parts().into_iter().map(part).collect();
            Ok((parts, self.job.data.train.clone()))
        };
        let partition = |part: PartId| self.partitions[part.0 as usize].clone();
        let ignore: fn(Time, Origin, Event) = |_, _, _| {};
        let evaluation = Local::new(model, [self.evaluation.clone()]);
        TrainingHost::new(load, Box::new(evaluation), partition, ignore)
    }
}

/// The host of a run: it passes everything on to the checkers.
struct Watcher<'a> {
    training_host: TrainingHost<'a>,
    checker: Checker,
    /// For a job of one server only: messages to other servers are not seen to arrive.
    wire: Option<Wire>,
    /// Events that the server reported in this step.
    step: Vec<Event>,
    /// The peer that caused this step.
    peer: Option<PeerId>,
    events: Vec<(Time, Origin, Event)>,
    arrivals: Vec<Arrival>,
    evaluations: u32,
    limit: Time,
    scratch: Vec<u8>,
    /// The server after the end.
    server: Option<Server>,
}

impl Host for Watcher<'_> {
    fn report(&mut self, now: Time, from: Origin, event: Event) {
        if from == Origin::Server {
            self.step.push(event.clone());
        }
        self.events.push((now, from, event));
    }

    fn prepare(&mut self, worker: WorkerId, order: Box<Prepare>) -> Result<Prepared, String> {
        self.training_host.prepare(worker, order)
    }

    fn compute(
        &mut self,
        worker: WorkerId,
        order: Compute,
        ranges: &mut Vec<(ComputedRange, f64)>,
    ) -> Result<Computed, String> {
        let parameters = Arc::clone(&order.parameters);
        let seen = Compute { parameters, scratch: Vec::new(), ..order };
        let computed = self.training_host.compute(worker, order, ranges);
        let computed = computed?;
        self.checker.computed(worker, &seen, &computed.gradient);
        Ok(computed)
    }

    fn evaluate(&mut self, order: Evaluate) -> Result<Evaluated, String> {
        self.checker.evaluate();
        self.evaluations += 1;
        self.training_host.evaluate(order)
    }

    fn evaluate_here(
        &mut self,
        worker: WorkerId,
        order: &EvaluateHere,
    ) -> Result<Evaluation, String> {
        self.training_host.evaluate_here(worker, order)
    }

    fn examples(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk> {
        self.training_host.examples(part, from)
    }

    fn before_server(&mut self, now: Time, input: &Input) {
        assert!(now <= self.limit, "it never ends");
        self.peer = None;
        match input {
            Input::Connected(peer, _) => {
                self.checker.connected(now, *peer);
                self.peer = Some(*peer);
            }
            Input::Message(peer, message) => {
                self.checker.heard(now, *peer);
                self.wire.iter_mut().for_each(|wire| wire.arrived(*peer, message));
                let is_push = matches!(message, Message::Push(_));
                let bytes = frame_len(message, &mut self.scratch);
                self.arrivals.push(Arrival { at: now, peer: *peer, is_push, bytes });
                self.peer = Some(*peer);
            }
            Input::Receiving(peer) => self.checker.heard(now, *peer),
            Input::Disconnected { peer, why } => {
                self.wire.iter().for_each(|wire| wire.hung_up(*peer, why));
            }
            Input::Evaluated(_) | Input::Unevaluated { .. } => self.evaluations -= 1,
            _ => {}
        }
    }

    fn after_server(&mut self, now: Time, server: &Server) {
        let events = std::mem::take(&mut self.step);
        self.checker.step(now, server, &events, self.peer);
        let ended = events.iter().any(|event| matches!(event, Event::Ended { .. }));
        let waits = server.deadline().is_some() || self.evaluations > 0;
        assert!(waits || self.checker.has_ended() || ended, "the server waits for nothing");
    }

    fn ended(&mut self, server: Server) {
        self.server = Some(server);
    }

    fn closed(&mut self, peer: PeerId) {
        self.checker.closed(peer);
    }

    fn sent(&mut self, worker: WorkerId, message: &Message) {
        if let Message::Push(push) = message {
            self.checker.sent(worker, push);
        }
        self.wire.iter_mut().for_each(|wire| wire.sent(worker, message));
    }
}
