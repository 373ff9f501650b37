//! Exhaustive enumeration of a small group of servers and its workers: every order in which
//! messages arrive, and every moment at which processes crash, until no new state appears.
//!
//! The nodes are the real ones. The state of a node is what its `Debug` shows, so two states of the
//! world with the same texts, the same messages under way and the same crashes left are one state.
//! Each node handles each input once in each of its states (an automaton); after that the world is
//! a table of numbers.
//!
//! A simulation has one order of events, by their times. Here all orders are tried, so there is no
//! queue of events, and this is no configuration of `pstrain_transports::simulation`.
//!
//! The simplifications change no result. Time does not pass: no peer is silent for a lease, and a
//! pause before a dial ends at once, which equals a message that takes longer. Data are ready and
//! evaluations done at once, and a node learns of a connection with its first message. The
//! coordinator learns at once which decisions the other server has followed, and uses that only to
//! forget them. A server that crashes loses only its connections, since it keeps its inputs; a
//! worker loses everything.

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

/// Bounds of an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of workers.
    pub workers: u32,
    /// Updates until the budget is used up.
    pub rounds: u32,
    /// Most crashes; each crashed process restarts.
    pub crashes: u8,
    /// True if all workers have joined and have their first parameters at the start.
    pub joined: bool,
    /// Which events take time.
    pub grain: Grain,
}

/// Which events take time. All others happen in the same step as their cause, which leaves less to
/// enumerate. Messages on one connection always arrive in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grain {
    /// Each message.
    Messages,
    /// Each message on an established connection. Connections are made, handshake included, and
    /// lost in one step; if a process has crashed, messages under way on them are lost, too.
    Connections,
    /// Messages from workers to servers, and from the coordinator to the other server. All other
    /// messages arrive in the same step, and gradients are computed in it.
    Decisions,
}

/// Result of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of states of the world.
    pub states: usize,
    /// Number of steps between them.
    pub steps: usize,
    /// Number of states in which all processes have finished.
    pub ends: usize,
    /// Number of states of the coordinator, of the other server, and of all workers.
    pub local: [usize; 3],
}

/// Enumerates all states within `bounds`.
///
/// # Panics
/// If a check fails in some state, if nothing can happen although not all processes have finished,
/// or if some state has no path to an end.
#[must_use]
pub fn enumerate(bounds: Bounds) -> Found {
    let mut automata = Automata::new(Oracle::new(bounds));
    let (mut known, mut graph) = (Known::default(), Graph::default());
    let first = World::begin(bounds, &mut automata);
    known.number(&first.bytes());
    graph.states.push(State::default());
    // Depth first, so that few worlds wait to be explored at a time.
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

/// Prints how a state came about.
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

/// The states that were found, by fingerprint.
#[derive(Debug, Default)]
struct Known {
    numbers: States,
}

#[expect(clippy::disallowed_types, reason = "it is only asked, never gone through")]
type States = std::collections::HashMap<u128, u32>;

impl Known {
    /// Returns the number of a state, and true if it is new.
    fn number(&mut self, bytes: &[u8]) -> (u32, bool) {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(fingerprint(bytes)).or_insert(next);
        (number, number == next)
    }
}

/// Hashes a state: two different states collide with a probability of 2^-128.
fn fingerprint(bytes: &[u8]) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(bytes);
        hasher.finish()
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

/// All states by their numbers, and their successors.
#[derive(Debug, Default)]
struct Graph {
    states: Vec<State>,
    /// Successors; those of one state are adjacent.
    next: Vec<u32>,
    /// The step that is being explored.
    under_way: Option<Step>,
}

/// A state, and the index of the action taken there.
type Step = (u32, u8);

/// Record of a state.
#[derive(Debug, Default)]
struct State {
    /// The step that reached it first.
    came: Option<Step>,
    /// Index of its first successor in `Graph::next`.
    begin: usize,
    steps: u8,
    /// True if nothing more can happen.
    ends: bool,
}

impl Graph {
    fn next(&self, state: &State) -> &[u32] {
        &self.next[state.begin..][..state.steps.into()]
    }

    /// Returns the actions that lead to a state, and last the action being explored there.
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

    /// Checks that every state has a path to an end.
    fn check_that_all_end(&self, tell: impl FnOnce(u32)) {
        let mut ends: Vec<bool> = self.states.iter().map(|state| state.ends).collect();
        let mut changes = true;
        while changes {
            changes = false;
            // Backwards, since most steps lead to a later state.
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
