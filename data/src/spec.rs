//! The resolved data part of a job: a worker derives its partition from it and its own copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use pstrain_compute::examples::{Examples, Label, Row, Shape, Target};
use pstrain_compute::fingerprint::{Fingerprint, Fingerprinter};
use pstrain_compute::id::PartId;
use pstrain_compute::rng::Stream;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, Features, Origin, Schema};
use crate::error::DataError;
use crate::evaluation::checked;
use crate::memory;
use crate::partition::{PartitionSpec, assign, groups, groups_of};
use crate::split::{Split, split};
use crate::standardise::{Standard, Standardisation};

/// User settings for splitting, encoding and partitioning the data.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The features that the model sees.
    pub features: Features,
    /// The fraction of rows that is held out for evaluation, from 0 up to but not including 1.
    pub evaluation_share: f64,
    /// A separate source whose rows are all used for evaluation. The held-out rows are then neither
    /// trained nor evaluated on.
    pub evaluation_data: Option<Arc<dyn Dataset>>,
    /// The seed of the split and of the partition.
    pub split_seed: u64,
    /// How the training rows are assigned to the workers.
    pub partition: PartitionSpec,
    /// Number of parts that the training rows are cut into: one for each worker, or shards.
    pub workers: u32,
    /// Minimum rows of every worker under a `dirichlet` partition, at least 1.
    pub minimum_rows: u32,
}

impl Default for Settings {
    /// The reference learning task: 93 features, a quarter for evaluation, two IID workers.
    fn default() -> Self {
        Self {
            features: Features::default(),
            evaluation_share: 0.25,
            evaluation_data: None,
            split_seed: 1,
            partition: PartitionSpec::default(),
            workers: 2,
            minimum_rows: 1,
        }
    }
}

/// The data of a job, resolved by the server. It travels to the workers and contains no path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// The columns and labels that the model sees.
    pub schema: Schema,
    /// A description of the server's source.
    pub source: String,
    /// The words by which a worker can generate the rows itself; none if they are in files.
    pub generated: Option<String>,
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
    /// Mean and scale of the numbers to predict; `None` for classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Standard>,
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
    pub(crate) fn check_rows(source: &Origin, rows: u64) -> Result<u32, DataError> {
        let allowed = "at most 4294967295 can be trained on";
        u32::try_from(rows).map_err(|_| DataError::Rows {
            data: source.name.clone(),
            rows,
            allowed,
        })
    }

    /// Refuses a worker's own rows if there are none, or more than can be numbered.
    pub(crate) fn check_local_rows(source: &dyn Dataset, rows: u64) -> Result<u32, DataError> {
        let allowed = "at least one is needed to train on";
        match rows {
            0 => Err(DataError::Rows { data: source.describe(), rows, allowed }),
            _ => Self::check_rows(&Origin::of(source), rows),
        }
    }

    /// Splits `rows` rows into training rows and evaluation rows, each in ascending order.
    pub(crate) fn split(&self, source: &Origin, rows: usize) -> Result<Split, DataError> {
        let rows = Self::check_rows(source, rows as u64)?;
        let parts = split(rows, self.evaluation_share, self.stream().fork("split", 0));
        if parts.train.is_empty() {
            let allowed = "at least one is needed to train on";
            return Err(DataError::Rows { data: source.name.clone(), rows: rows.into(), allowed });
        }
        Ok(parts)
    }

    /// Returns the worker of each training row, given the rows' labels.
    pub(crate) fn owners(&self, labels: &[Label], target: Target) -> Result<Vec<u32>, DataError> {
        let (workers, least) = (self.workers, self.minimum_rows);
        let stream = self.stream().fork("partition", 0);
        let groups = (&groups_of(labels, target)[..], groups(target));
        Ok(assign(&self.partition, groups, workers, least, stream)?)
    }
}

impl DataSpec {
    pub(crate) fn of(
        origin: Origin,
        schema: Schema,
        settings: &Settings,
        standardisation: Standardisation,
        values: Option<Standard>,
    ) -> Self {
        Self {
            schema,
            source: origin.name,
            generated: origin.words,
            evaluation_share: settings.evaluation_share,
            split_seed: settings.split_seed,
            partition: settings.partition.clone(),
            workers: settings.workers,
            minimum_rows: settings.minimum_rows,
            standardisation,
            values,
        }
    }

    /// Records that the data come from `source`, called `name`, wherever they were read.
    pub fn rename(&mut self, source: &dyn Dataset, name: String) {
        self.generated = source.words();
        self.source = name;
    }

    /// Returns the settings by which rows are split and assigned. The others do not affect workers.
    fn settings(&self) -> Settings {
        Settings {
            features: Features::default(),
            evaluation_share: self.evaluation_share,
            evaluation_data: None,
            split_seed: self.split_seed,
            partition: self.partition.clone(),
            workers: self.workers,
            minimum_rows: self.minimum_rows,
        }
    }

    /// Returns the numbers of the rows that are held out for evaluation, of `rows` rows.
    #[must_use]
    pub fn held_out(&self, rows: u32) -> Vec<u32> {
        let stream = self.settings().stream().fork("split", 0);
        split(rows, self.evaluation_share, stream).evaluation
    }

    /// Returns the shape of an example.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.schema.shape
    }

    /// Returns the names of the classes; none if a number is predicted.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.schema.classes
    }

    /// Returns the source that every worker can generate; `None` if the data are in files.
    ///
    /// # Errors
    /// [`DataError::Format`] if this program cannot generate it.
    pub fn generated(&self) -> Result<Option<Arc<dyn Dataset>>, DataError> {
        let open = |words: &String| {
            // The words have the seed.
            crate::open(words, 0).map_err(|error| DataError::format(format!("{words}: {error}")))
        };
        self.generated.as_ref().map(open).transpose()
    }

    /// Makes the requested partitions from a worker's own copy of the data, in the order of
    /// `parts`. Also returns the fingerprint of the whole training split, to compare it with the
    /// server's.
    ///
    /// Reads the source twice. Besides the partitions it keeps only a label, an index and an owner
    /// per row.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, or the job does not have one of the partitions.
    pub fn prepare_parts(
        &self,
        source: &dyn Dataset,
        parts: &[PartId],
    ) -> Result<(Vec<Examples>, Fingerprint), DataError> {
        if let Some(&part) = parts.iter().find(|part| part.0 >= self.workers) {
            return Err(DataError::Part { part, parts: self.workers });
        }
        if self.partition == PartitionSpec::Local {
            return self.prepare_local(source);
        }
        let assignment = self.assignment(source)?;
        let mut counts = vec![0_u32; self.workers as usize];
        assignment.owners.iter().for_each(|owner| counts[*owner as usize] += 1);
        let rows = parts.iter().map(|part| u64::from(counts[part.0 as usize])).sum();
        self.check_memory(source, rows, OWN_ROWS, MORE_WORKERS)?;
        let mut mine: BTreeMap<u32, Examples> =
            parts.iter().map(|part| (part.0, Examples::new(self.shape()))).collect();
        for (part, examples) in &mut mine {
            examples.reserve(counts[*part as usize] as usize);
        }
        let mut fingerprinter = Fingerprinter::new(self.shape());
        let train = |owner| owner;
        self.rows(source, &assignment, train, |owner, encoded| {
            fingerprinter.add(encoded);
            mine.get_mut(&owner).map_or(Ok(()), |mine| add(mine, encoded))
        })?;
        let part = |part: &PartId| self.in_unit(mine.remove(&part.0).unwrap_or_default());
        Ok((parts.iter().map(part).collect(), fingerprinter.finish()))
    }

    /// Makes the only partition of a worker that has rows of its own: all rows of `source`.
    fn prepare_local(
        &self,
        source: &dyn Dataset,
    ) -> Result<(Vec<Examples>, Fingerprint), DataError> {
        self.check_kind(source)?;
        let mut rows = 0_u64;
        DataError::of_local(|| {
            source.check_columns(&self.schema)?;
            source.visit_labels(&self.schema, &mut |_| rows += 1)
        })?;
        Settings::check_local_rows(source, rows)?;
        self.check_memory(source, rows, OWN_ROWS, "take a machine with more memory")?;
        let (mut all, mut fingerprinter) =
            (Examples::new(self.shape()), Fingerprinter::new(self.shape()));
        all.reserve(rows as usize);
        DataError::of_local(|| {
            let next = || Some(());
            self.visit(source, next, |(), encoded| {
                fingerprinter.add(encoded);
                add(&mut all, encoded)
            })
        })?;
        Ok((vec![self.in_unit(all)], fingerprinter.finish()))
    }

    /// Passes encoded rows of `source` to `take`, in order. For each row, `choose` receives its
    /// worker, or none for an evaluation row, and returns a value to pass on to `take`, or none to
    /// skip the row. `assignment` must be of the same source.
    pub(crate) fn rows<T>(
        &self,
        source: &dyn Dataset,
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
            return Err(DataError::Changed { data: source.describe() });
        }
        Ok(())
    }

    /// Passes encoded rows of `source` to `take`, in order. For each row, `choose` returns a value
    /// to pass on to `take`, or none to skip the row.
    pub(crate) fn visit<T>(
        &self,
        source: &dyn Dataset,
        mut choose: impl FnMut() -> Option<T>,
        mut take: impl FnMut(T, Row<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        self.check_kind(source)?;
        let mut dense = vec![0.0; self.shape().dense as usize];
        if self.standardisation.0.len() != self.schema.standard_columns() {
            let problem = "as many means and scales as standardised columns are needed";
            return Err(DataError::Specification { problem });
        }
        source.visit(&self.schema, &mut |row| {
            let Some(chosen) = choose() else { return Ok(()) };
            if row.dense.len() != dense.len() {
                let problem = "the rows have another number of dense columns than the schema";
                return Err(DataError::Specification { problem });
            }
            dense.copy_from_slice(row.dense);
            let out_of_range = |column| DataError::range(&source.columns(&self.schema), column);
            self.standardisation.apply(&mut dense).map_err(out_of_range)?;
            let label = match (row.label, self.values) {
                (Label::Value(value), Some(values)) => Label::Value(values.of(value)),
                (label, _) => label,
            };
            if matches!(label, Label::Value(value) if !value.is_finite()) {
                return Err(DataError::of_label());
            }
            take(chosen, Row { dense: &dense, label, ..row })
        })
    }

    /// Refuses rows of `source` that take more memory than is left. Entries of sparse rows are not
    /// counted: their number is not known yet.
    pub(crate) fn check_memory(
        &self,
        source: &dyn Dataset,
        rows: u64,
        what: &'static str,
        advice: &'static str,
    ) -> Result<(), DataError> {
        memory::check(rows.saturating_mul(row_bytes(self.shape()))).map_err(|shortage| {
            DataError::Memory { data: source.describe(), rows, what, advice, shortage }
        })
    }

    fn check_kind(&self, source: &dyn Dataset) -> Result<(), DataError> {
        let (kind, wanted) = (source.kind(), &self.schema.kind);
        if kind == wanted {
            return Ok(());
        }
        Err(DataError::Kind { data: source.describe(), kind, wanted: wanted.clone() })
    }

    /// Encodes all rows of a source, in order, like the rows of the job, for evaluation.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, has no rows, or has rows of another kind.
    pub fn encode_all(&self, source: &dyn Dataset) -> Result<Examples, DataError> {
        checked(source, &self.schema, || {
            let mut all = Examples::new(self.shape());
            self.visit(source, || Some(()), |(), encoded| add(&mut all, encoded))?;
            Ok(self.in_unit(all))
        })
    }

    /// The examples, with the unit in which errors of their predictions are reported.
    pub(crate) fn in_unit(&self, examples: Examples) -> Examples {
        match self.values {
            Some(values) => examples.in_unit(values.scale),
            None => examples,
        }
    }

    /// Assigns the rows to workers. Uses only the labels.
    pub(crate) fn assignment(&self, source: &dyn Dataset) -> Result<Assignment, DataError> {
        let settings = self.settings();
        settings.check()?;
        self.check_kind(source)?;
        let mut labels = Vec::new();
        source.visit_labels(&self.schema, &mut |label| labels.push(label))?;
        let rows = labels.len();
        memory::check(rows as u64 * ASSIGNMENT_BYTES).map_err(|shortage| DataError::Memory {
            data: source.describe(),
            rows: rows as u64,
            what: "labels and their assignment to workers",
            advice: "cut the data into files, or take a machine with more memory",
            shortage,
        })?;
        let Split { train, .. } = settings.split(&Origin::of(source), rows)?;
        // In place, as the indices ascend: no second copy.
        for (place, &row) in train.iter().enumerate() {
            labels[place] = labels[row as usize];
        }
        labels.truncate(train.len());
        let owners = settings.owners(&labels, self.shape().target)?;
        Ok(Assignment { rows, train, owners })
    }
}

/// Rows that a worker keeps, in errors.
const OWN_ROWS: &str = "rows of this node";
/// The cure for too many of them.
const MORE_WORKERS: &str = "let more workers share the rows, or take a machine with more memory";

/// Bytes per row while rows are assigned: an index in order and one in the order of the draw, a
/// label with its group and a worker, and what the partition draws from.
const ASSIGNMENT_BYTES: u64 = 4 + 4 + size_of::<Label>() as u64 + 2 + 4 + 4;

/// Bytes of a row in memory, without the entries of a sparse one.
pub(crate) fn row_bytes(shape: Shape) -> u64 {
    // Indices and class take two bytes each, in words of four; a number to predict takes a word.
    let (words, halves) = match shape.target {
        Target::Classes(_) => (u64::from(shape.dense), u64::from(shape.hot) + 1),
        Target::Value => (u64::from(shape.dense) + 1, shape.hot.into()),
    };
    4 * (words + halves.div_ceil(2))
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
