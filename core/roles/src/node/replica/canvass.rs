//! Canvass: a shard's standby that has lost its primary connects to its electors, who do not
//! connect to it.

use alloc::string::ToString;

use serde::{Deserialize, Serialize};

use super::grace;
use super::loss::Search;
use super::standby::Standby;
use crate::node::{Effect, Outbox, Target};
use pstrain_compute::id::{PeerId, Term};
use pstrain_compute::time::Time;
use pstrain_wire::{Limits, Message};

/// The position of a standby in its round of dials: its primary first, then each elector.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Round(usize);

impl Round {
    /// True if it dials an elector instead of its primary.
    pub(super) const fn is_at_elector(self) -> bool {
        self.0 > 0
    }
}

impl Standby {
    /// Advances to the next address to dial; returns true if that is the first elector since the
    /// standby lost its primary.
    pub(super) fn turn(&mut self, now: Time) -> bool {
        let lease = self.lease();
        let may = self.can_lead() && self.lost.as_ref().is_some_and(|it| now >= it.goes_at(lease));
        let subject = self.subject().filter(|_| may);
        let places = subject.map(|it| it.places_of_electors()).unwrap_or_default();
        let next = (self.round.0 + 1) % (places.len() + 1);
        self.round = Round(next);
        let target = match next.checked_sub(1) {
            Some(place) => places.into_iter().nth(place).unwrap_or(Target::Server),
            None => Target::Server,
        };
        self.dialler.turn_to(target);
        let lost = self.lost.as_mut().filter(|_| next > 0);
        lost.is_some_and(|lost| {
            core::mem::replace(&mut lost.search, Search::GoesRound) != Search::GoesRound
        })
    }

    /// When the standby dials the electors although the primary has not refused it; none if it has
    /// done so already, or if electors connect to it. A primary that has just accepted its
    /// connection gets as long to answer: if the standby left at that moment, both would ask the
    /// electors, and neither would let the other lead.
    pub(super) fn goes_at(&self) -> Option<Time> {
        let lost = self.lost.as_ref().filter(|lost| lost.search != Search::GoesRound)?;
        let may = self.can_lead() && !self.is_coordinator() && !self.dialler.is_dialling();
        let unanswered = self.dialler.silent_at(2 * grace(self.lease()));
        may.then(|| Some(lost.goes_at(self.lease())).max(unanswered)).flatten()
    }

    pub(super) fn on_elector_dialled(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        out.push(Effect::Limit(peer, Limits::DIALER));
        self.ask(now, peer, Term(0), out);
    }

    /// Handles a message of an elector.
    pub(super) fn on_elector(&mut self, now: Time, message: Message, out: &mut Outbox) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Vote(vote) => {
                let asked = self.election.as_ref().map(|election| election.term());
                let Some(peer) = self.dialler.peer() else { unreachable!("an elector speaks") };
                let granted = vote.granted;
                self.on_vote(peer, vote, out);
                let again = self.election.as_ref().map(|election| election.term()) > asked;
                if !granted && !again {
                    self.redial(now, "it may be that another leads".to_string(), out);
                }
            }
            Message::Refused(why) => self.redial(now, why.to_string(), out),
            other => {
                let why = alloc::format!("it sent a {:?} message to a standby", other.kind());
                self.redial(now, why, out);
            }
        }
    }
}
