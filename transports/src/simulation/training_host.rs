//! The host of an ordinary training run: real gradients, real evaluations.

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::Examples;
use pstrain_compute::id::{PartId, WorkerId};
use pstrain_compute::source::GradientSource;
use pstrain_compute::time::Time;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{
    Compute, Computed, ComputedRange, Evaluate, EvaluateHere, Evaluated, Event, Prepare, Prepared,
};
use pstrain_wire::worker::ExamplesChunk;

use super::cluster::{Host, Origin};
use crate::evaluate::evaluate;
use crate::gradient::compute;
use crate::loaded::{Loaded, Loader, prepare_trainer};
use crate::services::Partitions;

/// The host of an ordinary training run: real gradients, real evaluations.
pub struct TrainingHost<'a> {
    loader: Loader<'a>,
    trainers: Vec<Option<Trainer>>,
    evaluation: Box<dyn GradientSource + 'a>,
    partitions: Partitions<'a>,
    report: Box<dyn FnMut(Time, Origin, Event) + 'a>,
}

impl std::fmt::Debug for TrainingHost<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainingHost").field("evaluation", &self.evaluation).finish_non_exhaustive()
    }
}

impl<'a> TrainingHost<'a> {
    /// A host whose workers take their data from `loader`, whose server evaluates on the first
    /// part of `evaluation` and makes partitions with `partition`, and that tells `report` of every
    /// event.
    pub fn new<L: Into<Loaded>>(
        loader: impl Fn(&Prepare) -> Result<L, String> + Send + 'a,
        evaluation: Box<dyn GradientSource + 'a>,
        partition: impl Fn(PartId) -> Examples + Send + 'a,
        report: impl FnMut(Time, Origin, Event) + 'a,
    ) -> Self {
        Self {
            loader: Box::new(move |order: &Prepare| loader(order).map(Into::into)),
            trainers: Vec::new(),
            evaluation,
            partitions: Partitions::new(move |part| Some(partition(part))),
            report: Box::new(report),
        }
    }

    fn trainer(&mut self, worker: WorkerId) -> &mut Option<Trainer> {
        let place = worker.0 as usize;
        if self.trainers.len() <= place {
            self.trainers.resize_with(place + 1, || None);
        }
        &mut self.trainers[place]
    }
}

impl Host for TrainingHost<'_> {
    fn report(&mut self, now: Time, from: Origin, event: Event) {
        (self.report)(now, from, event);
    }

    fn prepare(&mut self, worker: WorkerId, mut order: Box<Prepare>) -> Result<Prepared, String> {
        let (trainer, prepared) = prepare_trainer(&self.loader, &mut order)?;
        *self.trainer(worker) = Some(trainer);
        Ok(prepared)
    }

    fn compute(
        &mut self,
        worker: WorkerId,
        order: Compute,
        ranges: &mut Vec<(ComputedRange, f64)>,
    ) -> Result<Computed, String> {
        // A worker asks for gradients once its data are ready, never before.
        let trainer = self.trainer(worker).as_mut().ok_or("its data are not ready")?;
        compute(trainer, order, |range, done| ranges.push((range, done)))
    }

    fn evaluate(&mut self, order: Evaluate) -> Result<Evaluated, String> {
        evaluate(&mut *self.evaluation, order)
    }

    fn evaluate_here(
        &mut self,
        worker: WorkerId,
        order: &EvaluateHere,
    ) -> Result<Evaluation, String> {
        let trainer = self.trainer(worker).as_mut().ok_or("its data are not ready")?;
        trainer.evaluate(&order.parameters).map_err(|error| error.to_string())
    }

    fn examples(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk> {
        self.partitions.chunk(part, from)
    }
}
