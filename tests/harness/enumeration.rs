//! All that can happen to a small group of servers and its workers: every order in which messages
//! arrive, and every moment at which processes crash, until nothing new comes up.
//!
//! The nodes are the real ones. What they hold is what their `Debug` shows, so two states of the world
//! with the same texts, the same messages under way and the same crashes left are one state. Each node
//! is asked once for each of its states and inputs (an automaton); the world is
//! a table of numbers after that.
//!
//! What is left out changes nothing for anybody: the time (nothing is ever silent for a lease, and a
//! pause before a dial is over at once, which is a message that takes longer), data that are ready and
//! evaluations that are done at once, and that a connection is heard of before its first message. The
//! coordinator learns at once what the other server has followed; it forgets decisions by that and
//! nothing else. A server that crashes has lost its connections and nothing else, since it keeps its
//! inputs; a worker has lost everything.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod automaton;
mod oracle;
mod text;
mod world;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use automaton::Automata;
use oracle::Oracle;
pub use oracle::small_job;
use world::{Action, World};

/// How much there is to enumerate.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Workers.
    pub workers: u32,
    /// Updates until the budget is used up.
    pub rounds: u32,
    /// Processes that crash and begin anew, at most.
    pub crashes: u8,
    /// Whether all have joined and have their first parameters when it begins.
    pub joined: bool,
    /// Whether connections are made, handshake included, and lost, with what is under way on them, in
    /// one step. So there is less to enumerate: of the moments between, only those before and after.
    pub at_once: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// States of the world.
    pub states: usize,
    /// Steps from one of them to another.
    pub steps: usize,
    /// States in which everybody has finished.
    pub ends: usize,
    /// States of the coordinator, the other server and all workers, each for itself.
    pub local: [usize; 3],
}

/// Enumerates all there is.
///
/// # Panics
/// If in any state something is not as it must be, if nothing can happen though not all have
/// finished, or if from some state there is no way to an end.
#[must_use]
pub fn enumerate(bounds: Bounds) -> Found {
    let mut automata = Automata::new(Oracle::new(bounds));
    let (mut known, mut graph) = (Known::default(), Graph::default());
    let first = World::begin(bounds, &mut automata);
    known.number(&first.bytes());
    graph.came.push(None);
    let mut queue = VecDeque::from([first]);
    while let Some(world) = queue.pop_front() {
        let state = graph.begins.len() as u32;
        let actions = world.actions();
        graph.ends.push(actions.is_empty());
        graph.begins.push(graph.next.len());
        let looked_at = catch_unwind(AssertUnwindSafe(|| {
            if actions.is_empty() {
                world.check_end(&mut automata);
            }
            for &action in &actions {
                graph.next.push(0);
                graph.under_way = Some((state, action));
                let mut after = world.clone();
                after.act(action, &mut automata);
                let (number, is_new) = known.number(&after.bytes());
                if let Some(next) = graph.next.last_mut() {
                    *next = number;
                }
                if is_new {
                    graph.came.push(graph.under_way);
                    queue.push_back(after);
                }
            }
        }));
        if let Err(fault) = looked_at {
            tell(bounds, &graph.way_to(state), &mut automata);
            resume_unwind(fault);
        }
    }
    graph.check_that_all_end(|state| tell(bounds, &graph.way_to(state), &mut automata));
    Found {
        states: graph.begins.len(),
        steps: graph.next.len(),
        ends: graph.ends.iter().filter(|end| **end).count(),
        local: automata.sizes(),
    }
}

/// Tells how a state came about.
#[expect(clippy::print_stderr, reason = "whoever reads of a failure wants to know")]
fn tell(bounds: Bounds, way: &[Action], automata: &mut Automata) {
    let mut world = World::begin(bounds, automata);
    for &action in way {
        eprintln!("{}", world.words(action, automata));
        world.act(action, automata);
    }
    eprintln!("{world:?}");
}

/// The states that have come up.
#[derive(Debug, Default)]
struct Known {
    numbers: States,
}

#[expect(clippy::disallowed_types, reason = "it is only asked, never gone through")]
type States = std::collections::HashMap<u128, u32>;

impl Known {
    /// The number of a state, and whether it is new.
    fn number(&mut self, bytes: &[u8]) -> (u32, bool) {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(fingerprint(bytes)).or_insert(next);
        (number, number == next)
    }
}

/// Two different states have the same with a chance of 2^-128.
fn fingerprint(bytes: &[u8]) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(bytes);
        hasher.finish()
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

/// Where each state leads, in the order of their numbers.
#[derive(Debug, Default)]
struct Graph {
    begins: Vec<usize>,
    next: Vec<u32>,
    ends: Vec<bool>,
    /// Whence each state came the first time.
    came: Vec<Option<(u32, Action)>>,
    /// What is being looked at.
    under_way: Option<(u32, Action)>,
}

impl Graph {
    fn next(&self, state: usize) -> &[u32] {
        let end = self.begins.get(state + 1).copied().unwrap_or(self.next.len());
        &self.next[self.begins[state]..end]
    }

    /// What happened before a state; what was under way there comes last.
    fn way_to(&self, state: u32) -> Vec<Action> {
        let (mut way, mut at) = (Vec::new(), state);
        way.extend(self.under_way.filter(|(from, _)| *from == state).map(|(_, action)| action));
        while let Some((before, action)) = self.came[at as usize] {
            way.push(action);
            at = before;
        }
        way.reverse();
        way
    }

    /// Whatever has happened, there is a way to an end.
    fn check_that_all_end(&self, tell: impl FnOnce(u32)) {
        let mut ends = self.ends.clone();
        let mut changes = true;
        while changes {
            changes = false;
            // Most steps lead to a later state.
            for state in (0..ends.len()).rev() {
                if !ends[state] && self.next(state).iter().any(|&next| ends[next as usize]) {
                    ends[state] = true;
                    changes = true;
                }
            }
        }
        if let Some(lost) = ends.iter().position(|end| !end) {
            tell(lost as u32);
            panic!("from here there is no way to an end");
        }
    }
}
