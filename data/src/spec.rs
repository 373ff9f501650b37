//! The resolved data part of a job: a worker derives its partition from it and its own copy.

use std::collections::BTreeMap;

use pstrain_compute::examples::{Examples, Row, Shape};
use pstrain_compute::id::PartId;
use pstrain_compute::rng::Stream;
use serde::{Deserialize, Serialize};

use crate::error::DataError;
use crate::evaluation::{check_kind, check_rows};
use crate::nsl_kdd::{CLASSES, Columns, Record, numeric_name};
use crate::partition::{PartitionSpec, assign};
use crate::recipe::RecipeName;
use crate::source::Source;
use crate::sparse::{self, Hashing, SparseSpec};
use crate::split::{Split, split};
use crate::standardise::Standardisation;
use pstrain_compute::fingerprint::{Fingerprint, Fingerprinter};

/// User settings for splitting, encoding and partitioning the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The features that the model sees.
    pub recipe: RecipeName,
    /// The fraction of rows that is held out for evaluation, from 0 up to but not including 1.
    pub evaluation_share: f64,
    /// A separate source whose rows are all used for evaluation. The held-out rows are then neither
    /// trained nor evaluated on.
    pub evaluation_data: Option<Source>,
    /// The seed of the split and of the partition.
    pub split_seed: u64,
    /// How the training rows are assigned to the workers.
    pub partition: PartitionSpec,
    /// Number of parts that the training rows are cut into: one for each worker, or shards.
    pub workers: u32,
    /// Minimum rows of every worker under a `dirichlet` partition, at least 1.
    pub minimum_rows: u32,
    /// How the features of sparse rows map to columns.
    pub hashing: Hashing,
}

impl Default for Settings {
    /// The reference learning task: 93 features, a quarter for evaluation, two IID workers.
    fn default() -> Self {
        Self {
            recipe: RecipeName::default(),
            evaluation_share: 0.25,
            evaluation_data: None,
            split_seed: 1,
            partition: PartitionSpec::default(),
            workers: 2,
            minimum_rows: 1,
            hashing: Hashing::None,
        }
    }
}

/// Synthetic data, given by number of rows and seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticSpec {
    /// Number of rows.
    pub rows: u64,
    /// The seed.
    pub seed: u64,
    /// Number of columns, if the rows are sparse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
}

impl SyntheticSpec {
    /// Returns number and seed of a synthetic source.
    pub(crate) const fn of(source: &Source) -> Option<Self> {
        match *source {
            Source::Synthetic { rows, seed } => Some(Self { rows, seed, columns: None }),
            Source::SyntheticSparse { rows, columns, seed } => {
                Some(Self { rows, seed, columns: Some(columns) })
            }
            Source::File(_) | Source::Libsvm(_) => None,
        }
    }
}

/// The data of a job, resolved by the server. It travels to the workers and contains no path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// The features that the model sees.
    pub recipe: RecipeName,
    /// A description of the server's source.
    pub source: String,
    /// Set if the data are synthetic: a worker can then generate them itself.
    pub synthetic: Option<SyntheticSpec>,
    /// The fraction of rows that is held out for evaluation.
    pub evaluation_share: f64,
    /// The seed of the split and of the partition.
    pub split_seed: u64,
    /// How the training rows are assigned to the workers.
    pub partition: PartitionSpec,
    /// Number of parts that the training rows are cut into: one for each worker, or shards.
    pub workers: u32,
    /// Minimum rows of every worker under a `dirichlet` partition.
    pub minimum_rows: u32,
    /// Mean and scale of each dense column.
    pub standardisation: Standardisation,
    /// The columns, if the rows are sparse; the recipe is then not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse: Option<SparseSpec>,
}

impl Settings {
    pub(crate) fn stream(&self) -> Stream {
        Stream::new(self.split_seed).fork("data", 0)
    }

    pub(crate) fn check(&self) -> Result<(), DataError> {
        if (0.0..1.0).contains(&self.evaluation_share) {
            return Ok(());
        }
        Err(DataError::Setting {
            name: "evaluation share",
            value: self.evaluation_share.to_string(),
            allowed: "from 0 up to but not including 1",
        })
    }

    /// Refuses more rows than can be numbered, before they are generated.
    pub(crate) fn check_rows(source: &Source, rows: u64) -> Result<u32, DataError> {
        let allowed = "at most 4294967295 can be trained on";
        u32::try_from(rows).map_err(|_| DataError::Rows {
            source: source.describe(),
            rows,
            allowed,
        })
    }

    /// Splits `rows` rows into training rows and evaluation rows, each in ascending order.
    pub(crate) fn split(&self, source: &Source, rows: usize) -> Result<Split, DataError> {
        let rows = Self::check_rows(source, rows as u64)?;
        let parts = split(rows, self.evaluation_share, self.stream().fork("split", 0));
        if parts.train.is_empty() {
            let allowed = "at least one is needed to train on";
            return Err(DataError::Rows { source: source.describe(), rows: rows.into(), allowed });
        }
        Ok(parts)
    }

    /// Returns the worker of each training row, given the rows' classes.
    pub(crate) fn owners(&self, labels: &[u16]) -> Result<Vec<u32>, DataError> {
        let stream = self.stream().fork("partition", 0);
        Ok(assign(&self.partition, labels, self.workers, self.minimum_rows, stream)?)
    }
}

impl DataSpec {
    /// Makes the specification of dense rows. For sparse rows the caller sets the columns.
    pub(crate) fn of(
        source: &Source,
        settings: &Settings,
        standardisation: Standardisation,
    ) -> Self {
        Self {
            recipe: settings.recipe,
            source: source.describe(),
            synthetic: SyntheticSpec::of(source),
            evaluation_share: settings.evaluation_share,
            split_seed: settings.split_seed,
            partition: settings.partition.clone(),
            workers: settings.workers,
            minimum_rows: settings.minimum_rows,
            standardisation,
            sparse: None,
        }
    }

    /// Records that the data come from `source`, called `name`, wherever they were read.
    pub fn rename(&mut self, source: &Source, name: String) {
        self.synthetic = SyntheticSpec::of(source);
        self.source = name;
    }

    /// Returns the settings that this specification was resolved from, without
    /// [`Settings::evaluation_data`]: the server's evaluation rows do not affect the workers.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            recipe: self.recipe,
            evaluation_share: self.evaluation_share,
            evaluation_data: None,
            split_seed: self.split_seed,
            partition: self.partition.clone(),
            workers: self.workers,
            minimum_rows: self.minimum_rows,
            hashing: match self.sparse {
                Some(SparseSpec { columns, hashed: true }) => Hashing::To(columns),
                _ => Hashing::None,
            },
        }
    }

    /// Returns the shape of an example.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.sparse.map_or_else(|| self.recipe.shape(), SparseSpec::shape)
    }

    /// Returns the names of the classes.
    #[must_use]
    pub fn classes(&self) -> &'static [&'static str] {
        if self.sparse.is_some() { &sparse::CLASSES } else { &CLASSES }
    }

    /// Returns the source of synthetic data, which every worker can generate; `None` if the data
    /// are in files.
    #[must_use]
    pub fn synthetic_source(&self) -> Option<Source> {
        self.synthetic.map(|SyntheticSpec { rows, seed, columns }| match columns {
            None => Source::Synthetic { rows, seed },
            Some(columns) => Source::SyntheticSparse { rows, columns, seed },
        })
    }

    /// Makes the requested partitions from a worker's own copy of the data, in the order of
    /// `parts`. Also returns the fingerprint of the whole training split, to compare it with the
    /// server's.
    ///
    /// Reads the source twice. Besides the partitions it keeps only a class, an index and an owner
    /// per row.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, or the job does not have one of the partitions.
    pub fn prepare_parts(
        &self,
        source: &Source,
        parts: &[PartId],
    ) -> Result<(Vec<Examples>, Fingerprint), DataError> {
        if let Some(&part) = parts.iter().find(|part| part.0 >= self.workers) {
            return Err(DataError::Part { part, parts: self.workers });
        }
        let assignment = self.assignment(source)?;
        let mut mine: BTreeMap<u32, Examples> =
            parts.iter().map(|part| (part.0, Examples::new(self.shape()))).collect();
        for (part, examples) in &mut mine {
            examples.reserve(assignment.owners.iter().filter(|owner| *owner == part).count());
        }
        let mut fingerprinter = Fingerprinter::new(self.shape());
        let train = |owner| owner;
        self.rows(source, &assignment, train, |owner, encoded| {
            fingerprinter.add(encoded);
            mine.get_mut(&owner).map_or(Ok(()), |mine| add(mine, encoded))
        })?;
        let part = |part: &PartId| mine.remove(&part.0).unwrap_or_default();
        Ok((parts.iter().map(part).collect(), fingerprinter.finish()))
    }

    /// Passes encoded rows of `source` to `take`, in order. For each row, `choose` receives its
    /// worker, or none for an evaluation row, and returns a value to pass on to `take`, or none to
    /// skip the row. `assignment` must be of the same source.
    pub(crate) fn rows<T>(
        &self,
        source: &Source,
        assignment: &Assignment,
        choose: impl Fn(Option<u32>) -> Option<T>,
        take: impl FnMut(T, Row<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let Assignment { rows, train, owners } = assignment;
        let mut training = train.iter().zip(owners).peekable();
        let mut row = 0;
        let next = || {
            let owner = training.next_if(|&(&next, _)| next as usize == row);
            row += 1;
            choose(owner.map(|(_, &owner)| owner))
        };
        self.visit(source, next, take)?;
        // A source that changed may have fewer or more rows than when the assignment was made.
        if row != *rows {
            return Err(DataError::Changed { source: source.describe() });
        }
        Ok(())
    }

    /// Passes encoded rows of `source` to `take`, in order. For each row, `choose` returns a value
    /// to pass on to `take`, or none to skip the row.
    fn visit<T>(
        &self,
        source: &Source,
        mut choose: impl FnMut() -> Option<T>,
        mut take: impl FnMut(T, Row<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        if let Some(sparse) = self.sparse {
            let mut encoder = sparse.encoder();
            return source.visit_sparse(|row| match choose() {
                Some(chosen) => take(chosen, encoder.encode(row)),
                None => Ok(()),
            });
        }
        let mut encoder = Encoder::new(self.recipe, &self.standardisation)?;
        source.visit(self.recipe.columns(), |record| match choose() {
            Some(chosen) => take(chosen, encoder.encode(record)?),
            None => Ok(()),
        })
    }

    /// Encodes all rows of a source, in order, like the rows of the job, for evaluation.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, has no rows, or has rows of another kind.
    pub fn encode_all(&self, source: &Source) -> Result<Examples, DataError> {
        check_kind(source, self.sparse.is_some())?;
        let mut all = Examples::new(self.shape());
        let read = self.visit(source, || Some(()), |(), encoded| add(&mut all, encoded));
        check_rows(source, read.map(|()| all))
    }

    /// Assigns the rows to workers. Uses only the labels, so numeric features are not kept.
    pub(crate) fn assignment(&self, source: &Source) -> Result<Assignment, DataError> {
        let settings = self.settings();
        settings.check()?;
        let mut labels = Vec::new();
        if source.is_sparse() {
            source.visit_sparse(|row| {
                labels.push(row.class);
                Ok(())
            })?;
        } else {
            source.visit(Columns::NONE, |record| {
                labels.push(u16::from(record.attack.class()));
                Ok(())
            })?;
        }
        let rows = labels.len();
        let Split { train, .. } = settings.split(source, rows)?;
        let labels: Vec<u16> = train.iter().map(|&row| labels[row as usize]).collect();
        let owners = settings.owners(&labels)?;
        Ok(Assignment { rows, train, owners })
    }
}

/// The assignment of a source's rows to workers.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// Number of rows.
    pub(crate) rows: usize,
    /// Indices of the training rows, ascending.
    pub(crate) train: Vec<u32>,
    /// The worker of each training row.
    owners: Vec<u32>,
}

/// Adds a row to examples of its shape.
pub(crate) fn add(examples: &mut Examples, row: Row<'_>) -> Result<(), DataError> {
    let Row { dense, hot, columns, values, label } = row;
    match examples.shape().is_sparse() {
        true => examples.push_sparse(columns, values, label)?,
        false => examples.push(dense, hot, label)?,
    }
    Ok(())
}

/// Encodes records one at a time.
struct Encoder<'a> {
    recipe: RecipeName,
    standardisation: &'a Standardisation,
    dense: Vec<f32>,
    hot: [u16; 3],
}

impl<'a> Encoder<'a> {
    fn new(recipe: RecipeName, standardisation: &'a Standardisation) -> Result<Self, DataError> {
        let width = recipe.numerics().len();
        if standardisation.0.len() != width {
            let problem = "as many means and scales as the recipe has numeric features are needed";
            return Err(DataError::Specification { problem });
        }
        Ok(Self { recipe, standardisation, dense: vec![0.0; width], hot: [0; 3] })
    }

    fn encode(&mut self, record: &Record) -> Result<Row<'_>, DataError> {
        self.hot = self.recipe.encode(record, &mut self.dense);
        self.standardisation
            .apply(&mut self.dense)
            .map_err(|column| out_of_range(self.recipe, column))?;
        let (dense, hot, label) = (&self.dense, &self.hot, record.attack.class().into());
        Ok(Row { dense, hot, columns: &[], values: &[], label })
    }
}

pub(crate) fn out_of_range(recipe: RecipeName, column: usize) -> DataError {
    DataError::Range { column: numeric_name(recipe.numerics()[column].into()) }
}
