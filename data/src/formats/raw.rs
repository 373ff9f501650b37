//! Raw records: rows of `f32` after a line of JSON that describes them.
//!
//! The simplest format for a program to write: a header such as `{"columns": 3, "classes": ["no",
//! "yes"]}`, a line feed, then for each row its columns and the number of its class, counted from
//! 0, all as little-endian `f32`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use pstrain_compute::examples::Row;
use serde::Deserialize;

use super::bytes::{Bytes, broken};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "raw:PATH";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "records of f32 after a line of JSON",
    paths: Paths::All,
    open: |path, _| match path {
        "" => Err(format!("a path is missing; write {FORM}")),
        path if path.contains(',') => Err(format!("one file is possible; write {FORM}")),
        path => Ok(Arc::new(Raw { path: path.into() })),
    },
};

const KIND: &str = "raw records";
/// Limit for the bytes of the header.
const LONGEST_HEADER: usize = 1 << 24;
/// Limit for the columns: a damaged header asks for no more memory.
const MOST_COLUMNS: u32 = 1 << 24;

/// The raw records of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The file.
    pub path: PathBuf,
}

/// The first line of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    columns: u32,
    classes: Vec<String>,
    /// The names of the columns.
    names: Option<Vec<String>>,
    rows: Option<u64>,
    #[serde(default = "yes")]
    standardise: bool,
}

const fn yes() -> bool {
    true
}

impl Header {
    fn check(&self) -> Result<(), String> {
        let Self { columns, classes, names, .. } = self;
        if !(1..=MOST_COLUMNS).contains(columns) {
            return Err(format!("{columns} columns; 1 to {MOST_COLUMNS} are possible"));
        }
        if !(2..=usize::from(u16::MAX)).contains(&classes.len()) {
            return Err(format!("{} classes; 2 to {} are possible", classes.len(), u16::MAX));
        }
        let mut different = BTreeSet::new();
        if let Some(twice) = classes.iter().find(|class| !different.insert(*class)) {
            return Err(format!("two classes are called {twice:?}; give each class its own name"));
        }
        match names {
            Some(names) if names.len() != *columns as usize => {
                Err(format!("{} names of {columns} columns", names.len()))
            }
            _ => Ok(()),
        }
    }
}

impl Raw {
    /// Opens the file and reads its header.
    fn opened(&self) -> Result<(Bytes<'_>, Header), DataError> {
        let mut bytes = Bytes::open(&self.path)?;
        let line = bytes.line(LONGEST_HEADER)?;
        let header: Header = serde_json::from_slice(&line).map_err(|error| {
            let problem = format!(
                "its first line is no header such as {{\"columns\": 3, \"classes\": [\"no\", \
                 \"yes\"]}}: {error}"
            );
            broken(&self.path, problem)
        })?;
        header.check().map_err(|problem| broken(&self.path, problem))?;
        Ok((bytes, header))
    }
}

impl Dataset for Raw {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let (_, header) = self.opened()?;
        let classes: Vec<&str> = header.classes.iter().map(String::as_str).collect();
        let standardised = header.standardise;
        Ok(Schema { standardised, ..Schema::dense(KIND, header.columns, &classes) })
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let (mut bytes, header) = self.opened()?;
        let Header { columns, classes, .. } = header;
        if columns != schema.shape.dense || classes != schema.classes {
            let problem = "its columns or classes are not those of the job";
            return Err(broken(&self.path, problem));
        }
        let mut record = vec![0; 4 * (columns as usize + 1)];
        let mut values = vec![0.0; columns as usize];
        let mut row = 0_u64;
        // Bytes after the last row may be shorter than a row.
        while header.rows != Some(row) && bytes.fill(&mut record)? {
            let mut numbers = record.chunks_exact(4).map(number);
            values.iter_mut().zip(&mut numbers).for_each(|(value, number)| *value = number);
            let class = numbers.next().unwrap_or(-1.0);
            if let Some(column) = values.iter().position(|value| !value.is_finite()) {
                let value = values[column];
                let problem = format!("row {row}, column {column}: {value} is no finite number");
                return Err(broken(&self.path, problem));
            }
            if class.fract() != 0.0 || !(0.0..classes.len() as f32).contains(&class) {
                let most = classes.len() - 1;
                let problem = format!("row {row}: its class is {class}, and not 0 to {most}");
                return Err(broken(&self.path, problem));
            }
            visit(Row::dense(&values, class as u16))?;
            row += 1;
        }
        match header.rows {
            Some(rows) if rows != row => {
                Err(broken(&self.path, format!("it ends after {row} of {rows} rows")))
            }
            Some(rows) if bytes.fill(&mut [0])? => {
                let problem = format!(
                    "it has more bytes than the {rows} rows of its header; correct \"rows\", or \
                     \"columns\""
                );
                Err(broken(&self.path, problem))
            }
            _ => Ok(()),
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn columns(&self, schema: &Schema) -> Vec<String> {
        let names = self.opened().ok().and_then(|(_, header)| header.names);
        let number = |column: u32| column.to_string();
        names.unwrap_or_else(|| (1..=schema.shape.dense).map(number).collect())
    }
}

/// The number of four bytes.
fn number(bytes: &[u8]) -> f32 {
    bytes.try_into().map_or(f32::NAN, f32::from_le_bytes)
}
