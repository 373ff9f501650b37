//! The primary: hands inputs to its server and to its standby, withholds effects until the standby
//! has the inputs, and asks the electors for votes when it has lost the standby.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::dials::{Caller, Dials};
use super::election::Election;
use super::follower::Follower;
use super::stream::{Content, Settled, Unsettled};
use super::withheld::{HeldPush, is_awaited};
use super::{Copy, ReplicaConfig, Replicate, inner, outer};
use crate::node::dialler::Dialler;
use crate::node::{Effect, Input, Outbox, Server, encode_input};
use pstrain_compute::id::{PeerId, Term};
use pstrain_compute::rng::Stream;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_wire::replica::{Electorate, EntryKind};
use pstrain_wire::worker::{End, Heartbeat};
use pstrain_wire::{Message, Status};

/// The state of a primary.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) copy: Copy,
    /// The term in which it began to lead: peer ids are mapped by it.
    pub(super) began: Term,
    /// The term that is in force: kept by the standby, or won from the electors.
    pub(super) term: Term,
    /// The latest term that it has asked for, or heard of.
    pub(super) latest: Term,
    pub(super) follower: Option<Follower>,
    /// The electors whose votes count.
    pub(super) electorate: Electorate,
    pub(super) unsettled: Unsettled,
    pub(super) election: Option<Election>,
    /// Dials the other server of the pair: the deposed primary, to tell it so; or the lost standby,
    /// to ask whether it leads.
    pub(super) other: Option<Dialler>,
    pub(super) dials: Dials,
    pub(super) effects: Outbox,
    pub(super) replicate: Replicate,
}

/// Limit of entries that are withheld for the sake of a push.
const MOST_KEPT_BACK: usize = 4096;

impl Primary {
    /// A primary without a standby in `term`.
    pub(super) fn new(copy: Copy, term: Term, replicate: Replicate) -> Self {
        let electorate = copy.server.electorate();
        Self {
            copy,
            began: term,
            term,
            latest: term,
            follower: None,
            electorate,
            unsettled: Unsettled::default(),
            election: None,
            other: None,
            dials: Dials::default(),
            effects: Outbox::new(),
            replicate,
        }
    }

    pub(super) fn server(&self) -> Option<&Server> {
        self.copy.server.coordinator()
    }

    pub(super) fn into_server(self) -> Option<Server> {
        self.copy.server.into_coordinator()
    }

    pub(super) fn lease(&self) -> Duration {
        self.copy.server.lease()
    }

    pub(super) fn handle(
        &mut self,
        now: Time,
        input: Input,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) {
        if let Input::Message(peer, Message::Vote(vote)) = input {
            self.on_vote(now, peer, vote, config, out);
        } else if let Some(input) = self.intercept(now, input, config, out) {
            self.hand_in(now, input, out);
        }
        if self.election_at().is_some_and(|at| now >= at) {
            self.hold_election(now, config, out);
        }
        self.watch_electorate(now, out);
    }

    /// Handles inputs that are not for the server; returns the others, with the server's peer ids.
    pub(super) fn intercept(
        &mut self,
        now: Time,
        input: Input,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) -> Option<Input> {
        let began = self.began;
        let is_followers = |peer: PeerId| self.follower_peer() == Some(peer);
        Some(match input {
            Input::Message(peer, _)
            | Input::Receiving(peer)
            | Input::Garbage(peer, _)
            | Input::Disconnected { peer, .. }
                if self.is_other(peer) =>
            {
                self.on_other(now, input, out);
                return None;
            }
            Input::Message(peer, message) if is_followers(peer) => {
                self.on_follower(now, message, out);
                return None;
            }
            Input::Receiving(peer) if is_followers(peer) => {
                self.hear(now);
                return None;
            }
            Input::Garbage(peer, error) if is_followers(peer) => {
                self.lose_follower(now, error.to_string(), out);
                return None;
            }
            Input::Disconnected { peer, why } if is_followers(peer) => {
                self.lose_follower(now, why, out);
                return None;
            }
            Input::Message(peer, Message::Follow(follow)) => {
                self.on_follow(now, peer, follow, config, out);
                return None;
            }
            Input::Message(peer, Message::Deposed(deposed)) => {
                self.on_deposed(peer, deposed, out);
                return None;
            }
            Input::Dialled(..) | Input::DialFailed { .. } => match self.dials.answered(out) {
                Some(Caller::Replicated) => match input {
                    Input::Dialled(peer, identity) => Input::Dialled(inner(began, peer), identity),
                    other => other,
                },
                _ => {
                    self.on_other(now, input, out);
                    return None;
                }
            },
            Input::Wake => return self.on_wake(now, out),
            Input::Overslept => {
                self.hear(now);
                Input::Overslept
            }
            Input::Connected(peer, identity) => Input::Connected(inner(began, peer), identity),
            Input::Message(peer, message) => Input::Message(inner(began, peer), message),
            Input::Receiving(peer) => Input::Receiving(inner(began, peer)),
            Input::Garbage(peer, error) => Input::Garbage(inner(began, peer), error),
            Input::Disconnected { peer, why } => {
                let peer = inner(began, peer);
                self.unsettled.forget(peer);
                Input::Disconnected { peer, why }
            }
            other => other,
        })
    }

    /// Hands an input to the server and to the standby.
    pub(super) fn hand_in(&mut self, now: Time, input: Input, out: &mut Outbox) {
        let at = self.copy.stream_time(now);
        let keeps_back = self.is_paired()
            && self.replicate == Replicate::Updates
            && !self.copy.server.takes_ranges();
        // The entry precedes its effects: `Unsettled::hold` adds them to the newest entry.
        if self.follower.is_some() {
            let Some(content) = self.content(at, &input, keeps_back) else {
                return; // an input of another role, which changes no server
            };
            self.append(at, content);
        } else {
            self.copy.entries += 1;
        }
        if keeps_back {
            self.copy.server.record_combined();
        } else {
            self.send_kept_back(now, out);
        }
        let mut effects = core::mem::take(&mut self.effects);
        // Status requests are answered at once, so that clients can see a stalled run.
        let is_question = matches!(input, Input::Message(_, Message::PullStatus(_)));
        self.copy.server.handle(at, input, &mut effects);
        if keeps_back {
            let combined = self.copy.server.given();
            self.unsettled.note(&effects, combined);
        }
        let is_last = effects.iter().any(|effect| self.copy.server.is_last(effect));
        if self.is_paired() && !is_question && !is_last {
            // A dial reveals nothing until a message is sent on the connection.
            let reveals_nothing =
                |effect: &mut Effect| matches!(effect, Effect::Dial(_) | Effect::Pause);
            let mut free: Vec<Effect> = effects.extract_if(.., reveals_nothing).collect();
            if keeps_back {
                free.extend(self.let_heartbeats_pass(&mut effects));
            }
            let has_reason = (1..MOST_KEPT_BACK).contains(&self.unsettled.spares());
            let is_due = !has_reason || effects.iter().any(is_awaited);
            self.unsettled.hold(effects.drain(..));
            if is_due {
                self.send_kept_back(now, out);
            }
            self.obey(now, free.into_iter(), out);
        } else {
            if is_last {
                self.send_kept_back(now, out);
            }
            self.obey(now, effects.drain(..), out);
        }
        self.effects = effects;
    }

    /// An input as an entry of the stream; none if it is not an input of a server.
    fn content(&self, at: Time, input: &Input, keeps_back: bool) -> Option<Content> {
        if let Input::Message(peer, Message::Push(push)) = input
            && keeps_back
            && let Some(worker) = self.copy.server.worker_of(*peer)
        {
            return Some(Content::Held(HeldPush::new(at, *peer, worker, push.clone())));
        }
        let mut bytes = Vec::new();
        encode_input(at, input, &mut bytes)?.append_to(&mut bytes);
        Some(Content::Ready(EntryKind::Input, Arc::new(bytes)))
    }

    /// Takes out heartbeats that may be sent at once: they reveal no input, and a worker that waits
    /// for a round to close waits for them. While the standby is disconnected they are withheld
    /// like all effects: a stalled server must not appear alive.
    fn let_heartbeats_pass(&mut self, effects: &mut Outbox) -> Vec<Effect> {
        if self.follower_peer().is_none() {
            return Vec::new();
        }
        let is_beat =
            |effect: &mut Effect| matches!(effect, Effect::Send(_, Message::Heartbeat(_)));
        let beats: Vec<Effect> = effects.extract_if(.., is_beat).collect();
        // Heartbeats must not overtake effects of entries already sent.
        self.unsettled.queue(beats)
    }

    /// Appends an entry to the stream and sends it at once.
    pub(super) fn write(&mut self, now: Time, kind: EntryKind, out: &mut Outbox) {
        self.append(self.copy.stream_time(now), Content::Ready(kind, Arc::default()));
        self.send_kept_back(now, out);
    }

    /// Appends an entry to the stream.
    fn append(&mut self, at: Time, content: Content) {
        let number = self.copy.entries;
        self.copy.entries += 1;
        if self.follower.is_some() {
            self.unsettled.push(number, at, content);
        }
    }

    /// Sends all withheld entries.
    pub(super) fn send_kept_back(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.lease();
        let from = self.unsettled.seal(self.copy.stream_time(now));
        let Some(follower) = &mut self.follower else { return }; // no server follows
        if let Some(peer) = follower.link.peer()
            && self.unsettled.has_from(from)
        {
            follower.link.sent(now, lease);
            let settled = self.unsettled.first().unwrap_or(from);
            let term = self.unsettled.claimed().unwrap_or(self.term);
            self.unsettled.send(from, peer, (term, settled), out);
        }
        if !follower.paired {
            // No effect waits for a standby that is not paired.
            self.unsettled.release();
        }
    }

    /// Executes effects of the server that need not wait for the standby.
    pub(super) fn obey(
        &mut self,
        now: Time,
        effects: impl Iterator<Item = Effect>,
        out: &mut Outbox,
    ) {
        for effect in effects {
            if let Effect::Dial(target) = effect {
                self.dials.dial(Caller::Replicated, target, out);
                continue;
            }
            if let (Effect::Done(Ok(reason)), Some(peer)) = (&effect, self.follower_peer()) {
                out.push(Effect::Send(peer, Message::End(End { reason: *reason })));
            }
            out.extend(self.adorn(now, effect));
        }
    }

    /// Translates an effect of the server: with the driver's connections, the term and the
    /// standby's address. None if its connection is of an earlier term.
    pub(super) fn adorn(&self, now: Time, effect: Effect) -> Option<Effect> {
        let outer = |peer| outer(self.began, peer);
        Some(match effect {
            Effect::Send(peer, Message::Welcome(mut welcome)) => {
                welcome.term = self.term;
                welcome.standby = self.standby();
                Effect::Send(outer(peer)?, Message::Welcome(welcome))
            }
            Effect::Send(peer, Message::Enlisted(mut enlisted)) => {
                enlisted.standby = self.standby();
                Effect::Send(outer(peer)?, Message::Enlisted(enlisted))
            }
            Effect::Send(peer, Message::Enlist(mut enlist)) => {
                enlist.standby = self.standby();
                Effect::Send(outer(peer)?, Message::Enlist(enlist))
            }
            Effect::Send(peer, message) => Effect::Send(outer(peer)?, message),
            Effect::Limit(peer, limits) => Effect::Limit(outer(peer)?, limits),
            Effect::Close(peer) => Effect::Close(outer(peer)?),
            Effect::SendExamples { peer, part, from } => {
                Effect::SendExamples { peer: outer(peer)?, part, from }
            }
            Effect::Report(mut event) => {
                event.translate(outer);
                Effect::Report(event)
            }
            Effect::SendStatus { peer, mut status, links } => {
                self.complete(now, &mut status);
                let links = links.into_iter().map(|link| link.and_then(outer)).collect();
                Effect::SendStatus { peer: outer(peer)?, status, links }
            }
            other => other,
        })
    }

    /// Adds the standby's address and the wait for the standby to a status.
    fn complete(&self, now: Time, status: &mut Status) {
        status.standby = self.standby();
        if let Some(first) = status.servers.first_mut() {
            first.standby.clone_from(&status.standby);
        }
        if let Some(wait) = self.wait(now) {
            status.wait = Some(wait);
        }
    }

    /// The status of the job, if the server knows it.
    pub(super) fn outlook(&self, now: Time) -> Option<Status> {
        let mut status = self.copy.server.status(self.copy.stream_time(now))?;
        self.complete(now, &mut status);
        Some(status)
    }

    pub(super) fn is_paired(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.paired)
    }

    pub(super) fn follower_peer(&self) -> Option<PeerId> {
        self.follower.as_ref().and_then(|follower| follower.link.peer())
    }

    pub(super) fn hear(&mut self, now: Time) {
        if let Some(follower) = &mut self.follower {
            follower.link.hear(now);
        }
    }

    /// The address at which workers find the standby.
    pub(super) fn standby(&self) -> Option<String> {
        let follower = self.follower.as_ref().filter(|follower| follower.paired);
        follower.map(|follower| follower.address.clone())
    }

    /// Translates connections of the server to the driver's.
    pub(super) fn outer_of(&self, peers: Vec<PeerId>) -> impl Iterator<Item = PeerId> {
        let began = self.began;
        peers.into_iter().filter_map(move |peer| outer(began, peer))
    }

    pub(super) fn settle(&mut self, now: Time, entries: u64, out: &mut Outbox) {
        let Settled { effects, electorate, term } = self.unsettled.settle(entries);
        if let Some(term) = term {
            self.term = term;
        }
        if let Some(electorate) = electorate {
            self.electorate = electorate;
        }
        self.obey(now, effects.into_iter(), out);
    }

    /// Proposes the current electorate if the members have changed, one list at a time.
    pub(super) fn watch_electorate(&mut self, now: Time, out: &mut Outbox) {
        if !self.is_paired() || self.unsettled.is_proposing() {
            return;
        }
        if !self.copy.server.has_electorate(&self.electorate) {
            let electorate = self.copy.server.electorate();
            if !electorate.is_empty() {
                self.write(now, EntryKind::Electorate(electorate), out);
            }
        }
    }

    /// Handles a wake-up of the primary; returns it for the server, too, if the server's deadline
    /// has come.
    pub(super) fn on_wake(&mut self, now: Time, out: &mut Outbox) -> Option<Input> {
        let lease = self.lease();
        self.look_for_other(now, out);
        if let Some(follower) = &mut self.follower {
            if let Some(silent) = follower.link.silent(now, lease) {
                self.lose_follower(now, alloc::format!("it has been silent for {silent:?}"), out);
            } else if follower.link.wants_beat(now) {
                follower.link.sent(now, lease);
                let beat = Message::Heartbeat(Heartbeat::default());
                out.extend(follower.link.peer().map(|peer| Effect::Send(peer, beat)));
            }
        }
        let at = self.copy.stream_time(now);
        self.copy.server.deadline().is_some_and(|due| at >= due).then_some(Input::Wake)
    }

    /// True if no entry waits for the standby and no election is open.
    pub(super) fn rests(&self) -> bool {
        self.unsettled.first().is_none() && self.election.is_none()
    }

    /// The open connections, as far as the primary knows.
    pub(super) fn peers(&self) -> Vec<PeerId> {
        let other = self.other.as_ref().and_then(Dialler::peer);
        let own = self.follower_peer().into_iter().chain(other);
        self.outer_of(self.copy.server.peers()).chain(own).collect()
    }

    /// Effects of the server that the driver has not answered, except the ones that wait for the
    /// standby.
    pub(super) fn unanswered(&self) -> Vec<Effect> {
        let mut unanswered = self.copy.server.unanswered();
        unanswered.retain(|effect| !self.unsettled.holds(effect));
        unanswered
    }

    /// Saves or restores everything but the copy, while the primary [rests](Self::rests).
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        stream: Stream,
    ) -> Result<(), SavedError> {
        archive.small(&mut self.began)?;
        archive.small(&mut self.term)?;
        archive.small(&mut self.latest)?;
        archive.small(&mut self.follower)?;
        archive.small(&mut self.electorate)?;
        archive.small(&mut self.dials)?;
        let mut looks = self.other.is_some();
        archive.small(&mut looks)?;
        if archive.restores() {
            self.other = looks.then(|| Dialler::new(stream));
        }
        self.other.iter_mut().try_for_each(|dialler| dialler.archive(archive))
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let lease = self.lease();
        let server = self.copy.server.deadline().map(|at| self.copy.own_time(at));
        let link = self.follower.as_ref().and_then(|follower| follower.link.deadline(lease));
        let other = self.other.as_ref().and_then(|dialler| dialler.deadline(lease));
        [server, link, other, self.election_at()].into_iter().flatten().min()
    }
}
