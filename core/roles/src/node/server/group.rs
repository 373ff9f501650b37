//! The other servers of the job, as the coordinator sees them.
//!
//! Each of them holds the same model at other keys and follows, in order, every [`Decision`] that
//! the coordinator makes. The coordinator decides a push once every server has its part, so that
//! every server can follow every decision. It keeps a decision until all servers have followed it:
//! a server that was cut off continues where it was.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::rebalance::Changes;
use crate::node::vote::Ballot;
use crate::node::{Effect, ExactPoint, Outbox, Point};
use pstrain_compute::id::{PeerId, ServerId, Version};
use pstrain_compute::params::{KeyMap, KeyRange};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::auto::Kept;
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{
    Decisions, Exchanged, MOST_DECISION_BYTES, MOST_DECISIONS, Slice, Traffic,
};
use pstrain_wire::holders::Holders;
use pstrain_wire::{Message, ServerStatus, Successor};

/// The other servers, and the decisions that they have to follow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Group {
    /// The key range of each server.
    pub(super) map: KeyMap,
    /// Servers that hold keys, and servers that wait for some.
    pub(super) others: Vec<Other>,
    /// Servers of this run so far, with this one: a number is never used twice.
    numbered: u32,
    /// Servers that held keys and gave them away to leave.
    pub(super) gone: BTreeSet<ServerId>,
    /// Requests of servers to join or to leave, and the rebalance for the first of them.
    pub(super) changes: Changes,
    /// The number of the oldest decision that is kept.
    pub(super) first: u64,
    decisions: VecDeque<Decision>,
    /// Decisions before this number have been sent to every server that follows and is connected.
    pub(super) sent: u64,
    /// Parameters that are being collected from all servers, for an evaluation or for clients.
    pub(super) shown: BTreeMap<Version, Shown>,
    /// The bytes that each server has exchanged with each worker, as it last said.
    traffic: BTreeMap<ServerId, Vec<Exchanged>>,
    /// All parameters of the last version that was collected.
    whole: Option<Kept>,
}

/// A server other than the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Other {
    pub(super) server: ServerId,
    /// The server follows decisions. A joining server does not until its first rebalance begins.
    pub(super) begun: bool,
    pub(super) peer: Option<PeerId>,
    /// Where workers reach it; empty until it has connected for the first time.
    pub(super) address: String,
    pub(super) heard: Time,
    /// Since when the server has been disconnected, if it is.
    pub(super) away_since: Option<Time>,
    pub(super) followed: u64,
    /// The address of its standby, if it has announced one.
    pub(super) standby: Option<String>,
    /// This server's vote in elections of its primary, if it has a standby.
    pub(super) vote: Ballot,
}

/// Parameters that the servers are sending, for an evaluation or for a client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Shown {
    pub(super) point: ExactPoint,
    /// True if they are for an evaluation; otherwise a client wants them.
    pub(super) evaluates: bool,
    /// Their keys: all keys for an evaluation.
    pub(super) keys: KeyRange,
    #[serde(skip)]
    pub(super) values: Vec<f32>,
    pub(super) came: BTreeSet<ServerId>,
}

/// Parameters that have arrived from all servers.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) version: Version,
    pub(super) keys: KeyRange,
    pub(super) parameters: Arc<Vec<f32>>,
    /// The point of the evaluation that they are for, if any.
    pub(super) evaluates: Option<Point>,
}

impl Group {
    /// Saves or restores the group; `keys` is the number of keys of the model.
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        keys: usize,
    ) -> Result<(), SavedError> {
        archive.small(self)?;
        self.changes.archive(archive)?;
        for shown in self.shown.values_mut() {
            archive.own_of("shown", &mut shown.values, shown.keys.len() as usize)?;
        }
        let whole = &mut self.whole;
        whole.iter_mut().try_for_each(|kept| archive.shared_of("whole", &mut kept.parameters, keys))
    }

    /// Returns the number of versions that are being collected.
    pub(super) fn shown(&self) -> usize {
        self.shown.len()
    }

    /// The connections of the other servers.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.others.iter().filter_map(|other| other.peer)
    }

    /// Creates the group of the servers in `map`; the first is this one.
    pub(super) fn new(map: KeyMap) -> Self {
        let others = map.shares().iter().skip(1).map(|&(server, _)| Other {
            server,
            begun: true,
            peer: None,
            address: String::new(),
            heard: Time::ZERO,
            away_since: Some(Time::ZERO),
            followed: 0,
            standby: None,
            vote: Ballot::default(),
        });
        let others: Vec<Other> = others.collect();
        Self { numbered: others.len() as u32 + 1, others, map, ..Self::default() }
    }

    /// True if this server holds all keys.
    pub(super) fn is_alone(&self) -> bool {
        self.map.shares().len() == 1
    }

    /// The number of other servers that hold keys.
    pub(super) fn others(&self) -> usize {
        self.map.shares().len() - 1
    }

    /// The other servers that hold keys.
    fn holders(&self) -> impl Iterator<Item = &Other> {
        self.others.iter().filter(|other| self.map.keys_of(other.server).is_some())
    }

    /// Returns the key range and the address of each server.
    pub(super) fn table(&self) -> Holders {
        let address = |&(server, _): &(ServerId, KeyRange)| {
            self.get(server).map(|other| other.address.clone()).unwrap_or_default()
        };
        let addresses = self.map.shares().iter().skip(1).map(address).collect();
        Holders { map: self.map.clone(), addresses }
    }

    /// Returns the status of all servers, or nothing if this one is alone. The job began with
    /// `first` servers.
    pub(super) fn status(
        &self,
        now: Time,
        first: u32,
        takes_checkpoints: bool,
    ) -> Vec<ServerStatus> {
        let of = |server: ServerId| (server.0 < first).then_some(first);
        let others = self.others.iter().map(|other| ServerStatus {
            server: other.server,
            of: of(other.server),
            address: other.address.clone(),
            keys: self.map.keys_of(other.server),
            away: other.away_since.map(|since| now.since(since)),
            successor: if other.address.is_empty() || self.next() == 0 {
                Successor::Any
            } else if takes_checkpoints {
                Successor::Checkpoint
            } else {
                Successor::Heir
            },
            standby: other.standby.clone(),
        });
        let server = ServerId::COORDINATOR;
        let first = || {
            let (address, keys) = (String::new(), self.map.keys_of(server));
            let (successor, standby) = (Successor::Heir, None);
            ServerStatus { server, of: of(server), address, keys, away: None, successor, standby }
        };
        let first = (!self.others.is_empty()).then(first);
        first.into_iter().chain(others).collect()
    }

    /// The first server that has never connected.
    pub(super) fn missing(&self) -> Option<ServerId> {
        self.holders().find(|other| other.address.is_empty()).map(|other| other.server)
    }

    /// The servers that hold keys and are disconnected.
    pub(super) fn away(&self) -> impl Iterator<Item = ServerId> {
        self.holders().filter(|other| other.away_since.is_some()).map(|other| other.server)
    }

    /// The first server that is disconnected, and since when.
    pub(super) fn first_away(&self) -> Option<(ServerId, Time)> {
        self.holders().find_map(|other| Some((other.server, other.away_since?)))
    }

    /// All parameters of `version`, if they have been collected.
    pub(super) fn whole(&self, version: Version) -> Option<&Arc<Vec<f32>>> {
        self.whole.as_ref().filter(|kept| kept.version == version).map(|kept| &kept.parameters)
    }

    /// Records a decision for the other servers, if any of them follows.
    pub(super) fn tell(&mut self, decision: impl FnOnce() -> Decision) {
        if self.others.iter().any(|other| other.begun) {
            self.decisions.push_back(decision());
        }
    }

    /// Returns the decisions after the one with this number.
    pub(super) fn since(&self, number: u64) -> Vec<Decision> {
        let known = (number + 1).saturating_sub(self.first) as usize;
        self.decisions.iter().skip(known).cloned().collect()
    }

    /// Returns the number of the next decision.
    pub(super) fn next(&self) -> u64 {
        self.first + self.decisions.len() as u64
    }

    /// The server behind `peer`.
    pub(super) fn of_peer(&self, peer: PeerId) -> Option<ServerId> {
        self.others.iter().find(|other| other.peer == Some(peer)).map(|other| other.server)
    }

    /// The connection of a server.
    pub(super) fn peer_of(&self, server: ServerId) -> Option<PeerId> {
        self.get(server)?.peer
    }

    pub(super) fn get(&self, server: ServerId) -> Option<&Other> {
        self.others.iter().find(|other| other.server == server)
    }

    pub(super) fn other(&mut self, server: ServerId) -> Option<&mut Other> {
        self.others.iter_mut().find(|other| other.server == server)
    }

    /// Adds a server that wants keys, and returns its number.
    pub(super) fn add(
        &mut self,
        now: Time,
        peer: PeerId,
        (address, standby): (String, Option<String>),
    ) -> ServerId {
        let server = ServerId(self.numbered);
        self.numbered += 1;
        self.others.push(Other {
            server,
            begun: false,
            peer: Some(peer),
            address,
            heard: now,
            away_since: None,
            followed: 0,
            standby,
            vote: Ballot::default(),
        });
        server
    }

    /// Makes a server follow from the next decision on, and returns the number of that decision.
    pub(super) fn begin(&mut self, server: ServerId) -> Option<u64> {
        let next = self.next();
        let other = self.other(server).filter(|other| !other.begun)?;
        (other.begun, other.followed) = (true, next);
        Some(next)
    }

    /// Stops a server from following: it has given its keys away.
    pub(super) fn let_go(&mut self, server: ServerId) {
        self.gone.insert(server);
        self.changes.forget(server);
        if let Some(other) = self.other(server) {
            other.begun = false;
        }
        self.prune();
    }

    /// Removes a server that holds no keys (any more), and returns its connection.
    pub(super) fn remove(&mut self, server: ServerId) -> Option<PeerId> {
        let place = self.others.iter().position(|other| other.server == server)?;
        let other = self.others.remove(place);
        self.changes.forget(server);
        self.prune();
        other.peer
    }

    /// A server that has given its keys away and has not been dismissed, with its connection.
    pub(super) fn first_gone(&self) -> Option<(ServerId, Option<PeerId>)> {
        let gone = self.others.iter().find(|other| self.gone.contains(&other.server))?;
        Some((gone.server, gone.peer))
    }

    /// Sends the decisions since the last call to every connected server that follows. Called once
    /// at the end of each input, and earlier where a later act relies on decisions having left.
    pub(super) fn flush(&mut self, out: &mut Outbox) {
        let next = self.next();
        if self.sent == next {
            return;
        }
        // A server that does not follow yet gets none: `begin` lets it follow from a later one on.
        let those = self.others.iter().filter(|other| other.begun);
        for peer in those.filter_map(|other| other.peer) {
            self.send(self.sent..next, peer, out);
        }
        // Advances even if a server is disconnected: `take_back` sends it what it missed, from the
        // number it has followed up to `sent`, and `flush` sends the rest.
        self.sent = next;
    }

    /// Sends `peer` the decisions with these numbers, in messages of limited size.
    pub(super) fn send(&self, numbers: Range<u64>, peer: PeerId, out: &mut Outbox) {
        let known = numbers.start.saturating_sub(self.first) as usize;
        let count = numbers.end.saturating_sub(numbers.start) as usize;
        let mut rest = self.decisions.iter().skip(known).take(count).peekable();
        let mut first = numbers.start;
        while let Some(decision) = rest.next() {
            let (mut decisions, mut bytes) = (Vec::from([decision.clone()]), decision.bytes());
            while decisions.len() < MOST_DECISIONS
                && let Some(next) = rest.next_if(|next| bytes + next.bytes() <= MOST_DECISION_BYTES)
            {
                bytes += next.bytes();
                decisions.push(next.clone());
            }
            let next = first + decisions.len() as u64;
            out.push(Effect::Send(peer, Message::Decisions(Decisions { first, decisions })));
            first = next;
        }
    }

    /// Drops decisions that all servers have followed.
    pub(super) fn prune(&mut self) {
        let those = self.others.iter().filter(|other| other.begun);
        let followed = those.map(|other| other.followed).min().unwrap_or_else(|| self.next());
        // A rebalance replays the decisions since its cut on the key ranges that have arrived.
        let followed = self.changes.cut().map_or(followed, |cut| followed.min(cut));
        while self.first < followed && self.decisions.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Records the bytes that a server has exchanged with the workers, all incarnations of it and
    /// of the workers included.
    pub(super) fn note_traffic(&mut self, server: ServerId, traffic: Traffic) {
        self.traffic.insert(server, traffic.workers);
    }

    /// Returns the bytes that each worker has exchanged with the other servers.
    pub(super) fn traffic(&self, workers: u32) -> Vec<Exchanged> {
        let mut all = alloc::vec![Exchanged::default(); workers as usize];
        for those in self.traffic.values() {
            all.iter_mut().zip(those).for_each(|(sum, bytes)| *sum += *bytes);
        }
        all
    }

    /// The first server that has not sent its part of parameters that are being collected.
    pub(super) fn first_to_show(&self) -> Option<ServerId> {
        self.shown.values().find_map(|shown| self.lacks(shown))
    }

    fn lacks(&self, shown: &Shown) -> Option<ServerId> {
        let mut others = self.map.shares().iter().skip(1).map(|&(server, _)| server);
        let is_due = |server| self.due(server, shown.keys).is_some();
        others.find(|&server| is_due(server) && !shown.came.contains(&server))
    }

    /// The keys that a server holds of `keys`.
    fn due(&self, server: ServerId, keys: KeyRange) -> Option<KeyRange> {
        self.map.keys_of(server)?.overlap(keys)
    }

    /// Adds parameters that another server sent. Returns all that were wanted once every server
    /// that holds some of them has sent its part. `all` is the key range of the model.
    pub(super) fn take_slice(
        &mut self,
        server: ServerId,
        slice: &Slice,
        all: KeyRange,
    ) -> Option<Whole> {
        let version = slice.header.version;
        let keys = self.shown.get(&version)?.keys;
        // The slice may have been sent before a wider range was wanted.
        let due = self.due(server, keys).filter(|due| *due == slice.header.keys)?;
        let shown = self.shown.get_mut(&version)?;
        shown.values.get_mut(due.within(keys)?)?.copy_from_slice(&slice.values);
        shown.came.insert(server);
        if self.lacks(self.shown.get(&version)?).is_some() {
            return None;
        }
        let Shown { point, evaluates, values, .. } = self.shown.remove(&version)?;
        self.tell(|| Decision::Seen { version });
        let parameters = Arc::new(values);
        if keys == all {
            self.whole = Some(Kept { version, parameters: parameters.clone() });
        }
        let evaluates = evaluates.then(|| point.into());
        Some(Whole { version, keys, parameters, evaluates })
    }

    /// Returns the next time at which a server is overdue: a connected one after `lease` of
    /// silence, a disconnected one when `due_back` of the start of its absence is over.
    pub(super) fn deadline(
        &self,
        lease: Duration,
        due_back: impl Fn(Time) -> Time,
    ) -> Option<Time> {
        let due = |other: &Other| match other.away_since {
            Some(since) => due_back(since),
            None => other.heard + lease,
        };
        self.others.iter().map(due).min()
    }

    /// Restarts the patience for disconnected servers: each phase has its own.
    pub(super) fn begin_phase(&mut self, now: Time) {
        self.others
            .iter_mut()
            .filter_map(|other| other.away_since.as_mut())
            .for_each(|at| *at = now);
    }

    /// Gives every connected server a fresh lease.
    pub(super) fn renew(&mut self, now: Time) {
        for other in self.others.iter_mut().filter(|other| other.peer.is_some()) {
            other.heard = now;
        }
    }
}
