//! Tables in text: a header with the names of the columns, then a row per line.
//!
//! A column of numbers is a dense column; any other is a one-hot group with a column for each of
//! its texts, and one for all others. One column has the classes. The roles of the columns are
//! found in the server's copy and travel with the schema, so that a worker whose copy has other
//! rows encodes them alike.

mod reader;
mod roles;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use self::reader::Reader;
use self::table::{Encoder, Table, Texts};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::{Category, Info, Occurrence, Tally};

const FORM: &str = "csv:PATH[,label=COLUMN][,drop=COLUMN...]";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "a table with a header; the last column has the classes, unless label names another",
    paths: Paths::First,
    open: |arguments, _| {
        let mut arguments = arguments.split(',');
        let path = arguments.next().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("a path is missing; write {FORM}"))?.into();
        let (mut label, mut dropped) = (None, Vec::new());
        for argument in arguments {
            match argument.split_once('=') {
                Some(("label", name)) if label.is_none() => label = Some(name.to_owned()),
                Some(("drop", name)) => dropped.push(name.to_owned()),
                _ => return Err(format!("{argument:?} is no label and no drop; write {FORM}")),
            }
        }
        Ok(Arc::new(Csv { path, label, dropped }))
    },
};

const KIND: &str = "rows of a table";

/// The rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csv {
    /// The file: columns separated by commas, semicolons or tabs.
    pub path: PathBuf,
    /// The name of the column with the classes; the last column if there is none.
    pub label: Option<String>,
    /// The names of columns that a model does not see.
    pub dropped: Vec<String>,
}

impl Dataset for Csv {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        roles::schema(self)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut reader = Reader::open(&self.path)?;
        let mut encoder = Encoder::new(schema, &reader)?;
        while reader.advance()? {
            visit(encoder.encode(&reader)?)?;
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
        let schema = self.schema(&Features::default())?;
        let table = Table::of(&schema)?;
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
            let texts = group.texts.iter().map(String::as_str).chain(["(missing)"]);
            let values = texts.zip(&mut counts).filter(|(_, count)| *count > 0);
            let values = values.map(|(text, count)| Occurrence::new(text, count, rows));
            Category { name: group.name.clone(), values: values.collect() }
        };
        let categories = table.texts.iter().map(category).collect();
        Ok(Info { categories, ..info })
    }
}
