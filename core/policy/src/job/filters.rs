//! Filters of the workers of a job.

use super::Job;
use pstrain_compute::filter::FilterChain;
use pstrain_compute::id::WorkerId;
use pstrain_compute::params::Layout;
use pstrain_compute::rng::Stream;

impl Job {
    /// The filters of `worker`, for a model with this layout, before its first gradient; `None` if
    /// gradients are sent unfiltered.
    #[must_use]
    pub fn filter_chain(&self, worker: WorkerId, layout: &Layout) -> Option<FilterChain> {
        let filters = (&self.filters, self.blocks);
        FilterChain::new(filters, &self.update, Stream::new(self.seed), worker, layout)
    }
}
