//! Accounts for each worker's time: its last steps, in memory of a fixed size.
//!
//! A step ends with a gradient of the worker, or with the call that stops one, and begins with the
//! end of the last step, or with its first parameters. `barrier` is the time in which the worker
//! had asked for parameters and had nothing under way. `compute` is the compute time that the
//! worker reports, capped at the rest of the step. `network` is what remains. The three add up to
//! the elapsed time, however many mini-batches are under way at once.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_wire::{Held, Recent, TimeSpent};

/// The number of steps kept per worker.
const STEPS: usize = 32;

/// The account of one worker's time.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::node) struct Account {
    /// Gradients that arrived, including dropped ones.
    pub(in crate::node) pushes: u64,
    /// Gradients that were dropped.
    pub(in crate::node) dropped: u64,
    /// Gradients that were called off while the worker computed them.
    pub(in crate::node) called_off: u64,
    /// The staleness, in updates, of its last applied gradient.
    pub(in crate::node) staleness: u64,
    /// When the current step began.
    since: Option<Time>,
    /// Time spent at the barrier in the current step.
    barrier: Duration,
    /// The worker whose event ended the wait at the barrier.
    held_by: Option<WorkerId>,
    steps: VecDeque<Step>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Step {
    spent: TimeSpent,
    held_by: Option<WorkerId>,
    /// The loss of its mini-batch; none if its gradient was called off.
    loss: Option<f32>,
}

impl Account {
    /// Records that the worker, which asked at `asked` and had nothing under way, was given
    /// parameters. The event of `by` made that possible.
    pub(in crate::node) fn granted(&mut self, now: Time, asked: Time, by: Option<WorkerId>) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        let waited = now.since(asked.max(since));
        if !waited.is_zero() {
            self.barrier += waited;
            self.held_by = by;
        }
    }

    /// Records a gradient, and returns where the time of the step went that it ends.
    pub(in crate::node) fn pushed(&mut self, now: Time, compute: Duration, loss: f32) -> TimeSpent {
        let (spent, held_by) = self.end_step(now, compute);
        self.stepped(spent, held_by, loss);
        spent
    }

    /// Records that a gradient was called off after the worker had computed it for so long, and
    /// returns where the time of the step went that this ends.
    pub(in crate::node) fn stopped(&mut self, now: Time, computed: Duration) -> TimeSpent {
        let (spent, held_by) = self.end_step(now, computed);
        let spent = TimeSpent { called_off: spent.compute, ..spent };
        self.called_off += 1;
        self.keep(Step { spent, held_by, loss: None });
        spent
    }

    /// Ends a step; returns where its time went, and the worker that it waited for.
    fn end_step(&mut self, now: Time, compute: Duration) -> (TimeSpent, Option<WorkerId>) {
        let elapsed = self.since.map_or_else(Default::default, |since| now.since(since));
        let barrier = self.barrier.min(elapsed);
        let compute = compute.min(elapsed - barrier);
        let network = elapsed - barrier - compute;
        self.since = Some(now);
        self.barrier = Duration::ZERO;
        let spent = TimeSpent { compute, network, barrier, ..TimeSpent::default() };
        (spent, self.held_by.take())
    }

    /// Records a gradient, where the time of its step went, and the worker that it waited for.
    pub(in crate::node) fn stepped(
        &mut self,
        spent: TimeSpent,
        held_by: Option<WorkerId>,
        loss: f32,
    ) {
        self.pushes += 1;
        self.keep(Step { spent, held_by, loss: Some(loss) });
    }

    fn keep(&mut self, step: Step) {
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
    }

    /// Records that the worker has departed: the current step has no end.
    pub(in crate::node) fn left(&mut self) {
        self.since = None;
        self.barrier = Duration::ZERO;
        self.held_by = None;
    }

    /// Summarises the last steps.
    pub(in crate::node) fn recent(&self) -> Recent {
        let mut recent = Recent { steps: self.steps.len() as u32, ..Recent::default() };
        recent.loss = Self::loss_of(core::iter::once(self)).unwrap_or_default();
        let mut holders = Vec::<Held>::new();
        for step in &self.steps {
            recent.spent += step.spent;
            let Some(by) = step.held_by else { continue };
            match holders.iter_mut().find(|held| held.by == by) {
                Some(held) => held.waited += step.spent.barrier,
                None => holders.push(Held { by, waited: step.spent.barrier }),
            }
        }
        let longest: fn(&Held) -> (Reverse<Duration>, WorkerId) =
            |held| (Reverse(held.waited), held.by);
        holders.sort_unstable_by_key(longest);
        for (place, held) in recent.held_by.iter_mut().zip(holders) {
            *place = Some(held);
        }
        recent
    }

    /// Returns the mean loss over the last steps of all workers.
    pub(in crate::node) fn loss_of<'a>(accounts: impl Iterator<Item = &'a Self>) -> Option<f64> {
        let steps = accounts.flat_map(|account| &account.steps);
        let losses: Vec<f64> = steps.filter_map(|step| step.loss).map(f64::from).collect();
        (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const fn spent(compute: u64, network: u64, barrier: u64) -> TimeSpent {
        let (compute, network, barrier) = (ms(compute), ms(network), ms(barrier));
        TimeSpent { compute, called_off: ms(0), network, barrier }
    }

    #[test]
    fn a_step_is_compute_network_and_barrier() {
        let mut account = Account::default();
        account.granted(at(100), at(40), None); // the wait before the first step is not part of it
        let first = account.pushed(at(150), ms(10), 1.0);
        assert_eq!(first, spent(10, 40, 0));
        account.granted(at(180), at(150), Some(WorkerId(1)));
        let second = account.pushed(at(200), ms(15), 3.0);
        assert_eq!(second, spent(15, 5, 30));
        let recent = account.recent();
        assert_eq!((recent.steps, recent.spent.total(), recent.loss), (2, ms(100), 2.0));
        let held = Held { by: WorkerId(1), waited: ms(30) };
        assert_eq!(recent.held_by, [Some(held), None, None]);
    }

    #[test]
    fn more_computing_than_fits_is_cut_and_pipelines_overlap() {
        let mut account = Account::default();
        account.granted(at(0), at(0), None);
        account.pushed(at(100), ms(10), 0.0);
        // The next gradient was computed meanwhile, and arrives at once.
        assert_eq!(account.pushed(at(103), ms(10), 0.0), spent(3, 0, 0));
    }

    #[test]
    fn computing_that_is_called_off_is_a_step_of_computing_without_a_loss() {
        let mut account = Account::default();
        account.granted(at(0), at(0), None);
        let stopped = account.stopped(at(30), ms(20));
        assert_eq!(stopped, TimeSpent { called_off: ms(20), ..spent(20, 10, 0) });
        account.pushed(at(50), ms(20), 3.0);
        assert_eq!((account.pushes, account.called_off), (1, 1));
        let recent = account.recent();
        assert_eq!((recent.steps, recent.spent.compute, recent.loss), (2, ms(40), 3.0));
        assert_eq!(recent.spent.called_off, ms(20));
    }

    #[test]
    fn the_window_has_a_fixed_size_and_names_the_longest_waits() {
        let mut account = Account::default();
        account.granted(at(0), at(0), None);
        for step in 0..500 {
            account.granted(
                at(10 * step + step % 5),
                at(10 * step),
                Some(WorkerId(step as u32 % 5)),
            );
            account.pushed(at(10 * step + 10), ms(1), 0.0);
        }
        let recent = account.recent();
        assert_eq!(recent.steps as usize, STEPS);
        assert_eq!(recent.spent.total(), ms(10 * STEPS as u64));
        let by: Vec<u32> = recent.held_by.iter().flatten().map(|held| held.by.0).collect();
        assert_eq!(by, [4, 3, 2]);
    }

    #[test]
    fn time_away_is_no_step() {
        let mut account = Account::default();
        account.granted(at(0), at(0), None);
        account.pushed(at(10), ms(10), 0.0);
        account.left();
        account.granted(at(5000), at(4000), None);
        assert_eq!(account.pushed(at(5010), ms(10), 0.0).total(), ms(10));
    }
}
