//! The quality of a model, with the rows that it was evaluated on.

use std::collections::BTreeMap;

use pstrain_compute::evaluation::Evaluation;
use pstrain_data::EvaluationRows;
use serde::Serialize;

/// The quality of a model on the evaluation rows. A number that is not finite, as after divergence,
/// is `None`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Quality {
    pub(crate) accuracy: Option<f64>,
    /// The mean of the classes' F1 scores.
    pub(crate) macro_f1: Option<f64>,
    /// The class with the lowest recall.
    pub(crate) worst_class: Option<ClassRecall>,
    /// The evaluation rows.
    pub(crate) evaluation: EvaluationRows,
    pub(crate) loss: Option<f64>,
    /// The recall of each class.
    pub(crate) recall: BTreeMap<String, Option<f64>>,
}

/// A class and its recall.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ClassRecall {
    pub(crate) name: String,
    pub(crate) recall: f64,
}

impl Quality {
    /// The quality of a model with these class names; all values are None without an evaluation.
    pub(crate) fn new(
        evaluation: Option<&Evaluation>,
        classes: &[impl AsRef<str>],
        rows: EvaluationRows,
    ) -> Self {
        let finite = |number: fn(&Evaluation) -> f64| {
            evaluation.map(number).filter(|number| number.is_finite())
        };
        let name = |class: usize| classes.get(class).map(|name| name.as_ref().to_owned());
        let worst = evaluation.and_then(Evaluation::worst_class);
        let recall = evaluation.map_or(&[][..], |evaluation| &evaluation.recall);
        Self {
            accuracy: finite(Evaluation::accuracy),
            macro_f1: finite(Evaluation::macro_f1),
            worst_class: worst
                .and_then(|(class, recall)| Some(ClassRecall { name: name(class)?, recall })),
            evaluation: rows,
            loss: finite(|evaluation| evaluation.loss),
            recall: classes
                .iter()
                .map(|name| name.as_ref().to_owned())
                .zip(recall.to_vec())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> EvaluationRows {
        EvaluationRows { rows: 1500, source: "rows.csv".into(), share: Some(0.25) }
    }

    #[test]
    fn accuracy_stands_next_to_its_rows_and_the_class_that_it_hides() {
        let evaluation = Evaluation {
            examples: 1500,
            correct: 1200,
            loss: 0.5,
            recall: vec![Some(0.9), Some(0.125), None],
            f1: vec![Some(0.9), Some(0.1), None],
            ..Evaluation::default()
        };
        let quality = Quality::new(Some(&evaluation), &["a", "b", "c"], rows());
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
        let quality = Quality::new(None, &["a", "b"], rows());
        assert_eq!((quality.accuracy, quality.macro_f1, quality.loss), (None, None, None));
        assert_eq!((quality.worst_class, quality.recall), (None, BTreeMap::new()));
    }
}
