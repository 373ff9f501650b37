//! Initial parameters that come from a worker: the server asks one ready worker for them, part by
//! part, before training begins.
//!
//! They take effect as a client's push would, so that every server, standby, log and record has
//! them; but they are version 0, since no gradient was computed before them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use super::client_pushes::check_part;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_policy::job::InitialFrom;
use pstrain_wire::decision::Decision;
use pstrain_wire::range::{PartDue, PushRule, PushedRange, RangePart};
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
        }
    }

    pub(super) const fn is_known(&self) -> bool {
        matches!(self, Self::Known)
    }

    /// The worker that is sending them, if one is.
    pub(super) const fn sender(&self) -> Option<WorkerId> {
        match self {
            Self::Coming(coming) => Some(coming.worker),
            Self::Known | Self::Wanted => None,
        }
    }

    /// True if this connection is expected to send a part.
    pub(super) fn is_awaited(&self, peer: PeerId) -> bool {
        matches!(self, Self::Coming(coming) if coming.peer == peer)
    }

    /// When the sending worker sent something last, if a worker is sending.
    pub(super) const fn heard(&self) -> Option<Time> {
        match self {
            Self::Coming(coming) => Some(coming.heard),
            Self::Known | Self::Wanted => None,
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
    /// Asks a ready worker for the initial parameters, unless they are known or one that is still
    /// connected sends them.
    pub(super) fn ask_for_initial(&mut self, now: Time, out: &mut Outbox) {
        if self.initial.is_known() || self.lifecycle.phase() != Phase::Gathering {
            return;
        }
        if let Initial::Coming(Coming { worker, peer, .. }) = self.initial
            && self.members.roster.worker_of(peer) == Some(worker)
        {
            return;
        }
        self.initial = Initial::Wanted;
        let Some((worker, peer)) = self.members.roster.first_ready() else { return };
        let Some(due) = PartDue::at(self.keys, self.keys.begin()) else { return };
        self.initial = Initial::Coming(Coming { worker, peer, due, heard: now, parts: Vec::new() });
        out.push(Effect::Send(peer, Message::PartDue(due)));
    }

    /// Receives a part of the initial parameters, from the worker that was asked for it.
    pub(super) fn on_initial_part(
        &mut self,
        now: Time,
        peer: PeerId,
        part: RangePart,
        out: &mut Outbox,
    ) {
        let Initial::Coming(coming) = &mut self.initial else { return };
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
        self.begin_from(parts, out);
        self.settle(now, out);
    }

    /// Begins with these parameters, which are all that the model has.
    fn begin_from(&mut self, parts: Vec<RangePart>, out: &mut Outbox) {
        self.initial = Initial::Known;
        let (how, keys) = (PushRule::Set, self.keys);
        for part in &parts {
            self.store.push(how, part);
            self.group.tell(|| Decision::PushRange { how, part: part.clone() });
        }
        let pushed = Arc::new(PushedRange { keys, how, parts });
        let point = self.point();
        out.push(Effect::Report(Event::RangePushed { point, keys, how, pushed }));
    }

    /// A client has set the parameters of `keys`: no worker needs to be asked if these are all.
    pub(super) fn note_set(&mut self, keys: KeyRange) {
        if keys == self.keys {
            self.initial = Initial::Known;
        }
    }

    /// Refuses a worker that has not sent the initial parameters within a lease.
    pub(super) fn expire_initial(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.job.membership.lease;
        if let Initial::Coming(Coming { peer, heard, .. }) = self.initial
            && now >= heard + lease
        {
            self.initial = Initial::Wanted;
            let what = alloc::format!("no initial parameters came within {lease:?}");
            self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
    }
}
