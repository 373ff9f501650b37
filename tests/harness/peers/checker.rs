//! The view that a checker of the lab has of a run.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use pstrain_roles::node::Compute;
use pstrain_wire::Message;
use pstrain_wire::peers::Ranks;

/// Recomputes a run from its messages, with code of its own.
pub(super) trait Checker: Debug {
    /// The run begins with these parameters.
    fn begins_with(&mut self, initial: Vec<f32>);

    /// A group is formed.
    fn forms(&mut self, ranks: &Ranks);

    /// The meeting point is started again from a checkpoint, with the parameters that it evaluated
    /// last. Its workers go on until they hear of it; the next group goes back.
    fn restarts(&mut self, evaluated: (Version, Vec<f32>));

    /// A member is sent an update that it has missed.
    fn missed(&mut self) {}

    /// A worker sends a message, to another worker or to the meeting point.
    fn tells(&mut self, _worker: usize, _to: Option<usize>, _message: &Message) {}

    /// A worker computes a gradient.
    fn computes(&mut self, worker: usize, order: &Compute, gradient: &[f32], samples: u32);

    /// A worker has parameters of a version. Returns true if it is the first that has.
    fn sees(
        &mut self,
        now: Time,
        worker: usize,
        version: Version,
        parameters: &Arc<Vec<f32>>,
    ) -> bool;

    /// A member of a group that has halted for good sends its parameters.
    fn shows_last(&mut self, _worker: usize, _parameters: &Arc<Vec<f32>>) {}

    /// The meeting point evaluates parameters.
    fn evaluates(&mut self, version: Version, parameters: &[f32]);

    /// The run has ended with parameters of a version.
    fn ends(&mut self, version: Version, parameters: &[f32]) {
        // A worker may be ahead of the end; none that stays is.
        self.evaluates(version, parameters);
    }

    /// The run has used up its budget, and has ended with these parameters.
    fn used_up(&self, _parameters: &[f32]) {}

    /// Groups so far.
    fn groups(&self) -> u64;

    /// Updates that were sent to members that had missed them.
    fn missed_updates(&self) -> u64 {
        0
    }

    /// Updates without the gradients of some members.
    fn partial(&self) -> u64 {
        0
    }

    /// Updates that only lost members had made.
    fn dropped(&self) -> u64 {
        0
    }

    /// The longest time between two updates.
    fn longest(&self) -> Duration;
}

/// True if the values equal the ones that a formula gives, up to rounding.
pub(super) fn is_close<W, F>(wanted: &[W], found: &[F]) -> bool
where
    W: Copy + Into<f64>,
    F: Copy + Into<f64>,
{
    wanted.iter().zip(found).all(|(wanted, found)| {
        let (wanted, found): (f64, f64) = ((*wanted).into(), (*found).into());
        (wanted - found).abs() <= 1e-5 * (1.0 + wanted.abs())
    })
}
