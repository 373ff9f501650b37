//! Quantities that depend on all keys: the norm of a gradient, the distance between two.
//!
//! Each server adds up the share of its keys exactly ([`ExactSum`]), so that the sum over all
//! servers does not depend on their number. An update that needs such a sum has two phases: it is
//! decided like any other, but the parameters remain at the version before until all servers
//! have answered. Until then nothing happens that depends on the parameters: none are given out,
//! complete pushes wait, no keys move and no mode begins.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use crate::node::Outbox;
use pstrain_compute::id::{PeerId, ServerId, WorkerId};
use pstrain_compute::sum::{ExactSum, add_all};
use pstrain_compute::time::Time;
use pstrain_wire::Refusal;
use pstrain_wire::decision::Decision;
use pstrain_wire::group::Measured;

/// The open measurement, and the workers that wait for it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Measuring {
    asked: Option<Asked>,
    /// Workers with complete pushes that have not been decided.
    due: VecDeque<WorkerId>,
    /// Workers that are to be given parameters again, with their connections.
    owed: Vec<(PeerId, WorkerId)>,
}

/// A measurement, to which every server contributes a share.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    /// The number of the decision that requests it.
    decision: u64,
    since: Time,
    what: What,
    /// The share of this server plus the shares that have arrived.
    sums: Vec<ExactSum>,
    came: BTreeSet<ServerId>,
}

/// The purpose of a measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// An update; `evaluates` is true if its parameters are to be evaluated.
    Update { evaluates: bool },
    /// A choice of `auto`.
    Look,
}

impl Measuring {
    /// True if a measurement is open.
    pub(super) const fn is_open(&self) -> bool {
        self.asked.is_some()
    }
}

impl Server {
    /// True if a measurement is open: until all servers have answered, the parameters may be those
    /// of the version before.
    #[must_use]
    pub const fn is_measuring(&self) -> bool {
        self.measuring.asked.is_some() || self.store.is_making()
    }

    /// Opens a measurement. `sums` is the share of this server; the other servers receive the
    /// decision with this number.
    pub(super) fn measure(&mut self, now: Time, decision: u64, what: What, sums: Vec<ExactSum>) {
        let came = BTreeSet::new();
        self.measuring.asked = Some(Asked { decision, since: now, what, sums, came });
    }

    /// The first server whose share has not arrived, and since when it is awaited.
    pub(super) fn first_to_answer(&self) -> Option<(ServerId, Time)> {
        let asked = self.measuring.asked.as_ref()?;
        let mut others = self.group.map.shares().iter().skip(1).map(|&(server, _)| server);
        let first = others.find(|server| !asked.came.contains(server));
        first.map(|server| (server, asked.since))
    }

    /// Adds the share of another server.
    pub(super) fn on_measured(
        &mut self,
        now: Time,
        peer: PeerId,
        server: ServerId,
        measured: &Measured,
        out: &mut Outbox,
    ) {
        let has_keys = self.group.map.keys_of(server).is_some();
        let Some(asked) = self.measuring.asked.as_mut().filter(|_| has_keys) else {
            return; // repeated after a reconnect
        };
        if asked.decision != measured.decision || asked.came.contains(&server) {
            return; // repeated after a reconnect
        }
        if add_all(&mut asked.sums, &measured.sums).is_none() {
            let what = String::from("it measured something else than it was asked for");
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        asked.came.insert(server);
        self.settle(now, out);
    }

    /// Continues with every measurement that is complete; returns true if an update has been
    /// completed.
    pub(super) fn finish_measurements(&mut self, now: Time, out: &mut Outbox) -> bool {
        let (others, mut made) = (self.group.others(), false);
        while let Some(it) = self.measuring.asked.take_if(|it| it.came.len() == others) {
            let Asked { what, sums, .. } = it;
            let What::Update { evaluates } = what else {
                self.looked(now, &sums, out);
                continue;
            };
            let found = self.store.find(&sums);
            // The number that this Found decision is about to get: if a second measurement follows
            // (distances, then the norm), the answers name it.
            let decision = self.group.next();
            self.group.tell(|| Decision::Found(found.clone()));
            self.store.go_on(&found);
            match self.store.sums() {
                Some(sums) => self.measure(now, decision, what, sums),
                None => {
                    made = true;
                    self.updated(now, evaluates, out);
                    self.show_pulled(out);
                }
            }
        }
        made
    }

    /// Closes a measurement of `auto`, since the run has ended. An update in progress is completed.
    pub(super) fn cancel_auto_measurement(&mut self) {
        self.measuring.asked.take_if(|asked| matches!(asked.what, What::Look));
    }

    /// Abandons the measurement, which cannot be completed; returns true if one was open.
    pub(super) fn stop_measuring(&mut self) -> bool {
        self.measuring.asked.take().is_some()
    }

    /// If an update is in progress, marks its parameters for evaluation and returns true.
    pub(super) const fn evaluates_later(&mut self) -> bool {
        match &mut self.measuring.asked {
            Some(Asked { what: What::Update { evaluates }, .. }) => {
                *evaluates = true;
                true
            }
            _ => false,
        }
    }

    /// Decides the pushes of `worker` after the measurement.
    pub(super) fn take_later(&mut self, worker: WorkerId) {
        if !self.measuring.due.contains(&worker) {
            self.measuring.due.push_back(worker);
        }
    }

    /// Decides the pushes that had to wait, in the order of their arrival.
    pub(super) fn take_due(&mut self, now: Time, out: &mut Outbox) {
        while !self.is_measuring()
            && let Some(worker) = self.measuring.due.pop_front()
        {
            self.take_whole(now, worker, out);
        }
    }

    /// Gives `worker` parameters again after the measurement.
    pub(super) fn grant_later(&mut self, peer: PeerId, worker: WorkerId) {
        self.measuring.owed.push((peer, worker));
    }

    /// Gives parameters again to the workers that had to wait and have kept their connection.
    pub(super) fn repeat_deferred_grants(&mut self, now: Time, out: &mut Outbox) {
        if self.is_measuring() {
            return;
        }
        for (peer, worker) in core::mem::take(&mut self.measuring.owed) {
            if self.members.roster[worker].peer == Some(peer) {
                self.grant_again(now, peer, worker, out);
            }
        }
    }
}
