//! One training step of the reference model, MLP 93-21-5: gradient of a mini-batch and plain
//! gradient descent.
//!
//! `sparse` takes the one-hot columns as indices, as the trainer does; `dense` has every column as
//! a value; `wide` is a network whose products fill the processor; `nalgebra` is the step of
//! `dense` written with nalgebra's products, for comparison in the same run.
//!
//! `cargo bench -p pstrain-compute --features std --bench step`

use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use nalgebra::{DMatrix, DVector};
use pstrain_compute::examples::{Examples, Picture, Shape, Target};
use pstrain_compute::model::{Activation, Model, ModelSpec, Team, Workspace};
use pstrain_compute::rng::Stream;

const SPARSE: Shape =
    Shape { inputs: 93, dense: 9, hot: 3, target: Target::Classes(5), picture: None };
const DENSE: Shape =
    Shape { inputs: 93, dense: 93, hot: 0, target: Target::Classes(5), picture: None };
const PICTURES: Shape =
    Shape { inputs: 784, dense: 784, hot: 0, target: Target::Classes(10), picture: None };
const SMALL: Picture = Picture { height: 28, width: 28, channels: 1 };
const COLOURED: Picture = Picture { height: 32, width: 32, channels: 3 };
const NETWORKS: [(&str, Picture); 4] = [
    ("lenet", SMALL),
    ("resnet:8", COLOURED),
    ("resnet:18,64", COLOURED),
    ("inception-bn-small", Picture { channels: 3, ..SMALL }),
];
const HIDDEN: u32 = 21;
const BATCHES: [usize; 3] = [32, 128, 1024];
/// Number of mini-batches that take turns, so that the examples are not all in the nearest cache.
const ROUNDS: usize = 16;
const LEARNING_RATE: f32 = 0.1;

/// As many threads as the variable `THREADS` says; 1 by default.
#[derive(Debug)]
struct Threads;

impl Team for Threads {
    fn size(&self) -> usize {
        std::env::var("THREADS").map_or(1, |text| text.parse().unwrap_or(1))
    }

    fn run(&self, parts: &mut [&mut (dyn FnMut() + Send)]) {
        let Some((own, others)) = parts.split_first_mut() else { return };
        std::thread::scope(|scope| {
            for part in others {
                scope.spawn(part);
            }
            own();
        });
    }
}

fn main() {
    divan::main();
}

/// Draws examples of `shape` at random; the one-hot columns are divided among the groups.
fn examples(shape: Shape, count: usize) -> Examples {
    let mut rng = Stream::new(1).rng();
    let mut examples = Examples::new(shape);
    let columns = u64::from(shape.inputs - shape.dense) / u64::from(shape.hot.max(1));
    for _ in 0..count {
        let dense: Vec<f32> = (0..shape.dense).map(|_| rng.unit() as f32 - 0.5).collect();
        let begin = |group: u32| u64::from(shape.dense) + columns * u64::from(group);
        let hot: Vec<u16> =
            (0..shape.hot).map(|group| (begin(group) + rng.below(columns)) as u16).collect();
        let label = rng.below(u64::from(shape.target.predictions())) as u16;
        assert!(examples.push(&dense, &hot, label).is_ok());
    }
    examples
}

fn mlp(bencher: Bencher<'_, '_>, shape: Shape, hidden: &[u32], batch: usize) {
    let spec = ModelSpec::Mlp { hidden: hidden.to_vec(), activation: Activation::Relu };
    step(bencher, shape, &spec, batch);
}

fn step(bencher: Bencher<'_, '_>, shape: Shape, spec: &ModelSpec, batch: usize) {
    let Ok(model) = Model::new(spec, shape) else { panic!("{spec:?} does not fit") };
    let examples = examples(shape, batch * ROUNDS);
    let mut rows: Vec<u32> = (0..examples.len() as u32).collect();
    Stream::new(2).rng().shuffle(&mut rows);
    let mut params = model.initial(Stream::new(3));
    let mut gradient = vec![0.0; params.len()];
    let mut workspace = Workspace::of(Arc::new(Threads));
    let mut batches = rows.chunks(batch).cycle();
    bencher.counter(ItemsCount::new(batch)).bench_local(|| {
        let rows = batches.next().unwrap_or_default();
        let loss = model.gradient(&params, &examples, rows, &mut gradient, &mut workspace);
        for (value, slope) in params.iter_mut().zip(&gradient) {
            *value -= LEARNING_RATE * slope;
        }
        loss
    });
}

#[divan::bench(args = BATCHES)]
fn sparse(bencher: Bencher<'_, '_>, batch: usize) {
    mlp(bencher, SPARSE, &[HIDDEN], batch);
}

#[divan::bench(args = BATCHES)]
fn dense(bencher: Bencher<'_, '_>, batch: usize) {
    mlp(bencher, DENSE, &[HIDDEN], batch);
}

#[divan::bench(args = BATCHES)]
fn wide(bencher: Bencher<'_, '_>, batch: usize) {
    mlp(bencher, PICTURES, &[200, 200], batch);
}

/// Networks of pictures with 10 classes; `networks.py` among the peers has them in PyTorch.
#[divan::bench(args = NETWORKS, consts = [32, 128])]
fn network<const BATCH: usize>(bencher: Bencher<'_, '_>, (name, picture): (&str, Picture)) {
    let inputs = picture.values();
    let shape = Shape { inputs, dense: inputs, picture: Some(picture), ..PICTURES };
    step(bencher, shape, &ModelSpec::Network(name.into()), BATCH);
}

/// The step as a user of nalgebra would write it.
#[divan::bench(args = BATCHES)]
fn nalgebra(bencher: Bencher<'_, '_>, batch: usize) {
    let examples = examples(DENSE, batch * ROUNDS);
    let (inputs, classes) = (DENSE.inputs as usize, DENSE.target.predictions() as usize);
    let inputs_of = |round: usize| {
        DMatrix::from_fn(inputs, batch, |column, sample| {
            examples.row(round * batch + sample).dense[column]
        })
    };
    let batches: Vec<DMatrix<f32>> = (0..ROUNDS).map(inputs_of).collect();
    let mut rng = Stream::new(3).rng();
    let mut draw = |_, _| rng.unit() as f32 * 0.2 - 0.1;
    let mut first = DMatrix::from_fn(HIDDEN as usize, inputs, &mut draw);
    let mut second = DMatrix::from_fn(classes, HIDDEN as usize, &mut draw);
    let mut first_bias = DVector::zeros(HIDDEN as usize);
    let mut second_bias = DVector::zeros(classes);
    let mut rounds = (0..ROUNDS).cycle();
    bencher.counter(ItemsCount::new(batch)).bench_local(|| {
        let round = rounds.next().unwrap_or_default();
        let input = &batches[round];
        let mut hidden = &first * input;
        for mut column in hidden.column_iter_mut() {
            column += &first_bias;
            column.apply(|value| *value = value.max(0.0));
        }
        let mut delta = &second * &hidden;
        for (sample, mut column) in delta.column_iter_mut().enumerate() {
            column += &second_bias;
            let greatest = column.max();
            column.apply(|value| *value = (*value - greatest).exp());
            let total = column.sum() * batch as f32;
            column /= total;
            let label = examples.row(round * batch + sample).class();
            column[label] -= 1.0 / batch as f32;
        }
        let mut back = second.transpose() * &delta;
        back.zip_apply(&hidden, |slope, value| {
            *slope = if value > 0.0 { *slope } else { 0.0 };
        });
        second -= (&delta * hidden.transpose()) * LEARNING_RATE;
        second_bias -= delta.column_sum() * LEARNING_RATE;
        first -= (&back * input.transpose()) * LEARNING_RATE;
        first_bias -= back.column_sum() * LEARNING_RATE;
    });
}
