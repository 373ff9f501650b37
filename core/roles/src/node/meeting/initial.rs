//! Initial parameters that do not come from the seed: one worker has them, or the driver.
//!
//! The meeting point asks one ready worker for them before the first group, and sends them to all.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Meeting;
use super::members::Presence;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::params::first_not_finite;
use pstrain_compute::time::Time;
use pstrain_policy::job::InitialFrom;
use pstrain_wire::peers::{Show, Snapshot};
use pstrain_wire::range::RangePart;
use pstrain_wire::{Message, Phase, Refusal};

/// Stands for the version of initial parameters: no update makes it.
pub(super) const FIRST: Version = Version(u64::MAX - 1);

/// The initial parameters.
#[derive(Debug)]
pub(super) enum Initial {
    /// All workers have them from the seed.
    OfSeed,
    /// No worker was asked for them, or the asked worker is gone.
    Wanted,
    /// This worker was asked over this connection.
    Asked(WorkerId, PeerId),
    /// The driver hands them in: those so far.
    Given(Vec<f32>),
    /// The meeting point has them, and sends them with the first group.
    Here,
}

impl Initial {
    pub(super) const fn of(from: InitialFrom) -> Self {
        match from {
            InitialFrom::Seed => Self::OfSeed,
            InitialFrom::Worker => Self::Wanted,
            InitialFrom::Server => Self::Given(Vec::new()),
        }
    }

    /// True if the first group may be formed.
    pub(super) const fn is_known(&self) -> bool {
        matches!(self, Self::OfSeed | Self::Here)
    }

    /// The worker that was asked, if one was.
    pub(super) const fn sender(&self) -> Option<WorkerId> {
        match self {
            Self::Asked(worker, _) => Some(*worker),
            _ => None,
        }
    }
}

impl Meeting {
    /// Asks a ready worker for the initial parameters, if they are wanted.
    pub(super) fn see_to_initial(&mut self, out: &mut Outbox) {
        if self.lifecycle.phase() != Phase::Gathering {
            return;
        }
        if let Initial::Asked(worker, peer) = self.initial
            && self.slots[worker].peer != Some(peer)
        {
            self.initial = Initial::Wanted;
        }
        if let Initial::Wanted = self.initial {
            let ready = self.slots.with(Presence::Ready);
            let first = ready.filter_map(|(worker, slot)| Some((worker, slot.peer?))).next();
            if let Some((worker, peer)) = first {
                self.initial = Initial::Asked(worker, peer);
                out.push(Effect::Send(peer, Message::Show(Show { number: FIRST.0 })));
            }
        }
    }

    /// A worker has sent the initial parameters.
    pub(super) fn on_initial(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        values: Arc<Vec<f32>>,
        out: &mut Outbox,
    ) {
        if !matches!(self.initial, Initial::Asked(asked, ..) if asked == worker) {
            return; // of a worker that was asked before
        }
        if let Some(key) = first_not_finite(self.keys(), &values) {
            self.initial = Initial::Wanted;
            let what = alloc::format!("an initial parameter that is not finite, of key {key}");
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        self.begin_with(Some(worker), values, out);
    }

    /// The driver has a part of the initial parameters. It hands them in again after a restart.
    pub(super) fn on_given(&mut self, part: &RangePart, out: &mut Outbox) {
        let keys = self.keys();
        let Initial::Given(values) = &mut self.initial else { return };
        if part.keys.begin() != values.len() as u64 || !keys.contains(part.keys) {
            return; // here already
        }
        values.extend(part.values().into_iter().flatten());
        if values.len() as u64 == keys.len() {
            let values = Arc::new(core::mem::take(values));
            self.begin_with(None, values, out);
        }
    }

    fn begin_with(&mut self, worker: Option<WorkerId>, values: Arc<Vec<f32>>, out: &mut Outbox) {
        let values_of_event = Arc::clone(&values);
        out.push(Effect::Report(Event::Initialised { worker, values: values_of_event }));
        self.snapshot.1 = values;
        self.initial = Initial::Here;
    }

    /// Sends a member of a group that has made no update the initial parameters.
    pub(super) fn send_initial(&self, peer: PeerId, out: &mut Outbox) {
        if let Initial::Here = self.initial {
            let snapshot = Snapshot { version: Version(0), values: Arc::clone(&self.snapshot.1) };
            out.push(Effect::Send(peer, Message::Snapshot(snapshot)));
        }
    }
}
