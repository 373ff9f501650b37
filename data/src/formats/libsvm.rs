//! Sparse rows in LIBSVM files, which [`read_file`] parses.

use std::path::PathBuf;
use std::sync::Arc;

use super::arguments::Arguments;
use super::predict::{self, Predict};
use super::range::Range;
use super::sparse::{self as rows, SparseFacts, SparseRows, VisitSparse};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::Info;
use crate::sparse::{CLASSES, LibsvmError, SparseRow, read_file};

const FORM: &str = "libsvm:PATH[,PATH...][,predict=numbers][,rows=dense][,base=0][,columns=NUMBER]";
const OPTIONS: &[&str] = &[predict::OPTION, "rows", "base", "columns"];

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "sparse rows, the files one after the other; dense for more than two classes",
    paths: Paths::AllBut(OPTIONS),
    open: |arguments, _| {
        let arguments = Arguments::read(arguments, FORM, OPTIONS)?;
        let dense = arguments.parsed("rows", |text| match text {
            "dense" => Ok(true),
            _ => Err("write rows=dense, or leave it out".into()),
        })?;
        let base = arguments.parsed("base", |text| match text {
            "0" => Ok(0),
            "1" => Ok(1),
            _ => Err("write 0 or 1, the number of the first feature".into()),
        })?;
        let columns = arguments.parsed("columns", |text| {
            let columns = text.parse().ok().filter(|&columns: &u32| columns > 0);
            columns.ok_or_else(|| format!("write a number of columns from 1 to {}", u32::MAX))
        })?;
        Ok(Arc::new(Libsvm {
            predict: arguments.parsed(predict::OPTION, Predict::read)?,
            files: arguments.paths()?,
            dense: dense.unwrap_or(false),
            base: base.unwrap_or(1),
            columns,
        }))
    },
};

/// Most different labels.
const MOST_LABELS: usize = 1000;

/// The rows of LIBSVM files, one file after the other.
///
/// Rows of two classes, and rows with numbers to predict, stay sparse, unless `dense` is set.
/// Otherwise each label is a class, and rows are dense. Of the labels 0 and +1, 0 is another name
/// of -1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libsvm {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Meaning of the labels; without it whole numbers are classes.
    pub predict: Option<Predict>,
    /// True if rows are dense, however many classes there are.
    pub dense: bool,
    /// The number of the first feature, 0 or 1.
    pub base: u32,
    /// The number of columns, if it is more than the rows show.
    pub columns: Option<u32>,
}

/// The columns that all rows so far have entries in, with their ranges: in any other column are
/// zeros.
#[derive(Default)]
struct FullColumns(Option<Vec<(u32, Range<u32>)>>);

impl FullColumns {
    fn add(&mut self, row: &SparseRow) {
        let new = || row.features.iter().map(|&feature| (feature, Range::default())).collect();
        let columns = self.0.get_or_insert_with(new);
        let mut entries = row.features.iter().zip(&row.values).peekable();
        columns.retain_mut(|(column, range)| {
            while entries.next_if(|(feature, _)| **feature < *column).is_some() {}
            let entry = entries.next_if(|(feature, _)| **feature == *column);
            entry.is_some_and(|(_, &value)| {
                range.add(value, || (value + 0.0).to_bits());
                true
            })
        });
    }

    /// The problem of a column whose values 32-bit numbers do not tell apart.
    fn problem(&self) -> Option<(u32, String)> {
        let mut columns = self.0.iter().flatten();
        columns.find_map(|(column, range)| Some((*column, range.problem()?)))
    }
}

impl Libsvm {
    fn refused(&self, problem: &str) -> DataError {
        DataError::format(format!("{}: {problem}", self.describe()))
    }

    /// The problem of labels that may be numbers to predict.
    fn doubt_of(&self, labels: &[f32], rows: usize) -> Option<String> {
        let fraction = labels.iter().find(|label| label.fract() != 0.0);
        let doubt = match fraction {
            Some(&label) => Some(predict::fraction(label.into())),
            None => predict::too_many(labels.len(), rows),
        };
        doubt.filter(|_| self.predict.is_none())
    }
}

impl SparseRows for Libsvm {
    fn sparse_rows(&self, visit: &mut VisitSparse<'_>) -> Result<(), DataError> {
        self.files.iter().try_for_each(|file| {
            read_file(file, self.base, |line, row| visit(Some((file, line)), row))
        })
    }

    fn facts(&self) -> Result<SparseFacts, DataError> {
        let (mut columns, mut rows, mut labels) = (1, 0, Vec::<f32>::new());
        let mut full = FullColumns::default();
        let are_numbers = self.predict == Some(Predict::Numbers);
        self.sparse_rows(&mut |_, row| {
            rows += 1;
            columns = columns.max(row.columns());
            full.add(row);
            if are_numbers {
                return Ok(());
            }
            // Zero has two signs.
            let label = row.label + 0.0;
            if let Err(at) = labels.binary_search_by(|other| other.total_cmp(&label)) {
                labels.insert(at, label);
            }
            if labels.len() > MOST_LABELS {
                let problem = format!("more than {MOST_LABELS} different labels");
                let cure = "if they are numbers to predict, say predict=numbers";
                return Err(self.refused(&format!("{problem}; {cure}")));
            }
            Ok(())
        })?;
        if let Some(given) = self.columns.filter(|&given| given < columns) {
            return Err(self.refused(&format!("columns={given}, but its rows have {columns}")));
        }
        let columns = self.columns.unwrap_or(columns);
        if let Some((column, problem)) = full.problem() {
            let feature = column + self.base;
            return Err(self.refused(&format!("feature {feature}: {problem}")));
        }
        if are_numbers {
            return Ok(SparseFacts { columns, classes: None, dense: self.dense });
        }
        if let Some(doubt) = self.doubt_of(&labels, rows) {
            return Err(self.refused(&doubt));
        }
        let dense = self.dense || labels.len() > 2;
        let classes: Vec<String> = match labels[..] {
            [-1.0 | 0.0, 1.0] if !dense => CLASSES.map(String::from).into(),
            _ => labels.iter().map(ToString::to_string).collect(),
        };
        if let [class] = &classes[..] {
            let problem = format!("all labels are {class}; two classes or more are needed");
            return Err(self.refused(&problem));
        }
        Ok(SparseFacts { columns, classes: Some(classes), dense })
    }
}

impl Dataset for Libsvm {
    fn kind(&self) -> &'static str {
        rows::KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        rows::schema(self, features)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        Predict::of(schema, self.predict, self)?;
        rows::visit(self, schema, visit)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn info(&self) -> Result<Info, DataError> {
        rows::info(self, self.describe())
    }
}

impl From<LibsvmError> for DataError {
    fn from(error: LibsvmError) -> Self {
        Self::format(error)
    }
}
