//! Failover: a standby asks the electors for votes, and takes the place of its primary.

use alloc::string::String;

use super::dials::Dials;
use super::election::{Candidate, Election, Tally};
use super::primary::Primary;
use super::standby::{Standby, WaitingWorker, version_of};
use super::{Copy, ReplicaConfig, inner, silence};
use crate::node::dialler::Dialler;
use crate::node::{Effect, Event, Input, Outbox, Target};
use pstrain_compute::id::{PeerId, Term};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::replica::{Elector, Vote};
use pstrain_wire::worker::End;

impl Standby {
    /// True if it may ask electors for votes: it has lost the primary, which has no effect without
    /// it, and has heard of nothing that the primary did since. An accepted connection proves
    /// nothing: the operating system accepts it even for a stopped process.
    pub(super) const fn can_lead(&self) -> bool {
        self.paired && self.lost.is_some()
    }

    pub(super) fn attend(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WaitingWorker,
        out: &mut Outbox,
    ) {
        if let Some((_, reason)) = self.over {
            out.push(Effect::Send(peer, Message::End(End { reason })));
            return out.push(Effect::Close(peer));
        }
        let known = worker.hello.term;
        self.attending.insert(peer, worker);
        self.ask(now, peer, known, out);
    }

    /// Asks an elector, which knows the term `known`, to vote for this standby in a later one.
    pub(super) fn ask(&mut self, now: Time, peer: PeerId, known: Term, out: &mut Outbox) {
        let (latest, lease) = (self.latest.max(known), self.lease());
        let Some(candidate) = self.candidate() else {
            return; // without a state there is nothing to lead
        };
        let election = self.election.get_or_insert_with(|| {
            let mut election = Election::new(latest, now);
            election.ask_later(now, lease);
            election
        });
        self.latest = self.latest.max(election.term());
        election.ask(peer, candidate, out);
    }

    /// Records a vote, if the peer `from` may cast it.
    pub(super) fn on_vote(&mut self, from: PeerId, vote: Vote, out: &mut Outbox) {
        let (Some(candidate), Some(election)) = (self.candidate(), &mut self.election) else {
            return; // the primary leads on: the vote comes late
        };
        let is_its = match (vote.elector, self.attending.get(&from)) {
            (Elector::Worker(worker, _), Some(it)) => it.identity.claim(Some(worker)).is_ok(),
            (Elector::Coordinator, None) => true,
            _ => false,
        };
        if is_its {
            election.hear(from, vote, candidate, out);
            self.latest = self.latest.max(election.term());
        }
    }

    pub(super) fn candidate(&self) -> Option<Candidate> {
        let (run, server) = self.subject()?.identity();
        Some(Candidate { run, server, kept: self.term, id: self.config.id })
    }

    pub(super) fn ask_all(&self, out: &mut Outbox) {
        if let (Some(candidate), Some(election)) = (self.candidate(), &self.election) {
            let elector = self.dialler.peer().filter(|_| self.round.is_at_elector());
            let electors = self.attending.keys().copied().chain(elector);
            electors.for_each(|peer| election.ask(peer, candidate, out));
        }
    }

    /// The term to lead in, if enough electors are bound to it.
    fn won(&mut self, out: &mut Outbox) -> Option<Term> {
        loop {
            let election = self.election.as_mut()?;
            let lists = self.electorates.iter();
            match election.tally(|it| lists.clone().all(|(_, list)| it.has_half_of(list))) {
                Tally::TooFew => return None,
                Tally::Binds => self.ask_all(out),
                Tally::Won => return Some(election.term()),
            }
        }
    }

    /// Takes the lead if enough electors have voted; returns the new primary.
    pub(super) fn take_over(
        &mut self,
        now: Time,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) -> Option<Primary> {
        let may = self.can_lead() && self.over.is_none() && !self.electorates.is_empty();
        if !may {
            return None;
        }
        let ends = self.ends_at().is_some_and(|at| now >= at);
        let term = self.won(out).or_else(|| ends.then(|| self.latest.next()))?;
        let Copy { mut server, entries, clock } = self.copy.take()?;
        let lost = self.lost.take();
        let (since, why) = lost.map_or((now, String::new()), |lost| (lost.since, lost.why));
        let version = version_of(&server);
        out.extend(self.dialler.peer().map(Effect::Close));
        out.push(Effect::Report(Event::TookOver { term, version, stood: now.since(since), why }));
        // The primary may have died before these effects were answered.
        out.extend(server.unanswered());
        let peers = server.peers();
        let moved = server.moved(self.config.address.clone());
        let mut primary = Primary::new(Copy { server, entries, clock }, term, config.replicate);
        if self.dialler.is_dialling() {
            // The answer to this standby's dial will arrive at the new primary.
            primary.dials = Dials::begun(Target::Server);
        }
        for peer in peers {
            let why = String::from("its server is gone, and another leads");
            primary.hand_in(now, Input::Disconnected { peer, why }, out);
        }
        if let Some(moved) = moved {
            primary.hand_in(now, moved, out);
        }
        // Peers that were silent while no server led are not at fault.
        primary.hand_in(now, Input::Overslept, out);
        for (peer, (_, identity)) in core::mem::take(&mut self.unauthenticated) {
            primary.hand_in(now, Input::Connected(inner(term, peer), identity), out);
        }
        for (peer, WaitingWorker { identity, hello, .. }) in core::mem::take(&mut self.attending) {
            let peer = inner(term, peer);
            primary.hand_in(now, Input::Connected(peer, identity), out);
            primary.hand_in(now, Input::Message(peer, Message::Hello(hello)), out);
        }
        let mut dialler = Dialler::new(config.stream);
        let mut unheard = Outbox::new();
        if dialler.redial(now, String::new(), self.lease(), &mut unheard).is_ok() {
            primary.depose(dialler);
        }
        Some(primary)
    }

    /// When it takes the lead without votes to finish a run whose state is final.
    pub(super) fn ends_at(&self) -> Option<Time> {
        let since = self.lost.as_ref()?.since;
        self.subject()?.is_final().then(|| since + silence(self.lease()))
    }
}
