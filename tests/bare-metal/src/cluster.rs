//! A server and its workers on one processor: the real state machines, with frames as bytes in
//! memory between them and a clock that advances by a millisecond per input.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use pstrain_compute::evaluation::{Evaluation, evaluate};
use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::PeerId;
use pstrain_compute::model::{Model, Workspace};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{
    Compute, Computed, Effect, Evaluated, Event, Input, Node, Outbox, Prepare, Prepared, Server,
    Worker, WorkerConfig,
};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Decoder, Limits, Message, encode};

use crate::job::{WORKERS, job, partition};

/// The only connection of a worker.
const SERVER: PeerId = PeerId(0);
const TICK: Duration = Duration::from_millis(1);

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) parameters: Vec<f32>,
    pub(crate) evaluation: Evaluation,
    pub(crate) updates: u64,
}

/// The server, the workers, and the inputs that wait for them.
pub(crate) struct Cluster {
    train: Examples,
    model: Model,
    now: Time,
    server: Server,
    workers: Vec<Device>,
    /// Inputs to hand in next, to the server (`None`) or to a worker.
    agenda: VecDeque<(Option<usize>, Input)>,
    evaluation: Option<Evaluation>,
    reason: Option<EndReason>,
}

struct Device {
    node: Worker,
    trainer: Option<Trainer>,
    /// Decoders of the bytes to the worker, and of its bytes to the server.
    incoming: Decoder,
    outgoing: Decoder,
    is_over: bool,
}

impl Cluster {
    pub(crate) fn new(train: Examples) -> Result<Self, String> {
        let job = job(&train);
        let model = job.build_model().map_err(|error| error.to_string())?;
        let device = |number: u64| Device {
            node: Worker::new(WorkerConfig {
                name: format!("worker-{number}"),
                worker: None,
                wants_examples: false,
                lease: job.membership.lease,
                stream: Stream::new(job.seed).fork("device", number),
            }),
            trainer: None,
            incoming: Decoder::new(Limits::DIALER),
            outgoing: Decoder::new(Limits::UNAUTHENTICATED),
            is_over: false,
        };
        let workers = (0..u64::from(WORKERS)).map(device).collect();
        let server = Server::new(job, 1).map_err(|error| error.to_string())?;
        let starts = [None, Some(0), Some(1)].map(|node| (node, Input::Start));
        Ok(Self {
            train,
            model,
            now: Time::ZERO,
            server,
            workers,
            agenda: starts.into(),
            evaluation: None,
            reason: None,
        })
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Result<Outcome, String> {
        while self.reason.is_none() || self.workers.iter().any(|worker| !worker.is_over) {
            self.now = self.now + TICK;
            let Some((node, input)) = self.agenda.pop_front() else {
                self.sleep()?;
                continue;
            };
            let mut out = Outbox::new();
            match node {
                None => self.server.handle(self.now, input, &mut out),
                Some(number) => self.workers[number].node.handle(self.now, input, &mut out),
            }
            for effect in out {
                match node {
                    None => self.obey_server(effect)?,
                    Some(number) => self.obey_worker(number, effect)?,
                }
            }
        }
        if self.reason != Some(EndReason::BudgetReached) {
            return Err(format!("the run ended early: {:?}", self.reason));
        }
        Ok(Outcome {
            parameters: self.server.parameters().to_vec(),
            evaluation: self.evaluation.ok_or("nothing was evaluated")?,
            updates: self.server.version().0,
        })
    }

    /// No input waits: advances to the earliest deadline of a node.
    fn sleep(&mut self) -> Result<(), String> {
        let nodes = self.workers.iter().enumerate().filter(|(_, worker)| !worker.is_over);
        let workers = nodes.map(|(number, worker)| (worker.node.deadline(), Some(number)));
        let all = workers.chain([(self.server.deadline(), None)]);
        let next = all.filter_map(|(at, node)| Some((at?, node))).min();
        let (at, node) = next.ok_or("everybody waits for somebody else")?;
        self.now = self.now.max(at);
        self.agenda.push_back((node, Input::Wake));
        Ok(())
    }

    fn obey_server(&mut self, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::Send(peer, message) => {
                let number = peer.0 as usize;
                let decoder = &mut self.workers[number].incoming;
                let come = |message| (Some(number), Input::Message(SERVER, message));
                self.agenda.extend(carry(&message, decoder)?.into_iter().map(come));
            }
            Effect::Limit(peer, limits) => {
                self.workers[peer.0 as usize].outgoing.set_limits(limits);
            }
            Effect::Evaluate(order) => {
                let workspace = &mut Workspace::new();
                let evaluation = evaluate(&self.model, &order.parameters, &self.train, workspace);
                self.evaluation = Some(evaluation.clone());
                let evaluated = Evaluated { point: order.point, evaluation };
                self.agenda.push_back((None, Input::Evaluated(evaluated)));
            }
            Effect::Report(Event::Departed { worker, how, .. }) => {
                if self.reason.is_none() && self.server.version().0 == 0 {
                    return Err(format!("{worker} is gone: {how:?}"));
                }
            }
            Effect::Done(result) => {
                self.reason = Some(result.map_err(|error| error.to_string())?);
            }
            Effect::Close(_) | Effect::Report(_) | Effect::Recycle(_) => {}
            other => return Err(format!("nobody here can do what the server wants: {other:?}")),
        }
        Ok(())
    }

    fn obey_worker(&mut self, number: usize, effect: Effect) -> Result<(), String> {
        let peer = PeerId(number as u64);
        match effect {
            Effect::Dial(_) => {
                self.agenda.push_back((None, Input::Connected(peer, Identity::Anyone)));
                self.agenda.push_back((Some(number), Input::Dialled(SERVER, Identity::Anyone)));
            }
            Effect::Send(_, message) => {
                let decoder = &mut self.workers[number].outgoing;
                let come = |message| (None, Input::Message(peer, message));
                self.agenda.extend(carry(&message, decoder)?.into_iter().map(come));
            }
            Effect::Limit(_, limits) => self.workers[number].incoming.set_limits(limits),
            Effect::Prepare(order) => {
                let prepared = self.prepare(number, &order);
                self.agenda.push_back((Some(number), Input::Prepared(prepared)));
            }
            Effect::Compute(order) => {
                let trainer = self.workers[number].trainer.as_mut().ok_or("no data to train on")?;
                let computed = compute(trainer, order);
                self.agenda.push_back((Some(number), Input::Computed(computed)));
            }
            Effect::Done(result) => {
                result.map_err(|error| error.to_string())?;
                self.workers[number].is_over = true;
            }
            Effect::Close(_) | Effect::Report(_) | Effect::Recycle(_) => {}
            other => return Err(format!("nobody here can do what a worker wants: {other:?}")),
        }
        Ok(())
    }

    fn prepare(&mut self, number: usize, order: &Prepare) -> Result<Prepared, String> {
        let parts: Vec<Examples> =
            order.parts().into_iter().map(|part| partition(&self.train, part.0)).collect();
        let rows = parts.iter().map(|part| part.len() as u64).collect();
        let trainer = Trainer::of_job(&order.job, self.model.clone(), order.worker, parts)
            .map_err(|error| error.to_string())?;
        self.workers[number].trainer = Some(trainer);
        Ok(Prepared { rows, train: Some(Fingerprint::of(&self.train)), keys: None, initial: None })
    }
}

fn compute(trainer: &mut Trainer, order: Compute) -> Computed {
    let mut gradient = order.scratch;
    let computed = trainer.compute(order.task, &order.parameters, &mut gradient);
    let computed = computed.expect("a model in memory computes");
    Computed {
        ticket: order.ticket,
        gradient,
        loss: computed.loss,
        samples: computed.samples,
        took: TICK,
    }
}

/// Carries a message as bytes: encodes it and returns what `decoder` makes of the bytes.
fn carry(message: &Message, decoder: &mut Decoder) -> Result<Vec<Message>, String> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).append_to(&mut bytes);
    decoder.feed(&bytes);
    let mut messages = Vec::new();
    while let Some(message) = decoder.next().map_err(|error| error.to_string())? {
        messages.push(message);
    }
    Ok(messages)
}
