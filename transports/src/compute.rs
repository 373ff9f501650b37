//! Gradients off the loop that moves messages, so that heartbeats go on while one is computed.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pstrain_core::node::{Compute, Computed, Input};
use pstrain_core::trainer::Trainer;

use crate::clock::WallClock;
use crate::driver::Handle;

/// Computes the gradients of one worker: on a thread of its own as long as that is needed, and in
/// the loop itself once they have proved to be short, since handing over would cost more than
/// they do.
#[derive(Debug)]
pub struct Computer {
    place: Place,
    clock: WallClock,
    short: Duration,
}

#[derive(Debug)]
enum Place {
    Here(Box<Trainer>),
    Away(Away),
}

#[derive(Debug)]
struct Away {
    orders: Option<Sender<Compute>>,
    thread: Option<JoinHandle<Trainer>>,
    took: Receiver<Duration>,
}

impl Computer {
    /// A computer whose gradients, if shorter than `short`, do not delay anything that matters
    /// (a tenth of the time between heartbeats, say).
    #[must_use]
    pub fn new(trainer: Trainer, short: Duration, handle: &Handle) -> Self {
        let clock = WallClock::start();
        Self { place: Place::Away(Away::start(trainer, clock, handle.clone())), clock, short }
    }

    /// Computes a gradient: the answer comes back at once, or through the handle.
    pub fn compute(&mut self, order: Compute, handle: &Handle) -> Option<Input> {
        if let Place::Away(away) = &mut self.place
            && away.took.try_recv().is_ok_and(|took| took < self.short)
            && let Some(trainer) = away.join()
        {
            self.place = Place::Here(Box::new(trainer));
        }
        let trainer = match &mut self.place {
            Place::Away(away) => {
                // The thread lives as long as its sender does, that is, as long as this.
                if let Some(orders) = &away.orders
                    && orders.send(order).is_err()
                {
                    away.orders = None;
                }
                return None;
            }
            Place::Here(trainer) => trainer,
        };
        let computed = run(trainer, order, self.clock);
        if computed.took >= self.short {
            self.go_away(handle);
        }
        Some(Input::Computed(computed))
    }

    /// Moves to a thread, after a gradient took longer than it should.
    fn go_away(&mut self, handle: &Handle) {
        let (orders, inbox) = channel();
        drop(inbox);
        let none = Away { orders: Some(orders), thread: None, took: channel().1 };
        if let Place::Here(trainer) = std::mem::replace(&mut self.place, Place::Away(none)) {
            self.place = Place::Away(Away::start(*trainer, self.clock, handle.clone()));
        }
    }
}

impl Away {
    fn start(mut trainer: Trainer, clock: WallClock, handle: Handle) -> Self {
        let (orders, inbox) = channel::<Compute>();
        let (report, took) = channel();
        let thread = std::thread::spawn(move || {
            for order in inbox {
                let computed = run(&mut trainer, order, clock);
                // Whoever does not listen any more does not need to know.
                let _unheard = report.send(computed.took);
                handle.post(Input::Computed(computed));
            }
            trainer
        });
        Self { orders: Some(orders), thread: Some(thread), took }
    }

    /// Ends the thread and takes the trainer back.
    fn join(&mut self) -> Option<Trainer> {
        self.orders = None;
        self.thread.take()?.join().ok()
    }
}

fn run(trainer: &mut Trainer, order: Compute, clock: WallClock) -> Computed {
    let begin = clock.now();
    let mut gradient = order.scratch;
    let computed = trainer.compute(order.batch, &order.parameters, &mut gradient);
    Computed {
        ticket: order.ticket,
        gradient,
        loss: computed.loss,
        samples: computed.samples,
        took: clock.now() - begin,
    }
}
