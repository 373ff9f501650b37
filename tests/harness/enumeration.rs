//! All that can happen to a small group of servers and its workers: every order in which messages
//! arrive, and every moment at which processes crash, until nothing new comes up.
//!
//! The nodes are the real ones. What they hold is what their `Debug` shows, so two states of the
//! world with the same texts, the same messages under way and the same crashes left are one state.
//! Each node is asked once for each of its states and inputs (an automaton); the world is
//! a table of numbers after that.
//!
//! What is left out changes nothing for anybody: the time (nothing is ever silent for a lease, and
//! a pause before a dial is over at once, which is a message that takes longer), data that are
//! ready and evaluations that are done at once, and that a connection is heard of before its first
//! message. The coordinator learns at once what the other server has followed; it forgets decisions
//! by that and nothing else. A server that crashes has lost its connections and nothing else, since
//! it keeps its inputs; a worker has lost everything.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod automaton;
mod oracle;
mod text;
mod world;

use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use automaton::Automata;
use oracle::Oracle;
pub use oracle::small_job;
use world::World;

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
    /// What takes time.
    pub grain: Grain,
}

/// What takes time: of all else, only the moments before and after are looked at, and there is less
/// to enumerate. What is said on a connection arrives in order, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grain {
    /// Each message.
    Messages,
    /// Each message on a connection that is there. Connections are made, handshake included, and
    /// lost in one step, with what is under way on them if a process has crashed.
    Connections,
    /// What servers hear from workers, and what the other server hears from the coordinator. All
    /// else is heard in the same step, and gradients are computed in it.
    Decisions,
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
    graph.states.push(State::default());
    // Depth first: of all that is left to look at, little is known at a time.
    let mut left = vec![(0, first)];
    while let Some((state, world)) = left.pop() {
        let actions = world.actions();
        let place = &mut graph.states[state as usize];
        (place.begin, place.ends) = (graph.next.len(), actions.is_empty());
        let looked_at = catch_unwind(AssertUnwindSafe(|| {
            if actions.is_empty() {
                world.check_end(&mut automata);
            }
            for (number, &action) in (0..).zip(&actions) {
                graph.under_way = Some((state, number));
                let mut after = world.clone();
                after.act(action, &mut automata);
                let (number, is_new) = known.number(&after.bytes());
                graph.next.push(number);
                if is_new {
                    graph.states.push(State { came: graph.under_way, ..State::default() });
                    left.push((number, after));
                }
            }
        }));
        if let Err(fault) = looked_at {
            tell(bounds, &graph.way_to(state), &mut automata);
            resume_unwind(fault);
        }
        graph.states[state as usize].steps = actions.len() as u8;
    }
    graph.check_that_all_end(|state| tell(bounds, &graph.way_to(state), &mut automata));
    Found {
        states: graph.states.len(),
        steps: graph.next.len(),
        ends: graph.states.iter().filter(|state| state.ends).count(),
        local: automata.sizes(),
    }
}

/// Tells how a state came about.
#[expect(clippy::print_stderr, reason = "whoever reads of a failure wants to know")]
fn tell(bounds: Bounds, way: &[u8], automata: &mut Automata) {
    let mut world = World::begin(bounds, automata);
    for &number in way {
        let action = world.actions()[usize::from(number)];
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

/// All states by their numbers, and where they lead.
#[derive(Debug, Default)]
struct Graph {
    states: Vec<State>,
    /// The states that follow, those that follow one state together.
    next: Vec<u32>,
    /// What is being looked at.
    under_way: Option<Step>,
}

/// A state, and which of all that can happen then happens.
type Step = (u32, u8);

/// What is known of a state.
#[derive(Debug, Default)]
struct State {
    /// Whence it came the first time.
    came: Option<Step>,
    /// Where those begin that follow it.
    begin: usize,
    steps: u8,
    /// Whether nothing more can happen.
    ends: bool,
}

impl Graph {
    fn next(&self, state: &State) -> &[u32] {
        &self.next[state.begin..][..state.steps.into()]
    }

    /// What happened before a state; what was under way there comes last.
    fn way_to(&self, state: u32) -> Vec<u8> {
        let (mut way, mut at) = (Vec::new(), state);
        way.extend(self.under_way.filter(|(from, _)| *from == state).map(|(_, action)| action));
        while let Some((before, action)) = self.states[at as usize].came {
            way.push(action);
            at = before;
        }
        way.reverse();
        way
    }

    /// Whatever has happened, there is a way to an end.
    fn check_that_all_end(&self, tell: impl FnOnce(u32)) {
        let mut ends: Vec<bool> = self.states.iter().map(|state| state.ends).collect();
        let mut changes = true;
        while changes {
            changes = false;
            // Most steps lead to a later state.
            for (number, state) in self.states.iter().enumerate().rev() {
                if !ends[number] && self.next(state).iter().any(|&next| ends[next as usize]) {
                    ends[number] = true;
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
