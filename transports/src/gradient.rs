//! Carries out one order of a worker's node: a gradient, whose duration it measures, or an
//! evaluation.

use pstrain_compute::time::Time;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Compute, Computed, EvaluateHere, Input};

use crate::clock::WallClock;

/// Computes the gradient that a worker ordered, timed by `clock`.
///
/// # Errors
/// The error of the source of gradients, in words for the user.
pub(crate) fn compute_gradient(
    trainer: &mut Trainer,
    order: Compute,
    clock: WallClock,
) -> Result<Computed, String> {
    compute_gradient_since(trainer, order, clock, clock.now())
}

/// The same for a gradient that the trainer began at `begin`.
///
/// # Errors
/// As [`compute_gradient`].
pub(crate) fn compute_gradient_since(
    trainer: &mut Trainer,
    order: Compute,
    clock: WallClock,
    begin: Time,
) -> Result<Computed, String> {
    let mut gradient = order.scratch;
    let computed = trainer.compute(order.task, &order.parameters, &mut gradient);
    let computed = computed.map_err(|error| error.to_string())?;
    Ok(Computed {
        ticket: order.ticket,
        gradient,
        loss: computed.loss,
        samples: computed.samples,
        took: clock.now() - begin,
    })
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
