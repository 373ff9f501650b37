//! Synthetic sparse rows, and the encoding that all sparse rows share.

use std::path::Path;
use std::sync::Arc;

use pstrain_compute::counted::counted;
use pstrain_compute::examples::{Examples, Label, Target};

use super::{Format, Paths, numbers};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::{Features as Facts, Info, Tally};
use crate::sparse::{
    CLASSES, DEFAULT_COLUMNS, DEFAULT_ROWS, Hashing, SparseGenerator, SparseRow, SparseSpec,
};

pub(super) const FORMAT: Format = Format {
    form: "sparse[:ROWS[,COLUMNS[,SEED]]]",
    summary: "sparse rows with features of widely different frequency",
    paths: Paths::None,
    open: |arguments, seed| {
        let defaults = [DEFAULT_ROWS, DEFAULT_COLUMNS.into(), seed];
        let write = "write sparse[:ROWS[,COLUMNS[,SEED]]], with 1 column or more";
        let [rows, columns, seed] =
            numbers(arguments, defaults).map_err(|error| format!("{error}; {write}"))?;
        let columns = u32::try_from(columns).ok().filter(|&columns| columns > 0);
        Ok(Arc::new(SyntheticSparse { rows, columns: columns.ok_or(write)?, seed }))
    },
};

/// The kind of sparse rows.
pub(super) const KIND: &str = "sparse";

/// Sparse rows that are drawn from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticSparse {
    /// Number of rows.
    pub rows: u64,
    /// Number of features to draw from.
    pub columns: u32,
    /// The seed.
    pub seed: u64,
}

/// Most columns of rows that are dense.
const MOST_DENSE: u32 = 1 << 24;

/// A dataset of sparse rows.
pub(super) trait SparseRows {
    /// Passes every row to `visit`, in order, with its file and line if it has one.
    fn sparse_rows(&self, visit: &mut VisitSparse<'_>) -> Result<(), DataError>;

    /// The number of columns, if features are not hashed, and the classes.
    fn facts(&self) -> Result<SparseFacts, DataError>;
}

/// Receives sparse rows, each with its file and line if it has one.
pub(super) type VisitSparse<'a> =
    dyn FnMut(Option<(&Path, u64)>, &SparseRow) -> Result<(), DataError> + 'a;

/// The columns and classes of sparse rows.
pub(super) struct SparseFacts {
    pub(super) columns: u32,
    /// The classes; none if a number is predicted.
    pub(super) classes: Option<Vec<String>>,
    /// True if a model reads the rows as dense ones.
    pub(super) dense: bool,
}

/// The schema of sparse rows.
pub(super) fn schema(data: &impl SparseRows, features: &Features) -> Result<Schema, DataError> {
    let SparseFacts { columns, classes, dense } = data.facts()?;
    let spec = match features.hashing {
        Hashing::To(columns) => SparseSpec { columns, hashed: true, dense },
        Hashing::None => SparseSpec { columns, hashed: false, dense },
    };
    if spec.dense && spec.columns > MOST_DENSE {
        return Err(DataError::format(format!(
            "a dense row would have {} columns, and at most {MOST_DENSE} are possible: set \
             hash-features to the number of columns that it may have",
            spec.columns
        )));
    }
    let target = match &classes {
        None => Target::Value,
        Some(classes) => Target::Classes(classes.len() as u32),
    };
    Ok(Schema {
        kind: KIND.into(),
        encoding: spec.encoding().into(),
        shape: spec.shape(target),
        classes: classes.unwrap_or_default(),
        standardised: false,
    })
}

/// Passes every row to `visit`, encoded by `schema`.
pub(super) fn visit(
    data: &impl SparseRows,
    schema: &Schema,
    visit: &mut Visit<'_>,
) -> Result<(), DataError> {
    let problem = "the schema has no encoding of sparse rows";
    let spec = SparseSpec::of(schema.shape, &schema.encoding)
        .ok_or(DataError::Specification { problem })?;
    let mut encoder = spec.encoder();
    let problem = "the classes of sparse rows are not numbers";
    let number = |class: &String| {
        class.parse::<f32>().map_err(|_error| DataError::Specification { problem })
    };
    let labels = schema.classes.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let has_two = schema.classes == CLASSES;
    let are_numbers = schema.shape.target == Target::Value;
    data.sparse_rows(&mut |place, row| {
        let place = || {
            let place = place.map(|(file, line)| format!("{}:{line}: ", file.display()));
            place.unwrap_or_default()
        };
        let (its, columns) = (row.columns(), spec.columns);
        if its > columns && !spec.hashed {
            return Err(DataError::format(format!(
                "{}the row has {}, and the rows of the job have {columns}: name its training rows \
                 by libsvm:PATH,columns={its}, or with more columns",
                place(),
                counted(its, "column")
            )));
        }
        if are_numbers {
            return visit(encoder.encode(row, Label::Value(row.label))?);
        }
        // Of two classes, 0 is another name of the first.
        let label = if has_two && row.label == 0.0 { -1.0 } else { row.label };
        let Some(class) = labels.iter().position(|&other| other == label) else {
            let problem = format!("{}label {label} is no class of the job", place());
            return Err(DataError::format(problem));
        };
        visit(encoder.encode(row, Label::Class(class as u16))?)
    })
}

/// Collects the facts about sparse rows.
pub(super) fn info(data: &impl SparseRows, name: String) -> Result<Info, DataError> {
    let schema = schema(data, &Features::default())?;
    if schema.shape.is_sparse() {
        let mut all = Examples::new(schema.shape);
        visit(data, &schema, &mut |row| {
            Ok(all.push_sparse(row.columns, row.values, row.label)?)
        })?;
        let entries: usize = (0..all.len()).map(|row| all.row(row).columns.len()).sum();
        let facts = Facts {
            columns: schema.shape.inputs,
            touched: all.touched().len() as u64,
            entries: entries as u64,
        };
        return Ok(Info::of_sparse(name, &all, &schema.classes, facts));
    }
    // Dense rows take far more memory than the entries of sparse ones: they are not kept.
    let mut tally = Tally::new(schema.shape);
    let mut touched = vec![false; schema.shape.inputs as usize];
    let mut entries = 0;
    visit(data, &schema, &mut |row| {
        for (touched, &value) in touched.iter_mut().zip(row.dense) {
            *touched |= value != 0.0;
            entries += u64::from(value != 0.0);
        }
        tally.add(row);
        Ok(())
    })?;
    let touched = touched.into_iter().filter(|&touched| touched).count() as u64;
    let facts = Facts { columns: schema.shape.inputs, touched, entries };
    let info = tally.finish(name, &schema.classes, Vec::new());
    Ok(Info { features: Some(facts), ..info })
}

impl SparseRows for SyntheticSparse {
    fn sparse_rows(&self, visit: &mut VisitSparse<'_>) -> Result<(), DataError> {
        let generator = SparseGenerator::new(self.columns, self.seed);
        (0..self.rows).try_for_each(|row| visit(None, &generator.row(row)))
    }

    fn facts(&self) -> Result<SparseFacts, DataError> {
        let classes = Some(CLASSES.map(String::from).into());
        Ok(SparseFacts { columns: self.columns, classes, dense: false })
    }
}

impl Dataset for SyntheticSparse {
    fn describe(&self) -> String {
        let Self { rows, columns, seed } = self;
        format!("synthetic sparse rows, {rows} of {columns} columns, seed {seed}")
    }

    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        schema(self, features)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        self::visit(self, schema, visit)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn words(&self) -> Option<String> {
        let Self { rows, columns, seed } = self;
        Some(format!("sparse:{rows},{columns},{seed}"))
    }

    fn info(&self) -> Result<Info, DataError> {
        info(self, self.describe())
    }
}
