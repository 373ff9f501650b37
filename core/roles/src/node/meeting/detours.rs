//! Pairs of workers: one does not reach the other at its address.
//!
//! The next group takes another route for their messages ([`Ranks::route`]): the other worker
//! dials, or the messages go by way of the meeting point.
//!
//! [`Ranks::route`]: pstrain_wire::peers::Ranks::route

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::string::String;
use alloc::vec::Vec;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_wire::peers::{Complaint, Connection, RankOf};
use pstrain_wire::reason::as_reason;

/// The pairs, as long as both workers stay.
#[derive(Debug, Default)]
pub(super) struct Detours(BTreeMap<Pair, Detour>);

/// A worker and the one that it does not reach.
pub(super) type Pair = (WorkerId, WorkerId);

/// Why a worker does not reach another one.
#[derive(Debug)]
pub(super) struct Detour {
    pub(super) why: String,
    pub(super) since: Time,
}

impl Detours {
    /// Takes the complaints of the members of a group that has halted, each with its member.
    /// Returns the pairs that were not known. A connection that breaks is used again, unless the
    /// group `is_stuck`: it has made no update.
    pub(super) fn note(
        &mut self,
        now: Time,
        complaints: &[(WorkerId, Complaint)],
        is_stuck: bool,
    ) -> Vec<Pair> {
        let dials = |worker: WorkerId| {
            complaints.iter().any(|(by, it)| *by == worker && it.connection == Connection::Outgoing)
        };
        let mut new = Vec::new();
        for (by, Complaint { about, connection, why }) in complaints {
            let pairs = match connection {
                Connection::Outgoing => [Some((*by, *about)), None],
                // A member dials one after another: it may not have come to this one.
                Connection::Incoming if dials(*about) => [None; 2],
                Connection::Incoming => [Some((*about, *by)), None],
                Connection::Made if is_stuck => [Some((*by, *about)), Some((*about, *by))],
                Connection::Made => [None; 2],
            };
            for pair in pairs.into_iter().flatten() {
                if let Entry::Vacant(entry) = self.0.entry(pair) {
                    entry.insert(Detour { why: as_reason(why), since: now });
                    new.push(pair);
                }
            }
        }
        new
    }

    /// A worker begins another membership, at another address perhaps.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.0.retain(|(from, to), _| *from != worker && *to != worker);
    }

    /// The pairs among the members of a group, by rank.
    pub(super) fn among(&self, members: &[RankOf]) -> Vec<(Rank, Rank)> {
        let rank = |worker: WorkerId| {
            let place = members.iter().position(|member| member.worker == worker)?;
            Some(place as Rank)
        };
        self.0.keys().filter_map(|(from, to)| Some((rank(*from)?, rank(*to)?))).collect()
    }

    /// The first worker that `from` does not reach, and why.
    pub(super) fn first_of(&self, from: WorkerId) -> Option<(WorkerId, &Detour)> {
        let mut pairs = self.0.iter();
        pairs.find_map(|((by, to), detour)| (*by == from).then_some((*to, detour)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: WorkerId = WorkerId(1);
    const TWO: WorkerId = WorkerId(2);
    const THREE: WorkerId = WorkerId(3);

    fn noted(complaints: &[(WorkerId, WorkerId, Connection)], is_stuck: bool) -> Vec<Pair> {
        let complaints: Vec<_> = complaints
            .iter()
            .map(|&(by, about, connection)| {
                (by, Complaint { about, connection, why: "refused".into() })
            })
            .collect();
        Detours::default().note(Time::ZERO, &complaints, is_stuck)
    }

    #[test]
    fn the_member_that_dials_knows_more_than_the_ones_that_it_has_not_come_to() {
        use Connection::{Incoming, Outgoing};
        assert_eq!(noted(&[(TWO, ONE, Outgoing)], false), [(TWO, ONE)]);
        assert_eq!(noted(&[(ONE, TWO, Incoming)], false), [(TWO, ONE)]);
        let both = [(ONE, THREE, Incoming), (THREE, TWO, Outgoing)];
        assert_eq!(noted(&both, false), [(THREE, TWO)]);
    }

    #[test]
    fn a_connection_that_breaks_is_used_again_unless_no_update_is_made() {
        let broken = [(ONE, TWO, Connection::Made)];
        assert_eq!(noted(&broken, false), []);
        assert_eq!(noted(&broken, true), [(ONE, TWO), (TWO, ONE)]);
    }
}
