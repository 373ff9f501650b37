//! The speed of this machine at fixed work, so that training times of different machines can be
//! compared: a time divided by the time of a reference step is a number of reference steps.
//!
//! The work is the same for every job: a product of two matrices, and mini-batches of the reference
//! task (93-21-5, 128 examples, plain SGD, the shipped synthetic data). All of it runs on one
//! thread. The best of several repetitions counts, because it was disturbed least; the median tells
//! how quiet the machine was.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Context as _;
use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::model::{Activation, Model, ModelSpec};
use pstrain_compute::optim::{UpdateSpec, Updater};
use pstrain_compute::reference::SquareProduct;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_data::{Prepared, Settings};
use pstrain_policy::trainer::Trainer;
use pstrain_transports::WallClock;
use serde::{Deserialize, Serialize};

use crate::job::source_of;

/// Seed of the parameters and of the order of the examples; it does not affect the times.
const SEED: u64 = 1;

/// The times of this machine for the fixed work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// The product of two square matrices of 32-bit floats.
    pub(crate) matrix_product: MatrixProduct,
    /// Mini-batches of the reference task: gradient and update.
    pub(crate) reference_steps: ReferenceSteps,
    /// The time of one reference step: the best time divided by the number of steps.
    pub(crate) reference_step_s: f64,
}

/// The product of two square matrices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MatrixProduct {
    /// Rows and columns.
    pub(crate) size: usize,
    /// The time of one product.
    #[serde(flatten)]
    pub(crate) times: Times,
}

/// Training steps on the reference task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReferenceSteps {
    /// Steps of one repetition.
    pub(crate) steps: u64,
    /// Examples in a mini-batch.
    pub(crate) batch_size: u32,
    /// The time of one repetition.
    #[serde(flatten)]
    pub(crate) times: Times,
}

/// Times of repetitions of the same work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// The shortest time.
    pub(crate) best_s: f64,
    /// The median time.
    pub(crate) median_s: f64,
    /// Number of timed repetitions.
    pub(crate) repetitions: u32,
}

impl Calibration {
    /// Converts a time to reference steps of this machine.
    pub(crate) fn in_steps(&self, time_s: f64) -> f64 {
        time_s / self.reference_step_s
    }
}

/// The amount of work to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    size: usize,
    products: u32,
    steps: u64,
    repetitions: u32,
    rows: u64,
}

/// The work that defines the reported numbers.
const FULL: Effort = Effort {
    size: 512,
    products: 11,
    steps: 1000,
    repetitions: 7,
    rows: pstrain_data::synthetic::DEFAULT_ROWS,
};

/// Measures this machine. Takes a few seconds of one core.
///
/// # Errors
///
/// If the reference task cannot be set up.
pub(crate) fn measure() -> anyhow::Result<Calibration> {
    measure_with(FULL)
}

fn measure_with(effort: Effort) -> anyhow::Result<Calibration> {
    let matrix_product = MatrixProduct { size: effort.size, times: products(effort)? };
    let batch_size = 128;
    let times = reference_steps(effort, batch_size)?;
    let reference_steps = ReferenceSteps { steps: effort.steps, batch_size, times };
    let reference_step_s = times.best_s / effort.steps as f64;
    Ok(Calibration { matrix_product, reference_steps, reference_step_s })
}

fn products(effort: Effort) -> anyhow::Result<Times> {
    let mut work = SquareProduct::new(effort.size, Stream::new(SEED));
    times(effort.products, || {
        work.multiply();
        Ok(())
    })
}

fn reference_steps(effort: Effort, batch_size: u32) -> anyhow::Result<Times> {
    let source = source_of(&format!("synthetic:{}", effort.rows)).map_err(anyhow::Error::msg)?;
    let data = Prepared::load(&*source, &Settings::default())?;
    let spec = ModelSpec::Mlp { hidden: vec![21], activation: Activation::Relu };
    let model = Model::new(&spec, data.train.shape())?;
    let seed = Stream::new(SEED);
    let mut params = model.initial(seed);
    let mut updater = Updater::new(&UpdateSpec::sgd(0.01), params.len())?;
    let mut trainer = Trainer::new(model, data.train, seed, WorkerId(0), batch_size)?;
    let mut gradient = Vec::new();
    times(effort.repetitions, || {
        for step in 0..effort.steps {
            trainer.compute(Task::own(WorkerId(0), BatchId(step)), &params, &mut gradient)?;
            updater.apply(&mut params, &gradient, Version(step));
        }
        black_box(&params);
        Ok(())
    })
}

/// Runs `work` once to warm up, then `repetitions` times with a clock.
fn times(repetitions: u32, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Times> {
    let clock = WallClock::start();
    work()?;
    let mut times = (0..repetitions)
        .map(|_| {
            let begin = clock.now();
            work()?;
            Ok(clock.now() - begin)
        })
        .collect::<anyhow::Result<Vec<Duration>>>()?;
    times.sort_unstable();
    let best = times.first().context("nothing was measured")?;
    let median = times.get(times.len() / 2).context("nothing was measured")?;
    Ok(Times { best_s: best.as_secs_f64(), median_s: median.as_secs_f64(), repetitions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_work_that_was_asked_for() {
        let effort = Effort { size: 24, products: 3, steps: 20, repetitions: 3, rows: 2000 };
        let found = measure_with(effort).unwrap();
        for times in [found.matrix_product.times, found.reference_steps.times] {
            assert!(times.best_s > 0.0 && times.best_s <= times.median_s, "{times:?}");
            assert_eq!(times.repetitions, 3);
        }
        assert_eq!((found.matrix_product.size, found.reference_steps.steps), (24, 20));
        assert_eq!(found.reference_step_s, found.reference_steps.times.best_s / 20.0);
        assert_eq!(found.in_steps(found.reference_step_s), 1.0);
    }

    #[test]
    fn the_work_is_done_once_more_than_it_is_timed() {
        let mut done = 0;
        times(5, || {
            done += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(done, 6);
    }
}
