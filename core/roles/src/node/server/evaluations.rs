//! Evaluations of the parameters: requested from the driver, and by it or a worker; and the latest
//! result.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::{Keep, Stopping};
use pstrain_wire::worker::EndReason;
use pstrain_wire::{LatestEvaluation, MOST_MOMENTS, Moment};

use crate::node::by_workers::ByWorkers;
use crate::node::{Effect, Evaluate, Evaluated, Event, ExactPoint, Outbox, Point};

/// The evaluations of a run.
#[derive(Debug, Default)]
pub(in crate::node) struct Evaluations {
    /// The latest version whose evaluation was requested or is being prepared.
    pub(in crate::node) last: Option<Version>,
    /// Evaluations that were requested and have not finished.
    pub(in crate::node) requested: Vec<Evaluate>,
    /// The latest result.
    pub(in crate::node) latest: Option<LatestEvaluation>,
    /// The run at its evaluations.
    pub(in crate::node) history: Vec<Moment>,
    /// The best value that the job's patience watches.
    best: Option<f64>,
    /// The parameters of the best evaluation, if they are to be the run's model.
    kept: Option<Evaluate>,
    /// Evaluations since the best one, without evaluations that lack the target's metric.
    since_best: u32,
    /// True once the user has been told that evaluations do not have the target's metric.
    unknown_is_told: bool,
    /// Evaluations that the driver cannot make.
    pub(in crate::node) by_workers: ByWorkers,
}

impl Evaluations {
    /// Requests an evaluation from the driver.
    pub(in crate::node) fn request(&mut self, evaluate: Evaluate, out: &mut Outbox) {
        self.requested.push(evaluate.clone());
        out.push(Effect::Evaluate(evaluate));
    }

    /// The requested evaluation of a version.
    pub(in crate::node) fn requested(&self, version: Version) -> Option<&Evaluate> {
        self.requested.iter().find(|it| it.point.version == version)
    }

    /// The requested evaluation of a version that the driver has refused: it stays requested until
    /// it is finished.
    pub(in crate::node) fn refused(&self, version: Version) -> &Evaluate {
        let Some(evaluate) = self.requested(version) else {
            unreachable!("the evaluation of version {version} is not requested")
        };
        evaluate
    }

    /// The driver has refused to evaluate a version. Returns false if that is known: a driver that
    /// is asked again after a restart refuses again.
    pub(in crate::node) fn refuse(&mut self, version: Version, why: String) -> bool {
        let is_new = self.requested(version).is_some() && !self.by_workers.has(version);
        if is_new {
            self.by_workers.refuse(version, why);
        }
        is_new
    }

    /// Goes without the evaluation of a version. The user is told why once.
    pub(in crate::node) fn leave_out(
        &mut self,
        version: Version,
        why: String,
        out: &mut Outbox,
    ) -> Evaluated {
        if self.by_workers.is_news() {
            out.push(Effect::Report(Event::Unevaluated { version, why }));
        }
        let Evaluate { point, parameters } = self.refused(version);
        Evaluated { point: *point, evaluation: Evaluation::absent(parameters) }
    }

    /// The next part of parameters of `keys` for the worker that evaluates.
    ///
    /// # Panics
    /// If no part is due.
    pub(in crate::node) fn next_part(&mut self, now: Time, keys: KeyRange) -> (WorkerId, Effect) {
        self.by_workers.next_part(now, keys, &self.requested)
    }

    /// An evaluation has finished.
    pub(in crate::node) fn finish(&mut self, evaluated: &Evaluated) {
        let Evaluated { point, evaluation } = evaluated;
        self.requested.retain(|requested| requested.point.version != point.version);
        self.by_workers.finish(point.version);
        if evaluation.examples > 0 {
            self.latest = Some(LatestEvaluation {
                version: point.version,
                loss: evaluation.loss,
                metrics: evaluation.named(),
            });
        }
    }

    /// Remembers the time of the latest evaluation, with the loss of mini-batches then. Once there
    /// are many, every second one is forgotten.
    pub(in crate::node) fn remember(&mut self, now: Time, loss: Option<f64>) {
        if self.history.len() >= MOST_MOMENTS {
            let mut keeps = false;
            self.history.retain(|_| {
                keeps = !keeps;
                keeps
            });
        }
        let latest = self.latest.as_ref().and_then(|latest| latest.metrics.first());
        let metric = latest.map(|(_, value)| *value);
        self.history.push(Moment { at: now.since(Time::ZERO), loss, metric });
    }

    /// Returns why this evaluation ends the run, if it does.
    pub(in crate::node) fn end_by(
        &mut self,
        Evaluated { point, evaluation }: &Evaluated,
        stopping: &Stopping,
    ) -> Option<EndReason> {
        if evaluation.examples == 0 {
            return None;
        }
        if stopping.unknown(evaluation).is_some() {
            return None; // it says nothing of the metric that patience watches
        }
        match stopping.better(evaluation, self.best) {
            Some(best) => {
                (self.best, self.since_best) = (Some(best), 0);
                if stopping.keep == Keep::Best {
                    self.kept = self.requested(point.version).cloned();
                }
            }
            None => self.since_best = self.since_best.saturating_add(1),
        }
        if stopping.target.as_ref().is_some_and(|goal| goal.is_reached(evaluation)) {
            return Some(EndReason::TargetReached);
        }
        let is_over = stopping.patience.is_some_and(|patience| self.since_best >= patience);
        is_over.then_some(EndReason::NoImprovement)
    }

    /// The parameters of the best evaluation, if they are to be the run's model.
    pub(in crate::node) const fn kept(&self) -> Option<&Evaluate> {
        self.kept.as_ref()
    }

    /// Returns the report that an evaluation does not have the target's metric, once.
    pub(in crate::node) fn note_unknown(
        &mut self,
        evaluation: &Evaluation,
        stopping: &Stopping,
    ) -> Option<Event> {
        let metric = stopping.unknown(evaluation).filter(|_| evaluation.examples > 0)?;
        let is_told = core::mem::replace(&mut self.unknown_is_told, true);
        (!is_told).then(|| Event::TargetUnknown {
            metric: metric.into(),
            metrics: evaluation.named().into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// Saves or restores the state, for parameters of `keys` keys.
    pub(in crate::node) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        keys: usize,
    ) -> Result<(), SavedError> {
        archive.small(&mut self.last)?;
        archive.small(&mut self.latest)?;
        archive.small(&mut self.history)?;
        archive.small(&mut self.best)?;
        archive.small(&mut self.since_best)?;
        archive.small(&mut self.unknown_is_told)?;
        archive.small(&mut self.by_workers)?;
        let all = self.requested.iter().chain(&self.kept);
        let mut points: Vec<ExactPoint> = all.map(|evaluate| evaluate.point.into()).collect();
        archive.small(&mut points)?;
        let mut keeps = self.kept.is_some();
        archive.small(&mut keeps)?;
        if archive.restores() {
            let empty = |point| Evaluate { point: Point::from(point), parameters: Arc::default() };
            self.requested = points.into_iter().map(empty).collect();
            self.kept = if keeps { self.requested.pop() } else { None };
        }
        for evaluate in self.requested.iter_mut().chain(&mut self.kept) {
            archive.shared_of("evaluated", &mut evaluate.parameters, keys)?;
        }
        Ok(())
    }
}
