//! Whom a worker follows: its server, or the standby of that, of which one leads.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Member, Worker};
use crate::node::places::Places;
use crate::node::vote::Vote;
use crate::node::{Outbox, Target};
use pstrain_compute::id::{Incarnation, Term};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::replica::{Candidacy, Elector, Promise};

/// Earlier incarnations that a worker promises as, at most: the servers have not heard of more than
/// a few changes of each other.
const MOST_BEFORE: usize = 8;

/// What a worker has promised, and where the two servers are.
#[derive(Debug)]
pub(super) struct Allegiance {
    run: u64,
    vote: Vote,
    places: Places,
    /// The incarnations that it had in this run before the one it has, as the same worker.
    before: Vec<Incarnation>,
}

impl Default for Allegiance {
    fn default() -> Self {
        let (vote, places) = (Vote::default(), Places::new(Target::Server));
        Self { run: 0, vote, places, before: Vec::new() }
    }
}

impl Allegiance {
    /// The term of its promise.
    pub(super) const fn term(&self) -> Term {
        self.vote.term()
    }

    /// Turns to the other server, if there is one; says where to go.
    pub(super) fn turn(&mut self) -> Target {
        self.places.turn()
    }

    /// Follows whoever leads `run` in `term`; false if that is over.
    pub(super) fn follow(&mut self, run: u64, term: Term, standby: Option<String>) -> bool {
        if self.run != run {
            (self.run, self.vote) = (run, Vote::default());
        }
        if !self.vote.follow(term) {
            return false;
        }
        self.places.leads(standby);
        true
    }

    /// Notes that a worker of this process is another incarnation of itself, or another worker.
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

    /// Notes where the standby is, as the server that leads says.
    pub(super) fn note_standby(&mut self, standby: Option<String>) {
        self.places.note_standby(standby);
    }

    /// Notes where the server that leads is, as a standby says.
    pub(super) fn note_leader(&mut self, leader: String) {
        self.places.note_other(leader);
    }
}

impl Worker {
    pub(super) fn on_candidacy(&mut self, now: Time, asked: Candidacy, out: &mut Outbox) {
        let Some(member) = self.member.as_ref().filter(|member| member.run == asked.run) else {
            return;
        };
        let elector = Elector::Worker(member.worker, member.incarnation);
        let before = self.allegiance.before.clone();
        let promise = Promise { before, ..self.allegiance.vote.answer(elector, asked) };
        self.send(now, Message::Promise(promise), out);
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
