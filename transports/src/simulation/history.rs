//! The one history of a run that two servers tell, and how it came through what befell them.
//!
//! Both hand the same inputs to the same state machine, so both report the same, one after the
//! other: the standby what it has been sent, the primary what its standby has. The first of either
//! counts. What a primary had not settled when it died it has not reported, and if its standby has
//! it, that has reported it; so nothing comes twice, and nothing that came to nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pstrain_compute::id::{Incarnation, Sequence, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Input};
use pstrain_wire::Message;

/// A push: no other ever has the same three.
type PushId = (WorkerId, Incarnation, Sequence);

/// How a run came through what befell its servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failover {
    /// How often a standby took the place of the server.
    pub takeovers: u64,
    /// How often a server went on without its standby.
    pub alone: u64,
    /// Whatever befell a server that led or had a standby, or the standby of one.
    pub failures: Vec<Failure>,
    /// Pushes that a worker was told are accepted.
    pub acknowledged: u64,
    /// Of these, such as whoever leads at the end has never heard of; all of them, if nobody does.
    pub lost: u64,
    /// Updates that a worker has seen and whoever leads at the end has not made.
    pub updates_lost: u64,
    /// Pushes that became part of an update more than once.
    pub repeated: u64,
    /// Bytes that went to the machine of the server from that of its standby.
    pub up_bytes: u64,
    /// And the other way.
    pub down_bytes: u64,
}

/// Something that befell a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Time,
    /// The time from then to the first update by whoever led after it; none if there was none.
    pub resumed: Option<Duration>,
    /// Whether somebody leads since, or it is mended.
    settled: bool,
}

/// What the two have told so far, and what of it counts.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Reports that the history has.
    told: u64,
    /// How many of them each of the two has told, or begins after.
    by: [u64; 2],
    /// How many there were when a state was sent, by the connection over which it was.
    states: BTreeMap<u32, u64>,
    /// When whoever leads had the input of an entry that was sent to its standby.
    entries: BTreeMap<u64, Time>,
    /// Whether there is a standby without which nothing has an effect.
    paired: bool,
    books: Books,
}

/// What is counted.
#[derive(Debug, Default)]
struct Books {
    failover: Failover,
    incarnations: BTreeMap<WorkerId, Incarnation>,
    pushed: BTreeSet<PushId>,
    applied: BTreeSet<PushId>,
    acknowledged: BTreeSet<PushId>,
    seen: Version,
}

impl History {
    /// One of the two gets an input; when that happened for the history.
    pub(super) fn hears(&mut self, place: usize, now: Time, input: &Input) -> Time {
        match input {
            // Reports of the state that it completes are not told again.
            Input::Message(peer, Message::State(_)) => {
                if let Some(told) = self.states.get(&(peer.0 as u32)) {
                    self.by[place] = *told;
                }
                now
            }
            Input::Message(_, Message::Entry(entry)) => {
                let number = entry.header.number;
                let happened = self.entries.get(&number).copied();
                self.entries = self.entries.split_off(&number);
                happened.unwrap_or(now)
            }
            _ => now,
        }
    }

    /// One of the two sends a message over a connection.
    pub(super) fn sends(&mut self, place: usize, now: Time, number: u32, message: &Message) {
        match message {
            Message::State(_) => drop(self.states.insert(number, self.by[place])),
            Message::Entry(entry) => {
                self.entries.entry(entry.header.number).or_insert(now);
            }
            _ => {}
        }
    }

    /// One of the two reports something; when that was, if it is part of the history.
    pub(super) fn tells(
        &mut self,
        place: usize,
        now: Time,
        happened: Time,
        event: &Event,
    ) -> Option<Time> {
        match event {
            // What a standby does to find its server is of no account.
            Event::Following { .. } | Event::Redialling { .. } => return None,
            // These are of the process, and only one has them to tell.
            Event::TookOver { .. } | Event::StandbyLost { .. } => {
                self.entries.clear();
                return Some(self.note(now, event));
            }
            _ => {}
        }
        self.by[place] += 1;
        if self.by[place] <= self.told {
            return None;
        }
        self.told = self.by[place];
        Some(self.note(happened, event))
    }

    /// Counts what is part of the history.
    pub(super) fn note(&mut self, at: Time, event: &Event) -> Time {
        match event {
            Event::StandbyJoined { .. } => self.paired = true,
            Event::TookOver { .. } => {
                self.paired = false;
                self.books.failover.takeovers += 1;
                self.mended();
            }
            Event::StandbyLost { .. } => {
                self.paired = false;
                self.books.failover.alone += 1;
                self.mended();
            }
            _ => self.books.note(at, event),
        }
        at
    }

    /// Something befalls one of the two.
    pub(super) fn failed(&mut self, now: Time, leads: bool) {
        if leads || self.paired {
            let failure = Failure { at: now, resumed: None, settled: false };
            self.books.failover.failures.push(failure);
        }
    }

    /// Somebody leads, or is within reach again.
    pub(super) fn mended(&mut self) {
        self.books.failover.failures.iter_mut().for_each(|failure| failure.settled = true);
    }

    /// A worker gets a message.
    pub(super) fn told_worker(
        &mut self,
        worker: WorkerId,
        incarnation: Incarnation,
        message: &Message,
    ) {
        let decided = match message {
            Message::Parameters(parameters) => {
                self.books.seen = self.books.seen.max(parameters.header.version);
                parameters.header.decided
            }
            Message::Ack(decided) => Some(*decided),
            _ => None,
        };
        if let Some(decided) = decided.filter(|decided| decided.dropped.is_none()) {
            self.books.acknowledged.insert((worker, incarnation, decided.sequence));
        }
    }

    /// Whether one of the two has told all there is, so that its server is what came of it: a
    /// primary may have had inputs that it had not settled.
    pub(super) const fn is_whole(&self, place: usize) -> bool {
        self.by[place] == self.told
    }

    /// How the run came through. `version` is that of the server that leads at the end, if one
    /// does; `carried` are the bytes over the link between the two, up and down.
    pub(super) fn finish(self, version: Option<Version>, carried: [u64; 2]) -> Failover {
        let Books { mut failover, pushed, acknowledged, seen, .. } = self.books;
        failover.acknowledged = acknowledged.len() as u64;
        let (lost, version) = match version {
            Some(version) => (acknowledged.difference(&pushed).count(), version),
            None => (acknowledged.len(), Version(0)),
        };
        failover.lost = lost as u64;
        failover.updates_lost = seen.0.saturating_sub(version.0);
        [failover.up_bytes, failover.down_bytes] = carried;
        failover
    }
}

impl Books {
    fn note(&mut self, at: Time, event: &Event) {
        match event {
            Event::Joined { worker, incarnation, .. } => {
                self.incarnations.insert(*worker, *incarnation);
            }
            Event::Pushed { worker, sequence, .. } => {
                if let Some(incarnation) = self.incarnations.get(worker) {
                    self.pushed.insert((*worker, *incarnation, *sequence));
                }
            }
            Event::Applied { worker, incarnation, sequence, .. } => {
                let is_new = self.applied.insert((*worker, *incarnation, *sequence));
                self.failover.repeated += u64::from(!is_new);
            }
            Event::Updated { .. } => {
                for failure in &mut self.failover.failures {
                    // What was on its way to the standby happened before.
                    if failure.settled && failure.resumed.is_none() && at > failure.at {
                        failure.resumed = Some(at.since(failure.at));
                    }
                }
            }
            _ => {}
        }
    }
}
