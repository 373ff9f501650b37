//! The job of a run, whose budget may be raised, with its digests.

use core::ops::Deref;

use pstrain_compute::saved::{Archive, SavedError};
use pstrain_policy::job::Job;
use pstrain_wire::job_digest;

/// The job of a run with its digests, which are computed once for all nodes that join.
#[derive(Debug)]
pub(super) struct RunJob {
    job: Job,
    digest: [u8; 32],
    /// The digest of the job as the run began.
    first_digest: [u8; 32],
}

impl RunJob {
    pub(super) fn new(job: Job) -> Self {
        let digest = job_digest(&job);
        Self { job, digest, first_digest: digest }
    }

    pub(super) const fn get(&self) -> &Job {
        &self.job
    }

    /// Returns the job with its digest, for a node that joins.
    pub(super) fn for_member(&self) -> (Job, [u8; 32]) {
        (self.job.clone(), self.digest)
    }

    /// Returns the digest of the job as the run began: all runs of one job share it.
    pub(super) const fn first_digest(&self) -> &[u8; 32] {
        &self.first_digest
    }

    /// Raises the budget to `epochs` passes over the data.
    pub(super) fn extend(&mut self, epochs: u32) {
        self.job.budget.epochs = self.job.budget.epochs.max(epochs);
        self.digest = job_digest(&self.job);
    }

    /// Saves or restores the budget.
    ///
    /// # Errors
    /// [`SavedError`] if the saved state is damaged or of another job.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut first_digest = self.first_digest;
        archive.small(&mut first_digest)?;
        if first_digest != self.first_digest {
            return Err(SavedError::OtherJob);
        }
        archive.small(&mut self.job.budget.epochs)?;
        if archive.restores() {
            self.digest = job_digest(&self.job);
        }
        Ok(())
    }
}

impl Deref for RunJob {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}
