//! Cost of a push at the whole server under each rule and policy, without system calls: from the
//! received bytes to the bytes of the answer. That includes checking and copying the frame, the
//! check for non-finite values, combining and updating, and the checksum of the parameters that are
//! sent. Plain gradient descent, and eight workers that take turns.
//!
//! The rules take turns, too, so that other load on the machine affects all of them; the median
//! over the turns, of the mean push of a turn, is printed. Compare ratios of one run, not times of
//! different runs.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "a benchmark prints what it finds")]
#![expect(clippy::expect_used, reason = "a benchmark's own settings are right")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pstrain_compute::examples::{Shape, Target};
use pstrain_compute::filter::Filters;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{PartId, PeerId, Sequence, WorkerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Loss, ModelSpec};
use pstrain_compute::optim::UpdateSpec;
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::gossip::Graph;
use pstrain_policy::job::{
    Budget, BudgetKind, DataFrom, Exchange, InitialFrom, Job, JobData, Membership, OnLoss,
    Redundancy, Stopping, WorkSpec,
};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::{Effect, Input, Node, Server};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::{Hello, ParametersHeader, Pull, Push, PushHeader, Ready};
use pstrain_wire::{BufferPool, Decoder, Limits, Message, encode};

const WORKERS: u32 = 8;
const ROWS: u64 = 1000;

fn job(mode: Mode, parameters: u32) -> Job {
    let rows = 1 << 40; // no epoch ends
    Job {
        name: "bench".into(),
        seed: 1,
        architecture: Architecture::Server,
        graph: Graph::Ring,
        edges: Vec::new(),
        servers: 1,
        model: ModelSpec::Timing { layers: vec![parameters] },
        loss: Loss::Nll,
        groups: Vec::new(),
        update: UpdateSpec::sgd(0.01),
        aggregation: Aggregation::Mean,
        mode,
        switches: Vec::new(),
        exchange: Exchange::Combined,
        local_training: LocalTraining::None,
        batch_size: 64,
        redundancy: Redundancy::None,
        blocks: None,
        work: WorkSpec::Equal,
        budget: Budget { epochs: 1, kind: BudgetKind::Global },
        stopping: Stopping::default(),
        membership: Membership {
            workers: WORKERS,
            min_workers: None,
            on_loss: OnLoss::Continue,
            lease: Duration::from_secs(3600),
            partial_after: None,
        },
        data: JobData {
            shape: Shape { inputs: 2, dense: 2, hot: 0, target: Target::Classes(2), picture: None },
            train: Fingerprint { rows, class_counts: vec![rows, 0], digest: [0; 32] },
            from: DataFrom::Worker,
            recipe: String::new(),
        },
        filters: Filters::default(),
        scenario: String::new(),
        initial: InitialFrom::Seed,
    }
}

/// A server and its workers, whose gradients are prepared in advance.
struct Bench {
    name: String,
    server: Server,
    decoders: Vec<Decoder>,
    spares: BufferPool,
    /// Header of the last parameters that each worker received.
    given: Vec<Option<ParametersHeader>>,
    /// Head of the last answer; kept to reuse its memory.
    head: Vec<u8>,
    next: usize,
    now: Time,
    most_held: usize,
    /// Nanoseconds per push, for each turn.
    times: Vec<f64>,
}

impl Bench {
    fn new(mode: Mode, parameters: u32) -> Self {
        let server = Server::new(job(mode, parameters), 1).expect("a valid job");
        let limits = Limits { control: 1 << 16, payload: 4 * parameters };
        let workers = WORKERS as usize;
        let mut bench = Self {
            name: mode.to_string(),
            server,
            decoders: (0..workers).map(|_| Decoder::new(limits)).collect(),
            spares: BufferPool::default(),
            given: vec![None; workers],
            head: Vec::new(),
            next: 0,
            now: Time::ZERO,
            most_held: 0,
            times: Vec::new(),
        };
        bench.handle(Input::Start);
        for worker in 0..WORKERS {
            let peer = PeerId(worker.into());
            bench.handle(Input::Connected(peer, Identity::Anyone));
            bench.handle(Input::Message(peer, Message::Hello(hello(worker))));
            let train = Some(bench.server.job().data.train.clone());
            let rows = BTreeMap::from([(PartId(worker), ROWS)]);
            bench.handle(Input::Message(peer, Message::Ready(Ready { rows, train })));
        }
        let keys = KeyRange::new(0, parameters.into()).expect("there are parameters");
        for worker in 0..WORKERS {
            let pull = Pull { incarnation: FIRST, keys, allowed: Sequence(0) };
            bench.handle(Input::Message(PeerId(worker.into()), Message::Pull(pull)));
        }
        bench
    }

    /// Handles one input and encodes the messages that the server sends.
    fn handle(&mut self, input: Input) {
        let mut out = Vec::new();
        self.now = self.now + TICK;
        self.server.handle(self.now, input, &mut out);
        for effect in out {
            if let Effect::Send(peer, message) = effect {
                self.head.clear();
                core::hint::black_box(encode(&message, &mut self.head).parts());
                if let Message::Parameters(parameters) = message {
                    self.given[peer.0 as usize] = Some(parameters.header);
                }
            } else if let Effect::Recycle(vector) = effect {
                self.spares.give(vector);
            }
        }
    }

    /// Handles `pushes` gradients, one at a time, from the workers that hold parameters, in turn.
    fn turn(&mut self, pushes: u32, gradients: &[Arc<Vec<f32>>]) {
        let mut spent = Duration::ZERO;
        for _ in 0..pushes {
            let worker = loop {
                self.next = (self.next + 1) % self.given.len();
                if self.given[self.next].is_some() {
                    break self.next;
                }
            };
            let message = push(self.given[worker].take(), &gradients[worker]);
            let mut head = Vec::new();
            let tail = encode(&message, &mut head);
            let (decoder, spares) = (&mut self.decoders[worker], &mut self.spares);
            let begin = Instant::now();
            let mut found = None;
            // Chunks of the size of a socket read.
            for bytes in
                [&head[..]].into_iter().chain(tail.parts()).flat_map(|part| part.chunks(256 * 1024))
            {
                decoder.feed_in(bytes, spares);
                found = decoder.next_in(spares).expect("a frame");
            }
            let message = found.expect("a whole one");
            self.handle(Input::Message(PeerId(worker as u64), message));
            spent += begin.elapsed();
            self.most_held = self.most_held.max(self.server.vectors_held());
        }
        self.times.push(spent.as_nanos() as f64 / f64::from(pushes));
    }

    fn median(&mut self) -> f64 {
        self.times.sort_by(f64::total_cmp);
        self.times[self.times.len() / 2]
    }
}

/// Time between two inputs.
const TICK: Duration = Duration::from_millis(1);
/// Reported computing time of a gradient: the worker computes all the time, so `auto` allows no
/// further mini-batch in flight.
const CYCLE: Duration = TICK.saturating_mul(WORKERS);

const FIRST: pstrain_compute::id::Incarnation = pstrain_compute::id::Incarnation(1);

fn hello(worker: u32) -> Hello {
    Hello::new(format!("worker {worker}"), Some(WorkerId(worker)))
}

fn push(given: Option<ParametersHeader>, gradient: &Arc<Vec<f32>>) -> Message {
    let given = given.expect("it was given parameters");
    let header = PushHeader {
        samples: 64,
        loss: 1.0,
        compute_ns: CYCLE.as_nanos() as u64,
        ..PushHeader::answering(&given, FIRST)
    };
    Message::Push(Push::new(header, Arc::clone(gradient)))
}

fn measure(parameters: u32, turns: usize, pushes: u32) {
    let words = [
        ("asp", "", ""),
        ("asp", "staleness", "inverse"),
        ("asp", "staleness", "polynomial"),
        ("asp", "staleness", "dynsgd"),
        ("asp", "staleness", "dc"),
        ("asp", "staleness", "dc-adaptive"),
        ("asp", "staleness", "gap-aware"),
        ("asp", "participation", "share"),
        ("asp", "participation", "incremental"),
        ("bsp", "", ""),
        ("buffered:16", "", ""),
        ("k-batch-sync:16", "", ""),
        ("malenia:16", "", ""),
        ("ringleader", "", ""),
        ("auto", "", ""),
    ];
    let mut benches: Vec<Bench> = words
        .iter()
        .map(|(consistency, key, value)| {
            let mode = Mode::of(consistency.parse().expect("a consistency"));
            let mode = if key.is_empty() { Ok(mode) } else { mode.set(key, value) };
            Bench::new(mode.expect("a setting"), parameters)
        })
        .collect();
    let value = |key: usize| (key % 97) as f32 * 1e-3 - 0.05;
    let gradients: Vec<Arc<Vec<f32>>> = (0..WORKERS as usize)
        .map(|worker| Arc::new((0..parameters as usize).map(|key| value(key + worker)).collect()))
        .collect();
    for _ in 0..turns {
        for bench in &mut benches {
            bench.turn(pushes, &gradients);
        }
    }
    println!(
        "{parameters} parameters, {WORKERS} workers\n{:<36} {:>12} {:>7} {:>14}",
        "", "ns a push", "times", "held at most"
    );
    let plain = benches[0].median();
    for bench in &mut benches {
        let (median, held) = (bench.median(), bench.most_held);
        println!("{:<36} {median:>12.0} {:>7.2} {held:>14}", bench.name, median / plain);
    }
    println!();
}

fn main() {
    measure(2_084, 201, 64);
    measure(1_000_000, 15, 16);
}
