//! The one history of a run that a primary and its standby report, and its failovers.
//!
//! Both hand the same inputs to the same state machine, so both report the same events in the same
//! order: the standby once it has an input, the primary once its standby has it. The first report
//! of each event counts. A primary that crashes has not reported the inputs that it had not
//! settled; its standby reports the inputs that it has. So no event comes twice, and none comes of
//! an input that had no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pstrain_compute::id::{Incarnation, Sequence, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Input};
use pstrain_wire::Message;

/// A push: no other ever has the same three.
type PushId = (WorkerId, Incarnation, Sequence);

/// Faults and failovers of the servers of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failover {
    /// Takeovers by a standby.
    pub takeovers: u64,
    /// Times that a server continued without its standby.
    pub alone: u64,
    /// Faults of the leader, and of a standby without which nothing has an effect.
    pub failures: Vec<Failure>,
    /// Pushes that were acknowledged to a worker as accepted.
    pub acknowledged: u64,
    /// Of these, pushes that the leader at the end does not know; all of them without a leader.
    pub lost: u64,
    /// Updates that a worker has seen and the leader at the end has not made.
    pub updates_lost: u64,
    /// Pushes that became part of an update more than once.
    pub repeated: u64,
    /// Bytes from the standby's machine to the server's machine.
    pub up_bytes: u64,
    /// And the other way.
    pub down_bytes: u64,
}

/// A fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it happened.
    pub at: Time,
    /// The time from then to the first update by the next leader; none if there was none.
    pub resumed: Option<Duration>,
    /// A server has taken the lead since, or the fault is repaired.
    settled: bool,
}

/// Reports of both servers so far.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Reports that are part of the history.
    told: u64,
    /// Of them, reports by each server, or reports before its first state.
    by: [u64; 2],
    /// Reports of the sender when it sent a state, by connection.
    states: BTreeMap<u32, u64>,
    /// When the leader received the input of each entry that it sent to its standby.
    entries: BTreeMap<u64, Time>,
    /// The leader waits for its standby before an input has an effect.
    paired: bool,
    books: Books,
}

/// Counters of the history.
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
    /// A server receives an input. Returns when the input happened in the history.
    pub(super) fn hears(&mut self, place: usize, now: Time, input: &Input) -> Time {
        match input {
            // The receiver does not repeat the reports that led to this state.
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

    /// A server sends a message over a connection.
    pub(super) fn sends(&mut self, place: usize, now: Time, number: u32, message: &Message) {
        match message {
            Message::State(_) => drop(self.states.insert(number, self.by[place])),
            Message::Entry(entry) => {
                self.entries.entry(entry.header.number).or_insert(now);
            }
            _ => {}
        }
    }

    /// A server reports an event. Returns when the event happened, if it is part of the history.
    pub(super) fn tells(
        &mut self,
        place: usize,
        now: Time,
        happened: Time,
        event: &Event,
    ) -> Option<Time> {
        match event {
            // The search of a standby for its server is not part of the history.
            Event::Following { .. } | Event::Redialling { .. } => return None,
            // Events of the process: only one server has them.
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

    /// Counts an event of the history.
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

    /// A fault happens to a server.
    pub(super) fn failed(&mut self, now: Time, leads: bool) {
        if leads || self.paired {
            let failure = Failure { at: now, resumed: None, settled: false };
            self.books.failover.failures.push(failure);
        }
    }

    /// A server takes the lead, or the leader can be reached again.
    pub(super) fn mended(&mut self) {
        self.books.failover.failures.iter_mut().for_each(|failure| failure.settled = true);
    }

    /// A worker receives a message.
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

    /// True if a server has reported the whole history, so that its state is the outcome. The
    /// state of a primary may include inputs that it has not settled.
    pub(super) const fn is_whole(&self, place: usize) -> bool {
        self.by[place] == self.told
    }

    /// Returns the counters. `version` is the version of the server that leads at the end, if one
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
                    // An input on its way to the standby happened before the fault.
                    if failure.settled && failure.resumed.is_none() && at > failure.at {
                        failure.resumed = Some(at.since(failure.at));
                    }
                }
            }
            _ => {}
        }
    }
}
