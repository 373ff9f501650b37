//! The other servers of the job, seen from the one that coordinates.
//!
//! Each has the same model at other keys and follows every decision that is made here, in order
//! ([`Decision`]). A push is decided once every server has its part of it, so that whatever is decided
//! can be followed by all. Decisions are kept until all have followed them: a server that was cut off
//! goes on where it was.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Server;
use crate::consistency::{Closing, Kept};
use crate::id::{PeerId, ServerId, Version, WorkerId};
use crate::node::{Effect, Evaluate, Event, ExactPoint, Outbox, Point};
use crate::params::KeyRange;
use crate::protocol::group::{
    Decisions, Enlist, Enlisted, Followed, MOST_ADDRESS_BYTES, MOST_DECISIONS, Slice,
};
use crate::protocol::message::{End, EndReason, Heartbeat};
use crate::protocol::{BUILD, Limits, Message, PROTOCOL_VERSION, Phase, Refusal};
use crate::saved::{Archive, SavedError};
use crate::store::{Contribution, Decision};
use crate::time::Time;

/// The other servers, and what they have to follow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Group {
    others: Vec<Other>,
    /// The number of the first decision that is kept.
    first: u64,
    decisions: VecDeque<Decision>,
    /// Decisions that have been sent to all who are there.
    sent: u64,
    /// Parameters that are to be evaluated, as far as they have come.
    shown: BTreeMap<Version, Shown>,
    /// All parameters of the last version that was put together.
    whole: Option<Kept>,
}

/// A server that does not coordinate.
#[derive(Debug, Serialize, Deserialize)]
struct Other {
    keys: KeyRange,
    peer: Option<PeerId>,
    /// Where workers reach it; empty until it has come.
    address: String,
    heard: Time,
    /// Since when it has not been there.
    away_since: Option<Time>,
    followed: u64,
}

/// Parameters that the servers are sending.
#[derive(Debug, Serialize, Deserialize)]
struct Shown {
    point: ExactPoint,
    #[serde(skip)]
    values: Vec<f32>,
    came: BTreeSet<ServerId>,
}

impl Group {
    /// Saves or restores everything.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)?;
        let keys = self.others.last().map_or(0, |other| other.keys.end() as usize);
        for shown in self.shown.values_mut() {
            archive.own_of("shown", &mut shown.values, keys)?;
        }
        let whole = &mut self.whole;
        whole.iter_mut().try_for_each(|kept| archive.shared_of("whole", &mut kept.parameters, keys))
    }

    /// Parameters that are to be evaluated and have not come from all servers.
    pub(super) fn shown(&self) -> usize {
        self.shown.len()
    }

    /// The connections of the others.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.others.iter().filter_map(|other| other.peer)
    }

    /// The servers of a job that have these keys, without the first.
    pub(super) fn new(others: Vec<KeyRange>) -> Self {
        let others = others.into_iter().map(|keys| Other {
            keys,
            peer: None,
            address: String::new(),
            heard: Time::ZERO,
            away_since: Some(Time::ZERO),
            followed: 0,
        });
        Self { others: others.collect(), ..Self::default() }
    }

    /// Whether there is no other server.
    pub(super) const fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// How many others there are.
    pub(super) const fn others(&self) -> usize {
        self.others.len()
    }

    /// Where the others are.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.others.iter().map(|other| other.address.clone()).collect()
    }

    /// The first server that never came.
    pub(super) fn missing(&self) -> Option<ServerId> {
        let place = self.others.iter().position(|other| other.address.is_empty())?;
        Some(ServerId(place as u32 + 1))
    }

    /// The first server that is not there, and since when.
    pub(super) fn first_away(&self) -> Option<(ServerId, Time)> {
        let all = (1..).map(ServerId).zip(&self.others);
        all.filter_map(|(server, other)| Some((server, other.away_since?))).next()
    }

    /// All parameters of `version`, if they were put together.
    pub(super) fn whole(&self, version: Version) -> Option<&Arc<Vec<f32>>> {
        self.whole.as_ref().filter(|kept| kept.version == version).map(|kept| &kept.parameters)
    }

    /// Adds a decision for the others to follow, if there are any.
    pub(super) fn tell(&mut self, decision: impl FnOnce() -> Decision) {
        if !self.is_alone() {
            self.decisions.push_back(decision());
        }
    }

    /// The number of the next decision.
    fn next(&self) -> u64 {
        self.first + self.decisions.len() as u64
    }

    /// The server behind `peer`.
    pub(super) fn of_peer(&self, peer: PeerId) -> Option<ServerId> {
        let place = self.others.iter().position(|other| other.peer == Some(peer))?;
        Some(ServerId(place as u32 + 1))
    }

    fn other(&mut self, server: ServerId) -> Option<&mut Other> {
        self.others.get_mut((server.0 as usize).checked_sub(1)?)
    }

    /// Sends what has been decided since the last time.
    pub(super) fn flush(&mut self, out: &mut Outbox) {
        let next = self.next();
        if self.sent == next {
            return;
        }
        for peer in self.peers() {
            self.send(self.sent..next, peer, out);
        }
        self.sent = next;
    }

    /// Sends `peer` the decisions with these numbers.
    fn send(&self, numbers: Range<u64>, peer: PeerId, out: &mut Outbox) {
        let known = numbers.start.saturating_sub(self.first) as usize;
        let count = numbers.end.saturating_sub(numbers.start) as usize;
        let mut rest = self.decisions.iter().skip(known).take(count).cloned();
        for first in numbers.step_by(MOST_DECISIONS) {
            let decisions: Vec<Decision> = rest.by_ref().take(MOST_DECISIONS).collect();
            out.push(Effect::Send(peer, Message::Decisions(Decisions { first, decisions })));
        }
    }

    /// Forgets decisions that all have followed.
    fn prune(&mut self) {
        let followed = self.others.iter().map(|other| other.followed).min().unwrap_or(0);
        while self.first < followed && self.decisions.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Takes note of parameters of another server; all of them, once they have come from all.
    fn take_slice(&mut self, server: ServerId, slice: &Slice) -> Option<Evaluate> {
        let others = self.others.len();
        let version = slice.header.version;
        let shown = self.shown.get_mut(&version)?;
        shown.values.get_mut(slice.header.keys.indices())?.copy_from_slice(&slice.values);
        shown.came.insert(server);
        if shown.came.len() < others {
            return None;
        }
        let Shown { point, values, .. } = self.shown.remove(&version)?;
        self.tell(|| Decision::Seen { version });
        let parameters = Arc::new(values);
        self.whole = Some(Kept { version, parameters: parameters.clone() });
        Some(Evaluate { point: point.into(), parameters })
    }

    /// The next time something of the others is overdue: silence for `lease`, absence for
    /// `patience`.
    pub(super) fn deadline(&self, lease: Duration, patience: Duration) -> Option<Time> {
        let due = |other: &Other| match other.away_since {
            Some(since) => since + patience,
            None => other.heard + lease,
        };
        self.others.iter().map(due).min()
    }

    /// Another phase begins, with a patience of its own.
    pub(super) fn begin_phase(&mut self, now: Time) {
        self.others
            .iter_mut()
            .filter_map(|other| other.away_since.as_mut())
            .for_each(|at| *at = now);
    }

    /// Gives everybody who is there a fresh lease.
    pub(super) fn renew(&mut self, now: Time) {
        for other in self.others.iter_mut().filter(|other| other.peer.is_some()) {
            other.heard = now;
        }
    }
}

/// What is decided of the parameters: done here, and told to the others.
impl Server {
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.store.forget(worker);
        self.group.tell(|| Decision::Forget { worker });
    }

    pub(super) fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        self.store.set_rows(worker, rows);
        self.group.tell(|| Decision::Rows { worker, rows });
    }

    pub(super) fn gather(&mut self, contribution: Contribution, gradient: Arc<Vec<f32>>) {
        self.store.gather(contribution, gradient);
        self.group.tell(|| Decision::Gather(contribution));
    }

    pub(super) fn merge(&mut self) {
        let version = self.version();
        self.store.merge(version);
        self.group.tell(|| Decision::Merge { version });
    }

    pub(super) fn discard(&mut self) {
        self.store.discard();
        self.group.tell(|| Decision::Discard);
    }

    pub(super) fn tell_close(&mut self, closing: Closing, weights: Option<&[f32]>) {
        let (oldest, version) = (self.cohort.oldest(), self.cohort.version());
        self.group.tell(|| Decision::Close {
            closing,
            oldest,
            version,
            weights: weights.map(<[f32]>::to_vec),
        });
    }

    /// Has the current parameters evaluated, once they are here from all servers.
    pub(super) fn show(&mut self, point: Point, out: &mut Outbox) {
        let own = self.store.parameters();
        if self.group.is_alone() {
            return self.request(Evaluate { point, parameters: own.clone() }, out);
        }
        let version = point.version;
        let last = self.group.others.last().map_or_else(|| self.store.keys(), |other| other.keys);
        let mut values = alloc::vec![0.0; last.end() as usize];
        if let Some(part) = values.get_mut(self.store.keys().indices()) {
            part.copy_from_slice(own);
        }
        self.group
            .shown
            .insert(version, Shown { point: point.into(), values, came: BTreeSet::new() });
        self.group.tell(|| Decision::Show { version });
    }
}

/// The other servers as peers.
impl Server {
    /// A server says which of the job's it is.
    pub(super) fn on_enlist(&mut self, now: Time, peer: PeerId, enlist: Enlist, out: &mut Outbox) {
        if let Err(why) = self.check_enlist(&enlist).and_then(|()| self.check_server(peer)) {
            return self.refuse(now, peer, why, out);
        }
        let (first, next) = (self.group.first, self.group.next());
        let followed = enlist.followed.map_or(0, |(_, followed)| followed);
        let is_known = (first..=next).contains(&followed);
        let Some(other) = self.group.other(enlist.server).filter(|_| is_known) else {
            let what = alloc::format!(
                "it has followed {followed} decisions, but {first} to {next} are known here: its \
                 part of the parameters is lost, if no other process has it"
            );
            return self.refuse(now, peer, Refusal::Server { what }, out);
        };
        let before = other.peer.replace(peer);
        (other.address, other.heard, other.away_since) = (enlist.address, now, None);
        other.followed = followed;
        let limits = Limits::of_worker(other.keys.len() as usize);
        self.forget_stranger(peer);
        out.extend(before.map(Effect::Close));
        out.push(Effect::Limit(peer, limits));
        let server = enlist.server;
        out.push(Effect::Report(Event::ServerJoined { server }));
        let (job, digest) = (self.job.clone(), self.job_digest);
        let enlisted = Enlisted { run: self.run, job, digest };
        out.push(Effect::Send(peer, Message::Enlisted(alloc::boxed::Box::new(enlisted))));
        self.group.send(followed..self.group.sent, peer, out);
        self.settle(now, out);
    }

    fn check_enlist(&self, enlist: &Enlist) -> Result<(), Refusal> {
        let Enlist { protocol, build, server, servers, address, followed } = enlist;
        if *protocol != PROTOCOL_VERSION {
            return Err(Refusal::Protocol {
                theirs: (*protocol, *protocol),
                ours: PROTOCOL_VERSION,
            });
        }
        if build != BUILD {
            return Err(Refusal::Build { worker: build.clone(), server: String::from(BUILD) });
        }
        let what = if *servers != self.job.servers {
            alloc::format!(
                "it is one of {servers} servers, but the job has servers = {}",
                self.job.servers
            )
        } else if *server == ServerId::COORDINATOR || server.0 >= self.job.servers {
            alloc::format!("there is no other server {server} of {servers}")
        } else if address.is_empty()
            || address.len() > MOST_ADDRESS_BYTES
            || address.chars().any(char::is_control)
        {
            String::from("its address is no address")
        } else if followed.is_some_and(|(run, _)| run != self.run) {
            String::from("it belongs to another run")
        } else {
            return Ok(());
        };
        Err(Refusal::Server { what })
    }

    pub(super) fn on_server_message(
        &mut self,
        now: Time,
        peer: PeerId,
        server: ServerId,
        message: Message,
        out: &mut Outbox,
    ) {
        if let Some(other) = self.group.other(server) {
            other.heard = now;
        }
        match message {
            Message::Heartbeat(_) => {
                out.push(Effect::Send(peer, Message::Heartbeat(Heartbeat { incarnation: None })));
            }
            Message::Followed(Followed { decisions }) => {
                let next = self.group.next();
                if let Some(other) = self.group.other(server) {
                    other.followed = other.followed.max(decisions.min(next));
                }
                self.group.prune();
            }
            Message::Arrived(arrived) => self.on_arrived(now, server, arrived, out),
            Message::Slice(slice) => {
                let keys = self.group.other(server).map(|other| other.keys);
                if keys != Some(slice.header.keys)
                    || slice.header.keys.len() != slice.values.len() as u64
                {
                    let what = alloc::format!(
                        "{} values for keys {} came from server {server}",
                        slice.values.len(),
                        slice.header.keys
                    );
                    return self.refuse(now, peer, Refusal::Unexpected { what }, out);
                }
                if let Some(evaluate) = self.group.take_slice(server, &slice) {
                    self.request(evaluate, out);
                }
            }
            message => {
                let unexpected = super::unexpected("a server's message", &message);
                self.refuse(now, peer, unexpected, out);
            }
        }
    }

    /// A part of the sending of a long message has come from another server; whether it is one.
    pub(super) fn hear_server(&mut self, now: Time, peer: PeerId) -> bool {
        let server = self.group.of_peer(peer);
        if let Some(other) = server.and_then(|server| self.group.other(server)) {
            other.heard = now;
        }
        server.is_some()
    }

    /// A server is cut off. It keeps its part of the parameters and may come back.
    pub(super) fn lose_server(&mut self, now: Time, peer: PeerId, why: String, out: &mut Outbox) {
        let Some(server) = self.group.of_peer(peer) else { return };
        if let Some(other) = self.group.other(server) {
            (other.peer, other.away_since) = (None, Some(now));
            out.push(Effect::Report(Event::ServerCutOff { server, why }));
        }
    }

    /// Looks for servers that are silent, or away for too long.
    pub(super) fn watch_servers(&mut self, now: Time, out: &mut Outbox) {
        let membership = self.job.membership;
        let silent = |other: &&Other| other.peer.is_some() && now >= other.heard + membership.lease;
        let silent: Vec<PeerId> =
            self.group.others.iter().filter(silent).filter_map(|other| other.peer).collect();
        for peer in silent {
            out.push(Effect::Close(peer));
            let why = alloc::format!("it has been silent for {:?}", membership.lease);
            self.lose_server(now, peer, why, out);
        }
        let patience = self.server_patience();
        let is_lost = |other: &Other| other.away_since.is_some_and(|since| now >= since + patience);
        let Some(place) = self.group.others.iter().position(is_lost) else { return };
        // What it has of the parameters is not coming.
        let never = core::mem::take(&mut self.group.shown).len();
        let lost = EndReason::ServerLost(ServerId(place as u32 + 1));
        if never > 0 && self.end.is_some() {
            self.end = Some(lost); // with part of the result
        }
        if let Some(other) = self.group.others.get_mut(place) {
            other.away_since = Some(now); // said once for each time
        }
        self.end(now, lost, out);
    }

    /// How long a server may be away.
    pub(super) fn server_patience(&self) -> Duration {
        let membership = self.job.membership;
        match self.phase {
            Phase::Gathering => membership.start_patience(),
            Phase::Training | Phase::Draining | Phase::Ending => membership.patience(),
        }
    }

    /// Tells the others that the run is over.
    pub(super) fn dismiss_servers(&mut self, reason: EndReason, out: &mut Outbox) {
        for peer in self.group.others.iter_mut().filter_map(|other| other.peer.take()) {
            out.push(Effect::Send(peer, Message::End(End { reason })));
            out.push(Effect::Close(peer));
        }
    }
}
