//! Evaluation of parameters on examples: loss, accuracy, and recall and F1 of each class.
//!
//! The module depends on models and examples only, not on the purpose of an evaluation.

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::examples::Examples;
use crate::model::{Model, Workspace};

/// Examples per block: bounds the memory, does not affect the result.
const BLOCK: usize = 512;

/// The quality of a model on examples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Number of examples.
    pub examples: u64,
    /// Examples whose most probable class is the label.
    pub correct: u64,
    /// Mean negative log-likelihood of the labels, in nats; NaN without examples.
    pub loss: f64,
    /// Number of parameters other than 0.
    pub non_zeros: u64,
    /// Sum of the parameters' magnitudes.
    pub l1: f64,
    /// Recall of each class: the correctly classified share of its examples; `None` for a class
    /// without examples.
    pub recall: Vec<Option<f64>>,
    /// F1 of each class: `2 TP / (2 TP + FP + FN)`, the harmonic mean of precision and recall;
    /// `None` if no example has the class and the model never predicts it.
    pub f1: Vec<Option<f64>>,
}

impl Evaluation {
    /// The evaluation of `params` on no examples, with `classes` classes.
    #[must_use]
    pub fn absent(params: &[f32], classes: usize) -> Self {
        let non_zeros = params.iter().filter(|value| **value != 0.0).count() as u64;
        let l1 = params.iter().map(|value| f64::from(value.abs())).sum();
        let none = vec![None; classes];
        let (recall, f1) = (none.clone(), none);
        Self { examples: 0, correct: 0, loss: f64::NAN, non_zeros, l1, recall, f1 }
    }

    /// Returns the share of examples whose most probable class is the label; NaN without examples.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.examples as f64
    }

    /// Returns the macro F1: the mean of the classes' F1, with equal weight for each class; NaN
    /// without examples. It is the mean of F1, not the F1 of mean precision and mean recall (Opitz
    /// and Burst, "Macro F1 and Macro F1", 2019).
    #[must_use]
    pub fn macro_f1(&self) -> f64 {
        let of_classes = self.f1.iter().flatten();
        of_classes.clone().sum::<f64>() / of_classes.count() as f64
    }

    /// Returns the class with the lowest recall, and the recall; the first class in a tie, `None`
    /// without examples.
    #[must_use]
    pub fn worst_class(&self) -> Option<(usize, f64)> {
        let classes = self.recall.iter().enumerate();
        let known = classes.filter_map(|(class, recall)| Some((class, (*recall)?)));
        known.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Returns the loss plus `lambda` times the sum of magnitudes: the objective that an l1
    /// proximal step minimises.
    #[must_use]
    pub fn objective(&self, lambda: f32) -> f64 {
        self.loss + f64::from(lambda) * self.l1
    }
}

/// Evaluates `model` at `params` on all `examples`.
///
/// Ties between classes go to the lowest. Parameters that are not finite yield a loss that is not
/// finite. For a model without arithmetic the result counts no examples.
///
/// # Panics
/// If `params` does not have [`Model::parameters`] values or the examples have another shape than
/// the model.
#[must_use]
pub fn evaluate(
    model: &Model,
    params: &[f32],
    examples: &Examples,
    workspace: &mut Workspace,
) -> Evaluation {
    let counts = examples.class_counts();
    let absent = Evaluation::absent(params, counts.len());
    if !model.computes() {
        return absent;
    }
    let (mut recognised, mut chosen) = (vec![0_u64; counts.len()], vec![0_u64; counts.len()]);
    let mut loss = 0.0;
    for begin in (0..examples.len()).step_by(BLOCK) {
        let rows = begin..examples.len().min(begin + BLOCK);
        let block = model.log_probabilities(params, examples, rows, workspace);
        for (column, row) in block.column_iter().zip(begin..) {
            let label = usize::from(examples.label(row));
            loss -= f64::from(column[label]);
            let choice = most_probable(column.iter().copied());
            chosen[choice] += 1;
            if choice == label {
                recognised[label] += 1;
            }
        }
    }
    let recall = recognised
        .iter()
        .zip(&counts)
        .map(|(&recognised, &count)| (count > 0).then(|| recognised as f64 / count as f64));
    // 2 TP + FP + FN = predictions of the class + examples of the class.
    let f1 = recognised.iter().zip(counts.iter().zip(&chosen)).map(|(&both, (&of_it, &chosen))| {
        let either = of_it + chosen;
        (either > 0).then(|| 2.0 * both as f64 / either as f64)
    });
    Evaluation {
        examples: examples.len() as u64,
        correct: recognised.iter().sum(),
        loss: loss / examples.len() as f64,
        recall: recall.collect(),
        f1: f1.collect(),
        ..absent
    }
}

/// Returns the first class with the largest value; 0 if all are NaN.
fn most_probable(values: impl Iterator<Item = f32>) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (class, value) in values.enumerate() {
        if value > best.1 {
            best = (class, value);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::Shape;
    use crate::model::ModelSpec;

    const SHAPE: Shape = Shape { inputs: 3, dense: 0, hot: 1, classes: 4 };

    fn model() -> Model {
        Model::new(&ModelSpec::Softmax, SHAPE).unwrap()
    }

    fn examples(rows: &[(u16, u16)]) -> Examples {
        let mut examples = Examples::new(SHAPE);
        for &(column, label) in rows {
            examples.push(&[], &[column], label).unwrap();
        }
        examples
    }

    /// Logits per column: ln 2 for the class with the column's number, 0 for the others.
    fn diagonal() -> Vec<f32> {
        let mut params = vec![0.0; model().parameters()];
        for column in 0..3 {
            params[column * 4 + column] = core::f32::consts::LN_2;
        }
        params
    }

    #[test]
    fn loss_accuracy_recall_and_f1_are_those_computed_by_hand() {
        let examples = examples(&[(0, 0), (0, 0), (1, 0), (1, 1), (2, 1)]);
        let found = evaluate(&model(), &diagonal(), &examples, &mut Workspace::new());
        assert_eq!((found.examples, found.correct), (5, 3));
        assert_eq!(found.recall, [Some(2.0 / 3.0), Some(0.5), None, None]);
        // Class 0: two of its three rows and no false positive. Class 1: one of two, and one false
        // positive. Class 2: only a false positive, from class 1.
        assert_eq!(found.f1, [Some(4.0 / 5.0), Some(2.0 / 4.0), Some(0.0), None]);
        assert!((found.macro_f1() - 1.3 / 3.0).abs() < 1e-12, "{}", found.macro_f1());
        assert_eq!(found.worst_class(), Some((1, 0.5)));
        assert!((found.accuracy() - 0.6).abs() < 1e-12);
        // Probability 2/5 if the label is the column's own class, else 1/5.
        let expected = -(3.0 * 0.4_f64.ln() + 2.0 * 0.2_f64.ln()) / 5.0;
        assert!((found.loss - expected).abs() < 1e-6, "{} {expected}", found.loss);
        assert_eq!(found.non_zeros, 3);
        let objective = found.objective(0.5) - found.loss;
        assert!((objective - 1.5 * 2.0_f64.ln()).abs() < 1e-6, "{objective}");
    }

    #[test]
    fn ties_go_to_the_lowest_class() {
        let params = vec![0.0; model().parameters()];
        let examples = examples(&[(0, 0), (1, 1), (2, 3)]);
        let found = evaluate(&model(), &params, &examples, &mut Workspace::new());
        assert_eq!(found.recall, [Some(1.0), Some(0.0), None, Some(0.0)]);
    }

    #[test]
    fn more_examples_than_a_block_are_all_counted() {
        let rows: Vec<(u16, u16)> = (0..2 * BLOCK as u16 + 7).map(|i| (i % 3, i % 2)).collect();
        let found = evaluate(&model(), &diagonal(), &examples(&rows), &mut Workspace::new());
        let correct = rows.iter().filter(|(column, label)| column == label).count();
        assert_eq!((found.examples, found.correct), (rows.len() as u64, correct as u64));
    }

    #[test]
    fn parameters_that_are_not_finite_do_not_panic() {
        let examples = examples(&[(0, 0), (1, 1), (2, 3)]);
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut params = diagonal();
            params[5] = value;
            let found = evaluate(&model(), &params, &examples, &mut Workspace::new());
            assert!(!found.loss.is_finite(), "{value}");
            params.fill(value);
            let found = evaluate(&model(), &params, &examples, &mut Workspace::new());
            assert!(found.loss.is_nan() && found.correct == 1, "{value}");
        }
    }

    #[test]
    fn no_examples_give_no_numbers() {
        let found = evaluate(&model(), &diagonal(), &Examples::new(SHAPE), &mut Workspace::new());
        assert!(found.loss.is_nan() && found.accuracy().is_nan() && found.macro_f1().is_nan());
        assert_eq!((found.recall, found.f1), (vec![None; 4], vec![None; 4]));
    }
}
