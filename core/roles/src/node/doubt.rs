//! Gradients that are not finite: whether a mini-batch, a worker's data or the parameters are to
//! blame.
//!
//! One finite gradient of any size can leave finite parameters that admit no finite gradient, and
//! one row of the data can make the gradients of its mini-batches not finite. So such a mini-batch
//! is left out, and its worker goes on with the next. A worker that sends [`MOST_IN_A_ROW`] such
//! gradients in a row is a suspect: it is given no parameters before the verdict. The version in
//! doubt is the oldest from which a suspect has computed its row. Under asynchronous policies
//! nearly every worker holds another version, but later versions derive from the one in doubt. So
//! an answer of another worker on any later version counts, too, and one on an earlier version does
//! not.
//!
//! - If more than half of the workers are suspects, the version has diverged. The run ends, unless
//!   `auto` goes back to earlier parameters.
//! - If at least half of them find a finite gradient, or no more answers can come, the suspects are
//!   refused. In the second case the version stays in doubt, and a refused worker keeps its vote.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::{Incarnation, Sequence, Version, WorkerId};
use pstrain_wire::Refusal;

/// The number of gradients in a row that make their worker a suspect. Dynamic loss scaling begins
/// with a factor of up to 2^16, and halves it at each gradient that is not finite.
pub const MOST_IN_A_ROW: u32 = 16;

/// The gradients that are not finite, and their workers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Doubt {
    rows: BTreeMap<WorkerId, Row>,
    /// Suspects that were refused because no more answers could come, with their versions.
    refused: BTreeMap<WorkerId, Version>,
}

/// The last gradients of an incarnation: all of them are not finite.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Row {
    incarnation: Incarnation,
    /// The oldest version that one was computed on.
    version: Version,
    count: u32,
    /// The last of them, and its first key that is not finite.
    sequence: Sequence,
    key: u64,
}

/// A worker whose answer counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voter {
    pub(super) worker: WorkerId,
    pub(super) incarnation: Incarnation,
    /// The newest version on which it has computed a finite gradient.
    pub(super) finite: Option<Version>,
    /// True if it is computing, or will be.
    pub(super) computes: bool,
}

/// The verdict of the answers on the version in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The version is at fault.
    Diverged(Version),
    /// The suspects are at fault.
    Theirs,
    /// No more answers can come: the suspects are presumed at fault.
    Unclear,
    /// There is no suspect, or answers are to come.
    Open,
}

/// The answers on a version in doubt.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// Workers whose answers count.
    voters: usize,
    /// Voters that found no finite gradient.
    without: usize,
    /// Voters that found a finite gradient.
    with: usize,
    /// True if a voter that has not answered computes.
    is_open: bool,
}

impl Answers {
    const fn verdict(&self, version: Version) -> Verdict {
        if 2 * self.without > self.voters {
            Verdict::Diverged(version)
        } else if 2 * self.with >= self.voters {
            Verdict::Theirs
        } else if self.is_open {
            Verdict::Open
        } else {
            Verdict::Unclear
        }
    }
}

impl Row {
    const fn is_suspect(&self) -> bool {
        self.count >= MOST_IN_A_ROW
    }
}

impl Doubt {
    /// Notes that gradient `sequence` of a worker, computed on `version`, is not finite at `key`.
    pub(super) fn not_finite(
        &mut self,
        (worker, incarnation): (WorkerId, Incarnation),
        version: Version,
        (sequence, key): (Sequence, u64),
    ) {
        let before = self.rows.get(&worker).filter(|row| row.incarnation == incarnation);
        let (oldest, count) = before.map_or((version, 0), |row| (row.version, row.count));
        let version = oldest.min(version);
        self.rows.insert(worker, Row { incarnation, version, count: count + 1, sequence, key });
    }

    /// Notes that a gradient of a worker is finite, which ends its row.
    pub(super) fn finite(&mut self, worker: WorkerId) {
        self.rows.remove(&worker);
    }

    /// True if this incarnation of a worker waits for the verdict on its gradients.
    pub(super) fn is_suspect(&self, worker: WorkerId, incarnation: Incarnation) -> bool {
        // Another worker may have its id by now.
        let row = self.rows.get(&worker);
        row.is_some_and(|row| row.is_suspect() && row.incarnation == incarnation)
    }

    /// The oldest version on which a last gradient of a worker was not finite.
    pub(super) fn oldest(&self) -> Option<Version> {
        self.rows.values().map(|row| row.version).min()
    }

    /// True if every last gradient is finite, and no verdict is open.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.refused.is_empty()
    }

    /// Drops refused workers that are no longer refused.
    pub(super) fn keep_refused(&mut self, is_refused: impl Fn(WorkerId) -> bool) {
        self.refused.retain(|worker, _| is_refused(*worker));
    }

    /// The verdict of all present workers. Those that are gone are forgotten.
    pub(super) fn verdict(&mut self, voters: &[Voter]) -> Verdict {
        self.rows.retain(|worker, row| {
            let is_its = |it: &Voter| (it.worker, it.incarnation) == (*worker, row.incarnation);
            voters.iter().any(is_its)
        });
        let suspects = self.rows.values().filter(|row| row.is_suspect());
        let has_suspects = suspects.clone().next().is_some();
        let versions = suspects.map(|row| row.version).chain(self.refused.values().copied());
        let Some(version) = versions.min() else { return Verdict::Open };
        let refused = self.refused.len();
        let mut answers = Answers { voters: refused, without: refused, ..Answers::default() };
        for voter in voters {
            answers.voters += 1;
            if self.is_suspect(voter.worker, voter.incarnation) {
                answers.without += 1;
            } else if voter.finite >= Some(version) {
                answers.with += 1;
            } else {
                answers.is_open |= voter.computes;
            }
        }
        match answers.verdict(version) {
            verdict if has_suspects => verdict,
            verdict => {
                if verdict == Verdict::Theirs {
                    self.refused.clear();
                }
                Verdict::Open
            }
        }
    }

    /// The suspects, and why they are refused.
    pub(super) fn suspects(&self) -> impl Iterator<Item = (WorkerId, Refusal)> + '_ {
        let suspects = self.rows.iter().filter(|(_, row)| row.is_suspect());
        suspects.map(|(&worker, &Row { count, sequence, key, .. })| {
            (worker, Refusal::NotFinite { count, sequence, key })
        })
    }

    /// A suspect is refused after this verdict.
    pub(super) fn refuse(&mut self, worker: WorkerId, verdict: Verdict) {
        if let Some(row) = self.rows.remove(&worker)
            && verdict == Verdict::Unclear
        {
            self.refused.insert(worker, row.version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_make_it_the_versions_fault_and_half_make_it_the_workers() {
        let verdict = |voters, without, with, is_open| {
            Answers { voters, without, with, is_open }.verdict(Version(3))
        };
        assert_eq!(verdict(1, 1, 0, false), Verdict::Diverged(Version(3)));
        assert_eq!(verdict(5, 3, 0, true), Verdict::Diverged(Version(3)));
        assert_eq!(verdict(4, 2, 0, true), Verdict::Open);
        assert_eq!(verdict(4, 2, 2, true), Verdict::Theirs);
        assert_eq!(verdict(3, 1, 2, true), Verdict::Theirs);
        assert_eq!(verdict(3, 1, 1, true), Verdict::Open);
        assert_eq!(verdict(3, 1, 1, false), Verdict::Unclear);
    }

    fn voter(worker: u32, finite: Option<u64>) -> Voter {
        let (worker, finite) = (WorkerId(worker), finite.map(Version));
        Voter { worker, incarnation: Incarnation(1), finite, computes: true }
    }

    /// A doubt after so many gradients of worker 0 on versions 7, 8, ... that are not finite.
    fn after(count: u32) -> Doubt {
        let mut doubt = Doubt::default();
        for number in 0..count {
            let of = (WorkerId(0), Incarnation(1));
            let number = u64::from(number);
            doubt.not_finite(of, Version(7 + number), (Sequence(9 + number), 3));
        }
        doubt
    }

    #[test]
    fn a_worker_is_a_suspect_after_a_whole_row_which_a_finite_gradient_ends() {
        let mut doubt = after(MOST_IN_A_ROW - 1);
        let voters = [voter(0, None), voter(1, Some(9))];
        assert!(!doubt.is_suspect(WorkerId(0), Incarnation(1)));
        assert_eq!(doubt.verdict(&voters), Verdict::Open);
        doubt.finite(WorkerId(0));
        doubt.not_finite((WorkerId(0), Incarnation(1)), Version(90), (Sequence(90), 3));
        assert!(!doubt.is_suspect(WorkerId(0), Incarnation(1)));

        let mut doubt = after(MOST_IN_A_ROW);
        assert!(doubt.is_suspect(WorkerId(0), Incarnation(1)));
        assert!(!doubt.is_suspect(WorkerId(0), Incarnation(2)));
        assert_eq!(doubt.verdict(&voters), Verdict::Theirs);
        let why = Refusal::NotFinite { count: 16, sequence: Sequence(24), key: 3 };
        assert_eq!(doubt.suspects().collect::<alloc::vec::Vec<_>>(), [(WorkerId(0), why)]);
    }

    #[test]
    fn an_answer_on_the_version_in_doubt_or_a_later_one_counts() {
        let mut doubt = after(MOST_IN_A_ROW);
        let mut verdict = |finite| doubt.verdict(&[voter(0, Some(2)), voter(1, Some(finite))]);
        assert_eq!((verdict(6), verdict(7)), (Verdict::Open, Verdict::Theirs));
        assert_eq!(doubt.verdict(&[voter(0, None)]), Verdict::Diverged(Version(7)));
        // A worker that has gone is forgotten.
        assert_eq!(doubt.verdict(&[voter(1, None)]), Verdict::Open);
        assert_eq!(doubt.oldest(), None);
    }
}
