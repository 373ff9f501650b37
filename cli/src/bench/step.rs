//! A training step of a worker: gradient and update, on one thread.

use std::hint::black_box;

use indicatif::ProgressBar;
use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::model::{Activation, Model, ModelSpec};
use pstrain_compute::optim::{UpdateSpec, Updater};
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_data::{Prepared, Settings, SyntheticNslKdd};
use pstrain_policy::trainer::Trainer;
use pstrain_transports::WallClock;

use super::{Effort, Figure};
use crate::args::BenchPart;

const SEED: u64 = 1;

pub(super) fn measure(effort: Effort, bar: &ProgressBar) -> anyhow::Result<Vec<Figure>> {
    let rows = pstrain_data::synthetic::DEFAULT_ROWS;
    let data = Prepared::load(&SyntheticNslKdd { rows, seed: SEED }, &Settings::default())?;
    let mut cases = Vec::new();
    for batch in [32, 128, 1024] {
        cases.push(Case::new(&data, vec![21], batch)?);
    }
    cases.push(Case::new(&data, vec![512], 128)?);
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..effort.rounds {
        for (case, times) in cases.iter_mut().zip(&mut times) {
            bar.set_message(case.what());
            times.push(case.turn()?);
        }
    }
    Ok(cases
        .iter()
        .zip(times)
        .map(|(case, times)| {
            let batch = f64::from(case.batch);
            Figure::of_times(BenchPart::Step, case.what(), times).with_rate(batch, "samples")
        })
        .collect())
}

/// A model in training.
struct Case {
    layers: String,
    batch: u32,
    trainer: Trainer,
    updater: Updater,
    params: Vec<f32>,
    gradient: Vec<f32>,
    step: u64,
}

impl Case {
    fn new(data: &Prepared, hidden: Vec<u32>, batch: u32) -> anyhow::Result<Self> {
        let shape = data.train.shape();
        let middle: Vec<String> = hidden.iter().map(u32::to_string).collect();
        let layers =
            format!("{}-{}-{}", shape.inputs, middle.join("-"), shape.target.predictions());
        let model = Model::new(&ModelSpec::Mlp { hidden, activation: Activation::Relu }, shape)?;
        let params = model.initial(Stream::new(SEED));
        let updater = Updater::new(&UpdateSpec::sgd(0.01), params.len())?;
        let trainer =
            Trainer::new(model, data.train.clone(), Stream::new(SEED), WorkerId(0), batch)?;
        let mut case =
            Self { layers, batch, trainer, updater, params, gradient: Vec::new(), step: 0 };
        case.turn()?;
        Ok(case)
    }

    fn what(&self) -> String {
        format!("step of {}, batch {}", self.layers, self.batch)
    }

    /// The seconds of one step, measured over about 20 ms.
    fn turn(&mut self) -> anyhow::Result<f64> {
        let clock = WallClock::start();
        let (begin, mut done) = (clock.now(), 0);
        loop {
            for _ in 0..16 {
                let task = Task::own(WorkerId(0), BatchId(self.step));
                self.trainer.compute(task, &self.params, &mut self.gradient)?;
                self.updater.apply(&mut self.params, &self.gradient, Version(self.step));
                self.step += 1;
            }
            done += 16;
            let spent = (clock.now() - begin).as_secs_f64();
            if spent > 0.02 {
                black_box(&self.params);
                return Ok(spent / f64::from(done));
            }
        }
    }
}
