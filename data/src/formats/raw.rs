//! Raw records: rows of `f32` after a line of JSON that describes them.
//!
//! The simplest format for a program to write: a header such as `{"columns": 3, "classes": ["no",
//! "yes"]}`, a line feed, then for each row its columns and the number of its class, counted from
//! 0, all as little-endian `f32`. Without `classes` the last value of a row is a number to predict.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use pstrain_compute::counted::counted;
use pstrain_compute::examples::{Label, Picture, Row, Target};
use serde::Deserialize;

use super::arguments::Arguments;
use super::bytes::{Bytes, broken};
use super::range::{Range, problem_of};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "raw:PATH";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "records of f32 after a line of JSON",
    paths: Paths::All,
    open: |arguments, _| {
        let [path] = Arguments::read(arguments, FORM, &[])?.exactly()?;
        Ok(Arc::new(Raw { path }))
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
    /// The names of the classes; none if a number is predicted.
    classes: Option<Vec<String>>,
    /// The names of the columns.
    names: Option<Vec<String>>,
    /// Height, width and channels of the pictures that the rows are, pixel by pixel.
    picture: Option<[u32; 3]>,
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
        if let Some(classes) = classes {
            if !(2..=usize::from(u16::MAX)).contains(&classes.len()) {
                return Err(format!("{} classes; 2 to {} are possible", classes.len(), u16::MAX));
            }
            let mut different = BTreeSet::new();
            if let Some(twice) = classes.iter().find(|class| !different.insert(*class)) {
                let problem = format!("two classes are called {twice:?}");
                return Err(problem + "; give each class its own name");
            }
        }
        if let Some(picture) = self.size()
            && picture.values() != *columns
        {
            let values = counted(picture.values(), "value");
            return Err(format!("pictures of {picture} have {values}, not {columns}"));
        }
        match names {
            Some(names) if names.len() != *columns as usize => {
                Err(format!("{} names of {}", names.len(), counted(*columns, "column")))
            }
            _ => Ok(()),
        }
    }
}

impl Header {
    fn size(&self) -> Option<Picture> {
        self.picture.map(|[height, width, channels]| Picture { height, width, channels })
    }

    fn schema(&self) -> Schema {
        let schema = match &self.classes {
            None => Schema::of_values(KIND, self.columns),
            Some(classes) => {
                let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
                Schema::dense(KIND, self.columns, &classes)
            }
        };
        Schema { standardised: self.standardise, ..schema.with_picture(self.size()) }
    }
}

/// The label of a row of a job for `target`.
fn label_of(value: f32, target: Target) -> Result<Label, String> {
    match target {
        Target::Value if value.is_finite() => Ok(Label::Value(value)),
        Target::Value => Err(format!("its number to predict is {value}, and not finite")),
        Target::Classes(classes)
            if value.fract() == 0.0 && (0.0..classes as f32).contains(&value) =>
        {
            Ok(Label::Class(value as u16))
        }
        Target::Classes(classes) => {
            Err(format!("its class is {value}, and not 0 to {}", classes.saturating_sub(1)))
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
                 \"yes\"]}}, or {{\"columns\": 3}} for numbers to predict: {error}"
            );
            broken(&self.path, problem)
        })?;
        header.check().map_err(|problem| broken(&self.path, problem))?;
        Ok((bytes, header))
    }

    /// Passes the columns and the label of each row of a job for `target` to `visit`.
    fn each(
        &self,
        (mut bytes, header): (Bytes<'_>, Header),
        target: Target,
        mut visit: impl FnMut(&[f32], Label) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (mut record, mut values) = (Vec::new(), Vec::new());
        let mut row = 0_u64;
        // Bytes after the last row may be shorter than a row.
        while header.rows != Some(row)
            && bytes.record(4 * (header.columns as usize + 1), &mut record)?
        {
            values.clear();
            values.extend(record.chunks_exact(4).map(number));
            let label = values.pop().unwrap_or(f32::NAN);
            if let Some(column) = values.iter().position(|value| !value.is_finite()) {
                let value = values[column];
                let problem = format!("row {row}, column {column}: {value} is no finite number");
                return Err(broken(&self.path, problem));
            }
            let label = label_of(label, target)
                .map_err(|problem| broken(&self.path, format!("row {row}: {problem}")))?;
            visit(&values, label)?;
            row += 1;
        }
        match header.rows {
            Some(rows) if rows != row => {
                Err(broken(&self.path, format!("it ends after {row} of {}", counted(rows, "row"))))
            }
            Some(rows) => bytes.end(&format!(
                "the {} of its header; correct \"rows\", or \"columns\"",
                counted(rows, "row")
            )),
            None => Ok(()),
        }
    }
}

impl Dataset for Raw {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let (bytes, header) = self.opened()?;
        let schema = header.schema();
        let mut ranges = Vec::<Range<u32>>::new();
        self.each((bytes, header), schema.shape.target, |values, _| {
            ranges.resize_with(values.len(), Range::default);
            let columns = ranges.iter_mut().zip(values);
            columns.for_each(|(range, &value)| range.add(value, || (value + 0.0).to_bits()));
            Ok(())
        })?;
        problem_of(&ranges).map_or(Ok(schema), |problem| Err(broken(&self.path, problem)))
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let (bytes, header) = self.opened()?;
        let its = header.schema();
        if its.shape != schema.shape || its.classes != schema.classes {
            let problem = "its columns or classes are not those of the job";
            return Err(broken(&self.path, problem));
        }
        let target = schema.shape.target;
        self.each((bytes, header), target, |values, label| visit(Row::dense(values, label)))
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
