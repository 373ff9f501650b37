//! Evaluations: by the server's driver, or by workers if the driver cannot.

use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::rng::Stream;
use pstrain_roles::node::{Evaluate, EvaluateHere, Evaluated, Event, Input};

use super::{Entry, Settings, World};

impl Settings {
    /// True if the server's driver refuses evaluations: so it is in every fifth world.
    pub(super) fn workers_evaluate(&self) -> bool {
        Stream::new(self.network).fork("evaluations", 0).rng().below(5) == 0
    }
}

/// The event without NaN, which equals nothing.
pub(super) fn comparable(mut event: Event) -> Event {
    if let Event::Evaluated { evaluation, .. } = &mut event {
        let numbers = [&mut evaluation.loss, &mut evaluation.l1];
        numbers.into_iter().filter(|it| it.is_nan()).for_each(|it| *it = -1.0);
    }
    event
}

impl World<'_> {
    /// The driver has no examples, unless evaluations may end the run: then losses go up and down.
    fn by_driver(&self, order: &Evaluate) -> Evaluation {
        if self.settings.job.stopping.patience.is_none() {
            return Evaluation::default();
        }
        let loss = (order.point.version.0 * 37 % 11) as f64;
        Evaluation { examples: 8, loss, ..Evaluation::absent(&order.parameters) }
    }

    pub(super) fn evaluate(&mut self, order: &Evaluate) {
        let version = order.point.version;
        self.to_evaluate.insert(version, Evaluation::absent(&order.parameters));
        let takes = self.span(self.settings.prepare);
        let input = if self.settings.workers_evaluate() {
            Input::Unevaluated { version, why: "it has no evaluator".into() }
        } else {
            Input::Evaluated(Evaluated { point: order.point, evaluation: self.by_driver(order) })
        };
        self.after(takes, Entry::ToServer(input));
    }

    /// Evaluates parameters for the server. Some workers never can, others sometimes cannot.
    pub(super) fn evaluate_here(&mut self, process: usize, order: &EvaluateHere) {
        let takes = self.span(self.settings.prepare) + Duration::from_nanos(1);
        let result = if process % 4 == 3 || self.percent(10) {
            Err("it has no examples to evaluate on".into())
        } else {
            Ok(Evaluation { examples: 1, loss: 0.5, ..Evaluation::absent(&order.parameters) })
        };
        self.after(takes, Entry::To(process, Input::EvaluatedHere(order.ticket, result)));
    }

    /// Checks that workers evaluated the parameters that the server has.
    pub(super) fn check_evaluations(&self, events: &[Event]) {
        for event in events {
            match event {
                Event::Evaluated { point, evaluation } if evaluation.examples > 0 => {
                    let wanted = &self.to_evaluate[&point.version];
                    // NaN if parameters are not finite.
                    assert_eq!(evaluation.l1.to_bits(), wanted.l1.to_bits(), "other parameters");
                    assert_eq!(evaluation.non_zeros, wanted.non_zeros, "other parameters");
                    let driver_does = self.settings.job.stopping.patience.is_some();
                    let evaluates = driver_does || self.settings.workers_evaluate();
                    assert!(evaluates, "the driver evaluates nothing");
                }
                Event::EvaluationRequested { version, .. } => {
                    assert!(
                        self.settings.workers_evaluate() && self.to_evaluate.contains_key(version)
                    );
                }
                _ => {}
            }
        }
    }
}
