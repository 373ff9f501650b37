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

use std::io::Write;

pub use generator::Generator;
pub use profile::{LEVELS, Numeric, Pool, Profile, ProfileError, Region, unit};

use crate::error::DataError;
use crate::nsl_kdd::{self, Columns};
use crate::source::Source;

/// The number of records of the original training file, and of a synthetic one by default.
pub const DEFAULT_ROWS: u64 = 125_973;

/// Writes `rows` synthetic records in the original format; reading them back gives the same
/// records as [`Source::Synthetic`] with the same seed.
///
/// The difficulty is [`DIFFICULTY`](crate::nsl_kdd::DIFFICULTY) throughout.
///
/// # Errors
/// [`DataError::Write`] if `out` fails.
pub fn write_csv(rows: u64, seed: u64, out: &mut impl Write) -> Result<(), DataError> {
    let source = Source::Synthetic { rows, seed };
    source.visit(Columns::ALL, |record| nsl_kdd::write(record, out).map_err(DataError::Write))?;
    out.flush().map_err(DataError::Write)
}
