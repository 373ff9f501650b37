//! Synthetic records: any number of records that resemble NSL-KDD's training file, from a seed.
//!
//! A [`Profile`] has summary statistics of the real file and ships with the crate; a [`Generator`]
//! draws records from it. Record `i` depends only on the seed and on `i`, and the set of requested
//! features does not change their values. So records can be generated in any order, in parts, and
//! for any recipe.
//!
//! The profile is derived from NSL-KDD. Publications of results obtained with it must cite the data
//! set as [`crate::nsl_kdd`] says.

mod choice;
mod generator;
mod profile;

pub use generator::Generator;
pub use profile::{LEVELS, Numeric, Pool, Profile, ProfileError, Region, unit};

/// The number of records of the original training file, and the default for synthetic data.
pub const DEFAULT_ROWS: u64 = 125_973;
