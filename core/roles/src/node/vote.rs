//! An elector's votes for one server that has a standby: which leader the elector may follow.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::Term;
use pstrain_wire::replica::{Elector, Stage, Vote, VoteRequest};

/// The state of an elector's votes for one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ballot {
    /// The elector follows no leader of an earlier term.
    term: Term,
    /// The candidate that got the vote for `term`, and the term of what it had kept; none if the
    /// leader of `term` is known.
    to: Option<(u64, Term)>,
    /// The latest term in which a server may have led, and that server: a candidate that keeps less
    /// must not lead.
    led: (Term, Option<u64>),
}

impl Ballot {
    /// The term of the last vote, or of the leader that the elector follows.
    pub(super) const fn term(&self) -> Term {
        self.term
    }

    /// Follows the leader of `term`; returns false if the elector has voted for a later term.
    ///
    /// A later vote does not count if its candidate had kept less than `term`: the leader of `term`
    /// has bound enough electors, and these refuse a candidate that keeps less, so that it cannot
    /// win.
    pub(super) fn follow(&mut self, term: Term) -> bool {
        let came_to_nothing = self.to.is_some_and(|(_, kept)| kept < term);
        if term < self.term && !came_to_nothing {
            return false;
        }
        if term != self.term {
            *self = Self { term, to: None, led: (term, None) };
        }
        true
    }

    /// Votes on a candidacy. A term gets one vote, and only for a candidate that has kept as much
    /// as the last server that may have led, or that is that server itself.
    pub(super) fn answer(&mut self, elector: Elector, asked: VoteRequest) -> Vote {
        let VoteRequest { term, kept, id, stage, .. } = asked;
        let (led, by) = self.led;
        if stage == Stage::Releases {
            if by == Some(id) && led <= term {
                self.led = (led.min(kept), by);
            }
            return Vote { elector, before: Vec::new(), term, stage, granted: true };
        }
        let has_all = kept >= led || by == Some(id);
        let is_its = term == self.term && self.to.is_some_and(|(to, _)| to == id);
        let granted = is_its || term > self.term && has_all;
        if granted {
            (self.term, self.to) = (term, Some((id, kept)));
            if stage == Stage::Binds {
                self.led = (term, Some(id));
            }
        }
        Vote { elector, before: Vec::new(), term: self.term, stage, granted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pstrain_compute::id::ServerId;

    fn ask(vote: &mut Ballot, stage: Stage, term: u64, kept: u64, id: u64) -> bool {
        let (run, server, term, kept) = (7, ServerId::COORDINATOR, Term(term), Term(kept));
        let asked = VoteRequest { run, server, term, kept, id, stage };
        vote.answer(Elector::Coordinator, asked).granted
    }

    fn followed() -> Ballot {
        let mut vote = Ballot::default();
        assert!(vote.follow(Term(1)));
        vote
    }

    #[test]
    fn a_term_is_promised_to_one_and_never_taken_back() {
        let mut vote = followed();
        assert!(ask(&mut vote, Stage::Asks, 2, 1, 10));
        assert!(ask(&mut vote, Stage::Asks, 2, 1, 10), "its question may come twice");
        assert!(!ask(&mut vote, Stage::Asks, 2, 1, 11), "to another");
        assert!(!ask(&mut vote, Stage::Asks, 1, 1, 10), "an earlier term");
        assert!(!vote.follow(Term(1)), "whoever led before");
        assert!(vote.follow(Term(2)));
    }

    #[test]
    fn whoever_keeps_less_than_one_that_may_have_led_is_refused() {
        let mut vote = followed();
        assert!(ask(&mut vote, Stage::Asks, 2, 1, 10), "the primary asks");
        assert!(ask(&mut vote, Stage::Asks, 3, 1, 11), "it does not lead yet");
        assert!(!ask(&mut vote, Stage::Binds, 2, 1, 10), "and now another may");
        assert!(ask(&mut vote, Stage::Binds, 3, 1, 11));
        assert!(!ask(&mut vote, Stage::Asks, 4, 1, 10), "it has nothing of term 3");
        assert!(ask(&mut vote, Stage::Asks, 4, 1, 11), "this one has what it did itself");
        assert!(ask(&mut vote, Stage::Asks, 5, 3, 12), "that of term 3 has");
    }

    #[test]
    fn whoever_is_bound_to_nobody_any_more_promises_what_it_did_before() {
        let mut vote = followed();
        assert!(ask(&mut vote, Stage::Asks, 2, 1, 10));
        assert!(ask(&mut vote, Stage::Binds, 2, 1, 10));
        let bound = vote;
        ask(&mut vote, Stage::Releases, 2, 1, 11);
        assert_eq!(vote, bound, "it is bound to another");
        ask(&mut vote, Stage::Releases, 1, 1, 10);
        assert_eq!(vote, bound, "that was said of an earlier term");
        assert!(!ask(&mut vote, Stage::Asks, 3, 1, 11));
        ask(&mut vote, Stage::Releases, 2, 1, 10);
        assert!(!ask(&mut vote, Stage::Asks, 2, 1, 11), "a term is promised once");
        assert!(ask(&mut vote, Stage::Asks, 3, 1, 11), "nobody has led in term 2");
    }

    #[test]
    fn whoever_has_led_alone_cannot_undo_that() {
        let mut vote = followed();
        assert!(ask(&mut vote, Stage::Binds, 2, 1, 10), "it leads, and gets a partner");
        assert!(ask(&mut vote, Stage::Binds, 4, 2, 10), "and loses that, too, which comes back");
        ask(&mut vote, Stage::Releases, 4, 2, 10);
        assert!(!ask(&mut vote, Stage::Asks, 5, 1, 11), "the first partner has nothing of term 2");
        assert!(ask(&mut vote, Stage::Asks, 5, 2, 12), "the second has");
    }

    #[test]
    fn a_promise_to_one_that_cannot_lead_any_more_binds_nobody() {
        let mut vote = followed();
        assert!(ask(&mut vote, Stage::Asks, 5, 1, 10));
        assert!(!vote.follow(Term(1)), "it may lead in term 5");
        assert!(vote.follow(Term(3)), "it cannot, since another has won term 3");
        assert!(!ask(&mut vote, Stage::Binds, 5, 1, 10), "and never will");
    }
}
