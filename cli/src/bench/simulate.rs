//! A run in virtual time, compared with its gradients and evaluations alone.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use pstrain_compute::evaluation::evaluate;
use pstrain_compute::id::{BatchId, WorkerId};
use pstrain_compute::model::Workspace;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_policy::trainer::Trainer;
use pstrain_transports::WallClock;

use super::{Effort, Figure};
use crate::args::BenchPart;
use crate::job::Layers;
use crate::simulate::{DataCache, Virtual};

/// Consistency, workers and epochs of each run, over links with jitter.
const CASES: [(&str, &str, &str); 2] = [("bsp", "2", "10"), ("ssp:3", "8", "10")];

pub(super) fn measure(effort: Effort, bar: &ProgressBar) -> anyhow::Result<Vec<Figure>> {
    let cache = DataCache::default();
    let mut figures = Vec::new();
    for (consistency, workers, epochs) in CASES {
        let settings = [
            ("consistency", consistency),
            ("workers", workers),
            ("epochs", epochs),
            ("link", "all.delay=20ms all.jitter=5ms all.distribution=normal"),
            ("compute", "4.5ms"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let layers = Layers::of("bench", &settings.into_iter().collect())?;
        let run = Virtual::resolve(&layers, &cache)?;
        let what = format!("simulated run: {consistency}, {workers} workers, {epochs} epochs");
        let (mut times, mut limits, mut gradients) = (Vec::new(), Vec::new(), 0);
        for _ in 0..effort.rounds {
            bar.set_message(what.clone());
            let clock = WallClock::start();
            let outcome = run.run(&AtomicBool::new(false), |_, _, _| ())?;
            times.push(clock.now().as_secs_f64());
            gradients = outcome.trained.ledger.applied;
            limits.push(arithmetic(&run, gradients)?);
        }
        figures.push(
            Figure::of_times(BenchPart::Simulate, what, times)
                .with_rate(gradients as f64, "gradients")
                .with_limit(&limits, "gradients and evaluations alone"),
        );
    }
    Ok(figures)
}

/// The seconds that `gradients` gradients of a run and its evaluations take alone.
fn arithmetic(run: &Virtual, gradients: u64) -> anyhow::Result<f64> {
    let (job, data) = (&run.job, Arc::clone(&run.data));
    let model = job.build_model()?;
    let seed = Stream::new(job.seed);
    let params = model.initial(seed);
    let part = data.partition(WorkerId(0));
    let mut trainer = Trainer::new(model.clone(), part, seed, WorkerId(0), job.batch_size)?;
    let (mut gradient, mut workspace) = (Vec::new(), Workspace::new());
    let clock = WallClock::start();
    for batch in 0..gradients {
        trainer.compute(Task::own(WorkerId(0), BatchId(batch)), &params, &mut gradient)?;
    }
    for _ in 0..=job.budget.epochs {
        black_box(evaluate(&model, &params, &data.evaluation, &mut workspace));
    }
    Ok(clock.now().as_secs_f64())
}
