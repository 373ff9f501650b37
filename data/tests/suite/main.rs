//! Integration tests of the crate's public API: readers, prepared data, partitions.

mod arrays;
mod images;
mod local;
mod odd_tables;
mod partitions;
mod pictures;
mod prepared;
mod profiles;
mod reader;
mod regression;
mod sparse;
mod tables;
