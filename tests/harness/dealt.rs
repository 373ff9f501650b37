//! A job in virtual time whose scheduler assigns the mini-batches, instead of each worker going
//! through its own in order. Use it for shards, reassignment and work by speed.

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PartId, WorkerId};
use pstrain_compute::source::Local;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    Compute, Computed, ComputedRange, Evaluate, EvaluateHere, Evaluated, Event, Ledger, Point,
    Prepare, Prepared, Server,
};
use pstrain_transports::simulation::{Host, Origin, TrainingHost};
use pstrain_wire::worker::{EndReason, ExamplesChunk};

use crate::toy::{Toy, partition_of, parts_of};
use crate::virtual_job::VirtualJob;

/// Result of a run whose tasks are assigned.
#[derive(Debug)]
pub struct Dealt {
    /// Why it ended.
    pub reason: EndReason,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The end of the training curve.
    pub point: Point,
    /// The final ledger of mini-batches.
    pub ledger: Ledger,
    /// The server's events, with their times.
    pub events: Vec<(Time, Event)>,
}

/// Fault schedule of `workers` workers from random numbers: a worker, a fault (crash, cut or
/// repeated message), its time, and how much later the worker is back, in ms. Worker numbers wrap
/// around.
#[must_use]
pub fn faults_of(workers: u32, drawn: &[(u32, usize, u64, u64)]) -> String {
    let item = |&(worker, what, at, until): &(u32, usize, u64, u64)| {
        let (worker, end) = (worker % workers.max(1) + 1, at + until);
        match what % 3 {
            0 => format!("{worker}.crash@{at}ms {worker}.restart@{end}ms"),
            1 => format!("{worker}.cut@{at}ms {worker}.heal@{end}ms"),
            _ => format!("{worker}.duplicate@{at}ms"),
        }
    };
    if drawn.is_empty() {
        return "none".into();
    }
    drawn.iter().map(item).collect::<Vec<_>>().join(" ")
}

/// Runs a job in virtual time over `link`, with the computation times `compute` and `faults`. The
/// assignment of mini-batches is not checked.
///
/// # Panics
/// If a text does not parse, the ledger does not balance, or the saved and restored server differs.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
pub fn run_dealt(toy: &Toy, link: &str, compute: &str, faults: &str) -> Dealt {
    let (job, parts) = (VirtualJob::new(toy, link, compute, faults), toy.job.parts());
    let load =
        |order: &Prepare| Ok((parts_of(&toy.train, parts, order), toy.job.data.train.clone()));
    let partition = |part: PartId| partition_of(&toy.train, parts, part);
    let ignore: fn(Time, Origin, Event) = |_, _, _| {};
    let evaluation = Local::new(job.model.clone(), [toy.train.clone()]);
    let training_host = TrainingHost::new(load, Box::new(evaluation), partition, ignore);
    let mut observer = Observer { training_host, events: Vec::new(), server: None };
    let reason = job.run(&mut observer).reason.unwrap();
    let Observer { events, server, .. } = observer;
    let mut server = server.unwrap();
    let again = Server::restore(server.job().clone(), &server.save()).unwrap();
    assert!(format!("{again:?}") == format!("{server:?}"), "what is restored is another server");
    let ledger = server.ledger();
    let Ledger { assigned, applied, discarded, lost, outstanding, .. } = ledger;
    assert_eq!(assigned, applied + discarded + lost + outstanding, "{ledger:?}");
    Dealt {
        reason,
        parameters: server.parameters().to_vec(),
        point: server.point(),
        ledger,
        events,
    }
}

/// The host of a run: it keeps the server's events, and the server after the end.
struct Observer<'a> {
    training_host: TrainingHost<'a>,
    events: Vec<(Time, Event)>,
    server: Option<Server>,
}

impl Host for Observer<'_> {
    fn report(&mut self, now: Time, from: Origin, event: Event) {
        if from == Origin::Server {
            self.events.push((now, event));
        }
    }

    fn prepare(&mut self, worker: WorkerId, order: Box<Prepare>) -> Result<Prepared, String> {
        self.training_host.prepare(worker, order)
    }

    fn compute(
        &mut self,
        worker: WorkerId,
        order: Compute,
        ranges: &mut Vec<(ComputedRange, f64)>,
    ) -> Result<Computed, String> {
        self.training_host.compute(worker, order, ranges)
    }

    fn evaluate(&mut self, order: Evaluate) -> Result<Evaluated, String> {
        self.training_host.evaluate(order)
    }

    fn evaluate_here(
        &mut self,
        worker: WorkerId,
        order: &EvaluateHere,
    ) -> Result<Evaluation, String> {
        self.training_host.evaluate_here(worker, order)
    }

    fn examples(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk> {
        self.training_host.examples(part, from)
    }

    fn ended(&mut self, server: Server) {
        self.server = Some(server);
    }
}
