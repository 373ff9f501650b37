//! Data as a user of the crate sees them: readers, prepared data, partitions.

mod partitions;
mod prepared;
mod reader;
