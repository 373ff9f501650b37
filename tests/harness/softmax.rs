//! A plain program that learns softmax regression: the oracle of the tests of one's own data. Here,
//! since the harness is compiled with optimisation and the process tests are not.

use std::f64::consts::PI;

/// Rows: the inputs as a model sees them, and the class.
pub type Rows = Vec<(Vec<f64>, usize)>;

/// Passes over the rows.
const PASSES: usize = 20;
/// Most rows of a mini-batch, of two workers together.
const BATCH: usize = 2 * 64;
/// The number of steps over which the learning rate falls from 0.1 to 0, along a cosine.
const COSINE: f64 = 800.0;

/// Returns the accuracy on `test` of softmax regression, trained on `train` by gradient descent
/// with momentum: as many steps as the job of these tests makes, since further ones fit the noise.
#[must_use]
pub fn accuracy_of_softmax(train: &Rows, test: &Rows, classes: usize) -> f64 {
    let inputs = train[0].0.len();
    let scores = |weights: &[f64], row: &[f64]| -> Vec<f64> {
        let score = |weights: &[f64]| {
            let products = weights.iter().zip(row).map(|(weight, value)| weight * value);
            weights[inputs] + products.sum::<f64>()
        };
        weights.chunks_exact(inputs + 1).map(score).collect()
    };
    let (mut weights, mut speed) =
        (vec![0.0; classes * (inputs + 1)], vec![0.0; classes * (inputs + 1)]);
    let batches = train.len().div_ceil(BATCH);
    for step in 0..PASSES * batches {
        // Mini-batches whose sizes differ by at most one.
        let border = |place| train.len() * place / batches;
        let place = step % batches;
        let batch = &train[border(place)..border(place + 1)];
        let mut gradient = vec![0.0; weights.len()];
        for (row, class) in batch {
            let scores = scores(&weights, row);
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            for (at, gradient) in gradient.chunks_exact_mut(inputs + 1).enumerate() {
                let error = (scores[at] - most).exp() / sum - f64::from(u8::from(at == *class));
                gradient.iter_mut().zip(row).for_each(|(it, value)| *it += error * value);
                gradient[inputs] += error;
            }
        }
        let angle = PI * (step as f64 / COSINE).min(1.0);
        let rate = 0.05 * (1.0 + angle.cos());
        for ((weight, speed), gradient) in weights.iter_mut().zip(&mut speed).zip(&gradient) {
            *speed = 0.9 * *speed - rate * gradient / batch.len() as f64;
            *weight += *speed;
        }
    }
    let right = test.iter().filter(|(row, class)| {
        let scores = scores(&weights, row);
        (0..classes).max_by(|&one, &other| scores[one].total_cmp(&scores[other])) == Some(*class)
    });
    right.count() as f64 / test.len() as f64
}
