use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use nalgebra::DMatrix;

#[cfg(all(feature = "std", target_arch = "x86_64"))]
use super::passes::{ByLayer, Gradient};
use super::*;
use crate::examples::Label;
use crate::rng::Random;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
use crate::simd;
use crate::simd::Portable;

const REFERENCE: Shape =
    Shape { inputs: 93, dense: 9, hot: 3, target: Target::Classes(5), picture: None };

fn mlp(hidden: &[u32], activation: Activation) -> ModelSpec {
    ModelSpec::Mlp { hidden: hidden.to_vec(), activation }
}

/// A roughly normal number, spread enough to reach every branch of the kernels.
fn spread(rng: &mut Random) -> f32 {
    ((rng.unit() + rng.unit() + rng.unit() - 1.5) * 2.0) as f32
}

/// Random examples; the one-hot columns are divided evenly among the groups.
fn random_examples(shape: Shape, count: usize, seed: u64) -> Examples {
    let mut rng = Stream::new(seed).fork("examples", 0).rng();
    let mut examples = Examples::new(shape);
    for _ in 0..count {
        let dense: Vec<f32> = (0..shape.dense).map(|_| spread(&mut rng)).collect();
        let mut hot = Vec::new();
        for group in 0..shape.hot {
            let columns = u64::from(shape.inputs - shape.dense);
            let begin = columns * u64::from(group) / u64::from(shape.hot);
            let end = columns * u64::from(group + 1) / u64::from(shape.hot);
            hot.push((u64::from(shape.dense) + begin + rng.below(end - begin)) as u16);
        }
        let label = match shape.target {
            Target::Classes(classes) => Label::Class(rng.below(classes.into()) as u16),
            Target::Value => Label::Value(spread(&mut rng)),
        };
        examples.push(&dense, &hot, label).unwrap();
    }
    examples
}

/// The same examples with all columns stored as dense values.
fn expanded(examples: &Examples) -> Examples {
    let shape = examples.shape();
    let mut dense = Examples::new(Shape { dense: shape.inputs, hot: 0, ..shape });
    for row in (0..examples.len()).map(|index| examples.row(index)) {
        let mut values = row.dense.to_vec();
        values.resize(shape.inputs as usize, 0.0);
        for &index in row.hot {
            values[usize::from(index)] += 1.0;
        }
        dense.push(&values, &[], row.label).unwrap();
    }
    dense
}

/// Logits in `f64`, computed with nalgebra's products: one row for each of `rows`.
fn reference_logits(
    (hidden, outputs): (&[u32], usize),
    activation: Activation,
    params: &[f64],
    examples: &Examples,
    rows: &[u32],
) -> DMatrix<f64> {
    let all = expanded(examples);
    let shape = all.shape();
    let mut values = DMatrix::from_fn(rows.len(), shape.inputs as usize, |sample, column| {
        f64::from(all.row(rows[sample] as usize).dense[column])
    });
    let mut rest = params;
    for (index, &outputs) in hidden.iter().chain([&(outputs as u32)]).enumerate() {
        let (inputs, outputs) = (values.ncols(), outputs as usize);
        let (weight, after) = rest.split_at(inputs * outputs);
        let (bias, after) = after.split_at(outputs);
        rest = after;
        values *= DMatrix::from_row_slice(inputs, outputs, weight);
        for (mut column, bias) in values.column_iter_mut().zip(bias) {
            column.add_scalar_mut(*bias);
        }
        if index < hidden.len() {
            values.apply(|value| {
                *value = match activation {
                    Activation::Relu => value.max(0.0),
                    Activation::Tanh => value.tanh(),
                }
            });
        }
    }
    assert!(rest.is_empty());
    values
}

fn reference_loss(
    (hidden, loss): (&[u32], Loss),
    activation: Activation,
    params: &[f64],
    examples: &Examples,
    rows: &[u32],
) -> f64 {
    let outputs = loss.outputs(examples.shape().target);
    let logits = reference_logits((hidden, outputs), activation, params, examples, rows);
    let losses = logits.row_iter().zip(rows).map(|(logits, &row)| {
        let share = match loss {
            Loss::Nll => 0.0,
            Loss::Smoothed { share } => f64::from(share),
            _ => return loss.at(logits[0], examples.label(row as usize)).0,
        };
        let label = examples.row(row as usize).class();
        let total: f64 = logits.iter().map(|value| value.exp()).sum();
        let mean = logits.iter().sum::<f64>() / logits.len() as f64;
        total.ln() - (1.0 - share) * logits[label] - share * mean
    });
    losses.sum::<f64>() / rows.len() as f64
}

/// Compares loss and gradient with the reference, the gradient at every `stride`-th key.
fn check(hidden: &[u32], activation: Activation, shape: Shape, count: usize, stride: usize) {
    check_loss((hidden, Loss::Nll), activation, shape, count, stride);
}

/// As [`check`], for any loss.
fn check_loss(
    (hidden, of): (&[u32], Loss),
    activation: Activation,
    shape: Shape,
    count: usize,
    stride: usize,
) {
    let model = Model::with_loss(&mlp(hidden, activation), of, shape).unwrap();
    let examples = random_examples(shape, count, 1);
    let rows: Vec<u32> = (0..count as u32).rev().collect();
    let params = model.initial(Stream::new(5).fork("init", 0));
    let mut gradient = vec![f32::NAN; model.parameters()];
    let loss = model.gradient(&params, &examples, &rows, &mut gradient, &mut Workspace::new());

    let mut exact: Vec<f64> = params.iter().map(|&value| f64::from(value)).collect();
    let expected = reference_loss((hidden, of), activation, &exact, &examples, &rows);
    assert!((f64::from(loss) - expected).abs() < 2e-6 * expected, "loss {loss}, not {expected}");
    let step = 1e-5;
    for key in (0..exact.len()).step_by(stride) {
        let value = exact[key];
        exact[key] = value + step;
        let above = reference_loss((hidden, of), activation, &exact, &examples, &rows);
        exact[key] = value - step;
        let below = reference_loss((hidden, of), activation, &exact, &examples, &rows);
        exact[key] = value;
        let expected = (above - below) / (2.0 * step);
        let found = f64::from(gradient[key]);
        assert!(
            (found - expected).abs() < 2e-6 + 1e-5 * expected.abs(),
            "{hidden:?} {activation:?} {shape:?} {of}: gradient of key {key} is {found}, not {expected}"
        );
    }
}

fn values(predictions: DMatrixView<'_, f32>) -> Vec<f32> {
    predictions.iter().copied().collect()
}

fn close(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    for (key, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance, "key {key}: {a} and {b}");
    }
}

#[test]
fn gradients_equal_finite_differences_for_every_kind_of_column() {
    let columns = [(7, 7, 0), (11, 0, 2), (13, 4, 2), (20, 9, 3)];
    for (inputs, dense, hot) in columns {
        for (classes, activation) in [(2, Activation::Relu), (5, Activation::Tanh)] {
            let shape =
                Shape { inputs, dense, hot, target: Target::Classes(classes), picture: None };
            for hidden in [&[][..], &[6], &[9, 4], &[1, 8, 17]] {
                check(hidden, activation, shape, 9, 1);
            }
        }
        let shape = Shape { inputs, dense, hot, target: Target::Classes(3), picture: None };
        check(&[5, 3, 12], Activation::Relu, shape, 9, 1);
        check(&[10, 3], Activation::Tanh, shape, 1, 1);
    }
}

#[test]
fn gradients_of_every_loss_equal_finite_differences() {
    let huber = Loss::Huber { delta: 0.5 };
    for (loss, target) in [
        (Loss::Logistic, Target::Classes(2)),
        (Loss::Squared, Target::Value),
        (Loss::Absolute, Target::Value),
        (huber, Target::Value),
    ] {
        for (inputs, dense, hot) in [(7, 7, 0), (11, 0, 2), (13, 4, 3)] {
            let shape = Shape { inputs, dense, hot, target, picture: None };
            for hidden in [&[][..], &[6], &[9, 4]] {
                check_loss((hidden, loss), Activation::Tanh, shape, 9, 1);
            }
        }
        check_loss((&[17], loss), Activation::Relu, Shape { target, ..REFERENCE }, 64 + 5, 41);
    }
}

#[test]
fn gradients_under_smoothed_labels_agree_with_finite_differences() {
    let loss = Loss::Smoothed { share: 0.3 };
    for hidden in [&[][..], &[9, 4]] {
        check_loss((hidden, loss), Activation::Tanh, REFERENCE, 69, 7);
    }
    let sparse = Model::with_loss(&ModelSpec::Logistic, loss, Shape::sparse(6, Target::Classes(2)));
    let refused = sparse.unwrap_err().to_string();
    assert!(refused.contains("use nll with one output for both classes"), "{refused}");
}

#[test]
fn one_output_of_two_classes_predicts_as_the_softmax_of_two() {
    let shape = Shape { target: Target::Classes(2), ..REFERENCE };
    let examples = random_examples(shape, 70, 3);
    let one = Model::with_loss(&ModelSpec::Linear, Loss::Logistic, shape).unwrap();
    let two = Model::new(&ModelSpec::Softmax, shape).unwrap();
    assert_eq!(2 * one.parameters(), two.parameters());
    let params = one.initial(Stream::new(1).fork("init", 0));
    // The second class has the parameters of the only output, the first has zeros.
    let both: Vec<f32> = params.iter().flat_map(|value| [0.0, *value]).collect();
    let (mut workspace, mut other) = (Workspace::new(), Workspace::new());
    let found = one.predict(&params, &examples, 0..70, &mut workspace);
    let wanted = two.predict(&both, &examples, 0..70, &mut other);
    close(&values(found), &values(wanted), 2e-6);
}

#[test]
fn predictions_of_numbers_are_the_outputs() {
    let shape = Shape { target: Target::Value, ..REFERENCE };
    let examples = random_examples(shape, 100, 4);
    let rows: Vec<u32> = (0..100).collect();
    let model = Model::new(&mlp(&[8], Activation::Tanh), shape).unwrap();
    let params = model.initial(Stream::new(1).fork("init", 0));
    let exact: Vec<f64> = params.iter().map(|&value| f64::from(value)).collect();
    let wanted = reference_logits((&[8], 1), Activation::Tanh, &exact, &examples, &rows);
    let wanted: Vec<f32> = wanted.iter().map(|value| *value as f32).collect();
    let mut workspace = Workspace::new();
    let found = model.predict(&params, &examples, 0..100, &mut workspace);
    close(&values(found), &wanted, 2e-6);
}

#[test]
fn models_and_losses_that_do_not_fit_are_refused_with_a_cure() {
    let refused = |spec: &ModelSpec, loss, target| {
        Model::with_loss(spec, loss, Shape { target, ..REFERENCE }).unwrap_err().to_string()
    };
    for (spec, loss, target, words) in [
        (ModelSpec::Softmax, Loss::Squared, Target::Value, "use model = linear or mlp:WIDTH"),
        (ModelSpec::Linear, Loss::Nll, Target::Value, "use squared, absolute or huber"),
        (ModelSpec::Linear, Loss::Absolute, Target::Classes(2), "use nll, or say that"),
        (ModelSpec::Logistic, Loss::Squared, Target::Value, "predict; use model = linear"),
    ] {
        let refused = refused(&spec, loss, target);
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn gradients_equal_finite_differences_over_many_blocks() {
    // More samples, inputs and classes than fit one block or tile of the kernels.
    let shape =
        Shape { inputs: 330, dense: 300, hot: 2, target: Target::Classes(19), picture: None };
    check(&[17], Activation::Relu, shape, 2, 97);
    check(&[270, 6], Activation::Tanh, shape, 3, 3001);
    check(&[21], Activation::Relu, REFERENCE, 150, 53);
    check(&[], Activation::Relu, REFERENCE, 64 + 5, 17);
}

#[test]
fn the_reference_model_has_2084_parameters() {
    let model = Model::new(&mlp(&[21], Activation::Relu), REFERENCE).unwrap();
    assert_eq!(model.parameters(), 2084);
    let tensors: Vec<(String, Vec<usize>, usize)> = model
        .layout()
        .tensors()
        .iter()
        .map(|tensor| (tensor.name.clone(), tensor.shape.clone(), tensor.keys.indices().start))
        .collect();
    let expected = [
        ("0.weight", vec![93, 21], 0),
        ("0.bias", vec![21], 1953),
        ("2.weight", vec![21, 5], 1974),
        ("2.bias", vec![5], 2079),
    ];
    assert_eq!(tensors, expected.map(|(name, shape, begin)| (name.to_string(), shape, begin)));
}

#[test]
fn parameters_are_counted_for_any_depth() {
    let count = |spec: &ModelSpec| Model::new(spec, REFERENCE).unwrap().parameters();
    assert_eq!(count(&ModelSpec::Softmax), 94 * 5);
    assert_eq!(count(&mlp(&[], Activation::Tanh)), 94 * 5);
    assert_eq!(count(&mlp(&[300, 7, 1], Activation::Tanh)), 94 * 300 + 301 * 7 + 8 + 2 * 5);
}

#[test]
fn models_that_cannot_be_are_refused_by_name() {
    let refused = |spec: &ModelSpec, shape| Model::new(spec, shape).unwrap_err();
    let none = Shape { inputs: 0, dense: 0, hot: 0, ..REFERENCE };
    assert_eq!(refused(&ModelSpec::Softmax, none), ModelError::NoInputs);
    let one = Shape { target: Target::Classes(1), ..REFERENCE };
    assert_eq!(refused(&ModelSpec::Softmax, one), ModelError::TooFewClasses { classes: 1 });
    let error = refused(&ModelSpec::Softmax, Shape { dense: 91, ..REFERENCE });
    assert_eq!(
        error.to_string(),
        "91 dense columns and 3 one-hot groups do not fit into 93 inputs"
    );
    let error = refused(&mlp(&[4, 0, 0], Activation::Relu), REFERENCE);
    let words = "layer 3 of the network, linear0: it has 0 units: it needs 1 or more";
    assert_eq!(error.to_string(), words);
    let error = refused(&mlp(&[1 << 20, 1 << 11], Activation::Relu), REFERENCE);
    assert_eq!(
        error.to_string(),
        "layer 1 brings the model to 2246051840 parameters: at most 1073741823 are allowed"
    );
    let huge = refused(&mlp(&[u32::MAX, u32::MAX], Activation::Relu), REFERENCE).to_string();
    assert!(huge.contains("more than 67108864 values"), "{huge}");
}

#[test]
fn initial_parameters_are_spread_within_their_bounds() {
    let model = Model::new(&mlp(&[21], Activation::Relu), REFERENCE).unwrap();
    let stream = Stream::new(1).fork("init", 0);
    let params = model.initial(stream);
    assert_eq!(params, model.initial(stream));
    assert_ne!(params, model.initial(Stream::new(2).fork("init", 0)));
    for (range, inputs) in [(0..1974, 93.0_f32), (1974..2084, 21.0)] {
        let bound = 1.0 / inputs.sqrt();
        let part = &params[range];
        let mean = part.iter().sum::<f32>() / part.len() as f32;
        let greatest = part.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        assert!(greatest <= bound && greatest > 0.95 * bound, "{greatest} of {bound}");
        assert!(mean.abs() < 0.15 * bound, "mean {mean} with bound {bound}");
    }
}

#[test]
fn a_one_hot_column_equals_the_same_column_given_as_values() {
    let examples = random_examples(REFERENCE, 40, 2);
    let dense = expanded(&examples);
    let rows: Vec<u32> = (0..40).collect();
    for hidden in [&[][..], &[21], &[8, 16]] {
        let spec = mlp(hidden, Activation::Relu);
        let hot_model = Model::new(&spec, examples.shape()).unwrap();
        let dense_model = Model::new(&spec, dense.shape()).unwrap();
        let params = hot_model.initial(Stream::new(3));
        let mut workspace = Workspace::new();
        let mut sparse = vec![0.0; params.len()];
        let mut full = vec![0.0; params.len()];
        let a = hot_model.gradient(&params, &examples, &rows, &mut sparse, &mut workspace);
        let b = dense_model.gradient(&params, &dense, &rows, &mut full, &mut workspace);
        assert!((a - b).abs() < 1e-6, "{a} and {b}");
        close(&sparse, &full, 1e-6);
    }
}

#[test]
fn a_batch_is_the_mean_of_its_rows_and_repeats_count() {
    let examples = random_examples(REFERENCE, 200, 4);
    let model = Model::new(&mlp(&[21], Activation::Tanh), REFERENCE).unwrap();
    let params = model.initial(Stream::new(6));
    let mut workspace = Workspace::new();
    let rows = [7, 3, 7, 199, 0, 7, 120];
    let mut batch = vec![0.0; params.len()];
    let loss = model.gradient(&params, &examples, &rows, &mut batch, &mut workspace);

    let mut mean = vec![0.0; params.len()];
    let mut mean_loss = 0.0;
    let mut single = vec![0.0; params.len()];
    for row in rows {
        mean_loss += model.gradient(&params, &examples, &[row], &mut single, &mut workspace);
        for (mean, single) in mean.iter_mut().zip(&single) {
            *mean += single / rows.len() as f32;
        }
    }
    assert!((loss - mean_loss / rows.len() as f32).abs() < 1e-6);
    close(&batch, &mean, 1e-6);
    assert_eq!(model.gradient(&params, &examples, &[], &mut batch, &mut workspace), 0.0);
    assert!(batch.iter().all(|&value| value == 0.0));
}

#[test]
fn a_workspace_leaves_nothing_behind() {
    let models = [
        (mlp(&[21], Activation::Relu), REFERENCE),
        (
            mlp(&[40, 3], Activation::Tanh),
            Shape { inputs: 70, dense: 70, hot: 0, target: Target::Classes(12), picture: None },
        ),
        (
            ModelSpec::Softmax,
            Shape { inputs: 30, dense: 0, hot: 4, target: Target::Classes(2), picture: None },
        ),
    ];
    let mut shared = Workspace::new();
    for round in 0..3 {
        for (spec, shape) in &models {
            let model = Model::new(spec, *shape).unwrap();
            let examples = random_examples(*shape, 90, 8);
            let params = model.initial(Stream::new(9));
            let rows: Vec<u32> = (0..90 - 31 * round).collect();
            let mut gradients = [vec![0.0; params.len()], vec![1.0; params.len()]];
            let [used, fresh] = &mut gradients;
            let a = model.gradient(&params, &examples, &rows, used, &mut shared);
            let b = model.gradient(&params, &examples, &rows, fresh, &mut Workspace::new());
            assert_eq!((a, used), (b, fresh));
        }
    }
}

#[test]
fn log_probabilities_equal_the_reference() {
    let hidden = [21, 6];
    for classes in [5, 11] {
        let shape = Shape { target: Target::Classes(classes), ..REFERENCE };
        let model = Model::new(&mlp(&hidden, Activation::Relu), shape).unwrap();
        let examples = random_examples(shape, 100, 10);
        let params = model.initial(Stream::new(11));
        let exact: Vec<f64> = params.iter().map(|&value| f64::from(value)).collect();
        let rows: Vec<u32> = (10..90).collect();
        let logits = reference_logits(
            (&hidden, classes as usize),
            Activation::Relu,
            &exact,
            &examples,
            &rows,
        );
        let mut workspace = Workspace::new();
        let found = model.predict(&params, &examples, 10..90, &mut workspace);
        assert_eq!(found.shape(), (classes as usize, 80));
        for (found, logits) in found.column_iter().zip(logits.row_iter()) {
            let total = logits.iter().map(|value| value.exp()).sum::<f64>().ln();
            for (found, logit) in found.iter().zip(logits.iter()) {
                assert!((f64::from(*found) - (logit - total)).abs() < 1e-6);
            }
        }
        let none = model.predict(&params, &examples, 7..7, &mut workspace);
        assert_eq!(none.shape(), (classes as usize, 0));
    }
}

#[test]
fn great_logits_do_not_overflow_and_nan_is_not_hidden() {
    let shape = Shape { inputs: 3, dense: 3, hot: 0, target: Target::Classes(3), picture: None };
    let mut examples = Examples::new(shape);
    examples.push(&[1e4, -1e4, 1.0], &[], 1).unwrap();
    let model = Model::new(&mlp(&[4], Activation::Relu), shape).unwrap();
    let mut params = model.initial(Stream::new(12));
    let mut gradient = vec![0.0; params.len()];
    let mut workspace = Workspace::new();
    let loss = model.gradient(&params, &examples, &[0], &mut gradient, &mut workspace);
    assert!(loss.is_finite() && gradient.iter().all(|value| value.is_finite()));
    params[0] = f32::NAN;
    let loss = model.gradient(&params, &examples, &[0], &mut gradient, &mut workspace);
    assert!(loss.is_nan());
}

/// The bits must not depend on the build, the processor or the instruction set. If this number
/// changes, every recorded result changes.
#[test]
fn a_gradient_keeps_its_bits() {
    let mut digest = 0_u32;
    for (hidden, activation) in [(&[21][..], Activation::Relu), (&[10, 9], Activation::Tanh)] {
        let model = Model::new(&mlp(hidden, activation), REFERENCE).unwrap();
        let examples = random_examples(REFERENCE, 100, 13);
        let rows: Vec<u32> = (0..100).collect();
        let params = model.initial(Stream::new(14));
        let mut gradient = vec![0.0; params.len()];
        let loss = model.gradient(&params, &examples, &rows, &mut gradient, &mut Workspace::new());
        for value in gradient.iter().chain([&loss]) {
            digest = digest.rotate_left(5).wrapping_mul(0x9e37_79b1) ^ value.to_bits();
        }
    }
    assert_eq!(digest, 3_627_869_192);
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
impl simd::Work for Gradient<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: simd::Simd>(self, simd: S) -> f64 {
        ByLayer { gradient: self, finished: &mut |_| () }.run(simd)
    }
}

#[test]
#[cfg(all(feature = "std", target_arch = "x86_64"))]
fn whatever_registers_compute_it_the_gradient_is_the_same_bit_for_bit() {
    for (hidden, shape) in [
        (&[21][..], REFERENCE),
        (&[70, 33, 1, 16], REFERENCE),
        (&[], Shape { inputs: 40, dense: 40, hot: 0, target: Target::Classes(37), picture: None }),
        (
            &[300],
            Shape { inputs: 600, dense: 0, hot: 3, target: Target::Classes(2), picture: None },
        ),
    ] {
        for activation in [Activation::Relu, Activation::Tanh] {
            let layers = words::layers_of(&mlp(hidden, activation)).unwrap();
            let network = net::build(&layers, (shape, Loss::Nll)).unwrap();
            let params = network.initial(Stream::new(5));
            let examples = random_examples(shape, 150, 3);
            let rows: Vec<u32> = (0..150).collect();
            for count in [1, 7, 64, 150] {
                let found: Vec<_> = simd::all()
                    .map(|registers| {
                        let workspace = &mut Workspace::new();
                        let (network, examples, rows) = (&network, &examples, &rows[..count]);
                        let mut out = vec![0.0; params.len()];
                        let (params, gradient) = (&params, &mut out);
                        let batch = MiniBatch::new(examples, rows);
                        let step = Gradient { network, params, batch, gradient, workspace };
                        let loss = registers.run(step);
                        (loss.to_bits(), out.into_iter().map(f32::to_bits).collect::<Vec<_>>())
                    })
                    .collect();
                assert!(found.len() > 1, "this processor has no wide registers");
                assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{hidden:?} {count}");
            }
        }
    }
}

#[test]
fn a_network_reports_the_final_gradient_of_each_layer_the_last_layer_first() {
    let examples = random_examples(REFERENCE, 150, 15);
    for hidden in [&[][..], &[21], &[10, 1, 9]] {
        let model = Model::new(&mlp(hidden, Activation::Tanh), REFERENCE).unwrap();
        let params = model.initial(Stream::new(16));
        // The keys from each weight up to the next one.
        let tensors = model.layout().tensors().iter();
        let weights = tensors.filter(|tensor| tensor.name.ends_with("weight"));
        let begins: Vec<usize> = weights.map(|tensor| tensor.keys.indices().start).collect();
        let ends = begins.iter().skip(1).copied().chain([params.len()]);
        let layers: Vec<Range<usize>> =
            begins.iter().zip(ends).map(|(&from, to)| from..to).collect();
        for count in [1, 64, 150] {
            let rows: Vec<u32> = (0..count).collect();
            let mut expected = vec![0.0; params.len()];
            let mut workspace = Workspace::new();
            let mean = model.gradient(&params, &examples, &rows, &mut expected, &mut workspace);

            let (mut found, mut gradient) = (Vec::new(), vec![0.0; params.len()]);
            let mut done = 0.0;
            let mut finished = |layer: LayerGradient<'_>| {
                let (keys, values) = (layer.keys(), layer.values);
                assert_eq!(values, &expected[keys.clone()], "{hidden:?}, {count} rows, {keys:?}");
                assert!(layer.done > done && layer.done <= 1.0, "{} after {done}", layer.done);
                done = layer.done;
                found.push(keys);
            };
            let loss = model.objective.gradient_by_layer(
                &params,
                MiniBatch::new(&examples, &rows),
                &mut gradient,
                &mut workspace,
                &mut finished,
            );
            found.reverse();
            assert_eq!((found, done), (layers.clone(), 1.0));
            assert_eq!(gradient, expected);
            assert_eq!((loss / f64::from(count)) as f32, mean);
        }
    }
}

#[test]
fn layers_without_arithmetic_take_the_same_time() {
    let model = Model::new(&ModelSpec::Timing { layers: vec![3, 4] }, REFERENCE).unwrap();
    let examples = random_examples(REFERENCE, 1, 17);
    let (mut found, mut gradient) = (Vec::new(), [1.0; 7]);
    let mut finished = |it: LayerGradient<'_>| found.push((it.keys(), it.values.to_vec(), it.done));
    let workspace = &mut Workspace::new();
    let batch = MiniBatch::new(&examples, &[0]);
    model.gradient_by_layer(&[0.0; 7], batch, &mut gradient, workspace, &mut finished);
    assert_eq!(found, [(3..7, vec![0.0; 4], 2.0 / 3.0), (0..3, vec![0.0; 3], 1.0)]);
}

#[test]
fn exponentials_and_tangents_are_right_to_the_last_digits() {
    let both = |value: f32| {
        let mut strip = [value; 8];
        kernels::tanh(Portable, core::slice::from_mut(&mut strip));
        (kernels::exp(Portable, [value; 8])[0], strip[0])
    };
    let close = |found: f32, expected: f64, of: f32| {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= 2.4e-7 * expected.abs(), "of {of}: {found}, not {expected}");
    };
    for step in 0..200_000_u32 {
        let x = -87.0 + step as f32 * (175.0 / 200_000.0);
        let (exp, tanh) = both(x);
        close(exp, libm::exp(f64::from(x)), x);
        close(tanh, libm::tanh(f64::from(x)), x);
        let small = x / 100.0;
        close(both(small).1, libm::tanh(f64::from(small)), small);
    }
    assert_eq!(both(0.0), (1.0, 0.0));
    assert!(both(f32::NAN).0.is_nan() && both(f32::NAN).1.is_nan());
    assert_eq!(both(f32::INFINITY).1, 1.0);
    assert_eq!(both(f32::NEG_INFINITY).1, -1.0);
    assert!(both(f32::NEG_INFINITY).0 < 1.7e-38);
}
