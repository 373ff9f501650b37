//! Rules that turn gradients into an update, as a job names them. [`aggregate`](crate::aggregate)
//! implements them.

mod aggregation;
mod closing;
mod participation;
mod staleness;

pub use aggregation::{Aggregation, AggregationError, MOST_COMPARED};
pub use closing::Closing;
pub use participation::ParticipationSpec;
pub use staleness::{GREATEST_POWER, StalenessSpec};
