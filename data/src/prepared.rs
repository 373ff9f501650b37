//! The server's side: reads, splits, standardises and encodes the data.

use std::iter;
use std::sync::Arc;

use pstrain_compute::examples::{Examples, Label, Row, Target};
use pstrain_compute::id::PartId;

use pstrain_compute::fingerprint::Fingerprint;

use crate::dataset::{Dataset, Origin, Schema};
use crate::error::DataError;
use crate::evaluation::{EvaluationRows, checked};
use crate::memory;
use crate::outline::Outline;
use crate::partition::{PartitionError, PartitionSpec, Parts, Skew, groups, groups_of};
use crate::spec::{DataSpec, Settings, add, row_bytes};
use crate::split::Split;
use crate::standardise::{Standard, Standardisation};

/// A data set that is ready for training.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The specification with which all workers prepare their partitions.
    pub spec: DataSpec,
    /// The training split.
    pub train: Examples,
    /// The evaluation examples.
    pub evaluation: Arc<Examples>,
    /// Number and origin of the evaluation examples.
    pub evaluation_rows: EvaluationRows,
    /// The fingerprint of the training split.
    pub fingerprint: Fingerprint,
    parts: Parts,
}

/// All encoded rows of a source. Runs of an experiment that differ in other settings share them.
#[derive(Clone, Debug)]
pub struct Encoded {
    origin: Origin,
    schema: Schema,
    /// The names of the dense columns.
    columns: Vec<String>,
    all: Examples,
    /// Number of rows of each worker, if each has rows of its own; `all` has them in this order.
    local: Vec<u32>,
    /// Mean and scale of the numbers to predict, if a profile has them.
    values: Option<Standard>,
    /// Separate evaluation rows, with the name of their source.
    evaluation: Option<(String, Examples)>,
}

impl Encoded {
    /// Reads and encodes `source` as `settings` say, and the separate evaluation rows, if there are
    /// any.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read.
    pub fn read(source: &dyn Dataset, settings: &Settings) -> Result<Self, DataError> {
        let schema = source.schema(&settings.features)?;
        let (all, local) = match (&settings.partition, source.local()) {
            (PartitionSpec::Local, parts) if parts.len() == settings.workers as usize => {
                encoded_local(parts, &schema)?
            }
            (PartitionSpec::Local, _) => return Err(PartitionError::Local.into()),
            _ => (encoded(source, &schema)?, Vec::new()),
        };
        let given = |given: &Arc<dyn Dataset>| {
            let rows = checked(&**given, &schema, || encoded(&**given, &schema))?;
            Ok::<_, DataError>((given.describe(), rows))
        };
        let evaluation = settings.evaluation_data.as_ref().map(given).transpose()?;
        let (columns, values) = (source.columns(&schema), source.values()?);
        Ok(Self { origin: Origin::of(source), schema, columns, all, local, values, evaluation })
    }
}

/// All rows of a source, encoded and not yet standardised.
fn encoded(source: &dyn Dataset, schema: &Schema) -> Result<Examples, DataError> {
    let mut all = Examples::new(schema.shape);
    add_all(source, schema, &mut all)?;
    Ok(all)
}

/// The rows of workers that each have their own, as [`encoded`], and their numbers.
fn encoded_local(
    parts: &[Arc<dyn Dataset>],
    schema: &Schema,
) -> Result<(Examples, Vec<u32>), DataError> {
    let (mut all, mut rows) = (Examples::new(schema.shape), Vec::new());
    for part in parts {
        let before = all.len();
        DataError::of_local(|| {
            part.check_columns(schema)?;
            add_all(&**part, schema, &mut all)
        })?;
        let its = (all.len() - before) as u64;
        rows.push(Settings::check_local_rows(&**part, its)?);
    }
    Ok((all, rows))
}

/// Adds all rows of a source, encoded and not yet standardised.
fn add_all(source: &dyn Dataset, schema: &Schema, all: &mut Examples) -> Result<(), DataError> {
    if let Some(rows) = source.rows() {
        // Reserves for at most 2^20 rows: a number of rows that exceeds the memory then fails while
        // rows are added, not in one huge allocation.
        all.reserve(Settings::check_rows(&Origin::of(source), rows)?.min(1 << 20) as usize);
    }
    let mut growth = Growth { bytes: 0, checked: FIRST_CHECK };
    source.visit(schema, &mut |row| {
        growth.add(source, all, row)?;
        add(all, row)
    })
}

/// Bytes after which the memory is checked first.
const FIRST_CHECK: u64 = 1 << 20;

/// The memory of rows whose number is not known: each time it doubles, twice as much must be left,
/// since buffers that grow are copied.
struct Growth {
    bytes: u64,
    checked: u64,
}

impl Growth {
    /// Refuses a row if the rows so far leave too little memory.
    fn add(&mut self, source: &dyn Dataset, all: &Examples, row: Row<'_>) -> Result<(), DataError> {
        self.bytes += row_bytes(all.shape()) + 8 * row.columns.len() as u64;
        if self.bytes < self.checked {
            return Ok(());
        }
        self.checked = 2 * self.bytes;
        memory::check(2 * self.bytes).map_err(|shortage| DataError::Memory {
            data: source.describe(),
            rows: all.len() as u64,
            what: "rows are read, and to hold twice as many, new buffers",
            advice: "let workers read a plain file of their own (data-from = own), or take a \
                     machine with more memory",
            shortage,
        })
    }
}

impl Prepared {
    /// Reads `source` and prepares it as `settings` say.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, a setting is out of range, or the partition
    /// leaves a worker without rows.
    pub fn load(source: &dyn Dataset, settings: &Settings) -> Result<Self, DataError> {
        settings.check()?;
        Self::made_of(Encoded::read(source, settings)?, settings)
    }

    /// Splits, standardises and partitions rows that were already read. Features and evaluation
    /// data are those of `encoded`; `settings` do not change them.
    ///
    /// # Errors
    /// [`DataError`] if a setting is out of range, or the partition leaves a worker without rows.
    pub fn of(encoded: &Encoded, settings: &Settings) -> Result<Self, DataError> {
        settings.check()?;
        Self::made_of(encoded.clone(), settings)
    }

    /// Prepares `encoded` in place: the training rows are what remains after the evaluation rows
    /// are extracted, because small servers have no memory for a second copy.
    fn made_of(encoded: Encoded, settings: &Settings) -> Result<Self, DataError> {
        let Encoded { origin, schema, columns, all: mut train, local, .. } = encoded;
        let given = encoded.evaluation;
        let Split { evaluation, .. } = settings.split(&origin, train.len())?;
        let held_out = (&origin, train.extract(&evaluation), settings.evaluation_share);
        let (mut evaluation, evaluation_rows) = EvaluationRows::of(held_out, given);
        let is_local = settings.partition == PartitionSpec::Local;
        // Rows that are each worker's own are unknown to the server.
        let known = if is_local { &evaluation } else { &train };
        let standardisation = Standardisation::fit(schema.standard_columns(), |take| {
            (0..known.len()).for_each(|row| take(known.row(row).dense));
            Ok::<_, DataError>(())
        })?;
        let target = schema.shape.target;
        let values = match encoded.values {
            Some(values) => Some(values),
            None => Standard::of_labels(target, |take| {
                known.labels().for_each(take);
                Ok::<_, DataError>(())
            })?,
        };
        for row in train.dense_mut().chain(evaluation.dense_mut()) {
            let out_of_range = |column: usize| DataError::range(&columns, column);
            standardisation.apply(row).map_err(out_of_range)?;
        }
        let owners: Vec<u32> = match is_local {
            true => {
                let of = |(owner, rows)| iter::repeat_n(owner, rows as usize);
                (0..).zip(local).flat_map(of).collect()
            }
            false => settings.owners(&train.labels().collect::<Vec<Label>>(), target)?,
        };
        let parts = Parts::of(&owners, settings.workers);
        if let Some(values) = values {
            train.change_values(|value| values.of(value));
            evaluation.change_values(|value| values.of(value));
            if train.labels().chain(evaluation.labels()).any(|label| !label.fits(target)) {
                return Err(DataError::of_label());
            }
        }
        let fingerprint = if is_local { Fingerprint::unknown() } else { Fingerprint::of(&train) };
        let spec = DataSpec::of(origin, schema, settings, standardisation, values);
        let (train, evaluation) = (spec.in_unit(train), Arc::new(spec.in_unit(evaluation)));
        Ok(Self { spec, train, evaluation, evaluation_rows, fingerprint, parts })
    }

    /// Returns everything but the training rows.
    #[must_use]
    pub fn outline(&self) -> Outline {
        let Self { spec, evaluation, evaluation_rows, fingerprint, .. } = self;
        let (spec, evaluation) = (spec.clone(), Arc::clone(evaluation));
        let (evaluation_rows, fingerprint) = (evaluation_rows.clone(), fingerprint.clone());
        Outline { spec, evaluation, evaluation_rows, fingerprint }
    }

    /// Returns one partition, in the order of the source. It equals the result of
    /// [`DataSpec::prepare_parts`] for the same data, bit for bit. Empty if the job has no such
    /// worker.
    #[must_use]
    pub fn partition(&self, part: impl Into<PartId>) -> Examples {
        let PartId(part) = part.into();
        self.train.select(self.parts.rows(part))
    }

    /// Returns some partitions, in the order of `parts`, each as from [`Self::partition`].
    #[must_use]
    pub fn partitions(&self, parts: &[PartId]) -> Vec<Examples> {
        parts.iter().map(|part| self.partition(*part)).collect()
    }

    /// Measures how much the workers' partitions differ.
    #[must_use]
    pub fn skew(&self) -> Skew {
        let (labels, target) =
            (self.train.labels().collect::<Vec<Label>>(), self.spec.shape().target);
        let groups_of_rows = groups_of(&labels, target);
        let owners = self.parts.owners();
        Skew::of(&groups_of_rows, groups(target) as usize, &owners, self.spec.workers)
    }

    /// Returns the names of the groups by which [`Self::skew`] counts rows: the classes, or the
    /// deciles of a number to predict.
    #[must_use]
    pub fn groups(&self) -> Vec<String> {
        match self.spec.shape().target {
            Target::Classes(_) => self.spec.classes().to_vec(),
            target => (1..=groups(target)).map(|decile| format!("decile {decile}")).collect(),
        }
    }
}
