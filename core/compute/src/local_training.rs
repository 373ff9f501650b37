//! Local training: a worker takes several steps of its own before it sends anything.
//!
//! A worker's mini-batch is cut into as many parts as there are steps. From the parameters that it
//! was sent, the worker takes one step with the gradient of each part. It sends the parameters that
//! it was sent minus its own after the last step, in place of a gradient. With `sgd` and a learning
//! rate of 1 an update then adds the mean of the workers' differences: federated averaging (McMahan
//! et al. 2017, algorithm 1), or local SGD (Stich 2019). Another optimiser or rate is a server
//! optimiser (Reddi et al. 2021, algorithm 1).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::evaluation::Evaluation;
use crate::model::Team;
use crate::named::{Limits, Number, Word};
use crate::pass::share;
use crate::source::{GradientSource, Rows, SourceError};

/// Maximum number of local steps.
pub const MOST_LOCAL_STEPS: u32 = 1_000_000;

/// The steps that a worker takes before it sends their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum LocalTraining {
    /// None: a worker sends the gradient of its mini-batch.
    #[default]
    None,
    /// `w <- w - rate * gradient(w)`.
    Sgd {
        /// Number of steps, 1 or more.
        steps: u32,
        /// Learning rate of a step, above 0.
        rate: f32,
    },
    /// `w <- w - rate * (gradient(w) + mu * (w - sent))`, where `sent` are the parameters that the
    /// worker was sent: FedProx (Li et al. 2020, equation 2).
    Proximal {
        /// Number of steps, 1 or more.
        steps: u32,
        /// Learning rate of a step, above 0.
        rate: f32,
        /// Weight of the proximal term, 0 or more.
        mu: f32,
    },
}

named!(LocalTraining: "local training", ',' {
    None = Word::new("none", &[], "a worker sends the gradient of its mini-batch"),
    Sgd { steps, rate } = Word::new("sgd",
        &[Number::whole("STEPS", 1..=MOST_LOCAL_STEPS as u64),
          Number::real("RATE", Limits::POSITIVE).usual("0.1")],
        "STEPS steps of SGD at RATE, each with its part of the mini-batch; a worker sends the \
         difference that they make"),
    Proximal { steps, rate, mu } = Word::new("proximal",
        &[Number::whole("STEPS", 1..=MOST_LOCAL_STEPS as u64),
          Number::real("RATE", Limits::POSITIVE).usual("0.1"),
          Number::real("MU", Limits::NOT_NEGATIVE).usual("0.01")],
        "the same with MU times the way from the parameters that were sent added to each gradient"),
});

impl LocalTraining {
    /// A source whose gradients are the differences of this training with the gradients of
    /// `source`.
    #[must_use]
    pub fn around(self, source: Box<dyn GradientSource>) -> Box<dyn GradientSource> {
        let (steps, rate, mu) = match self {
            Self::None => return source,
            Self::Sgd { steps, rate } => (steps, rate, None),
            Self::Proximal { steps, rate, mu } => (steps, rate, Some(mu)),
        };
        let (own, gradient) = (Vec::new(), Vec::new());
        Box::new(LocallyTrained { source, steps: steps as usize, rate, mu, own, gradient })
    }
}

/// A source of differences.
#[derive(Debug)]
struct LocallyTrained {
    source: Box<dyn GradientSource>,
    steps: usize,
    rate: f32,
    mu: Option<f32>,
    /// The worker's own parameters. A buffer, like `gradient`.
    own: Vec<f32>,
    gradient: Vec<f32>,
}

impl LocallyTrained {
    /// Takes one step with the gradient of a part of a mini-batch; returns the mean loss.
    fn step(&mut self, rows: Rows<'_>, sent: &[f32]) -> Result<f32, SourceError> {
        let Self { source, rate, mu, own, gradient, .. } = self;
        let loss = source.gradient(rows, own, gradient)?;
        let (own, state) = own.split_at_mut(source.trained());
        let (gradient, changes) = gradient.split_at(own.len());
        state.iter_mut().zip(changes).for_each(|(value, change)| *value += change);
        match mu {
            None => {
                for (own, gradient) in own.iter_mut().zip(gradient) {
                    *own -= *rate * gradient;
                }
            }
            Some(mu) => {
                for ((own, gradient), sent) in own.iter_mut().zip(gradient).zip(sent) {
                    *own -= *rate * (gradient + *mu * (*own - sent));
                }
            }
        }
        Ok(loss)
    }
}

impl GradientSource for LocallyTrained {
    fn parameters(&self) -> usize {
        self.source.parameters()
    }

    fn initial(&mut self) -> Result<Option<Vec<f32>>, SourceError> {
        self.source.initial()
    }

    fn trained(&self) -> usize {
        self.source.trained()
    }

    fn parts(&self) -> usize {
        self.source.parts()
    }

    fn examples(&self, part: usize) -> usize {
        self.source.examples(part)
    }

    /// The negative of the difference that the local steps make, in place of a gradient. The loss
    /// is the mean over the rows, each at the parameters of its step.
    fn gradient(
        &mut self,
        rows: Rows<'_>,
        params: &[f32],
        gradient: &mut [f32],
    ) -> Result<f32, SourceError> {
        let Rows { part, numbers, keys, draws } = rows;
        self.own.clear();
        self.own.extend_from_slice(params);
        self.gradient.resize(params.len(), 0.0);
        let mut loss = 0.0;
        // A mini-batch with fewer rows than steps has a step for each row.
        let (rows, count) = (numbers.len(), self.steps.min(numbers.len()));
        for step in 0..count {
            let Range { start, end } = share(rows as u64, count as u64, step as u64);
            let numbers = &numbers[start as usize..end as usize];
            let of_step = Rows { part, numbers, keys: keys.clone(), draws };
            loss += f64::from(self.step(of_step, params)?) * numbers.len() as f64;
        }
        for ((out, sent), own) in gradient.iter_mut().zip(params).zip(&self.own) {
            *out = sent - own;
        }
        // The change of the state is added as it is.
        gradient[self.source.trained()..].iter_mut().for_each(|change| *change = -*change);
        Ok((loss / rows.max(1) as f64) as f32)
    }

    fn work_with(&mut self, team: Arc<dyn Team>) {
        self.source.work_with(team);
    }

    fn evaluate(&mut self, part: usize, params: &[f32]) -> Result<Evaluation, SourceError> {
        self.source.evaluate(part, params)
    }

    fn evaluate_held_out(&mut self, params: &[f32]) -> Result<Evaluation, SourceError> {
        self.source.evaluate_held_out(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss of a row is `(w - number)^2 / 2` in each of two coordinates.
    #[derive(Debug)]
    struct Squares;

    impl GradientSource for Squares {
        fn parameters(&self) -> usize {
            2
        }

        fn parts(&self) -> usize {
            1
        }

        fn examples(&self, _part: usize) -> usize {
            100
        }

        fn gradient(
            &mut self,
            rows: Rows<'_>,
            params: &[f32],
            gradient: &mut [f32],
        ) -> Result<f32, SourceError> {
            let count = rows.numbers.len() as f32;
            let mean = rows.numbers.iter().map(|&number| number as f32).sum::<f32>() / count;
            for (out, value) in gradient.iter_mut().zip(params) {
                *out = value - mean;
            }
            Ok(params[0] - mean)
        }

        fn evaluate(&mut self, _part: usize, _params: &[f32]) -> Result<Evaluation, SourceError> {
            Err(SourceError("not asked".into()))
        }
    }

    fn trained(training: LocalTraining, numbers: &[u32], sent: [f32; 2]) -> ([f32; 2], f32) {
        let mut gradient = [f32::NAN; 2];
        let rows = Rows::new(0, numbers);
        let loss = training.around(Box::new(Squares)).gradient(rows, &sent, &mut gradient);
        (gradient, loss.unwrap())
    }

    #[test]
    fn the_difference_is_the_one_of_a_loop_of_steps() {
        let sgd = LocalTraining::Sgd { steps: 3, rate: 0.25 };
        let (mut own, sent) = ([8.0, -3.0], [8.0, -3.0]);
        let mut losses = 0.0;
        // Seven rows make steps of 2, 2 and 3 rows.
        for (mean, rows) in [(1.5, 2.0), (3.5, 2.0), (6.0, 3.0)] {
            losses += (own[0] - mean) * rows;
            own = own.map(|value: f32| value - 0.25 * (value - mean));
        }
        let expected = [sent[0] - own[0], sent[1] - own[1]];
        assert_eq!(trained(sgd, &[1, 2, 3, 4, 5, 6, 7], sent), (expected, losses / 7.0));
    }

    #[test]
    fn fewer_rows_than_steps_make_a_step_each() {
        let sgd = |steps| LocalTraining::Sgd { steps, rate: 0.5 };
        let of_rows = trained(sgd(2), &[4, 8], [0.0; 2]);
        assert_eq!(trained(sgd(7), &[4, 8], [0.0; 2]), of_rows);
        assert_eq!(of_rows.0, [-5.0; 2], "0 to 2 to 5");
    }

    #[test]
    fn a_proximal_term_keeps_the_steps_near_the_parameters_that_were_sent() {
        let of =
            |mu| trained(LocalTraining::Proximal { steps: 2, rate: 0.5, mu }, &[8, 8], [0.0; 2]);
        let sgd = trained(LocalTraining::Sgd { steps: 2, rate: 0.5 }, &[8, 8], [0.0; 2]);
        assert_eq!(of(0.0), sgd);
        assert_eq!((sgd.0, of(0.5).0), ([-6.0; 2], [-5.0; 2]), "0 to 4 to 6, and to 5");
    }

    #[test]
    fn none_leaves_the_source_as_it_is() {
        assert_eq!(trained(LocalTraining::None, &[2, 4], [5.0, 1.0]), ([2.0, -2.0], 2.0));
    }
}
