//! Evaluation of parameter snapshots on a separate thread, in parallel with training.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use pstrain_compute::source::GradientSource;
use pstrain_roles::node::{Evaluate, Evaluated, Input};

use crate::driver::Handle;

/// Evaluates parameters on held-out examples, one after another.
#[derive(Debug)]
pub struct Evaluator {
    orders: Option<Sender<(Evaluate, Handle)>>,
    thread: Option<JoinHandle<()>>,
}

impl Evaluator {
    /// Starts an evaluator with its thread, which evaluates on the first part of `source`.
    #[must_use]
    pub fn new(mut source: Box<dyn GradientSource>) -> Self {
        let (orders, inbox) = channel::<(Evaluate, Handle)>();
        let thread = std::thread::spawn(move || {
            for (order, handle) in inbox {
                let version = order.point.version;
                handle.post(match evaluate(&mut *source, order) {
                    Ok(evaluated) => Input::Evaluated(evaluated),
                    Err(why) => Input::Unevaluated { version, why },
                });
            }
        });
        Self { orders: Some(orders), thread: Some(thread) }
    }

    /// Requests an evaluation; the answer arrives through the handle.
    pub fn evaluate(&self, order: Evaluate, handle: &Handle) {
        if let Some(orders) = &self.orders {
            let _ended = orders.send((order, handle.clone()));
        }
    }
}

/// Evaluates parameters on the first part of `source`.
///
/// # Errors
/// The error of the source, in words for the user.
pub(crate) fn evaluate(
    source: &mut dyn GradientSource,
    Evaluate { point, parameters }: Evaluate,
) -> Result<Evaluated, String> {
    let evaluation = source.evaluate(0, &parameters).map_err(|error| error.to_string())?;
    Ok(Evaluated { point, evaluation })
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        // Dropping the sender ends the thread's loop; only then can it be joined.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
