//! The phases of a run, from gathering workers to the last goodbye.

use serde::{Deserialize, Serialize};

use pstrain_compute::time::Time;
use pstrain_wire::Phase;
use pstrain_wire::worker::EndReason;

/// The phase of a run, and its end.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::node) struct Lifecycle {
    stage: Stage,
    /// When the phase began; if the driver overslept in the first or last phase, when it woke up.
    pub(in crate::node) since: Time,
    /// The node has finished: it has told its driver so.
    done: bool,
}

/// A phase, with the reason once the run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    Gathering,
    Training,
    Draining,
    /// The run has ended, and members are not told yet: they are needed.
    Held(EndReason),
    Ending(EndReason),
}

impl Lifecycle {
    /// A run that gathers its workers.
    pub(in crate::node) const fn new() -> Self {
        Self { stage: Stage::Gathering, since: Time::ZERO, done: false }
    }

    pub(in crate::node) const fn phase(&self) -> Phase {
        match self.stage {
            Stage::Gathering => Phase::Gathering,
            Stage::Training => Phase::Training,
            Stage::Draining => Phase::Draining,
            Stage::Held(_) | Stage::Ending(_) => Phase::Ending,
        }
    }

    /// Why the run has ended, if it has.
    pub(in crate::node) const fn end(&self) -> Option<EndReason> {
        match self.stage {
            Stage::Held(reason) | Stage::Ending(reason) => Some(reason),
            Stage::Gathering | Stage::Training | Stage::Draining => None,
        }
    }

    /// True if the run has ended, and members may not be told yet.
    pub(in crate::node) const fn holds_end(&self) -> bool {
        matches!(self.stage, Stage::Held(_))
    }

    pub(in crate::node) const fn is_done(&self) -> bool {
        self.done
    }

    /// Begins training, or goes on with a run that had ended.
    pub(in crate::node) const fn train(&mut self, now: Time) {
        (self.stage, self.since, self.done) = (Stage::Training, now, false);
    }

    pub(in crate::node) const fn drain(&mut self, now: Time) {
        (self.stage, self.since) = (Stage::Draining, now);
    }

    pub(in crate::node) const fn end_with(&mut self, reason: EndReason, now: Time) {
        (self.stage, self.since) = (Stage::Ending(reason), now);
    }

    /// Keeps the members of a run that has ended until [`Self::release_end`].
    pub(in crate::node) fn hold_end(&mut self) {
        let Some(reason) = self.end() else { unreachable!("the run has ended") };
        self.stage = Stage::Held(reason);
    }

    /// Lets members be told of the end. The time for goodbyes begins.
    pub(in crate::node) fn release_end(&mut self, now: Time) {
        let Some(reason) = self.end() else { unreachable!("the run has ended") };
        self.end_with(reason, now);
    }

    /// Gives a run that has ended another reason: part of its result is missing.
    pub(in crate::node) const fn amend(&mut self, reason: EndReason) {
        debug_assert!(self.end().is_some(), "only a run that has ended has a reason to amend");
        self.stage = match self.stage {
            Stage::Held(_) => Stage::Held(reason),
            _ => Stage::Ending(reason),
        };
    }

    pub(in crate::node) const fn finish(&mut self) {
        self.done = true;
    }
}
