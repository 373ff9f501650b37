//! Evaluation of parameters on examples: the loss, and the figures of the task.
//!
//! The module depends on models and examples only, not on the purpose of an evaluation. Reports,
//! curves and displays choose from the list of [`METRICS`].

mod metrics;
mod ranks;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize, Serializer};

pub use self::metrics::{METRICS, Metric, metrics};
use crate::examples::{Examples, Label, Target};
use crate::model::{Model, Workspace};

/// Examples per block: bounds the memory, does not affect the result.
const BLOCK: usize = 512;

/// Most classes of a confusion matrix, which has a count for each pair of classes.
pub const MOST_CONFUSED: usize = 100;

/// The quality of a model on examples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Number of examples.
    pub examples: u64,
    /// Mean loss; for classes the negative log-likelihood of the labels, in nats. NaN without
    /// examples.
    pub loss: f64,
    /// Number of parameters other than 0.
    pub non_zeros: u64,
    /// Sum of the parameters' magnitudes.
    pub l1: f64,
    /// The figures of the task.
    pub figures: Figures,
    /// Where each worker has a model of its own, and this one is their mean: the greatest Euclidean
    /// distance of a worker's parameters from it.
    pub consensus_distance: Option<f64>,
}

/// The name of [`Evaluation::consensus_distance`] among the metrics.
pub const CONSENSUS_DISTANCE: &str = "consensus_distance";

/// The figures of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Figures {
    /// Of predicted classes.
    Classes(ClassFigures),
    /// Of predicted numbers.
    Value(ValueFigures),
    /// Numbers under names that the model chooses; empty if the model reports only a loss.
    Named(BTreeMap<String, f64>),
}

impl Default for Figures {
    fn default() -> Self {
        Self::Named(BTreeMap::new())
    }
}

/// The quality of predicted classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassFigures {
    /// Examples whose most probable class is the label.
    pub correct: u64,
    /// Recall of each class: the correctly classified share of its examples; `None` for a class
    /// without examples.
    pub recall: Vec<Option<f64>>,
    /// F1 of each class: `2 TP / (2 TP + FP + FN)`, the harmonic mean of precision and recall;
    /// `None` if no example has the class and the model never predicts it.
    pub f1: Vec<Option<f64>>,
    /// Area under the ROC curve of two classes; `None` for another number of classes, or if one of
    /// the two has no examples.
    pub auc: Option<f64>,
    /// Confusion matrix, row by row: the number of examples of the row's class that were predicted
    /// to be of the column's class. Empty above [`MOST_CONFUSED`] classes.
    pub confusion: Vec<u64>,
}

/// The quality of predicted numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValueFigures {
    /// Root of the mean squared error, in the unit of the values.
    pub rmse: f64,
    /// Mean absolute error, in the same units.
    pub mae: f64,
    /// Coefficient of determination: 1 less the sum of the squared errors over the sum of the
    /// squared distances of the values to their mean. It is negative if the mean predicts better;
    /// `None` if all values are equal.
    pub r2: Option<f64>,
}

impl ClassFigures {
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
}

impl Evaluation {
    /// The evaluation of `params` on no examples.
    #[must_use]
    pub fn absent(params: &[f32]) -> Self {
        let non_zeros = params.iter().filter(|value| **value != 0.0).count() as u64;
        let l1 = params.iter().map(|value| f64::from(value.abs())).sum();
        Self { loss: f64::NAN, non_zeros, l1, ..Self::default() }
    }

    /// The figures of predicted classes; `None` if the task is another.
    #[must_use]
    pub const fn of_classes(&self) -> Option<&ClassFigures> {
        match &self.figures {
            Figures::Classes(figures) => Some(figures),
            _ => None,
        }
    }

    /// Returns the share of examples whose most probable class is the label; NaN without examples
    /// or classes.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        self.of_classes().map_or(f64::NAN, |figures| figures.correct as f64 / self.examples as f64)
    }

    /// Returns the loss plus `lambda` times the sum of magnitudes: the objective that an l1
    /// proximal step minimises.
    #[must_use]
    pub fn objective(&self, lambda: f32) -> f64 {
        self.loss + f64::from(lambda) * self.l1
    }

    /// True if the model chose the metrics: it names them, or evaluates classes without a list of
    /// them, as a compute process may.
    #[must_use]
    pub const fn has_own_metrics(&self) -> bool {
        self.examples > 0
            && match &self.figures {
                Figures::Named(_) => true,
                Figures::Classes(figures) => figures.f1.is_empty(),
                Figures::Value(_) => false,
            }
    }

    /// Returns the finite metrics with their names, the main one first. Metrics that the model
    /// names are in the order of their names.
    #[must_use]
    pub fn named(&self) -> Vec<(String, f64)> {
        let mut named: Vec<(String, f64)> = if let Figures::Named(values) = &self.figures {
            let finite = values.iter().filter(|(_, value)| value.is_finite());
            finite.map(|(name, value)| (name.clone(), *value)).collect()
        } else {
            let value = |metric: &Metric| Some((metric.name.into(), metric.value(self)?));
            METRICS.iter().filter_map(value).collect()
        };
        named.extend(self.consensus_distance.map(|distance| (CONSENSUS_DISTANCE.into(), distance)));
        named
    }
}

/// Serialises an evaluation with its figures as fields of one object, without the confusion matrix.
///
/// # Errors
/// Errors of the serialiser.
pub fn flat<S: Serializer>(evaluation: &Evaluation, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Flat<F> {
        examples: u64,
        loss: f64,
        non_zeros: u64,
        l1: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        consensus_distance: Option<f64>,
        #[serde(flatten)]
        figures: F,
    }

    #[derive(Serialize)]
    struct OfClasses<'a> {
        correct: u64,
        recall: &'a [Option<f64>],
        f1: &'a [Option<f64>],
        #[serde(skip_serializing_if = "Option::is_none")]
        auc: Option<f64>,
    }

    let &Evaluation { examples, loss, non_zeros, l1, consensus_distance, ref figures } = evaluation;
    match figures {
        Figures::Classes(ClassFigures { correct, recall, f1, auc, .. }) => {
            let figures = OfClasses { correct: *correct, recall, f1, auc: *auc };
            Flat { examples, loss, non_zeros, l1, consensus_distance, figures }.serialize(to)
        }
        Figures::Value(figures) => {
            Flat { examples, loss, non_zeros, l1, consensus_distance, figures }.serialize(to)
        }
        Figures::Named(figures) => {
            Flat { examples, loss, non_zeros, l1, consensus_distance, figures }.serialize(to)
        }
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
    let rows = (model, params, examples);
    let (loss, figures) = match (model.computes(), model.shape().target) {
        (false, _) => return Evaluation::absent(params),
        (true, Target::Classes(classes)) => {
            let (loss, figures) = evaluate_classes(rows, classes as usize, workspace);
            (loss, Figures::Classes(figures))
        }
        (true, Target::Value) => {
            let (loss, figures) = evaluate_values(rows, workspace);
            (loss, Figures::Value(figures))
        }
    };
    let examples = examples.len() as u64;
    Evaluation { examples, loss, figures, ..Evaluation::absent(params) }
}

/// Calls `visit` with the prediction and the label of each example.
fn predict(
    (model, params, examples): (&Model, &[f32], &Examples),
    workspace: &mut Workspace,
    mut visit: impl FnMut(&[f32], Label),
) {
    for begin in (0..examples.len()).step_by(BLOCK) {
        let rows = begin..examples.len().min(begin + BLOCK);
        let block = model.predict(params, examples, rows, workspace);
        for (prediction, row) in block.column_iter().zip(begin..) {
            visit(prediction.as_slice(), examples.label(row));
        }
    }
}

/// Returns the mean loss and the figures.
fn evaluate_classes(
    rows: (&Model, &[f32], &Examples),
    classes: usize,
    workspace: &mut Workspace,
) -> (f64, ClassFigures) {
    let counts = rows.2.class_counts();
    let (mut recognised, mut chosen) = (vec![0_u64; classes], vec![0_u64; classes]);
    let mut confusion = vec![0; if classes > MOST_CONFUSED { 0 } else { classes * classes }];
    let (mut loss, mut scores) = (0.0, Vec::new());
    predict(rows, workspace, |prediction, label| {
        let label = usize::from(label.class().unwrap_or_default());
        loss -= f64::from(prediction[label]);
        let choice = most_probable(prediction.iter().copied());
        chosen[choice] += 1;
        if choice == label {
            recognised[label] += 1;
        }
        if let Some(count) = confusion.get_mut(label * classes + choice) {
            *count += 1;
        }
        if let [first, second] = *prediction {
            scores.push((f64::from(second) - f64::from(first), label == 1));
        }
    });
    let recall = recognised
        .iter()
        .zip(&counts)
        .map(|(&recognised, &count)| (count > 0).then(|| recognised as f64 / count as f64));
    // 2 TP + FP + FN = predictions of the class + examples of the class.
    let f1 = recognised.iter().zip(counts.iter().zip(&chosen)).map(|(&both, (&of_it, &chosen))| {
        let either = of_it + chosen;
        (either > 0).then(|| 2.0 * both as f64 / either as f64)
    });
    let figures = ClassFigures {
        correct: recognised.iter().sum(),
        recall: recall.collect(),
        f1: f1.collect(),
        auc: ranks::auc(&mut scores),
        confusion,
    };
    (loss / rows.2.len() as f64, figures)
}

/// Returns the mean loss and the figures.
fn evaluate_values(
    rows: (&Model, &[f32], &Examples),
    workspace: &mut Workspace,
) -> (f64, ValueFigures) {
    let (model, _, examples) = rows;
    let value = |label| if let Label::Value(value) = label { value.into() } else { f64::NAN };
    let count = examples.len() as f64;
    let mean = examples.labels().map(value).sum::<f64>() / count;
    let (mut loss, mut squares, mut sizes, mut spread) = (0.0, 0.0, 0.0, 0.0);
    predict(rows, workspace, |prediction, label| {
        let (prediction, value) = (f64::from(prediction[0]), value(label));
        loss += model.loss().at(prediction, label).0;
        let error = prediction - value;
        squares += error * error;
        sizes += error.abs();
        spread += (value - mean) * (value - mean);
    });
    let r2 = (spread > 0.0).then(|| 1.0 - squares / spread);
    let unit = examples.unit();
    let (rmse, mae) = (unit * libm::sqrt(squares / count), unit * sizes / count);
    let figures = ValueFigures { rmse, mae, r2 };
    (loss / count, figures)
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
    use crate::model::{Loss, ModelSpec};

    const SHAPE: Shape =
        Shape { inputs: 3, dense: 0, hot: 1, target: Target::Classes(4), picture: None };

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
        let figures = found.of_classes().unwrap();
        assert_eq!((found.examples, figures.correct), (5, 3));
        assert_eq!(figures.recall, [Some(2.0 / 3.0), Some(0.5), None, None]);
        // Class 0: two of its three rows and no false positive. Class 1: one of two, and one false
        // positive. Class 2: only a false positive, from class 1.
        assert_eq!(figures.f1, [Some(4.0 / 5.0), Some(2.0 / 4.0), Some(0.0), None]);
        assert!((figures.macro_f1() - 1.3 / 3.0).abs() < 1e-12, "{}", figures.macro_f1());
        assert_eq!(figures.worst_class(), Some((1, 0.5)));
        let confused = [[2, 1, 0, 0], [0, 1, 1, 0], [0; 4], [0; 4]];
        assert_eq!((&figures.confusion[..], figures.auc), (confused.as_flattened(), None));
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
        assert_eq!(found.of_classes().unwrap().recall, [Some(1.0), Some(0.0), None, Some(0.0)]);
    }

    #[test]
    fn more_examples_than_a_block_are_all_counted() {
        let rows: Vec<(u16, u16)> = (0..2 * BLOCK as u16 + 7).map(|i| (i % 3, i % 2)).collect();
        let found = evaluate(&model(), &diagonal(), &examples(&rows), &mut Workspace::new());
        let correct = rows.iter().filter(|(column, label)| column == label).count();
        let right = found.of_classes().unwrap().correct;
        assert_eq!((found.examples, right), (rows.len() as u64, correct as u64));
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
            assert!(found.loss.is_nan() && found.of_classes().unwrap().correct == 1, "{value}");
        }
    }

    #[test]
    fn no_examples_give_no_numbers() {
        let found = evaluate(&model(), &diagonal(), &Examples::new(SHAPE), &mut Workspace::new());
        assert!(found.loss.is_nan() && found.accuracy().is_nan() && found.named().is_empty());
        let figures = found.of_classes().unwrap();
        assert_eq!((&figures.recall, &figures.f1), (&vec![None; 4], &vec![None; 4]));
        let found = values(Loss::Squared, &[0.0], &[]);
        assert!(found.loss.is_nan() && found.named().is_empty());
    }

    /// Evaluates the slope `params` on rows of a column and the value of their label.
    fn values(loss: Loss, params: &[f32], rows: &[(f32, f32)]) -> Evaluation {
        let shape = Shape::sparse(1, Target::Value);
        let model = Model::with_loss(&ModelSpec::Linear, loss, shape).unwrap();
        let mut examples = Examples::new(shape);
        for &(x, value) in rows {
            examples.push_sparse(&[0], &[x], value).unwrap();
        }
        evaluate(&model, params, &examples, &mut Workspace::new())
    }

    #[test]
    fn figures_of_numbers_are_those_computed_by_hand() {
        let rows = [(0.0, 1.0), (1.0, 2.0), (2.0, 6.0)];
        // Errors -1, 0 and -2; the values are 2, 1 and 3 from their mean.
        for (loss, mean) in [
            (Loss::Squared, 5.0 / 3.0),
            (Loss::Absolute, 1.0),
            (Loss::Huber { delta: 1.0 }, 2.0 / 3.0),
        ] {
            let found = values(loss, &[2.0], &rows);
            assert!((found.loss - mean).abs() < 1e-12, "{loss}: {}", found.loss);
            let wanted = [("rmse", (5.0_f64 / 3.0).sqrt()), ("mae", 1.0), ("r2", 1.0 - 5.0 / 14.0)];
            let named = found.named();
            assert_eq!(named.len(), wanted.len());
            for ((name, value), (wanted, by_hand)) in named.iter().zip(wanted) {
                assert!(name == wanted && (value - by_hand).abs() < 1e-12, "{name} {value}");
            }
        }
        let shape = Shape::sparse(1, Target::Value);
        let mut examples = Examples::new(shape).in_unit(100.0);
        examples.push_sparse(&[0], &[2.0], 5.0).unwrap();
        let model = Model::new(&ModelSpec::Linear, shape).unwrap();
        let found = evaluate(&model, &[1.0], &examples.select(&[0, 0]), &mut Workspace::new());
        assert_eq!((found.loss, &found.named()[0]), (9.0, &("rmse".into(), 300.0)));
        let flat = values(Loss::Squared, &[1.0], &[(1.0, 3.0), (2.0, 3.0)]);
        assert_eq!(Metric::find("r2").unwrap().value(&flat), None, "all values are equal");
        let names = |target| metrics(target).map(|metric| metric.name).collect::<Vec<_>>();
        assert_eq!(names(Target::Value), ["rmse", "mae", "r2"]);
        assert_eq!(names(Target::Classes(2)), ["accuracy", "macro_f1", "auc"]);
        assert_eq!(names(Target::Classes(3)), ["accuracy", "macro_f1"]);
    }

    #[test]
    fn the_area_under_the_curve_is_that_of_the_log_odds() {
        let shape = Shape::sparse(1, Target::Classes(2));
        let mut examples = Examples::new(shape);
        for (x, class) in [(-1.0, 0_u16), (0.5, 1), (0.7, 0), (2.0, 1)] {
            examples.push_sparse(&[0], &[x], class).unwrap();
        }
        let model = Model::new(&ModelSpec::Linear, shape).unwrap();
        let found = evaluate(&model, &[3.0], &examples, &mut Workspace::new());
        // Three of four pairs are in order.
        assert_eq!(found.of_classes().unwrap().auc, Some(0.75));
        assert_eq!(Metric::find("auc").unwrap().value(&found), Some(0.75));
    }

    #[test]
    fn a_model_may_name_its_own_metrics() {
        let values = [("rmse", 0.5), ("words", 3.0), ("lost", f64::NAN)];
        let values = values.map(|(name, value)| (String::from(name), value));
        let figures = Figures::Named(values.into_iter().collect());
        let evaluation = Evaluation { examples: 1, figures, ..Evaluation::default() };
        let named = [("rmse".into(), 0.5), ("words".into(), 3.0)];
        assert_eq!(evaluation.named(), named);
        assert_eq!(Metric::find("rmse").unwrap().value(&evaluation), Some(0.5));
        assert_eq!(Metric::find("mae").unwrap().value(&evaluation), None);
    }
}
