//! Gradients that take as long in real time as a scenario says. Evaluations take their own time.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Compute, ComputedRange, EvaluateHere, Input};

use crate::clock::WallClock;
use crate::driver::Handle;
use crate::gradient::{answer, compute_gradient, evaluate_here};
use crate::punctuality::Punctuality;
use crate::scenario::{Scenario, StragglerModel};

/// Modelled duration of one worker's gradients.
#[derive(Debug)]
pub(crate) struct Pacing {
    pace: StragglerModel,
    /// The model scales the measured duration (by factor and slow-downs) instead of giving its own.
    measured: bool,
    /// Clock of the scenario's time.
    pub(crate) clock: WallClock,
    punctuality: Arc<Mutex<Punctuality>>,
}

impl Pacing {
    /// Returns the pacing of a worker; `None` if the job models none. `clock` is the scenario's
    /// time.
    ///
    /// # Errors
    /// In words, if the job's scenario cannot be parsed.
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

    /// Waits until a gradient of `amount` mini-batches, begun at `begin` and computed in `took`, is
    /// due, and posts its `ranges` when their shares of the computing are done. Returns the order
    /// of a newer gradient if one arrives first: the worker then no longer wants this gradient.
    fn keep(
        &mut self,
        (begin, amount): (Time, f64),
        (took, ranges): (Duration, Vec<(ComputedRange, f64)>),
        (inbox, handle): (&mut Inbox, &Handle),
    ) -> Option<(Compute, Time)> {
        let time = if self.measured {
            self.pace.stretch(begin, took)
        } else {
            self.pace.take(begin, amount)
        };
        for (range, done) in ranges {
            let newer = self.wait(begin + time.mul_f64(done), inbox);
            if newer.is_some() {
                return newer;
            }
            handle.post(Input::ComputedRange(range));
        }
        let due = begin + time;
        let is_late = self.clock.now() > due;
        let newer = self.wait(due, inbox);
        if newer.is_some() {
            return newer;
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

    /// Waits until `due`, or returns the order of a newer gradient that arrives first.
    fn wait(&self, due: Time, inbox: &mut Inbox) -> Option<(Compute, Time)> {
        loop {
            let now = self.clock.now();
            if now >= due {
                return None;
            }
            match inbox.orders.recv_timeout(due - now) {
                Ok(Order::Compute(order, at)) => return Some((order, at)),
                Ok(Order::Evaluate(order)) => inbox.evaluations.push_back(order),
                Err(RecvTimeoutError::Timeout) => {}
                // No order can follow, but the worker may still wait for this gradient.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(due - now),
            }
        }
    }
}

/// An order for the thread.
#[derive(Debug)]
enum Order {
    /// A gradient to compute, and when it was ordered.
    Compute(Compute, Time),
    Evaluate(EvaluateHere),
}

/// The orders of the thread.
struct Inbox {
    orders: Receiver<Order>,
    /// Evaluations that were ordered while a gradient was not due.
    evaluations: VecDeque<EvaluateHere>,
}

impl Inbox {
    /// Returns the next order, if there may be one.
    fn next(&mut self) -> Option<Order> {
        let evaluation = self.evaluations.pop_front().map(Order::Evaluate);
        evaluation.or_else(|| self.orders.recv().ok())
    }
}

/// A trainer on a thread that keeps a modelled pace.
#[derive(Debug)]
pub(crate) struct Paced {
    orders: Sender<Order>,
    clock: WallClock,
}

impl Paced {
    pub(crate) fn start(mut trainer: Trainer, mut pacing: Pacing, handle: Handle) -> Self {
        let (sender, orders) = channel::<Order>();
        let clock = pacing.clock;
        std::thread::spawn(move || {
            let mut inbox = Inbox { orders, evaluations: VecDeque::new() };
            while let Some(order) = inbox.next() {
                let mut next = match order {
                    Order::Compute(order, begin) => Some((order, begin)),
                    Order::Evaluate(order) => {
                        handle.post(evaluate_here(&mut trainer, &order));
                        None
                    }
                };
                while let Some((order, begin)) = next.take() {
                    let (amount, mut ranges) = (order.amount, Vec::new());
                    let note = |range, done| ranges.push((range, done));
                    let timed = (clock, clock.now());
                    let mut computed = compute_gradient(&mut trainer, order, timed, note);
                    if let Ok(computed) = &mut computed {
                        let made = (computed.took, ranges);
                        next = pacing.keep((begin, amount), made, (&mut inbox, &handle));
                        if next.is_some() {
                            continue;
                        }
                        computed.took = clock.now() - begin;
                    }
                    handle.post(answer(computed));
                }
            }
        });
        Self { orders: sender, clock }
    }

    /// Begins an evaluation; the answer arrives through the handle.
    pub(crate) fn evaluate(&self, order: EvaluateHere) {
        // As for a gradient.
        let _sent = self.orders.send(Order::Evaluate(order));
    }

    /// Begins a gradient; the answer arrives through the handle.
    pub(crate) fn compute(&self, order: Compute) {
        // Unless it panics, the thread ends only after this sender is dropped.
        let _sent = self.orders.send(Order::Compute(order, self.clock.now()));
    }
}
