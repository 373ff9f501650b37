//! Evaluation of parameter snapshots on a separate thread, in parallel with training.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use pstrain_compute::evaluation::evaluate;
use pstrain_compute::examples::Examples;
use pstrain_compute::model::{Model, Workspace};
use pstrain_roles::node::{Evaluate, Evaluated, Input};

use crate::driver::Handle;

/// Evaluates parameters on held-out examples, one after another.
#[derive(Debug)]
pub struct Evaluator {
    orders: Option<Sender<(Evaluate, Handle)>>,
    thread: Option<JoinHandle<()>>,
}

impl Evaluator {
    /// Starts an evaluator with its thread. Takes an `Arc`, since small servers lack the memory for
    /// two copies of the examples.
    #[must_use]
    pub fn new(model: Model, examples: impl Into<Arc<Examples>>) -> Self {
        let examples = examples.into();
        let (orders, inbox) = channel::<(Evaluate, Handle)>();
        let thread = std::thread::spawn(move || {
            let mut workspace = Workspace::default();
            for (Evaluate { point, parameters }, handle) in inbox {
                let evaluation = evaluate(&model, &parameters, &examples, &mut workspace);
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

impl Drop for Evaluator {
    fn drop(&mut self) {
        // Dropping the sender ends the thread's loop; only then can it be joined.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
