//! The one that leads: hands inputs to its server and to its standby, holds effects back until the
//! standby has them, and asks the workers when it has lost it.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::contest::Contest;
use super::following::{Follower, Link};
use super::stream::{Settled, Unsettled};
use super::{Copy, ReplicaConfig, fail, grace, inner, outer, promise_of};
use crate::id::{PeerId, Term};
use crate::job::patience;
use crate::node::dialler::{Dialler, Due};
use crate::node::{Effect, Event, Identity, Input, Node, Outbox, Server, WorkerError, encode_input};
use crate::protocol::message::{End, Heartbeat};
use crate::protocol::replica::{
    Deposed, Electorate, Entry, EntryHeader, EntryKind, Follow, Promise, STATE_CHUNK_BYTES, Standby,
    State, StateHeader,
};
use crate::protocol::{BUILD, Message, PROTOCOL_VERSION, Refusal, Wait, WaitReason};
use crate::time::Time;

/// Whoever leads.
#[derive(Debug)]
pub(super) struct Primary {
    copy: Copy,
    /// The term it began to lead in: connections are counted anew with it.
    began: Term,
    /// The term of what is kept: by the standby, or by whatever the workers have promised.
    term: Term,
    /// The latest that it has asked for, or heard of.
    latest: Term,
    follower: Option<Follower>,
    /// Whose promises count.
    electorate: Electorate,
    unsettled: Unsettled,
    contest: Option<Contest>,
    /// How the one that led before is found, to be told that it does no more.
    before: Option<Dialler>,
    effects: Outbox,
}

impl Primary {
    /// One that leads alone in `term`.
    pub(super) fn new(copy: Copy, term: Term) -> Self {
        let electorate = copy.server.electorate();
        Self {
            copy,
            began: term,
            term,
            latest: term,
            follower: None,
            electorate,
            unsettled: Unsettled::default(),
            contest: None,
            before: None,
            effects: Outbox::new(),
        }
    }

    /// Looks for the one that led before.
    pub(super) fn depose(&mut self, dialler: Dialler) {
        self.before = Some(dialler);
    }

    pub(super) const fn server(&self) -> &Server {
        &self.copy.server
    }

    pub(super) fn into_server(self) -> Server {
        self.copy.server
    }

    fn lease(&self) -> Duration {
        self.copy.server.job().membership.lease
    }

    pub(super) fn handle(
        &mut self,
        now: Time,
        input: Input,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) {
        if let Some((peer, promise)) = promise_of(&input) {
            self.on_promise(now, peer, promise, config, out);
        } else if let Some(input) = self.intercept(now, input, out) {
            self.hand_in(now, input, out);
        }
        if self.contest_at().is_some_and(|at| now >= at) {
            self.contest(now, config, out);
        }
        self.watch_electorate(now, out);
    }

    /// Takes out what is not for the server; the rest, with the peers that the server knows.
    fn intercept(&mut self, now: Time, input: Input, out: &mut Outbox) -> Option<Input> {
        let began = self.began;
        let is_followers = |peer: PeerId| self.follower_peer() == Some(peer);
        Some(match input {
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
                self.on_follow(now, peer, follow, out);
                return None;
            }
            Input::Message(peer, Message::Deposed(deposed)) => {
                self.on_deposed(peer, deposed, out);
                return None;
            }
            Input::Dialled(..) | Input::DialFailed { .. } => {
                self.on_before(now, input, out);
                return None;
            }
            Input::Disconnected { peer, .. } | Input::Message(peer, _) | Input::Garbage(peer, _)
                if self.is_before(peer) =>
            {
                return None;
            }
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
                Input::Disconnected { peer: inner(began, peer), why }
            }
            other => other,
        })
    }

    /// Hands an input to the server and to the standby.
    pub(super) fn hand_in(&mut self, now: Time, input: Input, out: &mut Outbox) {
        let at = self.copy.stream_time(now);
        if self.follower.is_some() {
            let mut bytes = Vec::new();
            let Some(payload) = encode_input(at, &input, &mut bytes) else { return };
            bytes.extend_from_slice(payload.as_slice());
            self.write(now, EntryKind::Input, Arc::new(bytes), out);
        } else {
            self.copy.entries += 1;
        }
        let mut effects = core::mem::take(&mut self.effects);
        // Whoever asks how the run is doing shall hear that it stands still.
        let is_question = matches!(input, Input::Message(_, Message::PullStatus(_)));
        self.copy.server.handle(at, input, &mut effects);
        if self.is_paired() && !is_question {
            self.unsettled.hold(effects.drain(..));
        } else {
            self.obey(now, effects.drain(..), out);
        }
        self.effects = effects;
    }

    /// The next entry of the stream.
    fn write(&mut self, now: Time, kind: EntryKind, input: Arc<Vec<u8>>, out: &mut Outbox) {
        let (number, lease) = (self.copy.entries, self.lease());
        self.copy.entries += 1;
        let Some(follower) = &mut self.follower else { return };
        if follower.paired {
            self.unsettled.push(number, kind.clone(), Arc::clone(&input));
        }
        if let Some(peer) = follower.link.peer() {
            follower.link.sent(now, lease);
            let settled = self.unsettled.first().unwrap_or(number);
            let term = self.unsettled.claimed().unwrap_or(self.term);
            let header = EntryHeader { number, term, settled, kind };
            out.push(Effect::Send(peer, Message::Entry(Entry { header, input })));
        }
    }

    /// Effects of the server that nothing holds back.
    fn obey(&self, now: Time, effects: impl Iterator<Item = Effect>, out: &mut Outbox) {
        for effect in effects {
            if let (Effect::Done(Ok(reason)), Some(peer)) = (&effect, self.follower_peer()) {
                out.push(Effect::Send(peer, Message::End(End { reason: *reason })));
            }
            out.extend(self.adorn(now, effect));
        }
    }

    /// An effect of the server as one of this node: with the connections of its driver.
    fn adorn(&self, now: Time, effect: Effect) -> Option<Effect> {
        let outer = |peer| outer(self.began, peer);
        Some(match effect {
            Effect::Send(peer, Message::Welcome(mut welcome)) => {
                welcome.term = self.term;
                welcome.standby = self.standby();
                Effect::Send(outer(peer)?, Message::Welcome(welcome))
            }
            Effect::Send(peer, message) => Effect::Send(outer(peer)?, message),
            Effect::Limit(peer, limits) => Effect::Limit(outer(peer)?, limits),
            Effect::Close(peer) => Effect::Close(outer(peer)?),
            Effect::SendExamples { peer, part, from } => {
                Effect::SendExamples { peer: outer(peer)?, part, from }
            }
            Effect::SendStatus { peer, mut status, links } => {
                status.standby = self.standby();
                status.wait = self.wait(now).or(status.wait);
                let links = links.into_iter().map(|link| link.and_then(outer)).collect();
                Effect::SendStatus { peer: outer(peer)?, status, links }
            }
            other => other,
        })
    }

    /// Whether a server may be behind a connection that has said nothing yet.
    fn is_from_server(&self, peer: PeerId) -> bool {
        let identity = self.copy.server.stranger(inner(self.began, peer));
        identity.is_some_and(Identity::may_serve)
    }

    fn is_paired(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.paired)
    }

    fn follower_peer(&self) -> Option<PeerId> {
        self.follower.as_ref().and_then(|follower| follower.link.peer())
    }

    fn hear(&mut self, now: Time) {
        if let Some(follower) = &mut self.follower {
            follower.link.hear(now);
        }
    }

    /// Where workers find the standby.
    fn standby(&self) -> Option<String> {
        let follower = self.follower.as_ref().filter(|follower| follower.paired);
        follower.map(|follower| follower.address.clone())
    }

    /// For how long it has stood still for want of a standby or of promises, if it does.
    fn wait(&self, now: Time) -> Option<Wait> {
        let Link::Down { since, .. } = &self.follower.as_ref()?.link else { return None };
        let (waited, patience) = (now.since(*since), patience(self.lease()));
        let left = Some(patience.saturating_sub(waited));
        Some(Wait { reason: WaitReason::Standby, workers: Vec::new(), waited, left })
    }

    /// The connections of the workers.
    fn workers(&self) -> impl Iterator<Item = PeerId> {
        self.copy.server.worker_peers().filter_map(|peer| outer(self.began, peer))
    }

    /// Somebody wants to be the standby, or is and comes back.
    fn on_follow(&mut self, now: Time, peer: PeerId, follow: Follow, out: &mut Outbox) {
        if let Err(why) = self.check_follow(peer, &follow) {
            out.push(Effect::Send(peer, Message::Refused(why)));
            out.push(Effect::Close(peer));
            let why = String::from("it may not stand by");
            return self.hand_in(now, Input::Disconnected { peer: inner(self.began, peer), why }, out);
        }
        // It is nobody that the server knows.
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
                self.go_on_with(now, kept.map_or(0, |(_, entries)| entries), out);
            }
            _ => {
                let older = self.follower.take();
                out.extend(older.and_then(|it| it.link.peer()).map(Effect::Close));
                self.follower = Some(Follower { id, address, paired: false, link });
                self.send_state(now, peer, out);
            }
        }
    }

    fn check_follow(&self, peer: PeerId, follow: &Follow) -> Result<(), Refusal> {
        let server = &self.copy.server;
        if follow.protocol != PROTOCOL_VERSION {
            let theirs = (follow.protocol, follow.protocol);
            return Err(Refusal::Protocol { theirs, ours: PROTOCOL_VERSION });
        }
        if follow.build != BUILD {
            let (worker, server) = (follow.build.clone(), String::from(BUILD));
            return Err(Refusal::Build { worker, server });
        }
        if !self.is_from_server(peer) {
            let what = String::from("only a server that has said nothing else can stand by");
            return Err(Refusal::Server { what });
        }
        if follow.digest != *server.job_digest() {
            let what = "its job is another; give the standby the job file and options of the server";
            return Err(Refusal::Server { what: String::from(what) });
        }
        if server.job().servers > 1 {
            let what = "a server that is one of several can have no standby; use --durability log";
            return Err(Refusal::Server { what: String::from(what) });
        }
        let Some(follower) = &self.follower else { return Ok(()) };
        let is_it = follower.id == follow.id;
        if follower.paired {
            let keeps = follow.kept.filter(|(run, _)| *run == server.run());
            let first = self.unsettled.first().unwrap_or(self.copy.entries);
            let goes_on = keeps.is_some_and(|(_, kept)| (first..=self.copy.entries).contains(&kept));
            return if is_it && goes_on { Ok(()) } else { Err(Refusal::HasStandby) };
        }
        if is_it || follower.link.peer().is_none() { Ok(()) } else { Err(Refusal::HasStandby) }
    }

    /// The standby is back, and has so many entries.
    fn go_on_with(&mut self, now: Time, entries: u64, out: &mut Outbox) {
        self.contest = None;
        self.settle(now, entries, out);
        let Some(peer) = self.follower_peer() else { return };
        let settled = self.unsettled.first().unwrap_or(self.copy.entries);
        let mut term = self.unsettled.claimed().unwrap_or(self.term);
        if self.latest > term {
            // It has asked for a later term, or this one has: both follow in one after that, once
            // both have the entry that says so.
            term = self.latest.next();
            self.latest = term;
            let first = self.unsettled.first().unwrap_or(self.copy.entries);
            self.unsettled.claim(first, term);
        }
        self.unsettled.repeat(peer, term, settled, out);
        if self.unsettled.first().is_none() {
            // Something must say who leads, and in which term.
            let electorate = self.electorate.clone();
            self.write(now, EntryKind::Electorate(electorate), Arc::default(), out);
        }
    }

    /// Sends the whole state; what follows comes after it, and nobody waits for it yet.
    fn send_state(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        let (entry, at) = (self.copy.entries, self.copy.stream_time(now));
        let bytes = self.copy.server.save().to_bytes();
        let total = bytes.len() as u64;
        let run = self.copy.server.run();
        for (chunk, from) in bytes.chunks(STATE_CHUNK_BYTES).zip((0..).step_by(STATE_CHUNK_BYTES)) {
            let header = StateHeader { run, term: self.term, entry, at, from, total };
            out.push(Effect::Send(peer, Message::State(State { header, bytes: chunk.to_vec() })));
        }
    }

    fn on_follower(&mut self, now: Time, message: Message, out: &mut Outbox) {
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

    /// The standby has the state: from here on nothing has an effect without it.
    fn pair(&mut self, now: Time, out: &mut Outbox) {
        self.renew_electorate();
        let electorate = self.electorate.clone();
        let Some(follower) = &mut self.follower else { return };
        follower.paired = true;
        let address = follower.address.clone();
        self.write(now, EntryKind::Paired(electorate), Arc::default(), out);
        let told = Standby { address: address.clone() };
        let workers = self.copy.server.worker_peers();
        let told = workers.map(|peer| Effect::Send(peer, Message::Standby(told.clone())));
        self.unsettled.hold(told.chain([Effect::Report(Event::StandbyJoined { address })]));
    }

    fn settle(&mut self, now: Time, entries: u64, out: &mut Outbox) {
        let Settled { effects, electorate, term } = self.unsettled.settle(entries);
        if let Some(term) = term {
            self.term = term;
        }
        if let Some(electorate) = electorate {
            self.electorate = electorate;
        }
        self.obey(now, effects.into_iter(), out);
    }

    /// If somebody has joined or gone: says whose promises count, one list at a time.
    fn watch_electorate(&mut self, now: Time, out: &mut Outbox) {
        if !self.is_paired() || self.unsettled.is_proposing() {
            return;
        }
        if !self.copy.server.has_electorate(&self.electorate) {
            let electorate = self.copy.server.electorate();
            if !electorate.is_empty() {
                self.write(now, EntryKind::Electorate(electorate), Arc::default(), out);
            }
        }
    }

    /// Counts by those who are there now. Once all are given up, the last of them count still: they
    /// may be there, and nobody else can say who leads.
    fn renew_electorate(&mut self) {
        let electorate = self.copy.server.electorate();
        if !electorate.is_empty() {
            self.electorate = electorate;
        }
    }

    /// The connection to the standby is gone, or closed for a reason.
    fn lose_follower(&mut self, now: Time, why: String, out: &mut Outbox) {
        let Some(follower) = &mut self.follower else { return };
        out.extend(follower.link.peer().map(Effect::Close));
        if follower.paired {
            follower.link = Link::Down { since: now, why };
        } else {
            self.follower = None; // nothing waits for it
        }
    }

    /// When the workers are asked to follow this one alone.
    fn contest_at(&self) -> Option<Time> {
        match &self.follower.as_ref()?.link {
            Link::Down { since, .. } => {
                let asked = self.contest.as_ref().map(Contest::ask_at);
                Some(asked.unwrap_or(*since + grace(self.lease())))
            }
            Link::Up { .. } => None,
        }
    }

    fn contest(&mut self, now: Time, config: &ReplicaConfig, out: &mut Outbox) {
        let (lease, latest) = (self.lease(), self.latest);
        if let Some(Follower { link: Link::Down { since, why }, .. }) = &self.follower
            && now >= *since + patience(lease)
        {
            let (attempts, tried) = (0, now.since(*since));
            let why = alloc::format!(
                "its standby is gone ({why}), and most of the workers have not promised to follow it \
                 alone"
            );
            return fail(WorkerError::Unreachable { why, attempts, tried }, out);
        }
        let mut contest = self.contest.take().unwrap_or_else(|| Contest::new(latest, now));
        contest.ask_later(now, lease);
        self.latest = self.latest.max(contest.term());
        let run = self.copy.server.run();
        self.workers().for_each(|peer| contest.ask(peer, run, self.term, config.id, out));
        self.contest = Some(contest);
        self.win_if_promised(now, out);
    }

    fn on_promise(
        &mut self,
        now: Time,
        peer: PeerId,
        promise: Promise,
        config: &ReplicaConfig,
        out: &mut Outbox,
    ) {
        let Some(contest) = &mut self.contest else { return };
        let asked = contest.term();
        contest.take(promise);
        self.latest = self.latest.max(contest.term());
        if contest.term() > asked {
            contest.ask(peer, self.copy.server.run(), self.term, config.id, out);
        }
        self.win_if_promised(now, out);
    }

    /// Goes on alone once enough workers have promised.
    fn win_if_promised(&mut self, now: Time, out: &mut Outbox) {
        // Once both have the end of the run nothing changes any more, whoever leads.
        let ended = self.copy.server.has_ended() && !self.unsettled.holds_end();
        let Some(contest) = self.contest.take_if(|it| ended || it.has_most_of(&self.electorate))
        else {
            return;
        };
        self.term = contest.term();
        if let Some(Follower { link: Link::Down { since, why }, .. }) = self.follower.take() {
            let stood = now.since(since);
            out.push(Effect::Report(Event::StandbyLost { term: self.term, stood, why }));
        }
        let effects = self.unsettled.release();
        self.obey(now, effects.into_iter(), out);
        self.renew_electorate();
    }

    /// Somebody says that it leads.
    fn on_deposed(&mut self, peer: PeerId, deposed: Deposed, out: &mut Outbox) {
        // Only a standby that this one cannot do without can lead without it.
        let may = self.is_from_server(peer) && self.is_paired() && deposed.run == self.copy.server.run();
        if may && deposed.term > self.term {
            out.extend(self.workers().map(Effect::Close));
            fail(WorkerError::Deposed { term: deposed.term }, out);
        }
    }

    /// What comes of looking for the one that led before.
    fn on_before(&mut self, now: Time, input: Input, out: &mut Outbox) {
        let lease = self.lease();
        let Some(dialler) = &mut self.before else { return };
        let why = match input {
            Input::Dialled(peer, Identity::Anyone | Identity::Server) => {
                let (run, term) = (self.copy.server.run(), self.term);
                let deposed = Message::Deposed(Deposed { run, term });
                out.push(Effect::Send(peer, deposed));
                out.push(Effect::Close(peer));
                self.before = None;
                return;
            }
            Input::Dialled(peer, _) => {
                out.push(Effect::Close(peer));
                String::from("it is no server")
            }
            Input::DialFailed { why, .. } => why,
            _ => return,
        };
        let mut unheard = Outbox::new();
        if dialler.redial(now, why, lease, &mut unheard).is_err() {
            self.before = None;
        }
    }

    fn is_before(&self, peer: PeerId) -> bool {
        self.before.as_ref().is_some_and(|dialler| dialler.peer() == Some(peer))
    }

    /// Does what is due here; the wake-up is the server's, too, if its time has come.
    fn on_wake(&mut self, now: Time, out: &mut Outbox) -> Option<Input> {
        let lease = self.lease();
        if let Some(dialler) = &mut self.before {
            let due = dialler.wake(now, lease, out);
            debug_assert_eq!(due, Due::Nothing, "it is never connected for long");
        }
        if let Some(follower) = &mut self.follower {
            if let Some(silent) = follower.link.silent(now, lease) {
                self.lose_follower(now, alloc::format!("it has been silent for {silent:?}"), out);
            } else if follower.link.wants_beat(now) {
                follower.link.sent(now, lease);
                let beat = Message::Heartbeat(Heartbeat { incarnation: None });
                out.extend(follower.link.peer().map(|peer| Effect::Send(peer, beat)));
            }
        }
        let at = self.copy.stream_time(now);
        self.copy.server.deadline().is_some_and(|due| at >= due).then_some(Input::Wake)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let lease = self.lease();
        let server = self.copy.server.deadline().map(|at| self.copy.own_time(at));
        let link = self.follower.as_ref().and_then(|follower| follower.link.deadline(lease));
        let before = self.before.as_ref().and_then(|dialler| dialler.deadline(lease));
        [server, link, before, self.contest_at()].into_iter().flatten().min()
    }
}
