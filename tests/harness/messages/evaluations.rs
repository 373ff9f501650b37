//! Random messages about evaluations by workers.

use pstrain_compute::evaluation::{ClassFigures, Evaluation, Figures, ValueFigures};
use pstrain_compute::id::{Incarnation, Version};
use pstrain_wire::Message;
use pstrain_wire::evaluation::{EvaluationAnswer, EvaluationPart, EvaluationStep};

use super::Messages;

impl Messages {
    pub(super) fn of_evaluations(&mut self, kind: u64) -> Message {
        let version = Version(self.number());
        if kind == 53 {
            return Message::EvaluationPart(EvaluationPart { version, part: self.range_part() });
        }
        let answer = match self.rng.below(3) {
            0 => EvaluationStep::PartDue(self.number()),
            1 => EvaluationStep::Unable(self.text()),
            _ => EvaluationStep::Evaluated(self.evaluation()),
        };
        let incarnation = Incarnation(self.number());
        Message::EvaluationAnswer(EvaluationAnswer { incarnation, version, answer })
    }

    /// Returns an evaluation with any figures.
    pub fn evaluation(&mut self) -> Evaluation {
        let figures = match self.rng.below(3) {
            0 => {
                let recall: Vec<_> =
                    (0..self.count()).map(|_| self.coin().then(|| self.rng.unit())).collect();
                let (f1, correct) = (recall.clone(), self.number());
                let confusion = (0..self.count()).map(|_| self.number()).collect();
                let auc = self.coin().then(|| self.rng.unit());
                Figures::Classes(ClassFigures { correct, recall, f1, auc, confusion })
            }
            1 => {
                let (rmse, mae) = (self.rng.unit(), self.rng.unit());
                Figures::Value(ValueFigures { rmse, mae, r2: None })
            }
            _ => {
                let metrics = (0..self.count()).map(|_| (self.text(), self.rng.unit()));
                Figures::Named(metrics.collect())
            }
        };
        let (examples, non_zeros) = (self.number(), self.number());
        let (loss, l1) = (self.rng.unit(), self.rng.unit());
        let consensus_distance = self.coin().then(|| self.rng.unit());
        Evaluation { examples, loss, non_zeros, l1, figures, consensus_distance }
    }
}
