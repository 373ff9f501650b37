//! The columns of curve.csv: the point of an evaluation, then its numbers.

use pstrain_compute::evaluation::{Evaluation, Metric, metrics};
use pstrain_compute::examples::Target;
use pstrain_roles::node::Point;

/// The columns that each curve has and their meaning: the point, before the main metric, ...
pub(crate) const POINT: [(&str, &str); 4] = [
    ("version", "Version of the parameters: updates made"),
    ("samples", "Examples of the applied gradients"),
    ("epoch", "The same in passes over the training rows"),
    ("time_s", "Training time, from the first parameters sent"),
];
/// ... and the losses, after it.
pub(crate) const LOSSES: [(&str, &str); 2] = [
    ("loss", "Mean loss on the evaluation rows"),
    ("objective", "The loss with the penalty of `proximal = l1`"),
];

/// Returns the names of the columns. The main metric of the target is the first of the numbers, its
/// other metrics are the last.
pub(super) fn header(target: Target) -> Vec<&'static str> {
    let name = |metric: &Metric| metric.name;
    let point = POINT.into_iter().map(|(name, _)| name);
    let main = metrics(target).take(1).map(name);
    point
        .chain(main)
        .chain(LOSSES.map(|(name, _)| name))
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
