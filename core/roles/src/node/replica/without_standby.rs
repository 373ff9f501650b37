//! Primary without a standby: gathers votes to continue alone.

use alloc::vec::Vec;
use core::time::Duration;

use super::election::{Candidate, Election, Tally};
use super::follower::{Follower, Link};
use super::primary::Primary;
use super::{ReplicaConfig, fail, grace, inner, silence};
use crate::node::{Effect, Event, NodeError, Outbox};
use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_policy::job::patience;
use pstrain_wire::replica::Vote;
use pstrain_wire::{Wait, WaitReason};

/// A standby confirms an entry within this time, unless its process, machine or link is in trouble.
/// No status reports a shorter wait: a worker's gradient is overdue only later.
const PROMPT: Duration = Duration::from_millis(200);

impl Primary {
    /// How long the primary has been stalled for want of a standby or of votes, if it is. The limit
    /// is the end of the run if the standby is gone, and the end of its connection if it is silent.
    pub(super) fn wait(&self, now: Time) -> Option<Wait> {
        let lease = self.lease();
        let (reason, since, limit) = match self.follower.as_ref()?.link {
            Link::Down { since, .. } => (WaitReason::Standby, since, since + patience(lease)),
            Link::Up { heard, .. } => {
                let sent = self.copy.own_time(self.unsettled.sent_at()?);
                let since = heard.max(sent);
                if now.since(since) < PROMPT {
                    return None;
                }
                (WaitReason::StandbySilent, since, heard + silence(lease))
            }
        };
        let (waited, left) = (now.since(since), Some(limit.since(now)));
        Some(Wait { reason, workers: Vec::new(), waited, left })
    }

    /// Renews the electors from the current members. If there are none, the last electors still
    /// count: they may be alive, and no other node can decide who leads.
    pub(super) fn renew_electorate(&mut self) {
        let electorate = self.copy.server.electorate();
        if !electorate.is_empty() {
            self.electorate = electorate;
        }
    }

    /// When the electors are next asked to follow this primary without a standby.
    pub(super) fn election_at(&self) -> Option<Time> {
        match &self.follower.as_ref()?.link {
            Link::Down { since, .. } => {
                let asked = self.election.as_ref().map(Election::ask_at);
                Some(asked.unwrap_or_else(|| *since + grace(self.lease())))
            }
            Link::Up { .. } => None,
        }
    }

    pub(super) fn hold_election(&mut self, now: Time, config: &ReplicaConfig, out: &mut Outbox) {
        let (lease, latest) = (self.lease(), self.latest);
        if let Some(Follower { link: Link::Down { since, why }, .. }) = &self.follower
            && now >= *since + patience(lease)
        {
            return fail(NodeError::Abandoned { why: why.clone() }, out);
        }
        let mut election = self.election.take().unwrap_or_else(|| Election::new(latest, now));
        election.ask_later(now, lease);
        self.latest = self.latest.max(election.term());
        self.election = Some(election);
        self.seek_follower(now, config, out);
        self.ask_all(config, out);
        self.win_if_elected(now, config, out);
    }

    pub(super) fn candidate(&self, config: &ReplicaConfig) -> Candidate {
        let (run, server) = self.copy.server.identity();
        Candidate { run, server, kept: self.term, id: config.id }
    }

    fn ask_all(&self, config: &ReplicaConfig, out: &mut Outbox) {
        let Some(election) = &self.election else { unreachable!("electors vote in an election") };
        let electors = self.outer_of(self.copy.server.electors());
        electors.for_each(|peer| election.ask(peer, self.candidate(config), out));
    }

    pub(super) fn on_vote(
        &mut self,
        now: Time,
        peer: PeerId,
        vote: Vote,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) {
        let candidate = self.candidate(config);
        let is_its = self.copy.server.is_elector(inner(self.began, peer), vote.elector);
        let Some(election) = self.election.as_mut().filter(|_| is_its) else {
            return; // late, or another node's vote
        };
        election.hear(peer, vote, candidate, out);
        self.latest = self.latest.max(election.term());
        self.win_if_elected(now, config, out);
    }

    /// Continues without a standby once enough electors have voted.
    fn win_if_elected(&mut self, now: Time, config: &ReplicaConfig, out: &mut Outbox) {
        // Once both servers have the final state, nothing changes with the leader.
        let ended = self.copy.server.is_final() && !self.unsettled.holds_end();
        self.term = loop {
            let Some(election) = &mut self.election else { unreachable!("there is an election") };
            match election.tally(|it| ended || it.has_most_of(&self.electorate)) {
                Tally::TooFew => return,
                Tally::Binds => self.ask_all(config, out),
                Tally::Won => break election.term(),
            }
        };
        self.election = None;
        if let Some(Follower { link: Link::Down { since, why }, .. }) = self.follower.take() {
            let stood = now.since(since);
            out.push(Effect::Report(Event::StandbyLost { term: self.term, stood, why }));
        }
        self.unsettled.seal(self.copy.stream_time(now));
        let mut effects = self.unsettled.release();
        effects.retain(|effect| !matches!(effect, Effect::Report(Event::StandbyJoined { .. })));
        self.obey(now, effects.into_iter(), out);
        if self.copy.server.coordinator().is_none() {
            let told = self.tell_standby();
            self.obey(now, told.into_iter(), out);
        }
        self.renew_electorate();
    }
}
