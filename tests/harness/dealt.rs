//! A job in virtual time in which it is not each worker that goes through its own mini-batches one
//! after another.

use pstrain_compute::id::PartId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Ledger, Point, Prepare, Server};
use pstrain_transports::simulation::{Laboratory, Origin};
use pstrain_wire::worker::EndReason;

use crate::toy::{Toy, partition_of, parts_of};
use crate::virtual_job::VirtualJob;

/// What came out of a run whose tasks are dealt out.
#[derive(Debug)]
pub struct Dealt {
    /// Why it ended.
    pub reason: EndReason,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The end of the training curve.
    pub point: Point,
    /// What became of the mini-batches.
    pub ledger: Ledger,
    /// What the server reported.
    pub events: Vec<(Time, Event)>,
}

/// Faults of `workers` workers from numbers drawn at random: a worker, whether it crashes, is cut
/// off or repeats a message, when, and how long after that it is back. Numbers beyond count from
/// the first again.
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

/// Runs a job in virtual time over `link`, with the computation times `compute` and `faults`. Who
/// is given which mini-batches is not checked.
///
/// # Panics
/// If the texts make no sense, or the ledger does not balance.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
pub fn run_dealt(toy: &Toy, link: &str, compute: &str, faults: &str) -> Dealt {
    let (job, parts) = (VirtualJob::new(toy, link, compute, faults), toy.job.parts());
    let mut events = Vec::new();
    let load =
        |order: &Prepare| Ok((parts_of(&toy.train, parts, order), toy.job.data.train.clone()));
    let partition = |part: PartId| partition_of(&toy.train, parts, part);
    let report = |now, from, event| {
        if from == Origin::Server {
            events.push((now, event));
        }
    };
    let mut host = Laboratory::new(load, job.model.clone(), &toy.train, partition, report);
    let outcome = job.run(&mut host);
    let (mut server, reason) = (outcome.server, outcome.reason.unwrap());
    let again = Server::restore(server.job().clone(), &server.save()).unwrap();
    assert!(format!("{again:?}") == format!("{server:?}"), "what is restored is another server");
    let ledger = server.ledger();
    let Ledger { assigned, applied, discarded, lost, outstanding } = ledger;
    assert_eq!(assigned, applied + discarded + lost + outstanding, "{ledger:?}");
    Dealt {
        reason,
        parameters: server.parameters().to_vec(),
        point: server.point(),
        ledger,
        events,
    }
}
