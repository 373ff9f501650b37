//! Stochastic gradient descent.

use super::{Optimizer, Step};
use crate::named::Word;
use crate::saved::{Archive, SavedError};

pub(super) const WORD: Word = Word::new("sgd", &[], "plain gradient descent");

/// `p -= rate * g`.
#[derive(Debug)]
pub(super) struct Sgd;

impl Optimizer for Sgd {
    fn step(&mut self, params: &mut [f32], step: &Step<'_>) {
        let &Step { gradient, scale, learning_rate, .. } = step;
        for (param, gradient) in params.iter_mut().zip(gradient) {
            *param -= learning_rate * (scale * gradient);
        }
    }

    fn archive(&mut self, _archive: &mut Archive<'_>) -> Result<(), SavedError> {
        Ok(())
    }
}
