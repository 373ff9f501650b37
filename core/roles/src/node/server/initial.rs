//! Initial parameters that do not come from the seed: the server asks one ready worker for them,
//! part by part, before training begins, or its driver has them.
//!
//! They take effect as a decision, so that every server, standby, log and record has them. They are
//! version 0, since no gradient was computed before them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::params::first_not_finite;
use pstrain_compute::time::Time;
use pstrain_policy::job::InitialFrom;
use pstrain_wire::decision::Decision;
use pstrain_wire::range::{PartDue, RangePart};
use pstrain_wire::{Message, Phase, Refusal};

/// The initial parameters.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Initial {
    /// The server has them.
    Known,
    /// No worker has been asked for them, or the asked worker is gone.
    Wanted,
    /// A worker is sending them.
    Coming(Coming),
    /// The driver hands these parts in, and more.
    Given(Vec<RangePart>),
    /// All are here, from a worker or the driver, and not all servers are connected.
    Arrived(Option<WorkerId>, Vec<RangePart>),
}

/// Initial parameters that a worker is sending.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Coming {
    worker: WorkerId,
    peer: PeerId,
    due: PartDue,
    heard: Time,
    parts: Vec<RangePart>,
}

impl Initial {
    pub(super) const fn of(from: InitialFrom) -> Self {
        match from {
            InitialFrom::Seed => Self::Known,
            InitialFrom::Worker => Self::Wanted,
            InitialFrom::Server => Self::Given(Vec::new()),
        }
    }

    pub(super) const fn is_known(&self) -> bool {
        matches!(self, Self::Known)
    }

    /// The worker that is sending them, if one is.
    pub(super) const fn sender(&self) -> Option<WorkerId> {
        match self {
            Self::Coming(coming) => Some(coming.worker),
            Self::Known | Self::Wanted | Self::Given(_) | Self::Arrived(..) => None,
        }
    }

    /// When the sending worker sent something last, if a worker is sending.
    pub(super) const fn heard(&self) -> Option<Time> {
        match self {
            Self::Coming(coming) => Some(coming.heard),
            Self::Known | Self::Wanted | Self::Given(_) | Self::Arrived(..) => None,
        }
    }

    /// Handles part of a long message from this connection.
    pub(super) fn hear(&mut self, now: Time, peer: PeerId) {
        if let Self::Coming(coming) = self
            && coming.peer == peer
        {
            coming.heard = now;
        }
    }
}

impl Server {
    /// Begins with the initial parameters if they have arrived; otherwise asks a ready worker for
    /// them, unless one that is still connected sends them.
    pub(super) fn see_to_initial(&mut self, now: Time, out: &mut Outbox) {
        if self.lifecycle.phase() != Phase::Gathering {
            return;
        }
        match &self.initial {
            Initial::Known => {}
            // A server that is away would follow later than the others.
            Initial::Arrived(..) if self.group.first_away().is_none() => {
                self.begin_with_arrived(out);
            }
            Initial::Given(_) | Initial::Arrived(..) => {}
            Initial::Coming(Coming { worker, peer, .. })
                if self.members.roster.worker_of(*peer) == Some(*worker) =>
            {
                // Another worker may have become ready after the time of the asked one was up.
                self.expire_initial(now, out);
            }
            Initial::Coming(_) | Initial::Wanted => {
                self.initial = Initial::Wanted;
                let first = self.members.roster.connected().next();
                if let Some((worker, peer)) = first {
                    self.request_initial(now, worker, peer, out);
                }
            }
        }
    }

    /// Asks a worker for the first part of the initial parameters.
    fn request_initial(&mut self, now: Time, worker: WorkerId, peer: PeerId, out: &mut Outbox) {
        let Some(due) = PartDue::at(self.keys, self.keys.begin()) else {
            unreachable!("a model has parameters")
        };
        self.initial = Initial::Coming(Coming { worker, peer, due, heard: now, parts: Vec::new() });
        out.push(Effect::Send(peer, Message::PartDue(due)));
    }

    /// Receives a part of the initial parameters, from the worker that was asked for it. Parts of a
    /// worker that was asked before come too late.
    pub(super) fn on_initial_part(
        &mut self,
        now: Time,
        peer: PeerId,
        part: RangePart,
        out: &mut Outbox,
    ) {
        let Initial::Coming(coming) = &mut self.initial else { return };
        if coming.peer != peer {
            return;
        }
        if let Err(what) = check_part(&part, coming.due) {
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        let next = PartDue::at(self.keys, part.keys.end());
        coming.parts.push(part);
        if let Some(due) = next {
            (coming.due, coming.heard) = (due, now);
            return out.push(Effect::Send(peer, Message::PartDue(due)));
        }
        let parts = core::mem::take(&mut coming.parts);
        self.initial = Initial::Arrived(Some(coming.worker), parts);
        self.settle(now, out);
    }

    /// Receives a part of the initial parameters from the driver. One that has them already ignores
    /// it: a driver hands them in again after a restart.
    pub(super) fn on_given_part(&mut self, now: Time, part: RangePart, out: &mut Outbox) {
        let Initial::Given(parts) = &mut self.initial else { return };
        let next = parts.last().map_or_else(|| self.keys.begin(), |last| last.keys.end());
        let due = PartDue::at(self.keys, next);
        if due.is_none_or(|due| check_part(&part, due).is_err()) {
            return; // here already
        }
        let is_last = part.keys.end() == self.keys.end();
        parts.push(part);
        if is_last {
            self.initial = Initial::Arrived(None, core::mem::take(parts));
            self.settle(now, out);
        }
    }

    /// Begins with the parameters that have arrived, which are all that the model has.
    fn begin_with_arrived(&mut self, out: &mut Outbox) {
        let arrived = core::mem::replace(&mut self.initial, Initial::Known);
        let Initial::Arrived(worker, parts) = arrived else {
            unreachable!("the initial parameters have arrived")
        };
        let mut values = Vec::with_capacity(self.keys.len() as usize);
        for part in parts {
            values.extend(part.values().into_iter().flatten());
            self.store.begin_with(&part);
            self.group.tell(|| Decision::Initial(part));
        }
        out.push(Effect::Report(Event::Initialised { worker, values: Arc::new(values) }));
    }

    /// When another worker is asked, because the one that was asked has sent nothing for a lease;
    /// none if there is no other.
    pub(super) fn initial_due(&self) -> Option<Time> {
        let heard = self.initial.heard()?;
        self.next_sender().map(|_| heard + self.job.membership.lease)
    }

    /// Asks the next ready worker if the one that was asked has sent nothing for a lease.
    pub(super) fn expire_initial(&mut self, now: Time, out: &mut Outbox) {
        if self.initial_due().is_none_or(|due| now < due) {
            return;
        }
        if let Some((worker, peer)) = self.next_sender() {
            self.request_initial(now, worker, peer, out);
        }
    }

    /// The ready worker after the one that was asked, if there is another.
    fn next_sender(&self) -> Option<(WorkerId, PeerId)> {
        let last = self.initial.sender().filter(|_| self.lifecycle.phase() == Phase::Gathering)?;
        let others = || self.members.roster.connected().filter(|(worker, _)| *worker != last);
        others().find(|(worker, _)| *worker > last).or_else(|| others().next())
    }
}

/// Checks that a part is the one that is due, and that it can be applied.
fn check_part(part: &RangePart, due: PartDue) -> Result<(), String> {
    if part.keys != due.part {
        let (came, due) = (part.keys, due.part);
        return Err(alloc::format!("values for keys {came} came where those for {due} are due"));
    }
    let Some(values) = part.values() else {
        return Err(alloc::format!("the values for keys {} are in no known form", part.keys));
    };
    match first_not_finite(part.keys, &values) {
        Some(key) => Err(alloc::format!("an initial parameter that is not finite, of key {key}")),
        None => Ok(()),
    }
}
