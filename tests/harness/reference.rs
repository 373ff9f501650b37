//! Sequential BSP without a server: the oracle of the equivalence tests.

use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::optim::Updater;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_policy::trainer::Trainer;

use crate::toy::{Toy, partition_of};

/// Returns the parameters after sequential SGD over the union of the workers' mini-batches, summed
/// in worker order, until the global budget is used up.
///
/// # Panics
/// If the job cannot be built.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test's own job is right")]
pub fn sequential_bsp(toy: &Toy) -> Vec<f32> {
    let job = &toy.job;
    let workers = job.membership.workers;
    let model = job.build_model().unwrap();
    let seed = Stream::new(job.seed);
    let mut params = model.initial(seed.fork("initial", 0));
    let mut updater = Updater::new(&job.update, params.len()).unwrap();
    let mut trainers: Vec<Trainer> = (0..workers)
        .map(|worker| {
            let examples = partition_of(&toy.train, workers, WorkerId(worker));
            Trainer::new(model.clone(), examples, seed, WorkerId(worker), job.batch_size).unwrap()
        })
        .collect();
    let budget = toy.train.len() as u64 * u64::from(job.budget.epochs);
    let (mut samples, mut round) = (0, 0);
    while samples < budget {
        let mut gradients = Vec::new();
        for (worker, trainer) in (0..).map(WorkerId).zip(&mut trainers) {
            let mut gradient = Vec::new();
            let task = Task::own(worker, BatchId(round));
            let computed = trainer.compute(task, &params, &mut gradient).unwrap();
            gradients.push((computed.samples, gradient));
        }
        let all: u32 = gradients.iter().map(|(samples, _)| samples).sum();
        let mut mean = vec![0.0_f32; params.len()];
        for (samples, gradient) in &gradients {
            let weight = (f64::from(*samples) / f64::from(all)) as f32;
            for (sum, value) in mean.iter_mut().zip(gradient) {
                *sum += weight * value;
            }
        }
        updater.apply(&mut params, &mean, Version(round));
        samples += u64::from(all);
        round += 1;
    }
    params
}
