//! Computes one gradient and measures its duration.

use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Compute, Computed};

use crate::clock::WallClock;

/// Computes the gradient that a worker ordered, timed by `clock`.
pub(crate) fn compute_gradient(
    trainer: &mut Trainer,
    order: Compute,
    clock: WallClock,
) -> Computed {
    let begin = clock.now();
    let mut gradient = order.scratch;
    let computed = trainer.compute(order.task, &order.parameters, &mut gradient);
    Computed {
        ticket: order.ticket,
        gradient,
        loss: computed.loss,
        samples: computed.samples,
        took: clock.now() - begin,
    }
}
