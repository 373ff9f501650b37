//! Sparse models: the settings that work with gradients that have values for some keys only.

use super::{Job, JobError};
use crate::consistency::ConsistencySpec;
use crate::job::Redundancy;
use crate::mode::Mode;
use crate::rules::{ParticipationSpec, StalenessSpec};
use pstrain_compute::filter::FilterSpec;
use pstrain_compute::model::ModelSpec;

impl Job {
    /// Returns true if workers know only the keys that their examples touch.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        let is_linear = matches!(self.model, ModelSpec::Linear) && self.data.shape.is_sparse();
        is_linear || matches!(self.model, ModelSpec::Logistic)
    }

    /// Checks that the settings under `mode` work with gradients that have values for some keys
    /// only, if the model is sparse.
    ///
    /// # Errors
    /// [`JobError::Sparse`] names the setting that needs a value for every key.
    pub fn check_sparse(&self, mode: &Mode) -> Result<(), JobError> {
        let has_low_rank =
            self.filters.chain.iter().any(|it| matches!(it, FilterSpec::PowerSgd { .. }));
        let refused = if !self.is_sparse() {
            return Ok(());
        } else if self.aggregation.is_robust() {
            "an aggregation that looks at values side by side"
        } else if self.redundancy != Redundancy::None {
            "redundancy"
        } else if mode.staleness.needs_base() {
            "a staleness rule that corrects gradients"
        } else if mode.staleness == StalenessSpec::DynSgd {
            "staleness = dynsgd"
        } else if mode.participation == ParticipationSpec::Incremental {
            "participation = incremental"
        } else if mode.consistency == ConsistencySpec::Ringleader {
            "consistency = ringleader"
        } else if has_low_rank {
            "filters = powersgd"
        } else {
            return Ok(());
        };
        Err(JobError::Sparse(refused))
    }
}
