//! Tables in text: a header with the names of the columns, then a row per line.
//!
//! A column of numbers is a dense column; any other is a one-hot group with a column for each of
//! its texts, and one for all others. One column has the classes. The roles of the columns are
//! found in the server's copy and travel with the schema, so that a worker whose copy has other
//! rows encodes them alike.

mod options;
mod reader;
mod roles;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use self::options::{FORM, Options};
pub use self::options::{Missing, Roles};
use self::reader::Reader;
use self::table::{Encoder, Table, Texts};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::{Category, Info, Occurrence, Tally};

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "a table with a header; options: label, drop, one-hot, missing, standardise, delimiter",
    paths: Paths::First,
    open: |arguments, _| {
        let mut arguments = arguments.split(',');
        let path = arguments.next().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("a path is missing; write {FORM}"))?.into();
        let Options { roles, delimiter } = Options::read(arguments)?;
        Ok(Arc::new(Csv { path, delimiter, roles }))
    },
};

const KIND: &str = "rows of a table";

/// The rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csv {
    /// The file.
    pub path: PathBuf,
    /// The character between two columns; if there is none, a comma, semicolon or tab.
    pub delimiter: Option<u8>,
    /// The roles of columns.
    pub roles: Roles,
}

impl Csv {
    /// The table at `path`, whose columns get their roles from their values.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), delimiter: None, roles: Roles::default() }
    }

    fn reader(&self) -> Result<Reader, DataError> {
        Reader::open(&self.path, self.delimiter)
    }
}

impl Dataset for Csv {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        roles::find(self)?.schema()
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut reader = self.reader()?;
        let mut encoder = Encoder::new(schema, &reader)?;
        while reader.advance()? {
            if let Some(row) = encoder.encode(&reader)? {
                visit(row)?;
            }
        }
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn columns(&self, schema: &Schema) -> Vec<String> {
        Table::of(schema).map_or_else(|_| Vec::new(), |table| table.names())
    }

    fn info(&self) -> Result<Info, DataError> {
        let found = roles::find(self)?;
        let (table, schema) = (found.table(), found.schema()?);
        let mut tally = Tally::new(schema.shape);
        let mut counts = vec![0_u64; schema.shape.inputs as usize];
        self.visit(&schema, &mut |row| {
            row.hot.iter().for_each(|&column| counts[usize::from(column)] += 1);
            tally.add(row);
            Ok(())
        })?;
        let info = tally.finish(self.describe(), &schema.classes, table.names());
        let rows = info.rows;
        let mut counts = counts.into_iter().skip(table.numbers.len());
        let category = |group: &Texts| {
            let values = group.values().zip(&mut counts).filter(|(_, count)| *count > 0);
            let values = values.map(|(text, count)| Occurrence::new(text, count, rows));
            Category { name: group.name.clone(), values: values.collect() }
        };
        let categories = table.texts.iter().map(category).collect();
        Ok(Info { categories, roles: found.told(), left_out: found.left_out, ..info })
    }
}
