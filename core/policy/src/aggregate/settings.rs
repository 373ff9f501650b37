//! The settings that decide what an update is made of.

use super::combination::Combination;
use super::merging::Merging;
use crate::mode::Mode;
use crate::rules::{Aggregation, ParticipationSpec, StalenessSpec};

/// The rule of the job, the mode in force, and the number of workers of the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) aggregation: Aggregation,
    pub(super) mode: Mode,
    pub(super) workers: u32,
}

impl Settings {
    /// Number of gradients that an update sums; 1 if the update is a mean.
    pub(super) fn summed(&self) -> f32 {
        let Self { aggregation, mode, workers } = *self;
        let has_table = mode.participation == ParticipationSpec::Incremental;
        if aggregation != Aggregation::Sum || has_table || mode.staleness == StalenessSpec::DynSgd {
            return 1.0;
        }
        mode.consistency.gathered(workers) as f32
    }

    /// True if a robust rule compares the gradients with each other. A job whose mode makes other
    /// updates than rounds is rejected.
    pub(super) const fn is_robust(&self, combination: &Combination) -> bool {
        self.aggregation.is_robust() && matches!(combination, Combination::Round)
    }

    /// How waiting gradients of one worker and one part are kept, if each update covers all keys.
    pub(super) const fn merging(&self, combination: &Combination) -> Merging {
        if self.aggregation.is_robust() {
            return Merging::Apart;
        }
        Merging::of(&self.mode, combination)
    }
}
