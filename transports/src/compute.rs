//! Gradients and evaluations of a worker off the message loop, so that heartbeats continue
//! meanwhile.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Compute, EvaluateHere, Input};

use crate::clock::WallClock;
use crate::driver::Handle;
use crate::gradient::{answer, compute_gradient, evaluate_here};
use crate::paced::{Paced, Pacing};

/// Computes the gradients of one worker, and its evaluations, in the order of the requests.
///
/// It starts on its own thread. Once gradients prove to be short it moves into the driver loop,
/// since a handover would cost more than a gradient; an evaluation moves it back. With a modelled
/// pace it stays on a thread, which can sleep.
#[derive(Debug)]
pub struct Computer {
    /// `None` only while the place changes.
    place: Option<Place>,
    clock: WallClock,
    short: Duration,
    /// When the next gradient was begun, if it was.
    begun: Option<Time>,
}

#[derive(Debug)]
enum Place {
    Here(Box<Trainer>),
    Away(Away),
    /// On a thread, at a modelled pace.
    Paced(Paced),
}

/// A trainer on its own thread.
#[derive(Debug)]
struct Away {
    orders: Sender<Order>,
    thread: JoinHandle<Trainer>,
    done: Receiver<Done>,
    /// Evaluations that are not done.
    evaluations: u32,
}

/// An order for a trainer's thread.
#[derive(Debug)]
enum Order {
    Compute(Compute),
    Evaluate(EvaluateHere),
}

/// Returns the next order, if there may be one. A gradient is skipped if another one was ordered
/// after it: the worker has called it off.
fn next_order(inbox: &Receiver<Order>, waiting: &mut VecDeque<Order>) -> Option<Order> {
    if waiting.is_empty() {
        waiting.push_back(inbox.recv().ok()?);
    }
    waiting.extend(inbox.try_iter());
    loop {
        let order = waiting.pop_front()?;
        let is_gradient = |order: &Order| matches!(order, Order::Compute(_));
        if !is_gradient(&order) || !waiting.iter().any(is_gradient) {
            return Some(order);
        }
    }
}

/// An order that a trainer's thread has carried out.
#[derive(Debug)]
enum Done {
    /// A gradient, which took this long.
    Computed(Duration),
    Evaluated,
}

impl Computer {
    /// Returns a computer for one worker. A gradient shorter than `short` may block the driver loop
    /// (for example, a tenth of the heartbeat interval).
    #[must_use]
    pub fn new(trainer: Trainer, short: Duration, handle: &Handle) -> Self {
        let clock = WallClock::start();
        let away = Away::start(trainer, clock, handle.clone());
        Self { place: Some(Place::Away(away)), clock, short, begun: None }
    }

    /// Returns a computer whose gradients take as long as `pacing` says.
    pub(crate) fn paced(trainer: Trainer, pacing: Pacing, handle: &Handle) -> Self {
        let clock = pacing.clock;
        let paced = Paced::start(trainer, pacing, handle.clone());
        Self { place: Some(Place::Paced(paced)), clock, short: Duration::ZERO, begun: None }
    }

    /// Announces an order that [`Self::compute`] is about to receive, so that a compute process
    /// works on it meanwhile.
    pub(crate) fn begin(&mut self, order: &Compute) {
        if let Some(Place::Here(trainer)) = &mut self.place {
            self.begun = Some(self.clock.now());
            trainer.begin(order.task, &order.parameters);
        }
    }

    /// Computes a gradient. Returns the answer, or posts it through the handle later.
    pub fn compute(&mut self, order: Compute, handle: &Handle) -> Option<Input> {
        let begun = self.begun.take();
        let (place, answer) = match self.place.take()?.come_back(self.short) {
            Place::Here(mut trainer) => {
                let begin = begun.unwrap_or_else(|| {
                    trainer.begin(order.task, &order.parameters);
                    self.clock.now()
                });
                // A process that is late, or has to be started again, must not hold up the loop.
                if !trainer.is_answered(self.short) {
                    let away = Away::start(*trainer, self.clock, handle.clone());
                    let _sent = away.orders.send(Order::Compute(order));
                    self.place = Some(Place::Away(away));
                    return None;
                }
                // Ranges could leave only after the loop has gone on, and so with the whole.
                let order = Compute { by_range: false, ..order };
                let timed = (self.clock, begin);
                let computed = compute_gradient(&mut trainer, order, timed, |_, _| ());
                let is_short = computed.as_ref().is_ok_and(|computed| computed.took < self.short);
                let place = if is_short {
                    Place::Here(trainer)
                } else {
                    Place::Away(Away::start(*trainer, self.clock, handle.clone()))
                };
                (place, Some(answer(computed)))
            }
            Place::Away(away) => {
                // Unless it panics, the thread ends only after this sender is dropped.
                let _sent = away.orders.send(Order::Compute(order));
                (Place::Away(away), None)
            }
            Place::Paced(paced) => {
                paced.compute(order);
                (Place::Paced(paced), None)
            }
        };
        self.place = Some(place);
        answer
    }

    /// Evaluates parameters, after the gradients that were requested before; posts the answer
    /// through the handle.
    pub fn evaluate(&mut self, order: EvaluateHere, handle: &Handle) {
        let place = match self.place.take() {
            Some(Place::Here(trainer)) => {
                Place::Away(Away::start(*trainer, self.clock, handle.clone()))
            }
            Some(place) => place,
            None => return,
        };
        self.place = Some(match place {
            Place::Away(mut away) => {
                away.evaluations += 1;
                // As for a gradient.
                let _sent = away.orders.send(Order::Evaluate(order));
                Place::Away(away)
            }
            Place::Paced(paced) => {
                paced.evaluate(order);
                Place::Paced(paced)
            }
            place @ Place::Here(_) => place,
        });
    }
}

impl Place {
    /// Moves the trainer back into the loop if its gradients have proved to be short.
    fn come_back(self, short: Duration) -> Self {
        match self {
            Self::Away(mut away) => {
                if !away.proves_short(short) {
                    return Self::Away(away);
                }
                // Without its sender the thread ends and returns the trainer.
                drop(away.orders);
                match away.thread.join() {
                    Ok(trainer) => Self::Here(Box::new(trainer)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            place => place,
        }
    }
}

impl Away {
    fn start(mut trainer: Trainer, clock: WallClock, handle: Handle) -> Self {
        let (orders, inbox) = channel::<Order>();
        let (report, done) = channel();
        let thread = std::thread::spawn(move || {
            let mut waiting = VecDeque::new();
            while let Some(order) = next_order(&inbox, &mut waiting) {
                // A `Computer` that was dropped needs no report.
                match order {
                    Order::Compute(order) => {
                        let post = |range, _| handle.post(Input::ComputedRange(range));
                        let timed = (clock, clock.now());
                        let computed = compute_gradient(&mut trainer, order, timed, post);
                        if let Ok(computed) = &computed {
                            let _unheard = report.send(Done::Computed(computed.took));
                        }
                        handle.post(answer(computed));
                    }
                    Order::Evaluate(order) => {
                        let answer = evaluate_here(&mut trainer, &order);
                        let _unheard = report.send(Done::Evaluated);
                        handle.post(answer);
                    }
                }
            }
            trainer
        });
        Self { orders, thread, done, evaluations: 0 }
    }

    /// True if the last gradient took less than `short` and no evaluation is in progress, which
    /// would block a caller that joins the thread.
    fn proves_short(&mut self, short: Duration) -> bool {
        let mut is_short = false;
        while let Ok(done) = self.done.try_recv() {
            match done {
                Done::Evaluated => self.evaluations -= 1,
                Done::Computed(took) => is_short = took < short,
            }
        }
        is_short && self.evaluations == 0
    }
}
