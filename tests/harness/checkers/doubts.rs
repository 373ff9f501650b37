//! Independent verdicts on non-finite gradients: which workers may be refused for them, and when a
//! version has diverged, recomputed from events alone.

use std::collections::{BTreeMap, BTreeSet};

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_roles::node::{Event, MOST_IN_A_ROW};
use pstrain_wire::Refusal;

use super::books::Books;

/// Second opinion on non-finite gradients.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// Workers that are present and have their data.
    ready: BTreeSet<WorkerId>,
    /// The version on which each worker's last finite gradient was computed.
    finite: BTreeMap<WorkerId, Version>,
    /// The number of each worker's last gradients that are not finite, and their oldest version.
    rows: BTreeMap<WorkerId, (u32, Version)>,
    /// Suspects that were refused before enough other workers had answered, and their versions.
    refused: BTreeMap<WorkerId, Version>,
}

/// Counts of workers by their answer on the version in doubt.
#[derive(Clone, Copy, Debug)]
struct Answers {
    all: usize,
    without: usize,
    with: usize,
}

impl Doubts {
    /// Handles an event; `next` is the event that the server reported right after it.
    pub(super) fn event(&mut self, event: &Event, next: Option<&Event>, books: &Books) {
        match event {
            Event::Joined { worker, resumed: false, .. } => self.forget(*worker),
            Event::Ready { worker, .. } => drop(self.ready.insert(*worker)),
            Event::Pushed { worker, sequence, base, .. } => {
                let dropped = match next {
                    Some(Event::Dropped { reason, .. }) => Some(*reason),
                    _ => None,
                };
                let is_finite = books.is_finite(*worker, *sequence, *base);
                self.pushed(*worker, *base, (is_finite, books.came_late), dropped);
            }
            Event::Refused { worker: Some(worker), why: Refusal::NotFinite { .. }, .. } => {
                let version = self.suspects().find(|(suspect, _)| suspect == worker);
                let (_, version) = version.expect("a row of gradients is not finite");
                let answers @ Answers { all, without, with } = self.answers();
                assert!(2 * without <= all, "{worker} is refused for the parameters: {answers:?}");
                self.forget(*worker);
                if 2 * with < all {
                    self.refused.insert(*worker, version);
                }
            }
            Event::Restored { .. } => {
                self.rows.clear();
                self.refused.clear();
            }
            Event::Departed { worker, .. } => {
                self.ready.remove(worker);
                self.rows.remove(worker);
            }
            _ => {}
        }
        let Answers { all, with, .. } = self.answers();
        if self.suspects().next().is_none() && 2 * with >= all {
            self.refused.clear();
        }
    }

    /// Workers whose last gradients are not finite, a whole row of them, and the oldest version.
    fn suspects(&self) -> impl Iterator<Item = (WorkerId, Version)> {
        let rows = self.rows.iter().filter(|(_, (count, _))| *count >= MOST_IN_A_ROW);
        rows.map(|(&worker, &(_, version))| (worker, version))
    }

    /// The version in doubt.
    fn version(&self) -> Option<Version> {
        let suspects = self.suspects().map(|(_, version)| version);
        suspects.chain(self.refused.values().copied()).min()
    }

    fn pushed(
        &mut self,
        worker: WorkerId,
        base: Version,
        (is_finite, came_late): (bool, bool),
        dropped: Option<DropReason>,
    ) {
        match dropped {
            Some(DropReason::Over) => {}
            Some(DropReason::NotFinite) => {
                assert!(!is_finite, "a gradient of {worker} is finite");
                let (count, oldest) = self.rows.entry(worker).or_insert((0, base));
                (*count, *oldest) = (*count + 1, base.min(*oldest));
            }
            // Of a called-off push the coordinator sees only its own part: it may look finite.
            _ => {
                let is_known = is_finite || came_late;
                assert!(is_known, "a gradient of {worker} is not finite, but {dropped:?}");
                self.answered(worker, base);
            }
        }
    }

    fn answered(&mut self, worker: WorkerId, base: Version) {
        let last = self.finite.entry(worker).or_insert(base);
        *last = (*last).max(base);
        self.rows.remove(&worker);
    }

    /// Checks that the run may end because `version` has diverged.
    pub(super) fn check_diverged(&self, version: Version) {
        let answers = self.answers();
        assert!(2 * answers.without > answers.all, "most workers find finite ones: {answers:?}");
        assert_eq!(Some(version), self.version(), "another version has diverged");
    }

    fn forget(&mut self, worker: WorkerId) {
        self.ready.remove(&worker);
        self.finite.remove(&worker);
        self.rows.remove(&worker);
        self.refused.remove(&worker);
    }

    fn answers(&self) -> Answers {
        let without: BTreeSet<WorkerId> =
            self.suspects().map(|(worker, _)| worker).chain(self.refused.keys().copied()).collect();
        let all: BTreeSet<WorkerId> = self.ready.union(&without).copied().collect();
        let version = self.version();
        let is_with =
            |worker: &WorkerId| version.is_some() && self.finite.get(worker).copied() >= version;
        let with = all.difference(&without).filter(|worker| is_with(worker)).count();
        Answers { all: all.len(), without: without.len(), with }
    }
}
