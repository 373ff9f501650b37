//! The server's data where the workers have their own copies: everything but the training rows.

use std::sync::Arc;

use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::{Fingerprint, Fingerprinter};

use crate::dataset::{Dataset, Origin};
use crate::error::DataError;
use crate::evaluation::EvaluationRows;
use crate::partition::PartitionSpec;
use crate::spec::{DataSpec, Settings, add};
use crate::standardise::{Standard, Standardisation};

/// The parts of a data set that a server needs if no worker requests rows from it.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The specification with which all workers prepare their partitions.
    pub spec: DataSpec,
    /// The evaluation examples.
    pub evaluation: Arc<Examples>,
    /// Number and origin of the evaluation examples.
    pub evaluation_rows: EvaluationRows,
    /// The fingerprint of the training split.
    pub fingerprint: Fingerprint,
}

impl Outline {
    /// Reads `source` and prepares it as `settings` say. The result equals the outline of
    /// [`Prepared::load`](crate::Prepared::load), bit for bit.
    ///
    /// Reads the source up to four times. Keeps only the evaluation examples, and meanwhile a class
    /// and a few numbers per row.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read or changes meanwhile, a setting is out of range,
    /// or the partition leaves a worker without rows.
    pub fn read(source: &dyn Dataset, settings: &Settings) -> Result<Self, DataError> {
        settings.check()?;
        let given = settings.evaluation_data.as_deref();
        let stamps = || (source.stamp(), given.map(|given| given.stamp()));
        let before = stamps();
        let origin = Origin::of(source);
        let schema = source.schema(&settings.features)?;
        let columns = schema.standard_columns();
        // Leaves the columns unchanged until the statistics are fitted.
        let unchanged = Standardisation(vec![Standard { mean: 0.0, scale: 1.0 }; columns]);
        let values = source.values()?;
        let mut spec = DataSpec::of(origin.clone(), schema, settings, unchanged, values);
        if settings.partition == PartitionSpec::Local {
            let outline = Self::local(spec, source, settings)?;
            return match stamps() == before {
                true => Ok(outline),
                false => Err(DataError::Changed { data: source.describe() }),
            };
        }
        let assignment = spec.assignment(source)?;
        if values.is_none() {
            spec.values = Standard::of_labels(spec.shape().target, |take| {
                let train = |owner| owner;
                spec.rows(source, &assignment, train, |_, row| {
                    take(row.label);
                    Ok(())
                })
            })?;
        }
        if columns > 0 {
            spec.standardisation = Standardisation::fit(columns, |take| {
                let train = |owner| owner;
                spec.rows(source, &assignment, train, |_, row| {
                    take(row.dense);
                    Ok(())
                })
            })?;
        }
        let mut held_out = Examples::new(spec.shape());
        if given.is_none() {
            let rows = assignment.rows - assignment.train.len();
            let advice = "hold out a smaller evaluation-share, or give evaluation-data";
            spec.check_memory(source, rows as u64, "evaluation rows", advice)?;
            held_out.reserve(rows);
        }
        let mut fingerprinter = Fingerprinter::new(spec.shape());
        spec.rows(source, &assignment, Some, |owner, row| match owner {
            Some(_) => {
                fingerprinter.add(row);
                Ok(())
            }
            None if given.is_some() => Ok(()),
            None => add(&mut held_out, row),
        })?;
        let given = match given {
            Some(given) => Some((given.describe(), spec.encode_all(given)?)),
            None => None,
        };
        let held_out = (&origin, held_out, settings.evaluation_share);
        let (evaluation, evaluation_rows) = EvaluationRows::of(held_out, given);
        if stamps() != before {
            return Err(DataError::Changed { data: source.describe() });
        }
        let evaluation = Arc::new(spec.in_unit(evaluation));
        let fingerprint = fingerprinter.finish();
        Ok(Self { spec, evaluation, evaluation_rows, fingerprint })
    }

    /// The outline where each worker has rows of its own: the statistics are those of the
    /// evaluation rows, unless `source` has a profile.
    fn local(
        mut spec: DataSpec,
        source: &dyn Dataset,
        settings: &Settings,
    ) -> Result<Self, DataError> {
        let (all, target) = (|| Some(()), spec.shape().target);
        let evaluation = match settings.evaluation_data.as_deref() {
            None => None,
            Some(given) => {
                if spec.values.is_none() {
                    spec.values = Standard::of_labels(target, |take| {
                        spec.visit(given, all, |(), row| {
                            take(row.label);
                            Ok(())
                        })
                    })?;
                }
                spec.standardisation =
                    Standardisation::fit(spec.schema.standard_columns(), |take| {
                        spec.visit(given, all, |(), row| {
                            take(row.dense);
                            Ok(())
                        })
                    })?;
                Some((given.describe(), spec.encode_all(given)?))
            }
        };
        let none = (&Origin::of(source), Examples::new(spec.shape()), settings.evaluation_share);
        let (evaluation, evaluation_rows) = EvaluationRows::of(none, evaluation);
        let evaluation = Arc::new(spec.in_unit(evaluation));
        Ok(Self { spec, evaluation, evaluation_rows, fingerprint: Fingerprint::unknown() })
    }
}
