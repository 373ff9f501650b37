//! Carries out one order of a worker's node: a gradient, whose duration it measures, or an
//! evaluation.

use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_policy::trainer::{self, FinishedRange, Trainer};
use pstrain_roles::node::{Compute, Computed, ComputedRange, EvaluateHere, Input};

use crate::clock::WallClock;

/// Computes the gradient that a worker ordered and that the trainer began at `begin`, timed by
/// `clock`. If ranges of it are wanted, calls `finished` with each, and with the share of the
/// computing that is done then.
///
/// # Errors
/// The error of the source of gradients, in words for the user.
pub(crate) fn compute_gradient(
    trainer: &mut Trainer,
    order: Compute,
    (clock, begin): (WallClock, Time),
    finished: impl FnMut(ComputedRange, f64),
) -> Result<Computed, String> {
    let computed = compute(trainer, order, finished)?;
    Ok(Computed { took: clock.now() - begin, ..computed })
}

/// The same, without a measurement: the gradient took no time.
///
/// # Errors
/// As [`compute_gradient`].
pub(crate) fn compute(
    trainer: &mut Trainer,
    order: Compute,
    mut finished: impl FnMut(ComputedRange, f64),
) -> Result<Computed, String> {
    let Compute { ticket, task, parameters, scratch: mut gradient, by_range, .. } = order;
    let computed = match by_range {
        false => trainer.compute(task, &parameters, &mut gradient),
        true => {
            let mut finished = |range: FinishedRange| {
                let FinishedRange { keys, values, samples, done } = range;
                finished(ComputedRange { ticket, keys, values, samples }, done);
            };
            trainer.compute_by_range(task, &parameters, &mut gradient, &mut finished)
        }
    };
    let trainer::Computed { loss, samples } = computed.map_err(|error| error.to_string())?;
    Ok(Computed { ticket, gradient, loss, samples, took: Duration::ZERO })
}

/// The input with which a worker receives its gradient, or the reason for its absence.
pub(crate) fn answer(computed: Result<Computed, String>) -> Input {
    match computed {
        Ok(computed) => Input::Computed(computed),
        Err(why) => Input::ComputeFailed(why),
    }
}

/// Evaluates parameters for the server; returns the input with which the worker receives the
/// result.
pub(crate) fn evaluate_here(trainer: &mut Trainer, order: &EvaluateHere) -> Input {
    let result = trainer.evaluate(&order.parameters).map_err(|error| error.to_string());
    Input::EvaluatedHere(order.ticket, result)
}
