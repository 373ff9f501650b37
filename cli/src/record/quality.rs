//! The quality of a model, with the rows that it was evaluated on.

use std::collections::BTreeMap;

use pstrain_compute::evaluation::{ClassFigures, Evaluation, metrics};
use pstrain_compute::examples::Target;
use pstrain_data::{EvaluationRows, Schema};
use serde::{Serialize, Serializer};

/// The quality of a model on the evaluation rows. A number that is not finite, as after divergence,
/// is `None`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Quality {
    /// The metrics by name, the main one first; none if a model of another program names none.
    #[serde(flatten, serialize_with = "as_fields")]
    pub(crate) metrics: Vec<(String, Option<f64>)>,
    /// The evaluation rows.
    pub(crate) evaluation: EvaluationRows,
    /// Mean loss on the evaluation rows.
    pub(crate) loss: Option<f64>,
    /// The classes, if classes are predicted.
    #[serde(flatten)]
    pub(crate) classes: Option<ClassQuality>,
}

/// The quality of a model by class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ClassQuality {
    /// The class with the lowest recall.
    pub(crate) worst_class: Option<ClassRecall>,
    /// The recall of each class.
    pub(crate) recall: BTreeMap<String, Option<f64>>,
    /// The number of rows of each class that were predicted to be of each class; empty for too many
    /// classes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) confusion: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A class and its recall.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ClassRecall {
    /// Its name.
    pub(crate) name: String,
    /// Its recall.
    pub(crate) recall: f64,
}

fn as_fields<S: Serializer>(values: &[(String, Option<f64>)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values.iter().map(|(name, value)| (name, value)))
}

impl Quality {
    /// The quality of a model of data with this schema; all values are None without an evaluation.
    pub(crate) fn new(
        evaluation: Option<&Evaluation>,
        schema: &Schema,
        rows: EvaluationRows,
    ) -> Self {
        let rows = match evaluation {
            // A compute process evaluates on rows of its own.
            Some(evaluation) if rows.rows == 0 && evaluation.examples > 0 => EvaluationRows {
                rows: evaluation.examples,
                source: "the compute process".into(),
                share: None,
            },
            _ => rows,
        };
        let found = evaluation.filter(|found| found.examples > 0);
        let own = found.filter(|found| found.has_own_metrics());
        let metrics = match own {
            Some(evaluation) => {
                let named = evaluation.named().into_iter();
                named.map(|(name, value)| (name, Some(value))).collect()
            }
            None => metrics(schema.shape.target)
                .map(|metric| {
                    (metric.name.to_owned(), evaluation.and_then(|found| metric.value(found)))
                })
                .collect(),
        };
        let loss = evaluation.map(|evaluation| evaluation.loss).filter(|loss| loss.is_finite());
        let of_classes = evaluation.and_then(Evaluation::of_classes);
        let are_classes = schema.shape.target != Target::Value
            && found.is_none_or(|found| {
                found.of_classes().is_some_and(|figures| !figures.recall.is_empty())
            });
        let classes = are_classes.then(|| {
            of_classes
                .map_or_else(ClassQuality::default, |it| ClassQuality::of(it, &schema.classes))
        });
        Self { metrics, evaluation: rows, loss, classes }
    }
}

impl ClassQuality {
    fn of(figures: &ClassFigures, names: &[String]) -> Self {
        // A compute process may have more classes than the job knows: they go by their numbers.
        let numbers: Vec<String> = (0..figures.recall.len()).map(|it| it.to_string()).collect();
        let names = if figures.recall.len() > names.len() { &numbers } else { names };
        let worst = figures.worst_class();
        let worst_class = worst.and_then(|(class, recall)| {
            Some(ClassRecall { name: names.get(class)?.clone(), recall })
        });
        let recall = names.iter().cloned().zip(figures.recall.iter().copied()).collect();
        let rows = names.iter().zip(figures.confusion.chunks_exact(names.len().max(1)));
        let row = |(name, counts): (&String, &[u64])| {
            (name.clone(), names.iter().cloned().zip(counts.iter().copied()).collect())
        };
        Self { worst_class, recall, confusion: rows.map(row).collect() }
    }
}

#[cfg(test)]
mod tests {
    use pstrain_compute::evaluation::{Figures, ValueFigures};

    use super::*;

    fn schema(classes: &[&str]) -> Schema {
        Schema::dense("rows", 2, classes)
    }

    fn of(figures: ClassFigures) -> Evaluation {
        let figures = Figures::Classes(figures);
        Evaluation { examples: 1500, loss: 0.5, figures, ..Evaluation::default() }
    }

    fn rows() -> EvaluationRows {
        EvaluationRows { rows: 1500, source: "rows.csv".into(), share: Some(0.25) }
    }

    #[test]
    fn accuracy_stands_next_to_its_rows_and_the_class_that_it_hides() {
        let figures = ClassFigures {
            correct: 1200,
            recall: vec![Some(0.9), Some(0.125), None],
            f1: vec![Some(0.9), Some(0.1), None],
            ..ClassFigures::default()
        };
        let quality = Quality::new(Some(&of(figures)), &schema(&["a", "b", "c"]), rows());
        let json = serde_json::to_value(&quality).unwrap();
        let wanted = serde_json::json!({
            "accuracy": 0.8,
            "macro_f1": 0.5,
            "worst_class": { "name": "b", "recall": 0.125 },
            "evaluation": { "rows": 1500, "source": "rows.csv", "share": 0.25 },
            "loss": 0.5,
            "recall": { "a": 0.9, "b": 0.125, "c": null },
        });
        assert_eq!(json, wanted);
    }

    #[test]
    fn without_an_evaluation_nothing_is_said() {
        let quality = Quality::new(None, &schema(&["a", "b"]), rows());
        let names = ["accuracy", "macro_f1", "auc"].map(|name| (name.to_owned(), None));
        assert_eq!((quality.metrics, quality.loss), (names.to_vec(), None));
        assert_eq!(quality.classes, Some(ClassQuality::default()));
    }

    #[test]
    fn the_confusion_matrix_names_true_and_predicted_classes() {
        let figures = ClassFigures {
            correct: 5,
            recall: vec![Some(0.75), Some(1.0)],
            auc: Some(0.875),
            confusion: vec![3, 1, 0, 2],
            ..ClassFigures::default()
        };
        let quality = Quality::new(Some(&of(figures)), &schema(&["no", "yes"]), rows());
        let json = serde_json::to_value(&quality).unwrap();
        assert_eq!(json["auc"], 0.875);
        let wanted = serde_json::json!({
            "no": { "no": 3, "yes": 1 },
            "yes": { "no": 0, "yes": 2 },
        });
        assert_eq!(json["confusion"], wanted);
    }

    #[test]
    fn a_compute_process_has_the_metrics_that_it_names_and_rows_of_its_own() {
        let none = EvaluationRows { rows: 0, source: "rows:3000".into(), share: Some(0.0) };
        let of = |named: &[(&str, f64)]| {
            let named = named.iter().map(|&(name, value)| (name.into(), value));
            let figures = Figures::Named(named.collect());
            let evaluation =
                Evaluation { examples: 9, loss: 4.0, figures, ..Evaluation::default() };
            let quality = Quality::new(Some(&evaluation), &schema(&["all"]), none.clone());
            serde_json::to_value(&quality).unwrap()
        };
        let rows = serde_json::json!({ "rows": 9, "source": "the compute process", "share": null });
        let wanted = serde_json::json!({ "evaluation": rows, "loss": 4.0 });
        assert_eq!(of(&[]), wanted);
        let wanted = serde_json::json!({ "perplexity": 54.5, "evaluation": rows, "loss": 4.0 });
        assert_eq!(of(&[("perplexity", 54.5)]), wanted);
    }

    #[test]
    fn an_accuracy_without_lists_of_the_classes_stands_alone() {
        let of = |recall: &[Option<f64>], f1: &[Option<f64>]| {
            let (recall, f1) = (recall.to_vec(), f1.to_vec());
            let figures = ClassFigures { correct: 1200, recall, f1, ..ClassFigures::default() };
            let quality = Quality::new(Some(&of(figures)), &schema(&["a", "b"]), rows());
            let names = quality.metrics.iter().map(|(name, _)| name.clone());
            (names.collect::<Vec<_>>().join(" "), quality.classes.is_some())
        };
        let half = [Some(0.5), Some(0.9)];
        assert_eq!(of(&[], &[]), ("accuracy".into(), false));
        assert_eq!(of(&half, &[]), ("accuracy".into(), true));
        assert_eq!(of(&[], &half), ("accuracy macro_f1 auc".into(), false));
    }

    #[test]
    fn the_quality_of_numbers_has_no_classes() {
        let figures = Figures::Value(ValueFigures { rmse: 2.0, mae: 1.5, r2: Some(0.25) });
        let evaluation = Evaluation { examples: 9, loss: 4.0, figures, ..Evaluation::default() };
        let quality = Quality::new(Some(&evaluation), &Schema::of_values("rows", 2), rows());
        let wanted = serde_json::json!({
            "rmse": 2.0,
            "mae": 1.5,
            "r2": 0.25,
            "evaluation": { "rows": 1500, "source": "rows.csv", "share": 0.25 },
            "loss": 4.0,
        });
        assert_eq!(serde_json::to_value(&quality).unwrap(), wanted);
    }
}
