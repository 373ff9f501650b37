//! Evaluations: each replica has an evaluator or not, and so has each worker.

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::rng::Stream;
use pstrain_roles::node::{Evaluate, EvaluateHere, Evaluated, Input};

use super::{Happening, Lab};

impl Lab {
    /// True if `process` can evaluate.
    fn evaluates(&self, process: usize) -> bool {
        Stream::new(self.seed).fork("evaluations", process as u64).rng().below(3) > 0
    }

    pub(super) fn evaluate(&mut self, process: usize, order: &Evaluate) {
        let input = if self.evaluates(process) {
            Input::Evaluated(Evaluated { point: order.point, evaluation: Evaluation::default() })
        } else {
            let why = String::from("it has no evaluator");
            Input::Unevaluated { version: order.point.version, why }
        };
        self.after(self.delay, Happening::To(process, input));
    }

    pub(super) fn evaluate_here(&mut self, process: usize, order: &EvaluateHere) {
        let result = match self.evaluates(process) {
            true => Ok(Evaluation { examples: 1, ..Evaluation::default() }),
            false => Err(String::from("it has no evaluator")),
        };
        let input = Input::EvaluatedHere(order.ticket, result);
        self.after(self.delay, Happening::To(process, input));
    }
}
