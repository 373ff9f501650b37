//! Evaluation of parameter snapshots on a separate thread, in parallel with training.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use pstrain_compute::evaluation::Evaluation;
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
            for (Evaluate { point, parameters }, handle) in inbox {
                let evaluation = evaluate(&mut *source, &parameters);
                handle.post(Input::Evaluated(Evaluated { point, evaluation }));
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

/// Evaluates `parameters` on the first part of `source`. If the source cannot, the evaluation is of
/// no examples: an evaluation never ends a run.
pub(crate) fn evaluate(source: &mut dyn GradientSource, parameters: &[f32]) -> Evaluation {
    source.evaluate(0, parameters).unwrap_or_else(|_told| Evaluation::absent(parameters))
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
