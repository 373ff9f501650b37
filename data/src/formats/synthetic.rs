//! Synthetic NSL-KDD records.

use std::io::Write;
use std::sync::Arc;

use pstrain_compute::examples::Label;

use super::nsl_kdd::{self as records, Records};
use super::{Format, Paths, numbers};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::grouped::grouped;
use crate::info::Info;
use crate::nsl_kdd::{self, Columns, Record};
use crate::synthetic::{DEFAULT_ROWS, Generator, Profile, ProfileError};

pub(super) const FORMAT: Format = Format {
    form: "synthetic[:ROWS[,SEED]]",
    summary: "records that resemble NSL-KDD's training file",
    paths: Paths::None,
    open: |arguments, seed| {
        let [rows, seed] = numbers(arguments, [DEFAULT_ROWS, seed])
            .map_err(|error| format!("{error}; write synthetic[:ROWS[,SEED]]"))?;
        Ok(Arc::new(SyntheticNslKdd { rows, seed }))
    },
};

/// Records that are drawn from the profile that ships with the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticNslKdd {
    /// Number of records.
    pub rows: u64,
    /// The seed. The same seed gives the same records on every machine.
    pub seed: u64,
}

impl Default for SyntheticNslKdd {
    fn default() -> Self {
        Self { rows: DEFAULT_ROWS, seed: 1 }
    }
}

impl Records for SyntheticNslKdd {
    fn records(
        &self,
        columns: Columns,
        visit: &mut dyn FnMut(&Record) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let generator = Generator::new(&Profile::embedded()?, self.seed, columns);
        (0..self.rows).try_for_each(|row| visit(&generator.record(row)))
    }
}

impl Dataset for SyntheticNslKdd {
    fn describe(&self) -> String {
        let Self { rows, seed } = self;
        format!("synthetic NSL-KDD, {} rows, seed {seed}", grouped(*rows))
    }

    fn kind(&self) -> &'static str {
        records::KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        records::schema(features)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        records::visit(self, schema, visit)
    }

    fn visit_labels(&self, _: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        records::visit_labels(self, visit)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn words(&self) -> Option<String> {
        Some(format!("synthetic:{},{}", self.rows, self.seed))
    }

    fn columns(&self, schema: &Schema) -> Vec<String> {
        records::columns(schema)
    }

    fn info(&self) -> Result<Info, DataError> {
        records::info(self, self.describe())
    }
}

impl From<ProfileError> for DataError {
    fn from(error: ProfileError) -> Self {
        Self::format(error)
    }
}

/// Writes `rows` synthetic records in the original format. A reader of the output gets the same
/// records as from [`SyntheticNslKdd`] with the same seed.
///
/// The difficulty is [`DIFFICULTY`](nsl_kdd::DIFFICULTY) in every record.
///
/// # Errors
/// [`DataError::Write`] if `out` fails.
pub fn write_csv(rows: u64, seed: u64, out: &mut impl Write) -> Result<(), DataError> {
    let drawn = SyntheticNslKdd { rows, seed };
    drawn.records(Columns::ALL, &mut |record| {
        nsl_kdd::write(record, out).map_err(DataError::Write)
    })?;
    out.flush().map_err(DataError::Write)
}
