//! Rules that turn gradients into an update, as a job names them. [`aggregate`](crate::aggregate)
//! implements them.

mod aggregation;
mod closing;
mod weighting;

pub use aggregation::{Aggregation, AggregationError, MOST_COMPARED};
pub use closing::Closing;
pub use weighting::{GREATEST_POWER, ParticipationSpec, StalenessSpec};
