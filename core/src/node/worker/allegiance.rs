//! Whom a worker follows: its server, or the standby of that, of which one leads.

use alloc::string::String;

use super::Worker;
use crate::id::Term;
use crate::node::{Outbox, Target};
use crate::protocol::Message;
use crate::protocol::replica::{Candidacy, Promise};
use crate::time::Time;

/// What a worker has promised, and where the two servers are.
#[derive(Debug)]
pub(super) struct Allegiance {
    run: u64,
    /// It follows nobody in an earlier term, as far as it has promised.
    term: Term,
    /// To whom, if somebody had to ask.
    to: Option<Candidacy>,
    /// Where it goes next, and where after that.
    here: Target,
    elsewhere: Option<Target>,
}

impl Default for Allegiance {
    fn default() -> Self {
        Self { run: 0, term: Term(0), to: None, here: Target::Server, elsewhere: None }
    }
}

impl Allegiance {
    /// The term of its promise.
    pub(super) const fn term(&self) -> Term {
        self.term
    }

    /// Turns to the other server, if there is one; says where to go.
    pub(super) fn turn(&mut self) -> Target {
        if let Some(elsewhere) = &mut self.elsewhere {
            core::mem::swap(&mut self.here, elsewhere);
        }
        self.here.clone()
    }

    /// Follows whoever leads `run` in `term`; false if that is over.
    ///
    /// A later term that was promised to somebody who had kept less than this one has is no reason
    /// not to: too many have promised to follow this one for that to come about, since they promise
    /// nothing to one who has kept less.
    pub(super) fn follow(&mut self, run: u64, term: Term, standby: Option<String>) -> bool {
        let came_to_nothing = self.to.is_some_and(|asked| asked.kept < term);
        if self.run == run && term < self.term && !came_to_nothing {
            return false;
        }
        if self.run != run || self.term != term {
            (self.run, self.term, self.to) = (run, term, None);
        }
        self.note_standby(standby);
        true
    }

    /// Notes where the standby is. The address of one that is gone does no harm.
    pub(super) fn note_standby(&mut self, standby: Option<String>) {
        if let Some(address) = standby {
            self.elsewhere = Some(Target::Address(address));
        }
    }

    /// Promises to follow nobody else in the term asked for, or an earlier one: only to one that
    /// keeps all that anybody before it may have kept.
    fn promise(&mut self, asked: Candidacy) -> bool {
        let is_it = self.to.is_some_and(|before| before.id == asked.id);
        let again = asked.term == self.term && is_it;
        let granted = asked.term > self.term && asked.kept >= self.term;
        if granted {
            (self.term, self.to) = (asked.term, Some(asked));
        }
        granted || again
    }
}

impl Worker {
    pub(super) fn on_candidacy(&mut self, now: Time, asked: Candidacy, out: &mut Outbox) {
        let Some(member) = self.member.as_ref().filter(|member| member.run == asked.run) else {
            return;
        };
        let (worker, incarnation) = (member.worker, member.incarnation);
        let granted = self.allegiance.promise(asked);
        let term = if granted { asked.term } else { self.allegiance.term() };
        let promise = Promise { worker, incarnation, term, granted };
        self.send(now, Message::Promise(promise), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(term: u64, kept: u64, id: u64) -> Candidacy {
        Candidacy { run: 7, term: Term(term), kept: Term(kept), id }
    }

    #[test]
    fn a_term_is_promised_to_one_and_never_taken_back() {
        let mut allegiance = Allegiance::default();
        assert!(allegiance.follow(7, Term(1), None));
        assert!(allegiance.promise(asked(2, 1, 10)));
        assert!(allegiance.promise(asked(2, 1, 10)), "its question may come twice");
        assert!(!allegiance.promise(asked(2, 1, 11)), "to another");
        assert!(!allegiance.promise(asked(1, 1, 10)), "an earlier term");
        assert!(!allegiance.follow(7, Term(1), None), "whoever led before");
        assert!(allegiance.follow(7, Term(2), None));
    }

    #[test]
    fn whoever_keeps_less_than_was_promised_before_is_refused() {
        let mut allegiance = Allegiance::default();
        assert!(allegiance.follow(7, Term(1), None));
        assert!(allegiance.promise(asked(2, 1, 10)), "the primary goes on alone");
        assert!(!allegiance.promise(asked(3, 1, 11)), "the standby has nothing of term 2");
        assert!(allegiance.promise(asked(3, 2, 12)), "that of term 2 has");
    }

    #[test]
    fn a_promise_to_one_that_cannot_lead_any_more_binds_nobody() {
        let mut allegiance = Allegiance::default();
        assert!(allegiance.follow(7, Term(1), None));
        assert!(allegiance.promise(asked(5, 1, 10)));
        assert!(!allegiance.follow(7, Term(1), None), "it may lead in term 5");
        assert!(allegiance.follow(7, Term(3), None), "it cannot, since another has won term 3");
        assert!(!allegiance.promise(asked(6, 1, 10)), "and never will");
    }

    #[test]
    fn another_run_begins_anew() {
        let mut allegiance = Allegiance::default();
        assert!(allegiance.follow(7, Term(5), None));
        assert!(allegiance.follow(8, Term(1), None));
        assert_eq!(allegiance.term(), Term(1));
    }

    #[test]
    fn it_turns_to_the_standby_and_back() {
        let mut allegiance = Allegiance::default();
        assert_eq!(allegiance.turn(), Target::Server, "there is no other");
        allegiance.note_standby(Some("b".into()));
        assert_eq!(allegiance.turn(), Target::Address("b".into()));
        assert_eq!(allegiance.turn(), Target::Server);
    }
}
