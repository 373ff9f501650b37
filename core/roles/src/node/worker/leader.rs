//! The leader that a worker follows: its server or the server's standby.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Member, Worker};
use crate::node::addresses::Addresses;
use crate::node::vote::Ballot;
use crate::node::{Outbox, Target};
use pstrain_compute::id::{Incarnation, Term};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::replica::{Elector, Vote, VoteRequest};

/// Limit of earlier incarnations that a worker votes as: the servers of a pair lag behind each
/// other by only a few changes of the membership.
const MOST_BEFORE: usize = 8;

/// The worker's votes, and the addresses of the two servers.
#[derive(Debug)]
pub(super) struct Allegiance {
    run: u64,
    vote: Ballot,
    places: Addresses,
    /// Earlier incarnations of the same worker in this run.
    before: Vec<Incarnation>,
}

impl Default for Allegiance {
    fn default() -> Self {
        let (vote, places) = (Ballot::default(), Addresses::new(Target::Server));
        Self { run: 0, vote, places, before: Vec::new() }
    }
}

impl Allegiance {
    /// The term of the last vote, or of the leader that the worker follows.
    pub(super) const fn term(&self) -> Term {
        self.vote.term()
    }

    /// Advances to the other server, if there is one; returns the address to dial.
    pub(super) fn turn(&mut self) -> Target {
        self.places.turn()
    }

    /// Follows the leader of `run` in `term`; returns false if the worker has voted for a later
    /// term.
    pub(super) fn follow(&mut self, run: u64, term: Term, standby: Option<String>) -> bool {
        if self.run != run {
            (self.run, self.vote) = (run, Ballot::default());
        }
        if !self.vote.follow(term) {
            return false;
        }
        self.places.leads(standby);
        true
    }

    /// Records that this process has a new incarnation, or became another worker.
    pub(super) fn becomes(&mut self, was: &Member, is: &Member) {
        if (was.run, was.worker) != (is.run, is.worker) {
            self.before.clear();
        } else if was.incarnation != is.incarnation {
            if self.before.len() == MOST_BEFORE {
                self.before.remove(0);
            }
            self.before.push(was.incarnation);
        }
    }

    /// Records the standby's address, as the leader states.
    pub(super) fn note_standby(&mut self, standby: Option<String>) {
        self.places.note_standby(standby);
    }

    /// Records the leader's address, as a standby states.
    pub(super) fn note_leader(&mut self, leader: String) {
        self.places.note_other(leader);
    }
}

impl Worker {
    pub(super) fn on_candidacy(&mut self, now: Time, asked: VoteRequest, out: &mut Outbox) {
        let Some(member) = self.member.as_ref().filter(|member| member.run == asked.run) else {
            return; // no member of that run has a vote here
        };
        let elector = Elector::Worker(member.worker, member.incarnation);
        let before = self.allegiance.before.clone();
        let vote = Vote { before, ..self.allegiance.vote.answer(elector, asked) };
        self.send(now, Message::Vote(vote), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_begins_anew() {
        let mut allegiance = Allegiance::default();
        assert!(allegiance.follow(7, Term(5), None));
        assert!(allegiance.follow(8, Term(1), None));
        assert_eq!(allegiance.term(), Term(1));
    }
}
