//! Fuzz target of the server's state machine: arbitrary sequences of inputs, handed in as a driver
//! would. The ledger must balance, no push may be applied twice, and the server must end.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::{Shape, Target};
use pstrain_compute::filter::Filters;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{BatchId, Incarnation, PartId, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Loss, ModelSpec};
use pstrain_compute::optim::UpdateSpec;
use pstrain_compute::params::KeyRange;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::gossip::Graph;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{
    Budget, BudgetKind, DataFrom, Exchange, InitialFrom, Job, JobData, Membership, OnLoss, Stopping,
    Redundancy, WorkSpec,
};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::{Effect, Evaluated, Event, Input, Node, Outbox, Point, Server};
use pstrain_wire::client::{Control, PullStatus};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::{
    Bye, End, EndReason, Heartbeat, Hello, Parameters, Pull, PullExamples, Push, PushHeader, Ready,
    Resume, Welcome,
};
use pstrain_wire::{BUILD, FrameError, Message, PROTOCOL_VERSION};

const LEASE: Duration = Duration::from_secs(1);

/// The fuzzer's bytes, one by one; zeroes once they are used up.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn coin(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns a number: mostly small, sometimes as large as possible.
    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX,
            254 => u64::MAX / 3,
            byte => u64::from(byte % 8),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }
}

fn job(choices: &mut Choices<'_>) -> Job {
    let workers = u32::from(1 + choices.below(4));
    let min_workers = match choices.below(3) {
        0 => None,
        _ => Some(1 + u32::from(choices.byte()) % workers),
    };
    let consistency = match choices.below(4) {
        0 => ConsistencySpec::Bsp,
        1 => ConsistencySpec::Asp,
        slack => ConsistencySpec::Ssp { slack: u64::from(slack) - 1 },
    };
    let on_loss = [OnLoss::Continue, OnLoss::Wait, OnLoss::Stop][usize::from(choices.below(3))];
    let kind = if choices.coin() { BudgetKind::Global } else { BudgetKind::Partition };
    Job {
        name: "fuzz".into(),
        seed: 1,
        model: ModelSpec::Softmax,
        loss: Loss::Nll,
        groups: Vec::new(),
        update: UpdateSpec::sgd(0.1),
        aggregation: if choices.coin() { Aggregation::Mean } else { Aggregation::Sum },
        mode: Mode::of(consistency),
        switches: Vec::new(),
        exchange: if choices.coin() { Exchange::Combined } else { Exchange::Separate },
        local_training: LocalTraining::None,
        batch_size: 4,
        redundancy: Redundancy::None,
        blocks: None,
        work: WorkSpec::Equal,
        budget: Budget { epochs: 3, kind },
        stopping: Stopping::default(),
        membership: Membership { workers, min_workers, on_loss, lease: LEASE, partial_after: None },
        architecture: Architecture::Server,
        graph: Graph::Ring,
        edges: Vec::new(),
        data: JobData {
            shape: Shape { inputs: 1, dense: 1, hot: 0, target: Target::Classes(2), picture: None },
            train: Fingerprint { rows: 20, class_counts: vec![12, 8], digest: [3; 32] },
            from: DataFrom::Worker,
            recipe: String::new(),
        },
        filters: Filters::default(),
        servers: 1,
        scenario: String::new(),
        initial: InitialFrom::Seed,
    }
}

/// State of a client, from the messages that it received.
#[derive(Default)]
struct Client {
    welcome: Option<Welcome>,
    given: Option<Parameters>,
}

struct World<'a> {
    choices: Choices<'a>,
    server: Server,
    now: Time,
    out: Outbox,
    next_peer: u64,
    clients: BTreeMap<PeerId, Client>,
    /// Memberships that can be resumed.
    memberships: Vec<Resume>,
    evaluations: Vec<Point>,
    applied: BTreeSet<(WorkerId, Incarnation, Sequence)>,
    version: Version,
    done: bool,
}

impl World<'_> {
    /// Hands in an input, carries out the effects and checks the invariants.
    fn input(&mut self, input: Input) {
        self.server.handle(self.now, input, &mut self.out);
        for effect in std::mem::take(&mut self.out) {
            assert!(!self.done, "{effect:?} after the end");
            match effect {
                Effect::Send(peer, message) => self.send(peer, message),
                Effect::Close(peer) => drop(self.clients.remove(&peer)),
                Effect::Evaluate(order) => self.evaluations.push(order.point),
                Effect::Report(Event::Applied { worker, incarnation, sequence, .. }) => {
                    let push = (worker, incarnation, sequence);
                    assert!(self.applied.insert(push), "{push:?} was applied twice");
                }
                Effect::Done(result) => {
                    assert!(result.is_ok(), "{result:?}");
                    self.done = true;
                }
                Effect::SendStatus { peer, status, .. } => {
                    self.send(peer, Message::Status(status));
                }
                Effect::Report(_)
                | Effect::Limit(..)
                | Effect::SendExamples { .. }
                | Effect::Recycle(_)
                | Effect::Pause => {}
                other => panic!("{other:?} is nothing a server wants"),
            }
        }
        let ledger = self.server.ledger();
        let known = ledger.applied + ledger.discarded + ledger.lost + ledger.outstanding;
        assert_eq!(ledger.assigned, known, "{ledger:?}");
        assert_eq!(ledger.applied, self.applied.len() as u64, "{ledger:?}");
        assert!(self.server.version() >= self.version, "the version fell");
        self.version = self.server.version();
        // The server can report its status at any time.
        let status = self.server.status(self.now);
        assert_eq!(status.members.len() as u32, self.server.job().membership.workers);
    }

    fn send(&mut self, peer: PeerId, message: Message) {
        let Some(client) = self.clients.get_mut(&peer) else { return };
        match message {
            Message::Welcome(welcome) => {
                self.memberships.push(Resume {
                    worker: welcome.worker,
                    incarnation: welcome.incarnation,
                    run: welcome.run,
                    allowed: Sequence(u64::from(self.choices.byte() % 4)),
                    decided: Sequence(0),
                });
                client.welcome = Some(*welcome);
            }
            Message::Parameters(parameters) => {
                assert!(client.welcome.is_some(), "parameters for a stranger");
                client.given = Some(parameters);
            }
            _ => {}
        }
    }

    fn pick(&mut self) -> Option<PeerId> {
        let at = usize::from(self.choices.byte()) % self.clients.len().max(1);
        self.clients.keys().nth(at).copied()
    }

    fn act(&mut self) {
        match self.choices.below(16) {
            0 => {
                let peer = PeerId(self.next_peer);
                self.next_peer += 1;
                self.clients.insert(peer, Client::default());
                self.input(Input::Connected(peer, Identity::Anyone));
            }
            1 => {
                if let Some(peer) = self.pick() {
                    self.clients.remove(&peer);
                    self.input(Input::Disconnected { peer, why: "fuzz".into() });
                }
            }
            2 => {
                let part = u32::from(self.choices.byte()) + 1;
                self.now = self.now + LEASE * part / 64;
            }
            3 => self.wake(),
            4 => self.evaluate(),
            5 if self.choices.below(8) == 0 => self.input(Input::Drain),
            6 if self.choices.below(4) == 0 => {
                if let Some(peer) = self.pick() {
                    self.input(Input::Garbage(peer, FrameError::Kind(9)));
                }
            }
            _ => {
                if let Some(peer) = self.pick() {
                    let message = self.message(peer);
                    self.input(Input::Message(peer, message));
                }
            }
        }
    }

    /// Advances to the next deadline, which must lead to a later one.
    fn wake(&mut self) {
        if let Some(at) = self.server.deadline() {
            self.now = self.now.max(at);
            self.input(Input::Wake);
            let next = self.server.deadline();
            assert!(next.is_none_or(|next| next > self.now), "{next:?} at {}", self.now);
        }
    }

    fn evaluate(&mut self) {
        if let Some(point) = self.evaluations.pop() {
            let evaluation = Evaluation { examples: 1, loss: 0.5, ..Evaluation::default() };
            self.input(Input::Evaluated(Evaluated { point, evaluation }));
        }
    }

    fn message(&mut self, peer: PeerId) -> Message {
        let known = self.clients.get(&peer).is_some_and(|client| client.welcome.is_some());
        let choice = self.choices.below(if known { 12 } else { 3 });
        match choice {
            0 if known => self.odd(),
            2 if !known => self.control(),
            0 | 1 => self.hello(),
            2 | 3 => self.ready(),
            4 | 5 => {
                let incarnation = self.incarnation(peer);
                Message::Pull(Pull {
                    incarnation,
                    keys: self.keys(),
                    allowed: Sequence(self.choices.number()),
                })
            }
            6 => Message::Heartbeat(Heartbeat::default()),
            7 if self.choices.coin() => Message::Bye(Bye { incarnation: self.incarnation(peer), why: None }),
            _ => self.push(peer),
        }
    }

    fn control(&mut self) -> Message {
        let (key, value) = [
            ("consistency", "asp"),
            ("consistency", "bsp"),
            ("consistency", "ssp:1"),
            ("consistency", "delay:2"),
            ("consistency", "ringleader"),
            ("consistency", "buffered:3"),
            ("in-flight", "2"),
            ("staleness", "gap-aware"),
            ("participation", "incremental"),
            ("max-staleness", "0"),
            ("lease", "1s"),
        ][usize::from(self.choices.below(11))];
        let protocol_max = self.choices.byte();
        Message::Control(Control { protocol_max, key: key.into(), value: value.into() })
    }

    fn odd(&mut self) -> Message {
        match self.choices.below(7) {
            6 => self.control(),
            0 => Message::PullStatus(PullStatus { protocol_max: self.choices.byte() }),
            1 => Message::PullExamples(PullExamples {
                part: PartId(self.choices.number() as u32),
                from: self.choices.number(),
            }),
            2 => Message::End(End { reason: EndReason::Stopped }),
            3 => self.hello(),
            _ => Message::Heartbeat(Heartbeat::default()),
        }
    }

    fn hello(&mut self) -> Message {
        let odd = self.choices.byte() >= 250;
        let worker = self.choices.coin().then(|| WorkerId(u32::from(self.choices.below(5))));
        let at = usize::from(self.choices.byte());
        let resume = match self.memberships.len() {
            0 => None,
            count if at < 160 => Some(self.memberships[at % count]),
            _ => None,
        };
        Message::Hello(Hello {
            protocol_min: PROTOCOL_VERSION + u8::from(odd && worker.is_some()),
            protocol_max: PROTOCOL_VERSION + 1,
            build: if odd && worker.is_none() { "0".into() } else { BUILD.into() },
            name: "fuzz".into(),
            worker,
            resume,
            wants_examples: false,
            term: pstrain_compute::id::Term(0),
            unreached: None,
        })
    }

    fn ready(&mut self) -> Message {
        let mut train = self.server.job().data.train.clone();
        let rows = match self.choices.byte() {
            250.. => self.choices.number(),
            _ => 5,
        };
        if self.choices.byte() >= 250 {
            train.digest = [0; 32];
        }
        Message::Ready(Ready { rows: [(PartId(0), rows)].into(), train: Some(train) })
    }

    fn keys(&mut self) -> KeyRange {
        let end = if self.choices.byte() >= 250 { 3 } else { self.server.parameters().len() };
        KeyRange::new(0, end as u64).expect("not empty")
    }

    fn incarnation(&mut self, peer: PeerId) -> Incarnation {
        let client = self.clients.get(&peer).and_then(|client| client.welcome.as_ref());
        match (client, self.choices.byte()) {
            (Some(welcome), 0..250) => welcome.incarnation,
            _ => Incarnation(self.choices.number()),
        }
    }

    fn push(&mut self, peer: PeerId) -> Message {
        let given = self.clients.get(&peer).and_then(|client| client.given.as_ref());
        let given =
            given.map(|given| (given.header.sequence, given.header.version, given.header.task));
        let (mut sequence, mut base, mut task) =
            given.unwrap_or((Sequence(0), Version(0), Task::own(WorkerId(0), BatchId(0))));
        match self.choices.byte() {
            255 => sequence = Sequence(self.choices.number()),
            254 => base = Version(self.choices.number()),
            253 => task.batch = BatchId(self.choices.number()),
            252 => sequence.0 = sequence.0.saturating_sub(1),
            _ => {}
        }
        let value = match self.choices.byte() {
            255 => f32::NAN,
            // Large enough to make the parameters overflow in a few steps.
            254 => f32::MAX,
            byte => f32::from(byte) / 128.0 - 1.0,
        };
        let header = PushHeader {
            incarnation: self.incarnation(peer),
            sequence,
            base,
            task,
            samples: u32::from(self.choices.below(6)),
            loss: value,
            compute_ns: self.choices.number(),
            keys: self.keys(),
            pull: self.choices.byte() < 200,
            allowed: Sequence(self.choices.number()),
        };
        let gradient = Arc::new(vec![value; self.server.parameters().len()]);
        Message::Push(Push::new(header, gradient))
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices(bytes.iter());
    let job = job(&mut choices);
    let server = Server::new(job, 7).expect("the job is in order");
    let mut world = World {
        choices,
        server,
        now: Time::ZERO,
        out: Outbox::new(),
        next_peer: 0,
        clients: BTreeMap::new(),
        memberships: Vec::new(),
        evaluations: Vec::new(),
        applied: BTreeSet::new(),
        version: Version(0),
        done: false,
    };
    world.input(Input::Start);
    while !world.choices.is_empty() && !world.done {
        world.act();
    }
    // From here on no client sends anything: after a drain the server must end by itself.
    if !world.done {
        world.input(Input::Drain);
    }
    for _ in 0..1000 {
        if world.done {
            assert_eq!(world.server.ledger().outstanding, 0, "{:?}", world.server.ledger());
            return;
        }
        world.evaluate();
        world.wake();
    }
    panic!("it does not come to its end: {:?}", world.server.status(world.now));
});
