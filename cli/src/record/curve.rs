//! curve.csv: a row for each evaluation, with its point on the curve and its numbers.

#[cfg(feature = "pictures")]
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use pstrain_compute::evaluation::{CONSENSUS_DISTANCE, Evaluation, Figures, Metric, metrics};
use pstrain_compute::examples::Target;
use pstrain_policy::job::Job;
use pstrain_roles::node::Point;
use serde::{Deserialize, Serialize};

use super::lines::{cut, so_far};

/// Columns of every curve before the main metric, and their meaning.
pub(crate) const POINT: [(&str, &str); 4] = [
    ("version", "Version of the parameters: updates made"),
    ("samples", "Examples of the applied gradients"),
    ("epoch", "The same in passes over the training rows"),
    ("time_s", "Training time, from the first parameters sent"),
];
/// Columns of every curve after the main metric, and their meaning.
pub(crate) const LOSSES: [(&str, &str); 2] = [
    ("loss", "Mean loss on the evaluation rows"),
    ("objective", "The loss with the penalty of `proximal = l1`"),
];

/// The curve of a run that is being written.
#[derive(Debug)]
pub(super) struct Curve {
    writer: csv::Writer<File>,
    columns: Columns,
}

/// The columns of a curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Columns {
    /// Factor of the L1 penalty in the objective.
    lambda: f32,
    /// The kind of the labels.
    target: Target,
    /// The metrics with a column, the main one first; none before the first evaluation, because a
    /// compute process names its own.
    metrics: Option<Vec<String>>,
}

/// The length of the file, and its columns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptCurve {
    length: u64,
    columns: Columns,
}

impl Curve {
    pub(super) fn create(path: &Path, job: &Job) -> csv::Result<Self> {
        let (lambda, target) = (job.update.l1(), job.data.shape.target);
        let columns = Columns { lambda, target, metrics: None };
        Ok(Self { writer: csv::Writer::from_path(path)?, columns })
    }

    /// Reopens a curve at the length that was kept.
    pub(super) fn go_on(path: &Path, KeptCurve { length, columns }: KeptCurve) -> io::Result<Self> {
        Ok(Self { writer: csv::Writer::from_writer(cut(path, length)?), columns })
    }

    /// Returns the state for [`Self::go_on`], and the file that must be synced for it to hold.
    pub(super) fn so_far(&mut self) -> io::Result<(KeptCurve, File)> {
        self.writer.flush()?;
        let (length, file) = so_far(self.writer.get_ref())?;
        Ok((KeptCurve { length, columns: self.columns.clone() }, file))
    }

    /// Writes an evaluation; before the first one, the names of the columns.
    pub(super) fn note(&mut self, point: &Point, evaluation: &Evaluation) -> io::Result<()> {
        if self.columns.metrics.is_none() {
            let metrics = self.columns.metrics.insert(names(self.columns.target, evaluation));
            self.writer.write_record(header(metrics))?;
        }
        self.writer.write_record(self.columns.row(point, evaluation))?;
        self.writer.flush()
    }
}

/// Returns the metrics of an evaluation with a column: those of the target, or the names that a
/// compute process gives.
fn names(target: Target, evaluation: &Evaluation) -> Vec<String> {
    let mut names = names_of_task(target, evaluation);
    let distance = evaluation.consensus_distance.map(|_| CONSENSUS_DISTANCE.to_owned());
    names.extend(distance.filter(|name| !names.contains(name)));
    names
}

fn names_of_task(target: Target, evaluation: &Evaluation) -> Vec<String> {
    match &evaluation.figures {
        Figures::Named(values) if evaluation.has_own_metrics() => {
            let is_taken =
                |name: &str| POINT.iter().chain(&LOSSES).any(|(taken, _)| *taken == name);
            values.keys().filter(|name| !is_taken(name)).cloned().collect()
        }
        Figures::Classes(_) if evaluation.has_own_metrics() => {
            evaluation.named().into_iter().map(|(name, _)| name).collect()
        }
        _ => metrics(target).map(|metric| metric.name.to_owned()).collect(),
    }
}

/// Returns the metrics of an evaluation that have a column, with their values.
#[cfg(feature = "pictures")]
pub(crate) fn metric_values(
    target: Target,
    evaluation: &Evaluation,
) -> BTreeMap<String, Option<f64>> {
    let valued = |name: String| {
        let value = value_of(&name, evaluation).filter(|value| value.is_finite());
        (name, value)
    };
    names(target, evaluation).into_iter().map(valued).collect()
}

/// Returns the value of the metric called `name`.
fn value_of(name: &str, evaluation: &Evaluation) -> Option<f64> {
    let of_task = match &evaluation.figures {
        Figures::Named(values) => values.get(name).copied(),
        _ => Metric::find(name).and_then(|metric| metric.value(evaluation)),
    };
    of_task.or_else(|| evaluation.consensus_distance.filter(|_| name == CONSENSUS_DISTANCE))
}

/// Returns the names of the columns. The main metric is the first of the numbers, the other metrics
/// are the last.
fn header(metrics: &[String]) -> Vec<&str> {
    let (main, others) = metrics.split_at(metrics.len().min(1));
    let main = main.iter().map(String::as_str);
    let others = others.iter().map(String::as_str);
    let (point, losses) = (POINT.map(|(name, _)| name), LOSSES.map(|(name, _)| name));
    point.into_iter().chain(main).chain(losses).chain(others).collect()
}

impl Columns {
    /// Returns the row of an evaluation.
    fn row(&self, point: &Point, evaluation: &Evaluation) -> Vec<String> {
        let value = |name: &String| number(value_of(name, evaluation));
        let at = [
            point.version.to_string(),
            point.samples.to_string(),
            format!("{:.4}", point.epoch),
            format!("{:.6}", point.time.as_secs_f64()),
        ];
        let losses = [evaluation.loss, evaluation.objective(self.lambda)];
        let metrics = self.metrics.as_deref().unwrap_or_default();
        let (main, others) = metrics.split_at(metrics.len().min(1));
        at.into_iter()
            .chain(main.iter().map(value))
            .chain(losses.map(|loss| number(Some(loss))))
            .chain(others.iter().map(value))
            .collect()
    }
}

/// Formats a number; empty if there is none or it is not finite, as after divergence.
fn number(value: Option<f64>) -> String {
    let finite = value.filter(|value| value.is_finite());
    finite.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pstrain_compute::id::Version;

    use super::*;

    #[test]
    fn columns_are_the_metrics_of_the_target_or_the_names_of_a_process() {
        let of = |named: &[(&str, f64)]| {
            let named = named.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
            let figures = Figures::Named(named);
            Evaluation { examples: 9, loss: 4.0, figures, ..Evaluation::default() }
        };
        let target = Target::Value;
        let own = of(&[("perplexity", 54.5), ("loss", 1.0), ("bits", f64::NAN)]);
        let metrics = names(target, &own);
        let wanted =
            ["version", "samples", "epoch", "time_s", "bits", "loss", "objective", "perplexity"];
        assert_eq!(header(&metrics), wanted);
        let columns = Columns { lambda: 0.0, target, metrics: Some(metrics) };
        let point =
            Point { version: Version(1), samples: 1, epoch: 0.5, time: Duration::from_secs(1) };
        let row = |evaluation| columns.row(&point, &evaluation)[4..].join(",");
        assert_eq!(row(own), ",4,4,54.5");
        assert_eq!(row(of(&[("other", 1.0), ("bits", 2.0)])), "2,4,4,");
        assert!(names(target, &of(&[])).is_empty());
        assert_eq!(names(target, &Evaluation::default()), ["rmse", "mae", "r2"]);
    }
}
