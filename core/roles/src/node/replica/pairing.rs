//! Pairing: how a primary gains, loses and regains its standby.

use alloc::string::String;
use alloc::vec::Vec;

use super::follower::{Follower, Link};
use super::primary::Primary;
use super::{ReplicaConfig, inner};
use crate::node::{Effect, Event, Input, Outbox};
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::time::Time;
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::{EntryKind, Follow, STATE_CHUNK_BYTES, Standby, State, StateHeader};
use pstrain_wire::{BUILD, Message, PROTOCOL_VERSION, Refusal};

impl Primary {
    /// True if a server may be behind a connection before its Hello.
    pub(super) fn is_from_server(&self, peer: PeerId) -> bool {
        let identity = self.copy.server.stranger(inner(self.began, peer));
        identity.is_some_and(Identity::may_serve)
    }

    /// Handles a server that wants to be the standby, or is it and reconnects.
    pub(super) fn on_follow(
        &mut self,
        now: Time,
        peer: PeerId,
        follow: Follow,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) {
        if let Err(why) = self.check_follow(peer, &follow) {
            out.push(Effect::Send(peer, Message::Refused(why)));
            out.push(Effect::Close(peer));
            let why = String::from("it may not stand by");
            return self.hand_in(
                now,
                Input::Disconnected { peer: inner(self.began, peer), why },
                out,
            );
        }
        // The server must forget the connection: it belongs to the standby now.
        let why = String::from("it stands by");
        self.hand_in(now, Input::Disconnected { peer: inner(self.began, peer), why }, out);
        let lease = self.lease();
        let link = Link::up(now, peer, lease);
        let Follow { id, address, kept, term, .. } = follow;
        self.latest = self.latest.max(term);
        match &mut self.follower {
            Some(follower) if follower.paired => {
                let older = core::mem::replace(&mut follower.link, link);
                out.extend(older.peer().map(Effect::Close));
                self.go_on_with(now, kept.map_or(0, |(_, entries)| entries), config, out);
            }
            _ => {
                let older = self.follower.take();
                out.extend(older.and_then(|it| it.link.peer()).map(Effect::Close));
                self.follower = Some(Follower { id, address, paired: false, link });
                self.send_state(now, peer, out);
            }
        }
    }

    pub(super) fn check_follow(&self, peer: PeerId, follow: &Follow) -> Result<(), Refusal> {
        let server = &self.copy.server;
        if follow.protocol != PROTOCOL_VERSION {
            let theirs = (follow.protocol, follow.protocol);
            return Err(Refusal::Protocol { theirs, ours: PROTOCOL_VERSION });
        }
        if follow.build != BUILD {
            let (worker, server) = (follow.build.clone(), String::from(BUILD));
            return Err(Refusal::Build { worker, server });
        }
        let stranger = server.stranger(inner(self.began, peer));
        if let Some(is) = stranger.filter(|is| !is.may_serve()) {
            return Err(Refusal::Identity { is, wanted: Identity::Server });
        }
        if stranger.is_none() {
            let what = String::from("only a server that has said nothing else can stand by");
            return Err(Refusal::Server { what });
        }
        let Some(digest) = server.job_digest() else {
            return Err(Refusal::ServersMissing { server: ServerId::COORDINATOR, servers: 2 });
        };
        if follow.digest != digest {
            let what =
                "its job is another; give the standby the job file and options of the server";
            return Err(Refusal::Server { what: String::from(what) });
        }
        let Some(follower) = &self.follower else {
            let obstacle = server.obstacle().map(String::from);
            return obstacle.map_or(Ok(()), |what| Err(Refusal::Server { what }));
        };
        let is_it = follower.id == follow.id;
        if follower.paired {
            let keeps = follow.kept.filter(|(run, _)| *run == server.run());
            let first = self.unsettled.first().unwrap_or(self.copy.entries);
            let goes_on =
                keeps.is_some_and(|(_, kept)| (first..=self.copy.entries).contains(&kept));
            return if is_it && goes_on { Ok(()) } else { Err(Refusal::HasStandby) };
        }
        if is_it || follower.link.peer().is_none() { Ok(()) } else { Err(Refusal::HasStandby) }
    }

    /// Resumes with a standby that is back and has the first `entries` entries.
    pub(super) fn go_on_with(
        &mut self,
        now: Time,
        entries: u64,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) {
        if let Some(election) = self.election.take() {
            // Otherwise, if this primary dies before it reaches the standby, the standby could not
            // lead with its own entries.
            let electors = self.outer_of(self.copy.server.electors());
            electors.for_each(|peer| election.release(peer, self.candidate(config), out));
        }
        self.settle(now, entries, out);
        self.unsettled.seal(self.copy.stream_time(now));
        let Some(peer) = self.follower_peer() else { unreachable!("the standby has connected") };
        let settled = self.unsettled.first().unwrap_or(self.copy.entries);
        let mut term = self.unsettled.claimed().unwrap_or(self.term);
        if self.latest > term {
            // The standby has asked for a later term, or this primary has: both move to the term
            // after it, once both have the entry that says so.
            term = self.latest.next();
            self.latest = term;
            let first = self.unsettled.first().unwrap_or(self.copy.entries);
            self.unsettled.claim(first, term);
        }
        // All unconfirmed entries: those sent on the previous connection may be lost.
        self.unsettled.send(0, peer, (term, settled), out);
        if self.unsettled.first().is_none() {
            // An entry must state the leader's term.
            let electorate = self.electorate.clone();
            self.write(now, EntryKind::Electorate(electorate), out);
        }
    }

    /// Sends the whole state; entries follow, and no effect waits for them yet.
    pub(super) fn send_state(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        let (entry, at) = (self.copy.entries, self.copy.stream_time(now));
        let bytes = self.copy.server.save();
        let total = bytes.len() as u64;
        let (run, server) = self.copy.server.identity();
        for (chunk, from) in bytes.chunks(STATE_CHUNK_BYTES).zip((0..).step_by(STATE_CHUNK_BYTES)) {
            let term = self.term;
            let header = StateHeader { run, server, term, entry, at, from, total };
            out.push(Effect::Send(peer, Message::State(State { header, bytes: chunk.to_vec() })));
        }
    }

    pub(super) fn on_follower(&mut self, now: Time, message: Message, out: &mut Outbox) {
        self.hear(now);
        match message {
            Message::Heartbeat(_) => {}
            Message::Kept(kept) if self.is_paired() => self.settle(now, kept.entries, out),
            Message::Kept(_) => self.pair(now, out),
            other => {
                let why = alloc::format!("it sent a {:?} message", other.kind());
                self.lose_follower(now, why, out);
            }
        }
    }

    /// Pairs with the standby, which has the state: from now on effects wait for it.
    pub(super) fn pair(&mut self, now: Time, out: &mut Outbox) {
        self.renew_electorate();
        let electorate = self.electorate.clone();
        let Some(follower) = &mut self.follower else { unreachable!("there is a standby") };
        follower.paired = true;
        let address = follower.address.clone();
        self.write(now, EntryKind::Paired(electorate), out);
        let told = self.tell_standby();
        self.unsettled
            .hold(told.into_iter().chain([Effect::Report(Event::StandbyJoined { address })]));
    }

    /// Announces the standby's address, or that there is none, to peers of the server.
    pub(super) fn tell_standby(&self) -> Vec<Effect> {
        let told = Standby { address: self.standby() };
        let those = self.copy.server.told_of_standby().into_iter();
        those.map(|peer| Effect::Send(peer, Message::Standby(told.clone()))).collect()
    }

    /// Handles the loss of the standby's connection, or closes it for a reason.
    pub(super) fn lose_follower(&mut self, now: Time, why: String, out: &mut Outbox) {
        let Some(follower) = &mut self.follower else { unreachable!("there is a standby") };
        out.extend(follower.link.peer().map(Effect::Close));
        if follower.paired {
            follower.link = Link::Down { since: now, why };
        } else {
            self.follower = None; // no effect waits for it
        }
    }
}
