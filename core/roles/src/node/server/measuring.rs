//! What is only known once all keys are looked at: the norm of a gradient, the distance of two.
//!
//! Each server adds up what its keys have of it, exactly ([`ExactSum`]), so that the sum over all
//! is the same however many servers there are. An update that goes by it is decided like any other,
//! but the parameters are those of the version before until all have answered. Until then nothing
//! is done that would be about them: nobody is given parameters, pushes that are here whole wait,
//! no keys move and no mode begins.

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

/// What other servers are asked for, and who waits for that.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Measuring {
    asked: Option<Asked>,
    /// Workers whose pushes are here whole.
    due: VecDeque<WorkerId>,
    /// Workers that are to be given parameters once more, with their connections.
    owed: Vec<(PeerId, WorkerId)>,
}

/// Something that all servers have parts of.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    /// The number of the decision that asks for them.
    decision: u64,
    since: Time,
    what: What,
    /// This server's part, with those that have come.
    sums: Vec<ExactSum>,
    came: BTreeSet<ServerId>,
}

/// What goes on once they are here.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// An update; whether the parameters are to be evaluated then.
    Update { evaluates: bool },
    /// What `auto` chooses.
    Look,
}

impl Measuring {
    /// Whether something is being measured.
    pub(super) const fn is_open(&self) -> bool {
        self.asked.is_some()
    }
}

impl Server {
    /// Whether something is being measured that other servers have parts of: until they have
    /// answered, the parameters may be those of the version before.
    #[must_use]
    pub const fn is_measuring(&self) -> bool {
        self.measuring.asked.is_some() || self.store.is_making()
    }

    /// Asks all servers for their parts: of this one it is `sums`, and the others have the decision
    /// with this number.
    pub(super) fn measure(&mut self, now: Time, decision: u64, what: What, sums: Vec<ExactSum>) {
        let came = BTreeSet::new();
        self.measuring.asked = Some(Asked { decision, since: now, what, sums, came });
    }

    /// The first of the others whose part is awaited, and since when.
    pub(super) fn first_to_answer(&self) -> Option<(ServerId, Time)> {
        let asked = self.measuring.asked.as_ref()?;
        let mut others = self.group.map.shares().iter().skip(1).map(|&(server, _)| server);
        let first = others.find(|server| !asked.came.contains(server));
        first.map(|server| (server, asked.since))
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
        let Some(asked) = self.measuring.asked.as_mut().filter(|_| has_keys) else { return };
        if asked.decision != measured.decision || asked.came.contains(&server) {
            return; // it says again what it has said
        }
        if add_all(&mut asked.sums, &measured.sums).is_none() {
            let what = String::from("it measured something else than it was asked for");
            return self.refuse(now, peer, Refusal::Unexpected { what }, out);
        }
        asked.came.insert(server);
        self.settle(now, out);
    }

    /// Goes on with what all parts have come to; whether an update is made.
    pub(super) fn weigh(&mut self, now: Time, out: &mut Outbox) -> bool {
        let (others, mut made) = (self.group.others(), false);
        while let Some(it) = self.measuring.asked.take_if(|it| it.came.len() == others) {
            let Asked { what, sums, .. } = it;
            let What::Update { evaluates } = what else {
                self.looked(now, &sums, out);
                continue;
            };
            let found = self.store.find(&sums);
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

    /// The run is over: nobody chooses anything any more. An update is made to its end.
    pub(super) fn stop_looking(&mut self) {
        self.measuring.asked.take_if(|asked| matches!(asked.what, What::Look));
    }

    /// What is being measured will not be known; whether something was.
    pub(super) fn stop_measuring(&mut self) -> bool {
        self.measuring.asked.take().is_some()
    }

    /// Whether the parameters are not there yet that are to be evaluated; they will be then.
    pub(super) const fn evaluates_later(&mut self) -> bool {
        match &mut self.measuring.asked {
            Some(Asked { what: What::Update { evaluates }, .. }) => {
                *evaluates = true;
                true
            }
            _ => false,
        }
    }

    /// Decides the pushes of `worker` later.
    pub(super) fn take_later(&mut self, worker: WorkerId) {
        if !self.measuring.due.contains(&worker) {
            self.measuring.due.push_back(worker);
        }
    }

    /// Decides pushes that had to wait, in the order in which they came.
    pub(super) fn take_due(&mut self, now: Time, out: &mut Outbox) {
        while !self.is_measuring()
            && let Some(worker) = self.measuring.due.pop_front()
        {
            self.take_whole(now, worker, out);
        }
    }

    /// Gives `worker` parameters once more, later.
    pub(super) fn grant_later(&mut self, peer: PeerId, worker: WorkerId) {
        self.measuring.owed.push((peer, worker));
    }

    /// Gives parameters once more to those who had to wait, if they still have the same connection.
    pub(super) fn grant_owed(&mut self, now: Time, out: &mut Outbox) {
        if self.is_measuring() {
            return;
        }
        for (peer, worker) in core::mem::take(&mut self.measuring.owed) {
            if self.roster.slot(worker).is_some_and(|slot| slot.peer == Some(peer)) {
                self.grant_again(now, peer, worker, out);
            }
        }
    }
}
