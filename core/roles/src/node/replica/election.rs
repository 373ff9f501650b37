//! An election: votes that a server gathers to lead in a new term.

use alloc::collections::BTreeSet;
use core::time::Duration;

use crate::node::{Effect, Outbox};
use pstrain_compute::id::{PeerId, ServerId, Term};
use pstrain_compute::time::Time;
use pstrain_policy::job::heartbeat;
use pstrain_wire::Message;
use pstrain_wire::replica::{Elector, Electorate, Stage, Vote, VoteRequest};

/// A candidate for the lead of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) run: u64,
    /// The id of the server in the job.
    pub(super) server: ServerId,
    /// The term of what it has kept.
    pub(super) kept: Term,
    pub(super) id: u64,
}

/// An election: the term asked for, and the electors that have voted for it.
#[derive(Debug)]
pub(super) struct Election {
    term: Term,
    stage: Stage,
    granted: BTreeSet<Elector>,
    /// When all electors are asked again.
    ask_at: Time,
}

/// The result of counting the votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tally {
    /// Not enough votes.
    TooFew,
    /// Enough votes in the first round: all electors must be asked again, to bind them.
    Binds,
    /// Enough electors are bound: the candidate leads.
    Won,
}

impl Election {
    /// Starts an election for the term after `latest`.
    pub(super) const fn new(latest: Term, now: Time) -> Self {
        Self { term: latest.next(), stage: Stage::Asks, granted: BTreeSet::new(), ask_at: now }
    }

    /// The term asked for.
    pub(super) const fn term(&self) -> Term {
        self.term
    }

    /// When all electors are asked again.
    pub(super) const fn ask_at(&self) -> Time {
        self.ask_at
    }

    /// Records that all electors are asked now.
    pub(super) fn ask_later(&mut self, now: Time, lease: Duration) {
        self.ask_at = now + heartbeat(lease);
    }

    /// Asks the elector behind `peer` for its vote.
    pub(super) fn ask(&self, peer: PeerId, candidate: Candidate, out: &mut Outbox) {
        self.say(peer, candidate, self.stage, out);
    }

    /// Releases the elector behind `peer`: this server no longer wants to lead.
    pub(super) fn release(&self, peer: PeerId, candidate: Candidate, out: &mut Outbox) {
        self.say(peer, candidate, Stage::Releases, out);
    }

    fn say(&self, peer: PeerId, candidate: Candidate, stage: Stage, out: &mut Outbox) {
        let (Candidate { run, server, kept, id }, term) = (candidate, self.term);
        let candidacy = VoteRequest { run, server, term, kept, id, stage };
        out.push(Effect::Send(peer, Message::VoteRequest(candidacy)));
    }

    /// Records an answer from `peer`; asks it again at once if the election restarts in a later
    /// term.
    pub(super) fn hear(
        &mut self,
        peer: PeerId,
        vote: Vote,
        candidate: Candidate,
        out: &mut Outbox,
    ) {
        let asked = self.term;
        self.take(vote);
        if self.term > asked {
            self.ask(peer, candidate, out);
        }
    }

    /// Records an answer. If it reports a later term, the election restarts for the term after
    /// that.
    fn take(&mut self, vote: Vote) {
        let Vote { elector, before, term, stage, granted } = vote;
        if granted && (term, stage) == (self.term, self.stage) {
            if let Elector::Worker(worker, _) = elector {
                self.granted.extend(before.iter().map(|it| Elector::Worker(worker, *it)));
            }
            self.granted.insert(elector);
        } else if !granted && term >= self.term {
            (self.term, self.stage) = (term.next(), Stage::Asks);
            self.granted.clear();
        }
    }

    /// Counts the votes against `enough`. A won first round starts the binding round.
    pub(super) fn tally(&mut self, enough: impl Fn(&Self) -> bool) -> Tally {
        match (enough(self), self.stage) {
            (false, _) => Tally::TooFew,
            (true, Stage::Asks) => {
                // Votes of the first round do not bind.
                self.stage = Stage::Binds;
                self.granted.clear();
                Tally::Binds
            }
            (true, _) => Tally::Won,
        }
    }

    /// True if more than half of `electorate` has voted; an empty electorate needs no votes.
    pub(super) fn has_most_of(&self, electorate: &Electorate) -> bool {
        electorate.is_empty() || 2 * self.votes_of(electorate) > electorate.len()
    }

    /// True if half of a non-empty `electorate` has voted.
    pub(super) fn has_half_of(&self, electorate: &Electorate) -> bool {
        !electorate.is_empty() && 2 * self.votes_of(electorate) >= electorate.len()
    }

    fn votes_of(&self, electorate: &Electorate) -> usize {
        self.granted.intersection(electorate).count()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    use pstrain_compute::id::{Incarnation, WorkerId};

    fn member(worker: u32) -> Elector {
        Elector::Worker(WorkerId(worker), Incarnation(1))
    }

    fn vote(worker: u32, term: Term, granted: bool) -> Vote {
        Vote { elector: member(worker), before: Vec::new(), term, stage: Stage::Asks, granted }
    }

    proptest! {
        #[test]
        fn primary_and_standby_cannot_both_have_enough(split in prop::collection::vec(0..3_u8, 0..12)) {
            let electorate: Electorate = (0..split.len() as u32).map(member).collect();
            let mut primary = Election::new(Term(1), Time::ZERO);
            let mut standby = Election::new(Term(1), Time::ZERO);
            for (worker, side) in (0..).zip(&split) {
                match side {
                    0 => primary.take(vote(worker, Term(2), true)),
                    1 => standby.take(vote(worker, Term(2), true)),
                    _ => {}
                }
            }
            let (most, half) = (primary.has_most_of(&electorate), standby.has_half_of(&electorate));
            prop_assert!(!(most && half));
            let all = split.iter().all(|side| *side != 2);
            prop_assert!(!all || most || half, "a server wins if all have voted");
        }
    }

    #[test]
    fn another_incarnation_does_not_count() {
        let mut election = Election::new(Term(1), Time::ZERO);
        election.take(vote(0, Term(2), true));
        let reborn = [Elector::Worker(WorkerId(0), Incarnation(2))].into_iter().collect();
        assert!(!election.has_half_of(&reborn) && !election.has_most_of(&reborn));
    }

    #[test]
    fn a_process_votes_as_all_that_it_has_been() {
        let mut election = Election::new(Term(1), Time::ZERO);
        let elector = Elector::Worker(WorkerId(0), Incarnation(3));
        election.take(Vote { elector, before: vec![Incarnation(1)], ..vote(0, Term(2), true) });
        let has = |incarnation| {
            let of = Elector::Worker(WorkerId(0), Incarnation(incarnation));
            election.has_most_of(&[of].into_iter().collect())
        };
        assert_eq!([1, 2, 3].map(has), [true, false, true]);
    }

    #[test]
    fn whoever_has_enough_binds_them_before_it_leads() {
        let mut election = Election::new(Term(1), Time::ZERO);
        let electorate: Electorate = [member(0)].into_iter().collect();
        let enough = |election: &Election| election.has_most_of(&electorate);
        assert_eq!(election.tally(enough), Tally::TooFew);
        election.take(vote(0, Term(2), true));
        assert_eq!(election.tally(enough), Tally::Binds);
        election.take(vote(0, Term(2), true));
        assert_eq!(election.tally(enough), Tally::TooFew, "the first vote, once more");
        election.take(Vote { stage: Stage::Binds, ..vote(0, Term(2), true) });
        assert_eq!(election.tally(enough), Tally::Won);
    }

    #[test]
    fn a_later_term_makes_it_begin_anew() {
        let mut election = Election::new(Term(1), Time::ZERO);
        election.take(vote(0, Term(2), true));
        election.take(vote(1, Term(5), false));
        assert_eq!(election.term(), Term(6));
        assert!(!election.has_half_of(&[member(0)].into_iter().collect()));
        election.take(vote(0, Term(2), true));
        assert!(!election.has_half_of(&[member(0)].into_iter().collect()), "a vote of before");
    }
}
