//! What is only known once all keys are looked at: the norm of a gradient, the distance of two.
//!
//! Each server adds up what its keys have of it, exactly ([`ExactSum`]), so that the sum over all is the
//! same however many servers there are. Until all have answered nothing else is decided of the open
//! round: pushes that are here whole wait, nobody is given parameters, no keys move and no mode
//! begins. Workers may come, go and be answered once more, since nothing has changed yet.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use crate::consistency::Closing;
use crate::id::{PeerId, ServerId, WorkerId};
use crate::node::Outbox;
use crate::protocol::Refusal;
use crate::protocol::group::Measured;
use crate::store::Decision;
use crate::sum::{ExactSum, add_all};
use crate::time::Time;

/// Something that the other servers have parts of.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measuring {
    /// The number of the decision that asks for them.
    decision: u64,
    what: What,
    /// This server's part, with those that have come.
    sums: Vec<ExactSum>,
    came: BTreeSet<ServerId>,
    /// Workers that count no more since.
    left: Vec<WorkerId>,
}

/// What goes on once they are here.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// An update.
    Update { closing: Closing, samples: Option<u64> },
}

impl Server {
    /// Whether something is being measured, so that nothing may be decided of the open round.
    pub(super) const fn is_measuring(&self) -> bool {
        self.measuring.is_some()
    }

    /// Asks all servers for their parts: of this one it is `sums`, and the others have the decision
    /// with this number.
    pub(super) fn measure(&mut self, decision: u64, what: What, sums: Vec<ExactSum>) {
        let (came, left) = (BTreeSet::new(), Vec::new());
        self.measuring = Some(Measuring { decision, what, sums, came, left });
    }

    /// The part of another server has come.
    pub(super) fn on_measured(
        &mut self,
        now: Time,
        peer: PeerId,
        server: ServerId,
        measured: &Measured,
        out: &mut Outbox,
    ) {
        let has_keys = self.group.map.keys_of(server).is_some();
        let Some(measuring) = self.measuring.as_mut().filter(|_| has_keys) else { return };
        if measuring.decision != measured.decision || measuring.came.contains(&server) {
            return; // it says again what it has said
        }
        if add_all(&mut measuring.sums, &measured.sums).is_none() {
            let what = String::from("it measured something else than it was asked for");
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        measuring.came.insert(server);
        self.settle(now, out);
    }

    /// Goes on with what all parts have come of.
    pub(super) fn weigh(&mut self, now: Time, out: &mut Outbox) {
        let others = self.group.others();
        while let Some(it) = self.measuring.take_if(|it| it.came.len() == others) {
            let Measuring { what, sums, left, .. } = it;
            match what {
                What::Update { closing, samples } => {
                    let found = self.store.find(&sums);
                    let decision = self.group.next();
                    self.group.tell(|| Decision::Found(found.clone()));
                    match self.store.go_on(&found) {
                        None => self.finish_close(now, closing, samples, out),
                        Some(sums) => self.measure(decision, what, sums),
                    }
                }
            }
            left.into_iter().for_each(|worker| self.left(worker));
        }
    }

    /// Lets the policy know that a worker is not in the cohort any more, once what is being measured
    /// is done: that is of the time before.
    pub(super) fn left(&mut self, worker: WorkerId) {
        match &mut self.measuring {
            Some(measuring) => measuring.left.push(worker),
            None => self.policy.left(&self.cohort, worker),
        }
    }

    /// Decides the pushes of `worker` later.
    pub(super) fn take_later(&mut self, worker: WorkerId) {
        if !self.due.contains(&worker) {
            self.due.push_back(worker);
        }
    }

    /// Decides pushes that had to wait, in the order in which they came.
    pub(super) fn take_due(&mut self, now: Time, out: &mut Outbox) {
        while !self.is_measuring()
            && let Some(worker) = self.due.pop_front()
        {
            self.take_whole(now, worker, out);
        }
    }
}
