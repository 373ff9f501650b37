//! Ringleader ASGD.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Cohort, Consistency};
use crate::rules::Closing;
use pstrain_compute::id::WorkerId;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;

/// Ringleader ASGD: a step takes the mean over a table of one entry for each worker, which is the
/// mean of its gradients. First gradients are gathered until every member has an entry; that is a
/// table, and an update. Then each member has one turn: when its gradient comes, it joins the
/// table, and there is an update from the whole table again. Gradients of those that have had
/// their turn wait for the next table, which is gathered once all have. Nothing is dropped, and
/// nobody waits who has not given a whole pass over its data to the next table, or when what has
/// gathered is all that the budget asks for.
///
/// Invariant: between two tables ([`Closing::Everything`]) every member has exactly one turn: the
/// one whose gradient completed the table has had it with that (nobody has, if it was completed by
/// a departure), and every other one has a [`Closing::Latest`] of its own. A table has a
/// contribution of everyone who is a member when it begins. With a fixed membership of N no
/// gradient is staler than 2N - 2 updates.
///
/// A worker that joins has no turn at the table that there is, and is waited for with the next.
/// Who leaves is not waited for; what it gave stays. The
/// authors let a worker go on with the parameters of its last turn; here it is given the current
/// ones each time, which are never older.
///
/// Maranjyan and Richtarik, 2025.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ringleader {
    /// Members that have not had their turn at the table. Once there are none, the next one is
    /// gathered.
    owed: BTreeSet<WorkerId>,
    /// Members that have contributed to the next table, and how often.
    gathered: BTreeMap<WorkerId, u64>,
    /// Whose contribution came last, if nobody has left since.
    latest: Option<WorkerId>,
    /// Whether the contribution that came last is a turn that has not been taken.
    turn: bool,
}

impl Consistency for Ringleader {
    fn closes(&self, cohort: &Cohort) -> Closing {
        if self.turn {
            Closing::Latest
        } else if self.owed.is_empty() && self.gathered.len() == cohort.len() {
            Closing::Everything
        } else {
            Closing::NotYet
        }
    }

    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        let given = self.gathered.get(&worker).copied().unwrap_or_default();
        let given = given + u64::from(under_way);
        given == 0 || given < cohort.pass(worker) && !cohort.is_spent()
    }

    fn awaits(&self, _cohort: &Cohort, worker: WorkerId) -> bool {
        !self.gathered.contains_key(&worker)
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        cohort.version().0
    }

    fn contributed(&mut self, cohort: &Cohort, worker: WorkerId, _now: Time) {
        self.latest = Some(worker);
        self.turn = self.owed.remove(&worker);
        if !self.turn && cohort.contains(worker) {
            *self.gathered.entry(worker).or_default() += 1;
        }
    }

    fn closed(&mut self, cohort: &Cohort, closing: Closing) {
        self.turn = false;
        if closing == Closing::Everything {
            self.gathered.clear();
            self.owed = cohort.workers().filter(|worker| Some(*worker) != self.latest).collect();
        }
    }

    fn left(&mut self, _cohort: &Cohort, worker: WorkerId) {
        self.owed.remove(&worker);
        self.gathered.remove(&worker);
        self.latest = None;
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}
