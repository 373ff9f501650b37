//! Gradients that take as long as a scenario says, in real time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Compute, Input};

use crate::clock::WallClock;
use crate::driver::Handle;
use crate::gradient::compute_gradient;
use crate::punctuality::Punctuality;
use crate::scenario::{Pace, Scenario};

/// How long the gradients of one worker are to take.
#[derive(Debug)]
pub(crate) struct Pacing {
    pace: Pace,
    /// Whether a gradient takes what it takes here, but for factor and slow-downs.
    measured: bool,
    /// The scenario's time.
    pub(crate) clock: WallClock,
    punctuality: Arc<Mutex<Punctuality>>,
}

impl Pacing {
    /// What the job says of the worker; none if nothing. The scenario's time is that of `clock`.
    ///
    /// # Errors
    /// In words, if the job's scenario cannot be read.
    pub(crate) fn of(
        job: &Job,
        worker: WorkerId,
        clock: WallClock,
        punctuality: &Arc<Mutex<Punctuality>>,
    ) -> Result<Option<Self>, String> {
        let scenario = Scenario::from_text(&job.scenario)
            .map_err(|error| format!("the job's scenario does not read: {error}"))?;
        let stream = Scenario::stream(job.seed);
        Ok(scenario.compute.of(worker).map(|spec| Self {
            measured: spec.needs_measurement(),
            pace: spec.pace(worker, stream),
            clock,
            punctuality: Arc::clone(punctuality),
        }))
    }

    /// Waits until a gradient of so many mini-batches that was begun at `begin` and took `took` to
    /// compute is due, or until another is asked for, which means that this one is not wanted any
    /// more: then gives that.
    fn keep(
        &mut self,
        (begin, amount): (Time, f64),
        took: Duration,
        inbox: &Receiver<Order>,
    ) -> Option<Order> {
        let time = if self.measured {
            self.pace.stretch(begin, took)
        } else {
            self.pace.take(begin, amount)
        };
        let due = begin + time;
        let is_late = self.clock.now() > due;
        loop {
            let now = self.clock.now();
            if now >= due {
                break;
            }
            match inbox.recv_timeout(due - now) {
                Ok(order) => return Some(order),
                Err(RecvTimeoutError::Timeout) => {}
                // Nobody will ask again, but this one may still be waited for.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(due - now),
            }
        }
        let late = self.clock.now() - due;
        let mut punctuality = self.punctuality.lock().unwrap_or_else(PoisonError::into_inner);
        if is_late && !self.measured {
            punctuality.overruns.note(late);
        } else {
            punctuality.batches.note(late);
        }
        None
    }
}

/// A gradient to compute, and since when.
type Order = (Compute, Time);

/// A trainer on a thread that keeps to a pace.
#[derive(Debug)]
pub(crate) struct Paced {
    orders: Sender<Order>,
    clock: WallClock,
}

impl Paced {
    pub(crate) fn start(mut trainer: Trainer, mut pacing: Pacing, handle: Handle) -> Self {
        let (orders, inbox) = channel::<Order>();
        let clock = pacing.clock;
        std::thread::spawn(move || {
            let mut next = inbox.recv().ok();
            while let Some((order, begin)) = next {
                let amount = order.amount;
                let mut computed = compute_gradient(&mut trainer, order, clock);
                next = pacing.keep((begin, amount), computed.took, &inbox);
                if next.is_none() {
                    computed.took = clock.now() - begin;
                    handle.post(Input::Computed(computed));
                    next = inbox.recv().ok();
                }
            }
        });
        Self { orders, clock }
    }

    /// Begins a gradient; the answer comes through the handle.
    pub(crate) fn compute(&self, order: Compute) {
        // The thread ends when its sender is gone, not before.
        let _sent = self.orders.send((order, self.clock.now()));
    }
}
