//! Synthetic records: as many as wanted, like NSL-KDD's training file, from a seed.
//!
//! A [`Profile`] holds summary statistics of the real file and ships with the crate; a
//! [`Generator`] draws records from it. Record `i` depends on the seed and on `i` alone, and the
//! features that are asked for do not change each other, so records can be made in any order,
//! in parts, and for any recipe.
//!
//! The profile is derived from NSL-KDD; whoever publishes results obtained with it cites the data
//! set as [`crate::nsl_kdd`] says.

mod choice;
mod generator;
mod profile;

pub use generator::Generator;
pub use profile::{LEVELS, Numeric, Pool, Profile, ProfileError, Region, unit};

/// The number of records of the original training file, and of a synthetic one by default.
pub const DEFAULT_ROWS: u64 = 125_973;
