//! Linear models of sparse rows: one weight per column.
//!
//! The output of a row is its product with the parameters. With the label `y` (-1 for the first
//! class, 1 for the second) and the margin `y (x, w)`, the loss of two classes is
//! `ln(1 + exp(-margin))`. Sums run in the order of entries and of rows; `exp` and `ln` come from
//! `libm`.

use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::loss::log_probabilities;
use super::{Loss, MOST_PARAMETERS, MiniBatch, ModelError, Objective, SparseObjective, Workspace};
use crate::examples::{Examples, Row, Shape, Target};
use crate::params::Layout;

/// A linear model. Its only tensor is the weight of a PyTorch `Linear` without bias.
#[derive(Debug)]
pub(super) struct Sparse {
    /// The model as users write it.
    name: &'static str,
    loss: Loss,
    layout: Layout,
}

impl Sparse {
    /// A model of two classes.
    pub(super) fn logistic(loss: Loss, shape: Shape) -> Result<Self, ModelError> {
        match shape.target {
            Target::Classes(2) => Self::new("logistic", loss, shape),
            target => Err(Self::refused("logistic", target)),
        }
    }

    /// A model of two classes or of a number.
    pub(super) fn new(name: &'static str, loss: Loss, shape: Shape) -> Result<Self, ModelError> {
        if !shape.is_sparse() || !matches!(shape.target, Target::Classes(2) | Target::Value) {
            return Err(Self::refused(name, shape.target));
        }
        if matches!(loss, Loss::Smoothed { .. }) {
            let (loss, allowed) = (loss.to_string(), "use nll with one output for both classes");
            return Err(ModelError::Loss { loss, target: shape.target, allowed });
        }
        let parameters = u64::from(shape.inputs);
        if parameters > MOST_PARAMETERS {
            return Err(ModelError::TooManyParameters { layer: 0, parameters });
        }
        let mut layout = Layout::new();
        layout.push("0.weight".into(), vec![shape.inputs as usize, 1]);
        Ok(Self { name, loss, layout })
    }

    /// The error of other rows.
    pub(super) const fn refused(model: &'static str, target: Target) -> ModelError {
        let other = match target {
            Target::Value => "model = linear",
            // The same model, of dense rows.
            Target::Classes(2) => "model = linear with loss = logistic",
            Target::Classes(_) => "model = softmax",
        };
        ModelError::NotSparse { model, target, other }
    }
}

impl Objective for Sparse {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn gradient(
        &self,
        keys: Range<usize>,
        params: &[f32],
        MiniBatch { examples, rows, .. }: MiniBatch<'_>,
        gradient: &mut [f32],
        _: &mut Workspace,
    ) -> f64 {
        gradient.fill(0.0);
        self.add(params, (examples, rows), &keys, gradient)
    }

    fn predict(
        &self,
        params: &[f32],
        (examples, rows): (&Examples, Range<usize>),
        out: &mut [f32],
        _: &mut Workspace,
    ) {
        let products = rows.map(|row| product(params, examples.row(row)));
        match examples.shape().target {
            Target::Value => out.iter_mut().zip(products).for_each(|(out, it)| *out = it as f32),
            Target::Classes(_) => {
                let out = out.as_chunks_mut().0.iter_mut();
                out.zip(products).for_each(|(out, it)| *out = log_probabilities(it));
            }
        }
    }

    fn sparse(&self) -> Option<&dyn SparseObjective> {
        Some(self)
    }
}

impl SparseObjective for Sparse {
    fn over(&self, shape: Shape) -> Result<Arc<dyn Objective>, ModelError> {
        Ok(Arc::new(Self::new(self.name, self.loss, shape)?))
    }

    fn loss(&self, params: &[f32], row: Row<'_>, scale: f64) -> (f64, f32) {
        let (loss, slope) = self.loss.at(product(params, row), row.label);
        (loss, (slope * scale) as f32)
    }

    fn curvature(&self, parts: &[Examples]) -> Option<Vec<f32>> {
        let bound = self.loss.curvature()?;
        Some(curvature(parts, self.layout.len(), bound))
    }
}

impl Sparse {
    /// Adds the mean gradient over `rows` at `keys` to `gradient`, and returns the sum of the
    /// losses.
    fn add(
        &self,
        params: &[f32],
        (examples, rows): (&Examples, &[u32]),
        keys: &Range<usize>,
        gradient: &mut [f32],
    ) -> f64 {
        let is_all = *keys == (0..params.len());
        let scale = 1.0 / rows.len() as f64;
        let mut loss = 0.0;
        for &row in rows {
            let row = examples.row(row as usize);
            let (of_row, slope) = SparseObjective::loss(self, params, row, scale);
            loss += of_row;
            let entries = match is_all {
                true => 0..row.columns.len(),
                false => {
                    let place =
                        |key| row.columns.partition_point(|&column| (column as usize) < key);
                    place(keys.start)..place(keys.end)
                }
            };
            for (&column, value) in row.columns[entries.clone()].iter().zip(&row.values[entries]) {
                gradient[column as usize] += slope * value;
            }
        }
        loss
    }
}

/// Returns for each key an upper bound of the second derivative of the mean loss over all
/// `examples`: the mean squared entry times `bound`, the bound of the second derivative with
/// respect to the output.
fn curvature(examples: &[Examples], keys: usize, bound: f64) -> Vec<f32> {
    let mut sums = vec![0.0_f64; keys];
    for row in examples.iter().flat_map(|part| (0..part.len()).map(|row| part.row(row))) {
        for (&column, &value) in row.columns.iter().zip(row.values) {
            sums[column as usize] += f64::from(value) * f64::from(value);
        }
    }
    let rows = examples.iter().map(Examples::len).sum::<usize>().max(1);
    sums.into_iter().map(|sum| (bound * sum / rows as f64) as f32).collect()
}

fn product(params: &[f32], row: Row<'_>) -> f64 {
    let entries = row.columns.iter().zip(row.values);
    entries.fold(0.0, |sum, (&column, &value)| {
        sum + f64::from(params[column as usize]) * f64::from(value)
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::examples::Label;
    use crate::model::{Model, ModelSpec};

    fn examples() -> Examples {
        let mut examples = Examples::new(Shape::sparse(6, Target::Classes(2)));
        examples.push_sparse(&[0, 3], &[1.0, -2.0], 1).unwrap();
        examples.push_sparse(&[], &[], 0).unwrap();
        examples.push_sparse(&[1, 3, 5], &[0.5, 1.0, 3.0], 0).unwrap();
        examples
    }

    fn model() -> Model {
        Model::new(&ModelSpec::Logistic, Shape::sparse(6, Target::Classes(2))).unwrap()
    }

    #[test]
    fn the_gradient_is_the_slope_of_every_loss() {
        check(&model(), &examples());
        for loss in [Loss::Squared, Loss::Absolute, Loss::Huber { delta: 0.75 }] {
            let (model, examples) = of_values(loss);
            check(&model, &examples);
        }
    }

    /// The same rows with numbers to predict.
    fn of_values(loss: Loss) -> (Model, Examples) {
        let shape = Shape::sparse(6, Target::Value);
        let mut examples = Examples::new(shape);
        for (row, value) in (0..3).zip([0.5, -2.0, 1.25_f32]) {
            let all = self::examples();
            let row = all.row(row);
            examples.push_sparse(row.columns, row.values, value).unwrap();
        }
        (Model::with_loss(&ModelSpec::Linear, loss, shape).unwrap(), examples)
    }

    /// Compares the gradient with finite differences.
    fn check(model: &Model, examples: &Examples) {
        let rows = [0, 1, 2, 2];
        let params = vec![0.5, -1.0, 9.0, 0.25, 0.0, -0.125];
        let loss = |params: &[f32]| {
            let mut gradient = vec![0.0; 6];
            f64::from(model.gradient(params, examples, &rows, &mut gradient, &mut Workspace::new()))
        };
        let mut gradient = vec![0.0; 6];
        model.gradient(&params, examples, &rows, &mut gradient, &mut Workspace::new());
        for (key, slope) in gradient.iter().enumerate() {
            let moved = |by: f32| {
                let mut params = params.clone();
                params[key] += by;
                loss(&params)
            };
            let found = (moved(0.01) - moved(-0.01)) / 0.02;
            assert!((found - f64::from(*slope)).abs() < 1e-4, "{key}: {found} {slope}");
        }
        assert_eq!((gradient[2], gradient[4]), (0.0, 0.0));
    }

    #[test]
    fn probabilities_are_those_computed_by_hand() {
        let (model, mut workspace) = (model(), Workspace::new());
        let params = [1.0, 0.0, 0.0, 0.5, 0.0, 1.0];
        let found = model.predict(&params, &examples(), 0..3, &mut workspace);
        for (column, margin) in found.column_iter().zip([0.0_f64, 0.0, 3.5]) {
            let positive = 1.0 / (1.0 + (-margin).exp());
            assert!((f64::from(column[1]).exp() - positive).abs() < 1e-6);
            assert!((f64::from(column[0]).exp() - (1.0 - positive)).abs() < 1e-6);
        }
    }

    #[test]
    fn numbers_are_predicted_by_the_product_and_have_a_bound_of_their_curvature() {
        let (model, examples) = of_values(Loss::Squared);
        let params = [1.0, 0.0, 0.0, 0.5, 0.0, 1.0];
        let mut workspace = Workspace::new();
        let found = model.predict(&params, &examples, 0..3, &mut workspace);
        assert!(found.iter().eq(&[0.0, 0.0, 3.5]));
        assert_eq!(examples.label(2), Label::Value(1.25));
        // Twice the mean square of each column.
        let bounds = model.curvature(&[examples]).unwrap();
        assert!((bounds[3] - 2.0 * 5.0 / 3.0).abs() < 1e-6, "{bounds:?}");
        let (model, examples) = of_values(Loss::Absolute);
        assert_eq!(model.curvature(&[examples]), None);
    }

    #[test]
    fn great_margins_neither_overflow_nor_hide_what_is_not_finite() {
        let model = model();
        let rows: Vec<u32> = vec![0, 2];
        for (value, finite) in [(1e30, true), (-1e30, true), (f32::NAN, false)] {
            let mut gradient = vec![0.0; 6];
            let loss = model.gradient(
                &[value; 6],
                &examples(),
                &rows,
                &mut gradient,
                &mut Workspace::new(),
            );
            assert_eq!(loss.is_finite(), finite, "{value}: {loss}");
        }
    }

    #[test]
    fn it_is_the_same_over_the_columns_that_are_touched() {
        let (model, examples) = (model(), examples());
        let touched = examples.touched();
        let (narrow, over) = (model.over(touched.len()).unwrap(), examples.clone().over(&touched));
        let params = vec![0.5, -1.0, 9.0, 0.25, 0.0, -0.125];
        let of = |columns: &[f32]| -> Vec<f32> {
            touched.iter().map(|&column| columns[column as usize]).collect()
        };
        let (mut whole, mut part) = (vec![0.0; 6], vec![0.0; touched.len()]);
        let one = model.gradient(&params, &examples, &[0, 2], &mut whole, &mut Workspace::new());
        let other = narrow.gradient(&of(&params), &over, &[0, 2], &mut part, &mut Workspace::new());
        assert_eq!((one, of(&whole)), (other, part));
    }

    #[test]
    fn other_data_are_refused() {
        let dense =
            Shape { inputs: 6, dense: 6, hot: 0, target: Target::Classes(2), picture: None };
        for shape in [dense, Shape::sparse(6, Target::Classes(3))] {
            let refused = Model::new(&ModelSpec::Logistic, shape).unwrap_err().to_string();
            assert!(refused.starts_with("model = logistic reads sparse rows of two"), "{refused}");
        }
        let refused =
            Model::new(&ModelSpec::Softmax, Shape::sparse(6, Target::Classes(2))).unwrap_err();
        assert!(refused.to_string().starts_with("the data are sparse rows"), "{refused}");
    }
}
