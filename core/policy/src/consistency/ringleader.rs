//! Ringleader ASGD.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Cohort, Consistency};
use crate::rules::Closing;
use pstrain_compute::id::WorkerId;
use pstrain_compute::named::Word;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;

pub(super) const WORD: Word =
    Word::new("ringleader", &[], "asp in which each worker's mean counts the same");

/// Ringleader ASGD: a step takes the mean over a table with one entry per worker, the mean of that
/// worker's gradients.
///
/// First the server gathers gradients until every member has an entry. They form a table, and the
/// first update. Then each member has one turn: its next gradient joins the table, and the whole
/// table makes another update. Gradients of members that have had their turn are gathered for the
/// next table, which is complete only after all turns. No gradient is dropped. A worker waits only
/// if it has given a whole pass over its data to the next table, or if it has given at least one
/// gradient and the gathered gradients are all that the budget asks for.
///
/// Invariant: between two tables ([`Closing::Everything`]) every member has exactly one turn. The
/// member whose gradient completed the table has had its turn with it (no member has, if a
/// departure completed the table), and every other member has a [`Closing::Latest`] update of its
/// own. A table has a contribution of every member at its start. With a fixed membership of N no
/// gradient is staler than 2N - 2 updates.
///
/// A worker that joins has no turn at the current table, and the next table waits for it. The
/// server does not wait for workers that left; their contributions stay. In the paper a worker
/// continues with the parameters of its last turn; here it receives the current parameters each
/// time, which are never older.
///
/// Maranjyan and Richtarik, 2025.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ringleader {
    /// Members that have not had their turn at the table. Once it is empty, the next table is
    /// gathered.
    owed: BTreeSet<WorkerId>,
    /// Number of contributions to the next table, by member.
    gathered: BTreeMap<WorkerId, u64>,
    /// The worker that contributed last, if no member has left since.
    latest: Option<WorkerId>,
    /// True if the last contribution is a turn that has not been taken yet.
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
