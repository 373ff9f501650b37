//! The mean of the models of all workers.

use alloc::vec::Vec;

/// Returns the mean of models of the same length, and the greatest Euclidean distance of one of
/// them from it: the consensus distance (Kong et al., "Consensus control for decentralized deep
/// learning", ICML 2021).
///
/// # Panics
/// If there is no model, or they differ in length.
#[must_use]
pub fn average(models: &[&[f32]]) -> (Vec<f32>, f64) {
    let len = models[0].len();
    assert!(models.iter().all(|model| model.len() == len), "models of one length");
    let mean = |key: usize| {
        models.iter().map(|model| f64::from(model[key])).sum::<f64>() / models.len() as f64
    };
    let mean: Vec<f64> = (0..len).map(mean).collect();
    let distance = |model: &&[f32]| {
        let squares = model.iter().zip(&mean).map(|(value, mean)| {
            let difference = f64::from(*value) - mean;
            difference * difference
        });
        libm::sqrt(squares.sum())
    };
    let greatest = models.iter().map(distance).fold(0.0, f64::max);
    (mean.into_iter().map(|value| value as f32).collect(), greatest)
}
