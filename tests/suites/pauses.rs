//! A run that is stopped again and again, in random schedules of a server and its workers, ends at
//! the parameters of an undisturbed one, whether its budget is raised meanwhile or not.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::saved::Saved;
use pstrain_compute::time::Time;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{
    Computed, Effect, Evaluated, Input, Node, Outbox, Prepared, Server, Worker, WorkerConfig,
    decode_input, encode_input,
};
use pstrain_tests::{Toy, partition_of, sequential_bsp};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;

const WORKERS: u32 = 2;
const STEP: Duration = Duration::from_millis(1);

/// The files of a server, which outlast its process.
#[derive(Debug, Default)]
struct Disk {
    /// The server keeps a log; otherwise checkpoints.
    logs: bool,
    inputs: Vec<Vec<u8>>,
    is_paused: bool,
    /// The checkpoint that is being written.
    taken: Option<(u64, Saved)>,
    saved: Option<(u64, Saved)>,
}

impl Disk {
    fn append(&mut self, now: Time, input: &Input) {
        let mut record = Vec::new();
        if self.logs
            && !self.is_paused
            && let Some(tail) = encode_input(now, input, &mut record)
        {
            tail.append_to(&mut record);
            self.inputs.push(record);
        }
    }

    fn pause(&mut self) {
        if !std::mem::replace(&mut self.is_paused, true) {
            self.inputs.pop();
        }
    }

    /// The server as the disk has it, and the inputs with which it goes on.
    fn resumed(&mut self, toy: &Toy, life: u64) -> (Server, Vec<Input>) {
        self.is_paused = false;
        let mut server = match &self.saved {
            Some((_, saved)) => Server::restore(toy.job.clone(), saved).unwrap(),
            None => Server::new(toy.job.clone(), 1).unwrap(),
        };
        if !self.logs {
            let number = self.saved.as_ref().map_or(0, |(number, _)| *number);
            server.begin_lineage(life, 1, number);
        }
        let mut out = Outbox::new();
        for record in &self.inputs {
            let (at, input) = decode_input(record).unwrap();
            server.handle(at, input, &mut out);
            out.clear();
        }
        if self.inputs.is_empty() && self.saved.is_none() {
            return (server, vec![Input::Start]);
        }
        let gone = |peer| Input::Disconnected { peer, why: "restarted".into() };
        let gone = server.peers().into_iter().map(gone);
        let inputs = gone.chain([Input::Overslept, Input::WorkersDown]).collect();
        (server, inputs)
    }
}

/// An input for the server, or for a worker.
type Parcel = (Option<usize>, Input);

/// The nodes from their start to the end of the server's process.
struct Life<'a> {
    toy: &'a Toy,
    rng: &'a mut Random,
    now: &'a mut Time,
    disk: &'a mut Disk,
    server: Server,
    workers: Vec<Worker>,
    /// The worker of each connection.
    peers: BTreeMap<PeerId, usize>,
    /// Inputs under way: each line keeps their order.
    lines: BTreeMap<(usize, bool), VecDeque<Parcel>>,
    ended: Option<EndReason>,
}

impl Life<'_> {
    /// Sends an input to the server, or to a worker.
    fn put(&mut self, line: (usize, bool), to: Option<usize>, input: Input) {
        self.lines.entry(line).or_default().push_back((to, input));
    }

    fn server_input(&mut self, input: Input) {
        if self.ended.is_some() {
            return;
        }
        if let Input::Written(number) = input {
            self.disk.saved = self.disk.taken.take_if(|(taken, _)| *taken == number);
        }
        self.disk.append(*self.now, &input);
        let mut out = Outbox::new();
        self.server.handle(*self.now, input, &mut out);
        self.obey_server(out);
    }

    fn obey_server(&mut self, out: Outbox) {
        let own = (usize::MAX, true);
        for effect in out {
            match effect {
                Effect::Pause => self.disk.pause(),
                Effect::Send(peer, message) => {
                    if let Some(&worker) = self.peers.get(&peer) {
                        self.put((worker, false), Some(worker), Input::Message(peer, message));
                    }
                }
                Effect::Close(peer) => {
                    if let Some(&worker) = self.peers.get(&peer) {
                        let why = String::from("closed");
                        let input = Input::Disconnected { peer, why };
                        self.put((worker, false), Some(worker), input);
                    }
                }
                Effect::Evaluate(order) => {
                    let evaluation = Evaluation { examples: 1, ..Evaluation::default() };
                    let evaluated = Evaluated { point: order.point, evaluation };
                    self.put(own, None, Input::Evaluated(evaluated));
                }
                Effect::Checkpoint(checkpoint) => {
                    self.disk.taken = Some((checkpoint.number, checkpoint.saved));
                }
                Effect::Write => {
                    let number = self.disk.taken.as_ref().map(|(number, _)| *number).unwrap();
                    self.put(own, None, Input::Written(number));
                }
                Effect::Done(result) => self.ended = Some(result.unwrap()),
                _ => {}
            }
        }
    }

    fn worker_input(&mut self, worker: usize, input: Input) {
        let (mut out, own) = (Outbox::new(), (worker + self.workers.len(), true));
        self.workers[worker].handle(*self.now, input, &mut out);
        for effect in out {
            match effect {
                Effect::Dial(_) => {
                    let peer = PeerId(self.rng.bits() >> 32);
                    self.peers.insert(peer, worker);
                    let server = Input::Connected(peer, Identity::Anyone);
                    self.put((worker, true), None, server);
                    let there = Input::Dialled(peer, Identity::Anyone);
                    self.put((worker, false), Some(worker), there);
                }
                Effect::Send(peer, message) => {
                    self.put((worker, true), None, Input::Message(peer, message));
                }
                Effect::Close(peer) => {
                    let why = String::from("closed");
                    self.put((worker, true), None, Input::Disconnected { peer, why });
                }
                Effect::Prepare(order) => {
                    let rows = partition_of(&self.toy.train, WORKERS, order.worker).len() as u64;
                    let train = Some(order.job.data.train.clone());
                    let prepared = Prepared { rows: vec![rows], train, keys: None, initial: None };
                    self.put(own, Some(worker), Input::Prepared(Ok(prepared)));
                }
                Effect::Compute(order) => {
                    let id = WorkerId(order.task.part.0);
                    let examples = partition_of(&self.toy.train, WORKERS, id);
                    let (job, mut gradient) = (&self.toy.job, Vec::new());
                    let (model, seed) = (job.build_model().unwrap(), Stream::new(job.seed));
                    let trainer = Trainer::new(model, examples, seed, id, job.batch_size);
                    let mut trainer = trainer.unwrap();
                    let done = trainer.compute(order.task, &order.parameters, &mut gradient);
                    let (samples, loss) = done.map(|it| (it.samples, it.loss)).unwrap();
                    let (ticket, took) = (order.ticket, STEP);
                    let computed = Computed { ticket, gradient, loss, samples, took };
                    self.put(own, Some(worker), Input::Computed(computed));
                }
                _ => {}
            }
        }
    }

    /// Wakes the nodes whose time has come.
    fn wake(&mut self) {
        let now = *self.now;
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|at| at <= now);
        if is_due(self.server.deadline()) {
            self.server_input(Input::Wake);
        }
        for worker in 0..self.workers.len() {
            if is_due(self.workers[worker].deadline()) {
                self.worker_input(worker, Input::Wake);
            }
        }
    }

    /// Lets things happen in random order until the server's process ends. It is stopped after so
    /// many steps.
    fn live(&mut self, begin: Vec<Input>, mut stops_after: Option<u64>) -> EndReason {
        let mut unanswered = self.server.unanswered();
        if begin.iter().any(|input| matches!(input, Input::Extend(_))) {
            unanswered.retain(|effect| !matches!(effect, Effect::Done(_)));
        }
        self.obey_server(unanswered);
        begin.into_iter().for_each(|input| self.server_input(input));
        (0..self.workers.len()).for_each(|worker| self.worker_input(worker, Input::Start));
        for step in 0.. {
            assert!(step < 200_000, "it never ends");
            if let Some(reason) = self.ended {
                return reason;
            }
            if stops_after.take_if(|after| step >= *after).is_some() {
                self.server_input(Input::Drain);
            }
            let count = self.lines.values().filter(|line| !line.is_empty()).count() as u64;
            *self.now = *self.now + STEP;
            if count > 0 {
                let index = self.rng.below(count) as usize;
                let mut full = self.lines.values_mut().filter(|line| !line.is_empty());
                let (to, input) = full.nth(index).and_then(VecDeque::pop_front).unwrap();
                match to {
                    None => self.server_input(input),
                    Some(worker) => self.worker_input(worker, input),
                }
            }
            self.wake();
        }
        unreachable!("it ends or fails")
    }
}

/// Runs a job to its end, stopped at random moments `stops` times. Its budget is raised to `epochs`
/// when it is resumed for the first time, or after its end.
fn run(toy: &Toy, logs: bool, seed: u64, stops: u64, epochs: u32) -> Vec<f32> {
    let mut rng = Stream::new(seed).fork("pauses", u64::from(logs)).rng();
    let (mut now, mut disk) = (Time::ZERO, Disk { logs, ..Disk::default() });
    for life in 1..100 {
        let (server, mut begin) = match life {
            1 if logs => (Server::new(toy.job.clone(), 1).unwrap(), vec![Input::Start]),
            1 => {
                let server = Server::new(toy.job.clone(), 1).unwrap();
                (server.with_checkpoints(), vec![Input::Start])
            }
            _ => disk.resumed(toy, life),
        };
        if life > 1 && server.job().budget.epochs < epochs {
            begin.insert(0, Input::Extend(epochs));
        }
        let stops_after = (life <= stops).then(|| rng.below(160));
        let worker = |id: u32| {
            Worker::new(WorkerConfig {
                name: format!("worker-{id}"),
                worker: seed.is_multiple_of(2).then_some(WorkerId(id)),
                wants_examples: false,
                lease: toy.job.membership.lease,
                stream: Stream::new(seed).fork("worker", u64::from(id)),
            })
        };
        let mut it = Life {
            toy,
            rng: &mut rng,
            now: &mut now,
            disk: &mut disk,
            server,
            workers: (0..WORKERS).map(worker).collect(),
            peers: BTreeMap::new(),
            lines: BTreeMap::new(),
            ended: None,
        };
        let reason = it.live(begin, stops_after);
        let is_raised = it.server.job().budget.epochs >= epochs;
        match reason {
            EndReason::BudgetReached if is_raised => return it.server.parameters().to_vec(),
            EndReason::BudgetReached if !logs => {
                // The end is on the disk.
                assert!(it.disk.saved.is_some());
            }
            EndReason::BudgetReached | EndReason::Stopped => {}
            other => panic!("seed {seed}: {other}"),
        }
    }
    panic!("seed {seed}, logs {logs}: it never ends")
}

#[test]
fn a_stopped_run_resumes_to_the_parameters_of_an_undisturbed_one_in_any_schedule() {
    let toy = Toy::new(WORKERS, 64);
    let undisturbed = sequential_bsp(&toy);
    for seed in 0..40 {
        for logs in [false, true] {
            let parameters = run(&toy, logs, seed, seed % 4, 3);
            assert_eq!(parameters, undisturbed, "seed {seed}, logs {logs}");
        }
    }
}

#[test]
fn a_run_whose_budget_is_raised_ends_as_one_that_had_it_from_the_start() {
    let mut short = Toy::new(WORKERS, 64);
    let undisturbed = sequential_bsp(&short);
    short.job.budget.epochs = 1;
    for seed in 0..40 {
        for logs in [false, true] {
            let parameters = run(&short, logs, seed, seed % 3, 3);
            assert_eq!(parameters, undisturbed, "seed {seed}, logs {logs}");
        }
    }
}
