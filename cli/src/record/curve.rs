//! The columns of curve.csv: the point of an evaluation, then its numbers.

use pstrain_compute::evaluation::{Evaluation, Metric, metrics};
use pstrain_compute::examples::Target;
use pstrain_roles::node::Point;

/// Returns the names of the columns. The main metric of the target is the first of the numbers, its
/// other metrics are the last.
pub(super) fn header(target: Target) -> Vec<&'static str> {
    let name = |metric: &Metric| metric.name;
    let point = ["version", "samples", "epoch", "time_s"].into_iter();
    let main = metrics(target).take(1).map(name);
    point
        .chain(main)
        .chain(["loss", "objective"])
        .chain(metrics(target).skip(1).map(name))
        .collect()
}

/// Returns the row of an evaluation; `lambda` is the penalty of the objective.
pub(super) fn row(
    target: Target,
    point: &Point,
    evaluation: &Evaluation,
    lambda: f32,
) -> Vec<String> {
    let value = |metric: &Metric| number(metric.value(evaluation));
    let at = [
        point.version.to_string(),
        point.samples.to_string(),
        format!("{:.4}", point.epoch),
        format!("{:.6}", point.time.as_secs_f64()),
    ];
    let losses = [evaluation.loss, evaluation.objective(lambda)].map(|loss| number(Some(loss)));
    at.into_iter()
        .chain(metrics(target).take(1).map(value))
        .chain(losses)
        .chain(metrics(target).skip(1).map(value))
        .collect()
}

/// Formats a number; empty if there is none or it is not finite, as after divergence.
fn number(value: Option<f64>) -> String {
    let finite = value.filter(|value| value.is_finite());
    finite.map_or_else(String::new, |value| value.to_string())
}
