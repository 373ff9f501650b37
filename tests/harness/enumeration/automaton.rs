//! A process as an automaton: its states by number, and what it does in each state on an input.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PeerId, ServerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    Compute, Computed, Effect, Evaluated, Event, Input, Node, NodeError, Outbox, Point, Prepared,
    Server, Shard, ShardConfig, Target, Worker, WorkerConfig,
};
use pstrain_wire::group::{Followed, Place};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Refusal};

use super::oracle::{Oracle, gradient};
use super::{fingerprint, text};

/// The time, which never changes.
const NOW: Time = Time::ZERO;
/// Nodes of a process that stay in memory; others are rebuilt when they are needed.
const AT_HAND: usize = 2_000;

/// An input of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stimulus {
    Start,
    Connected(PeerId),
    Dialled(PeerId),
    /// A message, by its number.
    Message(PeerId, u32),
    Disconnected(PeerId),
    /// A deadline has come: the next dial, or the end of a lease.
    Wake,
    Prepared,
    /// The gradient of the order with this number.
    Computed(u32),
    /// The evaluation with this number.
    Evaluated(u32),
    Overslept,
    /// The server behind this peer has followed so many decisions.
    Followed(PeerId, u32),
}

/// An effect of a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Send(PeerId, u32),
    Close(PeerId),
    /// Dials the coordinator, or the other server.
    Dial {
        coordinator: bool,
    },
    /// Will dial after a pause.
    Redials,
    Prepare,
    Compute(u32),
    Evaluate(u32),
    /// Ends the run.
    End,
    Done,
}

/// Messages, orders and evaluation points, each by a number.
#[derive(Debug, Default)]
pub(super) struct Words {
    messages: Vec<Message>,
    orders: Vec<Computed>,
    points: Vec<Point>,
    /// Numbers by the fingerprints of the texts.
    numbers: BTreeMap<u128, u32>,
}

fn number_of<T>(
    numbers: &mut BTreeMap<u128, u32>,
    all: &mut Vec<T>,
    name: String,
    it: impl FnOnce() -> T,
) -> u32 {
    *numbers.entry(fingerprint(name.as_bytes())).or_insert_with(|| {
        all.push(it());
        all.len() as u32 - 1
    })
}

impl Words {
    pub(super) fn message(&self, number: u32) -> &Message {
        &self.messages[number as usize]
    }

    /// True if a message belongs to joining a server or returning to it.
    pub(super) fn is_handshake(&self, number: u32) -> bool {
        matches!(
            self.message(number),
            Message::Hello(_)
                | Message::Welcome(_)
                | Message::Refused(_)
                | Message::Attach(_)
                | Message::Attached(_)
                | Message::Enlist(_)
                | Message::Enlisted(_)
                | Message::Ready(_)
        )
    }

    fn of_message(&mut self, message: Message) -> u32 {
        let name = format!("message {message:?}");
        number_of(&mut self.numbers, &mut self.messages, name, || message)
    }

    fn of_order(&mut self, order: &Compute) -> u32 {
        let name = format!("order {:?} {:?}", order.ticket, order.task);
        let computed = || Computed {
            ticket: order.ticket,
            gradient: gradient(&order.parameters, order.task),
            loss: 1.0,
            samples: 1,
            took: Duration::ZERO,
        };
        number_of(&mut self.numbers, &mut self.orders, name, computed)
    }

    fn of_point(&mut self, point: Point) -> u32 {
        let name = format!("point {point:?}");
        number_of(&mut self.numbers, &mut self.points, name, || point)
    }

    fn input(&self, stimulus: Stimulus, oracle: &Oracle) -> Input {
        match stimulus {
            Stimulus::Prepared => {
                let train = Some(oracle.job.data.train.clone());
                Input::Prepared(Ok(Prepared {
                    rows: vec![oracle.bounds.rounds.into()],
                    train,
                    keys: None,
                    initial: None,
                }))
            }
            Stimulus::Start => Input::Start,
            Stimulus::Connected(peer) => Input::Connected(peer, Identity::Anyone),
            Stimulus::Dialled(peer) => Input::Dialled(peer, Identity::Anyone),
            Stimulus::Message(peer, number) => Input::Message(peer, self.message(number).clone()),
            Stimulus::Disconnected(peer) => Input::Disconnected { peer, why: "gone".into() },
            Stimulus::Wake => Input::Wake,
            Stimulus::Computed(number) => Input::Computed(self.orders[number as usize].clone()),
            Stimulus::Evaluated(number) => {
                let evaluation = Evaluation::default();
                Input::Evaluated(Evaluated { point: self.points[number as usize], evaluation })
            }
            Stimulus::Overslept => Input::Overslept,
            Stimulus::Followed(peer, decisions) => {
                let decisions = decisions.into();
                Input::Message(peer, Message::Followed(Followed { decisions }))
            }
        }
    }
}

/// A node and its checks.
pub(super) trait Role: Node + fmt::Debug {
    /// Checks the node and its effects after an input.
    fn check(&self, effects: &[Effect], oracle: &Oracle) {
        effects.iter().for_each(|effect| oracle.check_effect(effect));
    }
}

impl Role for Shard {}

impl Role for Worker {
    fn check(&self, effects: &[Effect], oracle: &Oracle) {
        for effect in effects {
            match effect {
                Effect::Compute(order) => oracle.check_compute(order),
                Effect::Done(result) => assert!(
                    matches!(
                        result,
                        Ok(EndReason::BudgetReached) | Err(NodeError::Refused(Refusal::Over))
                    ),
                    "a worker ended with {result:?}"
                ),
                _ => {}
            }
        }
    }
}

impl Role for Server {
    fn check(&self, effects: &[Effect], oracle: &Oracle) {
        effects.iter().for_each(|effect| oracle.check_effect(effect));
        oracle.check_coordinator(self, effects);
    }
}

/// All states of one process that were found.
#[derive(Debug)]
pub(super) struct Automaton<N> {
    fresh: Fresh<N>,
    states: Vec<State<N>>,
    /// State numbers by the fingerprints of the texts.
    numbers: BTreeMap<u128, u32>,
    /// States whose nodes are in memory, the most recent last.
    at_hand: VecDeque<u32>,
}

/// Builds a node in its initial state.
struct Fresh<N>(Box<dyn Fn() -> N>);

impl<N> fmt::Debug for Fresh<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fresh")
    }
}

#[derive(Debug)]
struct State<N> {
    /// The step that reached it first.
    from: Option<(u32, Stimulus)>,
    /// The node itself, unless it has moved to a later state.
    node: Option<Box<N>>,
    /// The inputs that were tried, with their results.
    steps: Vec<(Stimulus, u32, Rc<[Deed]>)>,
}

impl<N: Role> Automaton<N> {
    fn new(fresh: impl Fn() -> N + 'static) -> Self {
        let node = fresh();
        let numbers = BTreeMap::from([(fingerprint(text::of(&node).as_bytes()), 0)]);
        let states = vec![State { from: None, node: Some(Box::new(node)), steps: Vec::new() }];
        Self { fresh: Fresh(Box::new(fresh)), states, numbers, at_hand: VecDeque::new() }
    }

    /// Returns the state and the deeds that follow from `stimulus` in `state`.
    pub(super) fn step(
        &mut self,
        state: u32,
        stimulus: Stimulus,
        words: &mut Words,
        oracle: &Oracle,
    ) -> (u32, Rc<[Deed]>) {
        let known = self.states[state as usize].steps.iter().find(|(it, ..)| *it == stimulus);
        if let Some((_, next, deeds)) = known {
            return (*next, deeds.clone());
        }
        let mut node = self.node(state, words, oracle);
        let effects = hand(&mut *node, stimulus, words, oracle);
        node.check(&effects, oracle);
        let deeds: Rc<[Deed]> =
            effects.into_iter().filter_map(|effect| deed(effect, words)).collect();
        let states = &mut self.states;
        let next =
            *self.numbers.entry(fingerprint(text::of(&*node).as_bytes())).or_insert_with(|| {
                states.push(State { from: Some((state, stimulus)), node: None, steps: Vec::new() });
                states.len() as u32 - 1
            });
        self.keep(next, node);
        self.states[state as usize].steps.push((stimulus, next, deeds.clone()));
        (next, deeds)
    }

    /// Keeps the node of a state in memory, in place of the oldest one.
    fn keep(&mut self, state: u32, node: Box<N>) {
        self.states[state as usize].node = Some(node);
        self.at_hand.push_back(state);
        if self.at_hand.len() > AT_HAND
            && let Some(oldest) = self.at_hand.pop_front()
        {
            self.states[oldest as usize].node = None;
        }
    }

    /// Returns the node of a state. A node is a function of its inputs, so it is rebuilt from them
    /// if it has moved on.
    fn node(&mut self, state: u32, words: &Words, oracle: &Oracle) -> Box<N> {
        if let Some(node) = self.states[state as usize].node.take() {
            return node;
        }
        let (mut inputs, mut at) = (Vec::new(), state);
        while let Some((before, stimulus)) = self.states[at as usize].from {
            inputs.push(stimulus);
            at = before;
        }
        let mut node = Box::new((self.fresh.0)());
        for stimulus in inputs.into_iter().rev() {
            hand(&mut *node, stimulus, words, oracle);
        }
        node
    }
}

/// Hands an input to a node and returns its effects.
fn hand(node: &mut impl Node, stimulus: Stimulus, words: &Words, oracle: &Oracle) -> Outbox {
    let mut out = Outbox::new();
    let now = match stimulus {
        Stimulus::Wake => node.deadline().expect("something that is due"),
        _ => NOW,
    };
    node.handle(now, words.input(stimulus, oracle), &mut out);
    out
}

fn deed(effect: Effect, words: &mut Words) -> Option<Deed> {
    Some(match effect {
        Effect::Send(peer, message) => Deed::Send(peer, words.of_message(message)),
        Effect::Close(peer) => Deed::Close(peer),
        Effect::Dial(target) => Deed::Dial { coordinator: target == Target::Server },
        Effect::Prepare(_) => Deed::Prepare,
        Effect::Compute(order) => Deed::Compute(words.of_order(&order)),
        Effect::Evaluate(order) => Deed::Evaluate(words.of_point(order.point)),
        Effect::Report(Event::Redialling { .. }) => Deed::Redials,
        Effect::Report(Event::Ended { .. }) => Deed::End,
        Effect::Done(_) => Deed::Done,
        Effect::Report(_) | Effect::Limit(..) | Effect::Recycle(_) | Effect::Pause => return None,
        effect => panic!("nobody asks for {effect:?} here"),
    })
}

/// The automata of all processes.
#[derive(Debug)]
pub(super) struct Automata {
    pub(super) oracle: Oracle,
    pub(super) words: Words,
    coordinator: Automaton<Server>,
    shard: Automaton<Shard>,
    workers: Vec<Automaton<Worker>>,
}

impl Automata {
    pub(super) fn new(oracle: Oracle) -> Self {
        let (job, lease) = (oracle.job.clone(), oracle.job.membership.lease);
        let worker = |number| {
            move || {
                Worker::new(WorkerConfig {
                    name: format!("process-{number}"),
                    worker: Some(WorkerId(number)),
                    wants_examples: false,
                    lease,
                    stream: Stream::new(number.into()),
                })
            }
        };
        let shard = move || {
            Shard::new(ShardConfig {
                place: Place::First { server: ServerId(1), servers: 2 },
                address: "shard".into(),
                lease,
                stream: Stream::new(9),
            })
        };
        let workers = (0..oracle.bounds.workers).map(|number| Automaton::new(worker(number)));
        Self {
            workers: workers.collect(),
            words: Words::default(),
            coordinator: Automaton::new(move || Server::new(job.clone(), 1).expect("a job")),
            shard: Automaton::new(shard),
            oracle,
        }
    }

    /// Returns the state and the deeds that follow from `stimulus` when `process` is in `state`.
    pub(super) fn step(
        &mut self,
        process: usize,
        state: u32,
        stimulus: Stimulus,
    ) -> (u32, Rc<[Deed]>) {
        let (words, oracle) = (&mut self.words, &self.oracle);
        match process {
            0 => self.coordinator.step(state, stimulus, words, oracle),
            1 => self.shard.step(state, stimulus, words, oracle),
            _ => self.workers[process - 2].step(state, stimulus, words, oracle),
        }
    }

    /// Checks that the run has ended, with the right result, in a state of the coordinator.
    pub(super) fn check_end(&mut self, state: u32) {
        let server = self.coordinator.node(state, &self.words, &self.oracle);
        assert!(server.is_done());
        assert_eq!(server.version(), self.oracle.last());
        assert_eq!(server.ledger().outstanding, 0);
        self.coordinator.keep(state, server);
    }

    /// Number of states of each kind of process.
    pub(super) fn sizes(&self) -> [usize; 3] {
        let workers = self.workers.iter().map(|worker| worker.states.len()).sum();
        [self.coordinator.states.len(), self.shard.states.len(), workers]
    }
}
