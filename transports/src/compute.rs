//! Gradient computation off the message loop, so that heartbeats continue meanwhile.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Compute, Input};

use crate::clock::WallClock;
use crate::driver::Handle;
use crate::gradient::{answer, compute_gradient};
use crate::paced::{Paced, Pacing};

/// Computes the gradients of one worker.
///
/// It starts on its own thread. Once gradients prove to be short it moves into the driver loop,
/// since a handover would cost more than a gradient. With a modelled pace it stays on a thread,
/// which can sleep.
#[derive(Debug)]
pub struct Computer {
    /// `None` only while the place changes.
    place: Option<Place>,
    clock: WallClock,
    short: Duration,
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
    orders: Sender<Compute>,
    thread: JoinHandle<Trainer>,
    took: Receiver<Duration>,
}

impl Computer {
    /// Returns a computer for one worker. A gradient shorter than `short` may block the driver loop
    /// (for example, a tenth of the heartbeat interval).
    #[must_use]
    pub fn new(trainer: Trainer, short: Duration, handle: &Handle) -> Self {
        let clock = WallClock::start();
        let away = Away::start(trainer, clock, handle.clone());
        Self { place: Some(Place::Away(away)), clock, short }
    }

    /// Returns a computer whose gradients take as long as `pacing` says.
    pub(crate) fn paced(trainer: Trainer, pacing: Pacing, handle: &Handle) -> Self {
        let clock = pacing.clock;
        let paced = Paced::start(trainer, pacing, handle.clone());
        Self { place: Some(Place::Paced(paced)), clock, short: Duration::ZERO }
    }

    /// Computes a gradient. Returns the answer, or posts it through the handle later.
    pub fn compute(&mut self, order: Compute, handle: &Handle) -> Option<Input> {
        let (place, answer) = match self.place.take()?.come_back(self.short) {
            Place::Here(mut trainer) => {
                let computed = compute_gradient(&mut trainer, order, self.clock);
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
                let _sent = away.orders.send(order);
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
}

impl Place {
    /// Moves the trainer back into the loop if its gradients have proved to be short.
    fn come_back(self, short: Duration) -> Self {
        match self {
            Self::Away(away) if away.took.try_recv().is_ok_and(|took| took < short) => {
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
        let (orders, inbox) = channel::<Compute>();
        let (report, took) = channel();
        let thread = std::thread::spawn(move || {
            for order in inbox {
                let computed = compute_gradient(&mut trainer, order, clock);
                if let Ok(computed) = &computed {
                    // A `Computer` that was dropped needs no report.
                    let _unheard = report.send(computed.took);
                }
                handle.post(answer(computed));
            }
            trainer
        });
        Self { orders, thread, took }
    }
}
