//! A job with a standby in virtual time, whose events must form one history after any fault.
//! Use it to test the timing of failover.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PartId, Version, WorkerId};
use pstrain_compute::source::Local;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    Compute, Computed, ComputedRange, Evaluate, EvaluateHere, Evaluated, Event, Ledger, Prepare,
    Prepared, Trained,
};
use pstrain_transports::simulation::{Failover, Host, Origin, Outcome, TrainingHost};
use pstrain_wire::group::Exchanged;
use pstrain_wire::worker::{EndReason, ExamplesChunk};

use crate::toy::{Toy, partition_of, parts_of};
use crate::virtual_job::VirtualJob;

/// Result of a job with a standby, or with a fault of its server.
#[derive(Clone, Debug, PartialEq)]
pub struct StoodBy {
    /// How it ended; `None` if no server was left to lead.
    pub reason: Option<EndReason>,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The final ledger of mini-batches.
    pub ledger: Ledger,
    /// The events of the servers, as one history.
    pub events: Vec<(Time, Event)>,
    /// How the failover went.
    pub failover: Option<Failover>,
    /// Hash of everything that happened.
    pub trace: [u8; 32],
}

impl StoodBy {
    /// Times of the updates.
    #[must_use]
    pub fn updates(&self) -> Vec<Time> {
        let updated =
            |(at, event): &(Time, Event)| matches!(event, Event::Updated { .. }).then_some(*at);
        self.events.iter().filter_map(updated).collect()
    }
}

/// Runs a job in virtual time over `link`, with the computation times `compute` and `faults`.
///
/// # Panics
/// If a text does not parse, or the events are not one history: if two workers see different
/// parameters of one version, a version is missing, a push counts twice, or the final server
/// differs from what the history says.
#[must_use]
#[expect(clippy::expect_used, reason = "a failure here fails the test")]
pub fn run_stood_by(toy: &Toy, link: &str, compute: &str, faults: &str) -> StoodBy {
    let (job, parts) = (VirtualJob::new(toy, link, compute, faults), toy.job.parts());
    let load =
        |order: &Prepare| Ok((parts_of(&toy.train, parts, order), toy.job.data.train.clone()));
    let partition = |part: PartId| partition_of(&toy.train, parts, part);
    let ignore: fn(Time, Origin, Event) = |_, _, _| {};
    let evaluation = Local::new(job.model.clone(), [toy.train.clone()]);
    let mut witness = Witness {
        training_host: TrainingHost::new(load, Box::new(evaluation), partition, ignore),
        seen: BTreeMap::new(),
        events: Vec::new(),
        limit: Time::ZERO + toy.job.membership.lease * 2000,
    };
    let Outcome { reason, trained, failover, trace, .. } = job.run(&mut witness);
    let events = witness.events;
    check_history(&events, &trained);
    let Trained { point, ledger, parameters, elsewhere } = trained;
    assert!(elsewhere.iter().all(|bytes| *bytes == Exchanged::default()), "there is one server");
    let parameters = parameters.expect("one server holds all parameters");
    if let Some(last) = witness.seen.get(&point.version) {
        assert_eq!(*last, parameters, "the last version");
    }
    StoodBy { reason, parameters: parameters.to_vec(), ledger, events, failover, trace }
}

/// Checks that the events are one history, which ends with `trained`.
fn check_history(events: &[(Time, Event)], trained: &Trained) {
    assert!(events.is_sorted_by_key(|(at, _)| *at), "one thing after the other");
    let (mut version, mut applied, mut pushed) = (Version(0), BTreeSet::new(), 0);
    for (_, event) in events {
        match event {
            Event::Applied { worker, incarnation, sequence, .. } => {
                let push = (*worker, *incarnation, *sequence);
                assert!(applied.insert(push), "{push:?} counts twice");
            }
            Event::Updated { point, .. } => {
                version = version.next();
                assert_eq!(point.version, version, "versions without a gap");
            }
            Event::Pushed { .. } => pushed += 1,
            _ => {}
        }
    }
    let Ledger { assigned, applied: counted, discarded, lost, outstanding, .. } = trained.ledger;
    assert_eq!(trained.point.version, version, "updates");
    assert_eq!(applied.len() as u64, counted, "gradients applied");
    assert!(pushed >= counted, "pushes");
    assert_eq!(assigned, counted + discarded + lost + outstanding, "{:?}", trained.ledger);
}

/// The host of a run: it records the parameters that workers have seen.
struct Witness<'a> {
    training_host: TrainingHost<'a>,
    seen: BTreeMap<Version, Arc<Vec<f32>>>,
    events: Vec<(Time, Event)>,
    limit: Time,
}

impl Host for Witness<'_> {
    fn report(&mut self, now: Time, from: Origin, event: Event) {
        assert!(now < self.limit, "it never ends: {from:?} {event:?}");
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
        let version = order.ticket.base;
        let seen = self.seen.entry(version).or_insert_with(|| Arc::clone(&order.parameters));
        assert_eq!(*seen, order.parameters, "two versions {version}");
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
}
