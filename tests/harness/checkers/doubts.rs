//! Independent verdicts on non-finite gradients: which workers may be refused for them, and when a
//! version has diverged, recomputed from events alone.

use std::collections::{BTreeMap, BTreeSet};

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_roles::node::Event;
use pstrain_wire::Refusal;

use super::books::Books;

/// Second opinion on non-finite gradients.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// Workers that are present and have their data.
    ready: BTreeSet<WorkerId>,
    /// The version on which each worker's last finite gradient was computed.
    finite: BTreeMap<WorkerId, Version>,
    /// The oldest version with a non-finite gradient and no verdict.
    version: Option<Version>,
    /// Workers that sent a non-finite gradient.
    suspects: BTreeSet<WorkerId>,
    /// Suspects that were refused before enough other workers had answered.
    refused: BTreeSet<WorkerId>,
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
                assert!(self.suspects.contains(worker), "{worker} sent finite gradients only");
                let answers @ Answers { all, without, with } = self.answers();
                assert!(2 * without <= all, "{worker} is refused for the parameters: {answers:?}");
                self.forget(*worker);
                if 2 * with < all {
                    self.refused.insert(*worker);
                }
            }
            Event::Restored { .. } => {
                self.suspects.clear();
                self.refused.clear();
            }
            Event::Departed { worker, .. } => {
                self.ready.remove(worker);
                self.suspects.remove(worker);
            }
            _ => {}
        }
        let Answers { all, with, .. } = self.answers();
        if self.suspects.is_empty() && (2 * with >= all || self.refused.is_empty()) {
            (self.version, self.refused) = (None, BTreeSet::new());
        }
    }

    fn pushed(
        &mut self,
        worker: WorkerId,
        base: Version,
        (is_finite, came_late): (bool, bool),
        dropped: Option<DropReason>,
    ) {
        let suspected = self.suspects.contains(&worker);
        match dropped {
            Some(DropReason::Over) => {}
            Some(DropReason::NotFinite) if is_finite => {
                assert!(suspected, "a gradient of {worker} is finite");
            }
            Some(DropReason::NotFinite) => {
                self.suspects.insert(worker);
                self.version = Some(self.version.map_or(base, |version| version.min(base)));
            }
            // Of a called-off push the coordinator sees only its own part: it may look finite.
            _ if came_late => self.answered(worker, base),
            _ => {
                assert!(is_finite, "a gradient of {worker} is not finite, but {dropped:?}");
                assert!(!suspected || dropped.is_some(), "{worker} is in doubt");
                self.answered(worker, base);
            }
        }
    }

    fn answered(&mut self, worker: WorkerId, base: Version) {
        let last = self.finite.entry(worker).or_insert(base);
        *last = (*last).max(base);
    }

    /// Checks that the run may end because `version` has diverged.
    pub(super) fn check_diverged(&self, version: Version) {
        let answers = self.answers();
        assert!(2 * answers.without > answers.all, "most workers find finite ones: {answers:?}");
        assert_eq!(Some(version), self.version, "another version has diverged");
    }

    fn forget(&mut self, worker: WorkerId) {
        self.ready.remove(&worker);
        self.finite.remove(&worker);
        self.suspects.remove(&worker);
        self.refused.remove(&worker);
    }

    fn answers(&self) -> Answers {
        let all: BTreeSet<_> = self.ready.union(&self.refused).collect();
        let is_without =
            |worker: &WorkerId| self.suspects.contains(worker) || self.refused.contains(worker);
        let is_with = |worker: &WorkerId| {
            !is_without(worker) && self.finite.get(worker).copied() >= self.version
        };
        Answers {
            all: all.len(),
            without: all.iter().filter(|worker| is_without(worker)).count(),
            with: all.iter().filter(|worker| self.version.is_some() && is_with(worker)).count(),
        }
    }
}
