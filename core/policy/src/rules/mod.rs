//! The rules by which gradients become an update, as a job names them.
//! [`aggregate`](crate::aggregate) follows them.

mod aggregation;
mod closing;
mod weighting;

pub use aggregation::{Aggregation, AggregationError, MOST_COMPARED, UnknownAggregation};
pub use closing::Closing;
pub use weighting::{GREATEST_POWER, ParticipationSpec, StalenessSpec, UnknownRule};
