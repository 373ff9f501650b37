//! The standby: applies the primary's stream, and leads once the primary is gone and the electors
//! have voted for it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::canvass::Round;
use super::election::Election;
use super::entries::EntryGroup;
use super::loss::{Loss, Search};
use super::state_machine::Replicated;
use super::{Copy, ReplicaConfig, fail, silence};
use crate::node::damage::{Damage, in_words, is_foreign};
use crate::node::dialler::{Dialler, Due, Unreachable};
use crate::node::{DialFault, Effect, Event, Input, NodeError, Outbox, Server, ServerError};
use pstrain_compute::id::{PeerId, Term, Version};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::{Electorate, Follow, Kept, State, StateHeader};
use pstrain_wire::worker::{End, EndReason, Heartbeat, Hello};
use pstrain_wire::{BUILD, Limits, Message, PROTOCOL_VERSION, Refusal, Status, Wait, WaitReason};

/// The state of a standby.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) config: ReplicaConfig,
    pub(super) dialler: Dialler,
    pub(super) damage: Damage,
    pub(super) job: Job,
    pub(super) job_digest: [u8; 32],
    /// Parameters of the whole model: a shard's keys may be rebalanced.
    pub(super) parameters: usize,
    /// The copy of the primary's server, once its state has arrived.
    pub(super) copy: Option<Copy>,
    /// The parts of a state received so far.
    pub(super) arriving: Option<(StateHeader, Vec<u8>)>,
    /// Entries received whose group is not complete.
    pub(super) together: EntryGroup,
    /// True if the primary's effects wait for this standby.
    pub(super) paired: bool,
    /// Electorates with the number of their entry: the last that both servers are known to have,
    /// and all after it.
    pub(super) electorates: VecDeque<(u64, Electorate)>,
    /// The term of the newest entry.
    pub(super) term: Term,
    /// The latest term that it has asked for, or heard of.
    pub(super) latest: Term,
    pub(super) election: Option<Election>,
    /// The server to dial, if electors do not connect to a standby.
    pub(super) round: Round,
    /// Since when an acknowledgement of entries is pending: one covers all that arrived at once.
    pub(super) owed_since: Option<Time>,
    /// Connections before their Hello, with the time they were opened.
    pub(super) unauthenticated: BTreeMap<PeerId, (Time, Identity)>,
    /// Workers that have lost the primary, too.
    pub(super) attending: BTreeMap<PeerId, WaitingWorker>,
    /// The loss of the primary, if it is lost.
    pub(super) lost: Option<Loss>,
    pub(super) over: Option<(Time, EndReason)>,
}

/// A worker that waits for a leader.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WaitingWorker {
    pub(super) identity: Identity,
    pub(super) hello: Hello,
    pub(super) since: Time,
}

impl Standby {
    /// A standby that will dial the primary of `job` at [`Input::Start`].
    ///
    /// # Errors
    /// [`ServerError`] if the job cannot have a server.
    pub(super) fn new(config: ReplicaConfig, job: Job) -> Result<Self, ServerError> {
        let server = Server::new(job.clone(), 0)?;
        Ok(Self {
            dialler: Dialler::new(config.stream),
            damage: Damage::default(),
            config,
            job,
            job_digest: *server.job_digest(),
            parameters: server.all_parameters(),
            copy: None,
            arriving: None,
            together: EntryGroup::default(),
            paired: false,
            electorates: VecDeque::new(),
            term: Term(0),
            latest: Term(0),
            election: None,
            round: Round::default(),
            owed_since: None,
            unauthenticated: BTreeMap::new(),
            attending: BTreeMap::new(),
            lost: None,
            over: None,
        })
    }

    pub(super) fn subject(&self) -> Option<&Replicated> {
        self.copy.as_ref().map(|copy| &copy.server)
    }

    pub(super) fn into_server(self) -> Option<Server> {
        self.copy.and_then(|copy| copy.server.into_coordinator())
    }

    pub(super) const fn lease(&self) -> Duration {
        self.job.membership.lease
    }

    pub(super) fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        match input {
            Input::Start => self.dialler.start(now, out),
            Input::Dialled(peer, identity) => self.on_dialled(now, peer, identity, out),
            Input::DialFailed { why, fault } => self.on_dial_failed(now, why, fault, out),
            Input::Message(from, message) if self.dialler.heard(now, from) => {
                self.hear();
                self.on_primary(now, message, out);
            }
            Input::Receiving(from) => {
                if self.dialler.heard(now, from) {
                    self.hear();
                }
            }
            Input::Message(from, message) => self.on_message(now, from, message, out),
            Input::Garbage(peer, error) if self.dialler.peer() == Some(peer) => {
                self.on_damage(now, &error.to_string(), is_foreign(error), out);
            }
            Input::Disconnected { peer, why } if self.dialler.lost(peer) => {
                self.redial(now, why, out);
            }
            Input::Connected(peer, identity) => {
                self.unauthenticated.insert(peer, (now, identity));
                out.push(Effect::Limit(peer, Limits::UNAUTHENTICATED));
            }
            Input::Garbage(peer, _) | Input::Disconnected { peer, .. } => self.forget(peer),
            Input::Drain => out.extend([Effect::Pause, Effect::Done(Ok(EndReason::Stopped))]),
            Input::Overslept => {
                self.dialler.overslept(now);
                self.attending.values_mut().for_each(|worker| worker.since = now);
            }
            Input::Wake => self.on_wake(now, out),
            Input::Prepared(_)
            | Input::ComputedRange(_)
            | Input::Computed(_)
            | Input::ComputeFailed(_)
            | Input::Evaluated(_)
            | Input::Unevaluated { .. }
            | Input::EvaluatedHere(..)
            | Input::Initial(_)
            | Input::Checkpoint(_)
            | Input::Written(_)
            | Input::WorkersDown
            | Input::Extend(_) => {}
        }
    }

    /// True if it is paired and neither a state, a group of entries nor an election is incomplete.
    pub(super) fn rests(&self) -> bool {
        let whole = self.arriving.is_none() && self.together.is_empty();
        self.paired && whole && self.election.is_none()
    }

    /// The open connections, as far as the standby knows.
    pub(super) fn peers(&self) -> Vec<PeerId> {
        let others = self.unauthenticated.keys().chain(self.attending.keys()).copied();
        self.dialler.peer().into_iter().chain(others).collect()
    }

    /// Saves or restores everything but the copy, while the standby [rests](Self::rests).
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.dialler.archive(archive)?;
        archive.small(&mut self.paired)?;
        archive.small(&mut self.electorates)?;
        archive.small(&mut self.term)?;
        archive.small(&mut self.latest)?;
        archive.small(&mut self.round)?;
        archive.small(&mut self.owed_since)?;
        archive.small(&mut self.unauthenticated)?;
        archive.small(&mut self.attending)?;
        archive.small(&mut self.lost)?;
        archive.small(&mut self.over)
    }

    fn forget(&mut self, peer: PeerId) {
        self.unauthenticated.remove(&peer);
        self.attending.remove(&peer);
    }

    fn on_dial_failed(&mut self, now: Time, why: String, fault: DialFault, out: &mut Outbox) {
        let is_new = self.copy.is_none();
        match fault {
            DialFault::Permanent if is_new => {
                let Unreachable { attempts, tried, .. } = self.dialler.give_up(now);
                fail(NodeError::Unreachable { why, attempts, tried }, out);
            }
            DialFault::Mismatch if is_new => match self.damage.mismatched(why) {
                Ok(why) => self.redial(now, why, out),
                Err(error) => fail(error, out),
            },
            _ => self.redial(now, self.dialler.name(why), out),
        }
    }

    /// A message to or from the server that it has dialled was damaged in transit: dials again. A
    /// standby that is paired does not give up: without it the run may end.
    fn on_damage(&mut self, now: Time, error: &str, is_foreign: bool, out: &mut Outbox) {
        if self.paired {
            return self.redial(now, in_words(error), out);
        }
        match self.damage.again(error, is_foreign) {
            Ok(why) => self.redial(now, why, out),
            Err(error) => fail(error, out),
        }
    }

    fn on_dialled(&mut self, now: Time, peer: PeerId, identity: Identity, out: &mut Outbox) {
        self.dialler.connected(now, peer);
        if !identity.may_serve() {
            let why = alloc::format!("who answers there is {identity}, which is no server");
            return self.redial(now, why, out);
        }
        if self.round.is_at_elector() {
            return self.on_elector_dialled(now, peer, out);
        }
        out.push(Effect::Limit(peer, Limits::of_primary(self.parameters)));
        let follow = Follow {
            protocol: PROTOCOL_VERSION,
            build: String::from(BUILD),
            id: self.config.id,
            digest: self.job_digest,
            address: self.config.address.clone(),
            kept: self.copy.as_ref().map(|copy| (copy.server.run(), copy.entries)),
            term: self.latest,
        };
        self.tell(now, Message::Follow(follow), out);
    }

    /// Sends a message to the server that it has dialled.
    fn tell(&mut self, now: Time, message: Message, out: &mut Outbox) {
        if let Some(peer) = self.dialler.peer() {
            self.dialler.sent(now);
            out.push(Effect::Send(peer, message));
        }
    }

    /// Disconnects from the primary and reconnects after a pause. Gives up with the patience of the
    /// job.
    pub(super) fn redial(&mut self, now: Time, why: String, out: &mut Outbox) {
        self.arriving = None;
        self.together = EntryGroup::default();
        let lost = self.lost.get_or_insert_with(|| Loss::new(now, why.clone(), Search::Dials));
        if lost.search == Search::Listens {
            lost.search = Search::Dials;
        }
        if !self.paired {
            self.copy = None;
        }
        let is_first = self.turn(now);
        if let Err(Unreachable { why, attempts, tried }) =
            self.dialler.redial(now, why, self.lease(), out)
        {
            return fail(NodeError::Unreachable { why, attempts, tried }, out);
        }
        if is_first {
            self.dialler.hasten(now); // no pause: the grace period is over
        }
    }

    /// Records the loss of a primary that has been silent for so long that it may be gone: electors
    /// that connect may vote for this standby. The primary may still speak again on the same
    /// connection.
    fn notice_silence(&mut self, now: Time) {
        let is_silent = |silent: &Duration| *silent >= silence(self.lease());
        if let Some(silent) = self.dialler.silent(now).filter(is_silent)
            && self.paired
            && self.lost.is_none()
        {
            let why = alloc::format!("it has been silent for {silent:?}");
            self.lost = Some(Loss::new(now, why, Search::Listens));
        }
    }

    /// Cancels the loss of a silent primary that speaks again. If electors were asked for votes,
    /// the next entry decides which server leads.
    fn hear(&mut self) {
        if self.election.is_none() && self.attending.is_empty() {
            self.lost.take_if(|lost| lost.search == Search::Listens);
        }
    }

    fn on_primary(&mut self, now: Time, message: Message, out: &mut Outbox) {
        if self.round.is_at_elector() {
            return self.on_elector(now, message, out);
        }
        match message {
            Message::Heartbeat(_) => {}
            Message::End(end) => self.end(end.reason, out),
            Message::State(state) => self.on_state(now, state, out),
            Message::Entry(entry) => self.on_entry(now, entry, out),
            Message::Combined(combined) => self.on_combined(combined),
            Message::Refused(Refusal::Frame { what }) => self.on_damage(now, &what, false, out),
            Message::Refused(why) if why.is_permanent() && !self.paired => {
                fail(NodeError::Refused(why), out);
            }
            Message::Refused(why) => self.redial(now, why.to_string(), out),
            other => {
                let why = alloc::format!("it sent a {:?} message to a standby", other.kind());
                self.redial(now, why, out);
            }
        }
    }

    fn on_state(&mut self, now: Time, State { header, bytes }: State, out: &mut Outbox) {
        if self.paired && self.run() != Some(header.run) {
            let why = String::from("it is a new run at the same address");
            return self.redial(now, why, out);
        }
        self.together = EntryGroup::default();
        let (begun, mut whole) = self.arriving.take().unwrap_or((header, Vec::new()));
        let goes_on = StateHeader { from: whole.len() as u64, ..begun };
        whole.extend_from_slice(&bytes);
        if header != goes_on || whole.len() as u64 > header.total {
            return self.redial(now, String::from("its state came in disorder"), out);
        }
        if (whole.len() as u64) < header.total {
            self.arriving = Some((begun, whole));
            return;
        }
        match Replicated::restore(header.server, &self.job, &self.config, &whole) {
            Err(what) => fail(NodeError::Protocol(what), out),
            Ok(server) => {
                let version = version_of(&server);
                let (entries, clock) = (header.entry, (now, header.at));
                self.copy = Some(Copy { server, entries, clock });
                self.paired = false;
                self.electorates.clear();
                // Earlier candidacies are void: the entries that they were based on are gone, and
                // an election from the time when it was paired cannot be won with this state.
                (self.term, self.latest, self.election) = (header.term, header.term, None);
                out.push(Effect::Report(Event::Following { version }));
                self.keep(now, out);
            }
        }
    }

    fn keep(&mut self, now: Time, out: &mut Outbox) {
        self.owed_since = None;
        if let Some(entries) = self.copy.as_ref().map(|copy| copy.entries) {
            self.tell(now, Message::Kept(Kept { entries }), out);
        }
    }

    pub(super) fn run(&self) -> Option<u64> {
        self.subject().map(Replicated::run)
    }

    /// True if electors connect to this standby, as workers do.
    pub(super) fn is_coordinator(&self) -> bool {
        self.subject().is_some_and(|subject| subject.coordinator().is_some())
    }

    fn on_message(&mut self, now: Time, from: PeerId, message: Message, out: &mut Outbox) {
        if self.attending.contains_key(&from) {
            match message {
                Message::Heartbeat(heartbeat) => {
                    out.push(Effect::Send(from, Message::Heartbeat(heartbeat)));
                }
                Message::Vote(vote) => self.on_vote(from, vote, out),
                _ => {
                    self.attending.remove(&from);
                    out.push(Effect::Close(from));
                }
            }
            return;
        }
        let Some((_, identity)) = self.unauthenticated.remove(&from) else {
            return; // its first message was answered, and the connection is being closed
        };
        match message {
            Message::Hello(hello) if self.can_lead() && self.is_coordinator() => {
                self.attend(now, from, WaitingWorker { identity, hello, since: now }, out);
            }
            Message::PullStatus(_) if identity.may_control().is_ok() => {
                let answer = self.outlook(now).map(|status| Message::Status(Box::new(status)));
                let answer = answer.unwrap_or_else(|| Message::Refused(self.refusal(&message)));
                out.push(Effect::Send(from, answer));
                out.push(Effect::Close(from));
            }
            message => {
                out.push(Effect::Send(from, Message::Refused(self.refusal(&message))));
                out.push(Effect::Close(from));
            }
        }
    }

    /// The refusal of a message that only the leader answers.
    fn refusal(&self, message: &Message) -> Refusal {
        match self.subject().and_then(|subject| subject.elsewhere(message)) {
            Some(elsewhere) => elsewhere,
            None => self.not_leading(),
        }
    }

    /// A refusal that names the leader.
    pub(super) fn not_leading(&self) -> Refusal {
        Refusal::Standby { leader: self.config.leader.clone() }
    }

    /// The status of the job, as far as the stream tells.
    pub(super) fn outlook(&self, now: Time) -> Option<Status> {
        let copy = self.copy.as_ref()?;
        let status = copy.server.status(copy.stream_time(now))?;
        let wait = self.wait(now).or_else(|| status.wait.clone());
        Some(Status { leader: Some(self.config.leader.clone()), wait, ..status })
    }

    /// The wait for a leader, after the loss of the primary.
    fn wait(&self, now: Time) -> Option<Wait> {
        let (reason, waited) = (WaitReason::Primary, now.since(self.lost.as_ref()?.since));
        Some(Wait { reason, workers: Vec::new(), waited, left: None })
    }

    fn end(&mut self, reason: EndReason, out: &mut Outbox) {
        if reason == EndReason::Stopped {
            out.push(Effect::Pause); // of a stream that it did not follow yet
        }
        for (peer, _) in core::mem::take(&mut self.attending) {
            out.push(Effect::Send(peer, Message::End(End { reason })));
        }
        out.push(Effect::Done(Ok(reason)));
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.lease();
        if self.owed_since.is_some() {
            self.keep(now, out);
        }
        self.notice_silence(now);
        if let Some(lost) =
            self.lost.as_ref().filter(|_| self.goes_at().is_some_and(|at| now >= at))
        {
            return self.redial(now, lost.why.clone(), out);
        }
        match self.dialler.wake(now, lease, out) {
            Due::Nothing => {}
            Due::Silence(silent) => {
                let why = alloc::format!("it has been silent for {silent:?}");
                return self.redial(now, why, out);
            }
            Due::Beat if self.round.is_at_elector() => {}
            Due::Beat => {
                let beat = Message::Heartbeat(Heartbeat::default());
                self.tell(now, beat, out);
            }
        }
        if let Some((_, reason)) = self.over.filter(|(since, _)| now >= *since + lease) {
            return self.end(reason, out);
        }
        let on_time = |since: Time| now < since + lease;
        let refusal = self.not_leading();
        let mut close = |peer: &PeerId| {
            out.push(Effect::Send(*peer, Message::Refused(refusal.clone())));
            out.push(Effect::Close(*peer));
            false
        };
        self.unauthenticated.retain(|peer, (since, _)| on_time(*since) || close(peer));
        // The worker's vote stays, and the worker may return; but it may reach the primary
        // meanwhile.
        self.attending.retain(|peer, worker| on_time(worker.since) || close(peer));
        if let Some(election) = self.election.as_mut().filter(|election| now >= election.ask_at()) {
            election.ask_later(now, lease);
            self.ask_all(out);
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let lease = self.lease();
        let link = self.dialler.deadline(lease);
        let silent = self.dialler.silent_at(silence(lease));
        let silent = silent.filter(|_| self.paired && self.lost.is_none());
        let election = self.election.as_ref().map(Election::ask_at);
        let unauthenticated = self.unauthenticated.values().map(|(since, _)| *since + lease).min();
        let attending = self.attending.values().map(|worker| worker.since + lease).min();
        let over = self.over.map(|(since, _)| since + lease);
        let ends = self.ends_at().filter(|_| self.can_lead() && self.over.is_none());
        let own = [link, silent, self.goes_at(), self.owed_since, election, over, ends];
        own.into_iter().chain([unauthenticated, attending]).flatten().min()
    }
}

/// The version of the parameters; none for a shard, which does not count versions.
pub(super) fn version_of(subject: &Replicated) -> Option<Version> {
    subject.coordinator().map(Server::version)
}
