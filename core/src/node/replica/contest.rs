//! Promises that a server gathers to lead in a new term.

use alloc::collections::BTreeSet;
use core::time::Duration;

use crate::id::{Incarnation, PeerId, Term, WorkerId};
use crate::job::heartbeat;
use crate::node::{Effect, Outbox};
use crate::protocol::Message;
use crate::protocol::replica::{Candidacy, Electorate, Promise};
use crate::time::Time;

/// A term that is asked for, and who has promised to follow in it.
#[derive(Debug)]
pub(super) struct Contest {
    term: Term,
    granted: BTreeSet<(WorkerId, Incarnation)>,
    /// When everybody is asked again.
    ask_at: Time,
}

impl Contest {
    /// Asks for the term after `latest`.
    pub(super) const fn new(latest: Term, now: Time) -> Self {
        Self { term: latest.next(), granted: BTreeSet::new(), ask_at: now }
    }

    /// The term.
    pub(super) const fn term(&self) -> Term {
        self.term
    }

    /// When everybody is asked again.
    pub(super) const fn ask_at(&self) -> Time {
        self.ask_at
    }

    /// Notes that everybody is asked now.
    pub(super) fn ask_later(&mut self, now: Time, lease: Duration) {
        self.ask_at = now + heartbeat(lease);
    }

    /// Asks the worker behind `peer`; `kept` is the term of what the asker has kept.
    pub(super) fn ask(&self, peer: PeerId, run: u64, kept: Term, id: u64, out: &mut Outbox) {
        let candidacy = Candidacy { run, term: self.term, kept, id };
        out.push(Effect::Send(peer, Message::Candidacy(candidacy)));
    }

    /// Takes note of an answer. If a later term stands against it, that after it is asked for.
    pub(super) fn take(&mut self, promise: Promise) {
        let Promise { worker, incarnation, term, granted } = promise;
        if granted && term == self.term {
            self.granted.insert((worker, incarnation));
        } else if !granted && term >= self.term {
            self.term = term.next();
            self.granted.clear();
        }
    }

    /// Whether more than half of `electorate` has promised; nobody is needed of nobody.
    pub(super) fn has_most_of(&self, electorate: &Electorate) -> bool {
        electorate.is_empty() || 2 * self.promised(electorate) > electorate.len()
    }

    /// Whether half of `electorate` has promised, and somebody is there at all.
    pub(super) fn has_half_of(&self, electorate: &Electorate) -> bool {
        !electorate.is_empty() && 2 * self.promised(electorate) >= electorate.len()
    }

    fn promised(&self, electorate: &Electorate) -> usize {
        self.granted.intersection(electorate).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(worker: u32) -> (WorkerId, Incarnation) {
        (WorkerId(worker), Incarnation(1))
    }

    fn promise(worker: u32, term: Term, granted: bool) -> Promise {
        let (worker, incarnation) = member(worker);
        Promise { worker, incarnation, term, granted }
    }

    proptest! {
        #[test]
        fn primary_and_standby_cannot_both_have_enough(split in prop::collection::vec(0..3_u8, 0..12)) {
            let electorate: Electorate = (0..split.len() as u32).map(member).collect();
            let mut primary = Contest::new(Term(1), Time::ZERO);
            let mut standby = Contest::new(Term(1), Time::ZERO);
            for (worker, side) in (0..).zip(&split) {
                match side {
                    0 => primary.take(promise(worker, Term(2), true)),
                    1 => standby.take(promise(worker, Term(2), true)),
                    _ => {}
                }
            }
            let (most, half) = (primary.has_most_of(&electorate), standby.has_half_of(&electorate));
            prop_assert!(!(most && half));
            let all = split.iter().all(|side| *side != 2);
            prop_assert!(!all || most || half, "somebody wins if all have promised");
        }
    }

    #[test]
    fn another_incarnation_does_not_count() {
        let mut contest = Contest::new(Term(1), Time::ZERO);
        contest.take(promise(0, Term(2), true));
        let reborn = [(WorkerId(0), Incarnation(2))].into_iter().collect();
        assert!(!contest.has_half_of(&reborn) && !contest.has_most_of(&reborn));
    }

    #[test]
    fn a_later_term_makes_it_begin_anew() {
        let mut contest = Contest::new(Term(1), Time::ZERO);
        contest.take(promise(0, Term(2), true));
        contest.take(promise(1, Term(5), false));
        assert_eq!(contest.term(), Term(6));
        assert!(!contest.has_half_of(&[member(0)].into_iter().collect()));
        contest.take(promise(0, Term(2), true));
        assert!(!contest.has_half_of(&[member(0)].into_iter().collect()), "a promise of before");
    }
}
