//! Ringleader ASGD.

use alloc::collections::BTreeSet;

use super::{Admission, Closing, Cohort, Consistency};
use crate::id::{Version, WorkerId};
use crate::time::Time;

/// Ringleader ASGD: a step takes the mean over a table of one entry for each worker, which is the
/// mean of its gradients. First gradients are gathered until every member has an entry; that is a
/// table, and an update. Then each member has one turn: when its gradient comes, it joins the
/// table, and there is an update from the whole table again. Gradients of those that have had
/// their turn wait for the next table, which is gathered once all have. Nobody ever waits, and
/// nothing is dropped.
///
/// Invariant: between two tables ([`Closing::Everything`]) every member has exactly one turn, the
/// one whose gradient completed the table having had it with that, and every other one a
/// [`Closing::Latest`] of its own. A table has a contribution of everyone who is a member when it
/// begins. With a fixed membership of N no gradient is staler than 2N - 2 updates.
///
/// A worker that joins while a table has turns left has one as well, with no entry before; while a
/// table is gathered, it is waited for. Who leaves is not waited for; what it gave stays. The
/// authors let a worker go on with the parameters of its last turn; here it is given the current
/// ones each time, which are never older.
///
/// Maranjyan and Richtarik, 2025.
#[derive(Clone, Debug)]
pub struct Ringleader {
    /// Whether every member has had its turn, and the next table is gathered.
    gathering: bool,
    /// Members that have had their turn at the table.
    served: BTreeSet<WorkerId>,
    /// Members that have contributed to the next table.
    gathered: BTreeSet<WorkerId>,
    /// Whose contribution came last.
    latest: Option<WorkerId>,
    /// Whether that one is a turn that has not been taken.
    turn: bool,
}

impl Default for Ringleader {
    fn default() -> Self {
        Self {
            gathering: true,
            served: BTreeSet::new(),
            gathered: BTreeSet::new(),
            latest: None,
            turn: false,
        }
    }
}

impl Ringleader {
    /// Goes over to the next table once nobody has a turn left.
    fn turn_over(&mut self, cohort: &Cohort) {
        self.gathering |= self.served.len() == cohort.len();
    }
}

impl Consistency for Ringleader {
    fn admit(&self, _cohort: &Cohort, _worker: WorkerId, _base: Version) -> Admission {
        Admission::Contribute
    }

    fn closes(&self, cohort: &Cohort) -> Closing {
        if self.turn {
            Closing::Latest
        } else if self.gathering && self.gathered.len() == cohort.len() {
            Closing::Everything
        } else {
            Closing::NotYet
        }
    }

    fn may_start(&self, _cohort: &Cohort, _worker: WorkerId, _under_way: u32) -> bool {
        true
    }

    fn gate(&self, _cohort: &Cohort) -> u64 {
        0
    }

    fn in_rounds(&self) -> bool {
        false
    }

    fn contributed(&mut self, cohort: &Cohort, worker: WorkerId, _now: Time) {
        self.latest = Some(worker);
        self.turn = !self.gathering && !self.served.contains(&worker);
        if !self.turn && cohort.contains(worker) {
            self.gathered.insert(worker);
        }
    }

    fn closed(&mut self, cohort: &Cohort, closing: Closing) {
        if closing == Closing::Everything {
            self.gathering = false;
            self.served.clear();
            self.gathered.clear();
        }
        self.turn = false;
        self.served.extend(self.latest.take().filter(|worker| cohort.contains(*worker)));
        self.turn_over(cohort);
    }

    fn left(&mut self, cohort: &Cohort, worker: WorkerId) {
        self.served.remove(&worker);
        self.gathered.remove(&worker);
        self.turn_over(cohort);
    }
}
