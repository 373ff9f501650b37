//! The metrics of models, by name.

use super::{ClassFigures, Evaluation, Figures, ValueFigures};
use crate::examples::Target;

/// A number that tells how good a model is.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in reports, tables and settings.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// True if a better model has a higher value.
    pub is_higher_better: bool,
    /// True if the value is a share, from 0 to 1.
    pub is_share: bool,
    /// The least and the greatest value that are possible.
    pub range: (f64, f64),
    of: Of,
}

/// How a metric is computed; `None` if it is not defined.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// Of any number of classes: from the number of examples and their figures.
    Classes(fn(u64, &ClassFigures) -> Option<f64>),
    /// Of two classes.
    TwoClasses(fn(&ClassFigures) -> Option<f64>),
    /// Of a number to predict.
    Value(fn(&ValueFigures) -> Option<f64>),
}

/// All metrics but the loss, which every evaluation has. The first of a target is its main one,
/// which is shown where there is place for one number. To add a metric, add a line.
pub static METRICS: &[Metric] = &[
    share("accuracy", "accuracy", Of::Classes(|all, it| Some(it.correct as f64 / all as f64))),
    share("macro_f1", "macro F1", Of::Classes(|_, it| Some(it.macro_f1()))),
    share("auc", "AUC", Of::TwoClasses(|it| it.auc)),
    error("rmse", "RMSE", Of::Value(|it| Some(it.rmse))),
    error("mae", "MAE", Of::Value(|it| Some(it.mae))),
    Metric {
        is_share: false,
        range: (f64::NEG_INFINITY, 1.0),
        ..share("r2", "R2", Of::Value(|it| it.r2))
    },
];

const fn share(name: &'static str, title: &'static str, of: Of) -> Metric {
    Metric { name, title, is_higher_better: true, is_share: true, range: (0.0, 1.0), of }
}

const fn error(name: &'static str, title: &'static str, of: Of) -> Metric {
    let range = (0.0, f64::INFINITY);
    Metric { name, title, is_higher_better: false, is_share: false, range, of }
}

/// The metrics of a target, the main one first.
pub fn metrics(target: Target) -> impl Iterator<Item = &'static Metric> + Clone {
    METRICS.iter().filter(move |metric| match metric.of {
        Of::Classes(_) => target != Target::Value,
        Of::TwoClasses(_) => target == Target::Classes(2),
        Of::Value(_) => target == Target::Value,
    })
}

impl Metric {
    /// Returns the metric called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// The value of an evaluation; `None` if it has none, or one that is not finite, as after
    /// divergence.
    #[must_use]
    pub fn value(&self, evaluation: &Evaluation) -> Option<f64> {
        let value = match (self.of, &evaluation.figures) {
            (Of::Classes(of), Figures::Classes(figures)) => of(evaluation.examples, figures),
            (Of::TwoClasses(of), Figures::Classes(figures)) => of(figures),
            (Of::Value(of), Figures::Value(figures)) => of(figures),
            (_, Figures::Named(values)) => values.get(self.name).copied(),
            _ => None,
        };
        value.filter(|value| value.is_finite())
    }
}
