//! Order in which pending connections are served.
//!
//! A hello, the first message of a handshake, costs its sender nothing but the server a signature,
//! so a flood of hellos takes all the time for pending connections. Their origins share that time:
//! each origin has a turn for one step of a handshake, and a flood from some addresses delays every
//! other origin by only that many steps. Known origins have three of four turns, so a returning
//! member does not wait for unknown origins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pstrain_compute::id::PeerId;

use super::Ready;
use super::pending::Origin;

/// Of this many turns one goes to unknown origins first, however many known origins wait.
const UNKNOWN_TURN: u64 = 4;
/// Maximum number of waiting hellos per origin. More would wait in vain: an immediate refusal lets
/// an honest dialler try again.
const MOST_HELLOS: usize = 64;

/// Standing of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// A connection from it has authenticated, or the node has admitted one.
    Known,
    Stranger,
}

/// Progress of a pending connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing was read from the connection, and its first message requires a signature.
    Hello,
    /// The connection has had a turn, or requires nothing expensive.
    Later,
}

/// The queue of a connection.
type Line = (Standing, Origin);

/// Events of pending connections that wait to be served.
#[derive(Debug, Default)]
pub(super) struct Turns {
    calls: BTreeMap<PeerId, Call>,
    lines: BTreeMap<Line, Waiting>,
    /// The origins of `lines`, each once, in the order of their turns.
    known: VecDeque<Origin>,
    strangers: VecDeque<Origin>,
    turns: u64,
}

#[derive(Debug)]
struct Call {
    line: Line,
    ready: Ready,
}

/// Waiting connections of one origin.
#[derive(Debug, Default)]
struct Waiting {
    hellos: BTreeSet<PeerId>,
    later: BTreeSet<PeerId>,
}

impl Waiting {
    /// Removes the next connection to serve: the oldest one past its hello, since it is nearest to
    /// admission, or else the newest hello. If there are more hellos than can be answered, the
    /// others wait in vain, and at least this one has not waited.
    fn pop(&mut self) -> Option<PeerId> {
        self.later.pop_first().or_else(|| self.hellos.pop_last())
    }
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Records an event of a connection. Returns the hello to refuse instead, if its origin has too
    /// many.
    pub(super) fn call(
        &mut self,
        id: PeerId,
        (standing, origin): Line,
        step: Step,
        ready: Ready,
    ) -> Option<PeerId> {
        if let Some(call) = self.calls.get_mut(&id) {
            call.ready.add(ready);
            return None;
        }
        let line = (standing, origin);
        self.calls.insert(id, Call { line, ready });
        let waiting = self.lines.entry(line).or_insert_with(|| {
            match standing {
                Standing::Known => self.known.push_back(origin),
                Standing::Stranger => self.strangers.push_back(origin),
            }
            Waiting::default()
        });
        match step {
            Step::Later => drop(waiting.later.insert(id)),
            Step::Hello => drop(waiting.hellos.insert(id)),
        }
        let is_full = waiting.hellos.len() > MOST_HELLOS;
        waiting.hellos.first().copied().filter(|_| is_full)
    }

    /// Removes a connection that is no longer pending. Returns its recorded events.
    pub(super) fn leave(&mut self, id: PeerId) -> Option<Ready> {
        let Call { line, ready } = self.calls.remove(&id)?;
        if let Some(waiting) = self.lines.get_mut(&line) {
            waiting.later.remove(&id);
            waiting.hellos.remove(&id);
        }
        Some(ready)
    }

    /// Returns the connection whose turn it is, with its recorded events.
    pub(super) fn next(&mut self) -> Option<(PeerId, Ready)> {
        self.turns += 1;
        let order = if self.turns.is_multiple_of(UNKNOWN_TURN) {
            [Standing::Stranger, Standing::Known]
        } else {
            [Standing::Known, Standing::Stranger]
        };
        order.into_iter().find_map(|standing| self.next_of(standing))
    }

    fn next_of(&mut self, standing: Standing) -> Option<(PeerId, Ready)> {
        let ring = match standing {
            Standing::Known => &mut self.known,
            Standing::Stranger => &mut self.strangers,
        };
        while let Some(origin) = ring.pop_front() {
            let line = (standing, origin);
            let Some(id) = self.lines.get_mut(&line).and_then(Waiting::pop) else {
                self.lines.remove(&line);
                continue;
            };
            ring.push_back(origin);
            return self.calls.remove(&id).map(|call| (id, call.ready));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const READY: Ready = Ready { readable: true, writable: false, closed: false };

    fn host(last: u8) -> Origin {
        Origin::Host(IpAddr::from([10, 0, 0, last]))
    }

    /// A flood of `each` hellos from each of 50 addresses.
    fn flooded(each: u64) -> Turns {
        let mut turns = Turns::default();
        for id in 0..50 * each {
            let line = (Standing::Stranger, host((id % 50) as u8));
            turns.call(PeerId(id), line, Step::Hello, READY);
        }
        turns
    }

    /// Returns how many turns the connection `id` waits.
    fn turns_until(turns: &mut Turns, id: PeerId) -> usize {
        let order = std::iter::from_fn(|| turns.next());
        order.take_while(|&(next, _)| next != id).count()
    }

    #[test]
    fn one_that_is_known_waits_for_no_stranger() {
        let mut turns = flooded(60);
        turns.call(PeerId(9000), (Standing::Known, host(100)), Step::Hello, READY);
        assert!(turns_until(&mut turns, PeerId(9000)) <= 1);
        turns.call(PeerId(9000), (Standing::Known, host(100)), Step::Later, READY);
        assert!(turns_until(&mut turns, PeerId(9000)) <= 1);
    }

    #[test]
    fn a_stranger_waits_for_one_step_of_each_other_address() {
        let mut turns = flooded(60);
        turns.call(PeerId(9000), (Standing::Stranger, host(100)), Step::Hello, READY);
        assert!(turns_until(&mut turns, PeerId(9000)) <= 50);
        turns.call(PeerId(9000), (Standing::Stranger, host(100)), Step::Later, READY);
        assert!(turns_until(&mut turns, PeerId(9000)) <= 50);
    }

    #[test]
    fn a_flood_from_a_known_address_leaves_strangers_every_fourth_turn() {
        let mut turns = Turns::default();
        for id in 0..60 {
            turns.call(PeerId(id), (Standing::Known, host(1)), Step::Hello, READY);
        }
        turns.call(PeerId(9000), (Standing::Stranger, host(2)), Step::Hello, READY);
        assert!(turns_until(&mut turns, PeerId(9000)) < UNKNOWN_TURN as usize);
    }

    #[test]
    fn of_too_many_hellos_of_one_address_the_oldest_is_refused_and_the_newest_is_next() {
        let mut turns = Turns::default();
        let line = (Standing::Stranger, host(1));
        for id in 0..MOST_HELLOS as u64 {
            assert_eq!(turns.call(PeerId(id), line, Step::Hello, READY), None);
        }
        assert_eq!(turns.call(PeerId(9000), line, Step::Hello, READY), Some(PeerId(0)));
        assert!(turns.leave(PeerId(0)).is_some_and(|ready| ready.readable));
        // Each origin has its own limit.
        assert_eq!(turns.call(PeerId(9001), (line.0, host(2)), Step::Hello, READY), None);
        assert_eq!(turns.next().map(|(id, _)| id), Some(PeerId(9000)));
    }

    #[test]
    fn all_that_has_happened_to_a_connection_is_seen_to_in_one_turn() {
        let mut turns = Turns::default();
        let line = (Standing::Stranger, host(1));
        turns.call(PeerId(1), line, Step::Hello, READY);
        turns.call(PeerId(1), line, Step::Hello, Ready { closed: true, ..Ready::default() });
        let (id, ready) = turns.next().unwrap();
        assert!(id == PeerId(1) && ready.readable && ready.closed && !ready.writable);
        assert!(turns.is_empty() && turns.next().is_none() && turns.lines.is_empty());
    }
}
