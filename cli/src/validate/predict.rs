//! Closed-form predictions from a job's settings.

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::decided::Decided;
use pstrain_compute::id::{BatchId, Incarnation, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::task::Task;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, Exchange, Job, Redundancy, WorkSpec};
use pstrain_transports::scenario::{LinkSpec, Loss, Scenario, TimeModel};
use pstrain_wire::frame_len;
use pstrain_wire::message::Message;
use pstrain_wire::worker::{Parameters, ParametersHeader, Push, PushHeader};

use super::closed_form::{ConnectionFlags, Constant, Policy, Prediction, Worker, predict};

/// Returns the bytes of a push and of an answer with parameters on the wire. Their headers grow
/// with the numbers in them: the result is for the last of `gradients`, with `compute` each.
fn sizes(gradients: u64, parameters: u64, samples: u32, compute: Duration) -> Option<[u64; 2]> {
    let sequence = Sequence(gradients);
    let task = Task::own(WorkerId(0), BatchId(gradients));
    let keys = KeyRange::new(0, parameters).ok()?;
    let push = PushHeader {
        incarnation: Incarnation(1),
        sequence,
        base: Version(gradients),
        task,
        samples,
        loss: 0.0,
        compute_ns: compute.as_nanos() as u64,
        keys,
        pull: true,
        allowed: sequence,
    };
    let header = ParametersHeader {
        version: Version(gradients),
        keys,
        sequence,
        task,
        ahead: 0,
        decided: Some(Decided::after(None, sequence, None)),
    };
    let empty = Arc::new(Vec::new());
    let push = Message::Push(Push::new(push, Arc::clone(&empty)));
    let answer = Message::Parameters(Parameters { header, values: empty, changes: None });
    let payload = parameters * size_of::<f32>() as u64;
    Some([push, answer].map(|message| frame_len(&message, &mut Vec::new()) + payload))
}

/// Predicts the job, if all its times are constant; `gradients` is the number that it takes.
///
/// # Errors
///
/// The reason why there is no closed form, in words.
pub(super) fn of_job(
    job: &Job,
    scenario: &Scenario,
    parameters: u64,
    gradients: u64,
) -> Result<Prediction, String> {
    let mut obstacles = Vec::new();
    let mut obstacle = |is_there: bool, what: &str| {
        if is_there && !obstacles.iter().any(|other| other == what) {
            obstacles.push(what.to_owned());
        }
    };
    if !job.architecture.has_server() {
        return Err(format!(
            "no closed form: architecture {}; the closed forms are of a server's workers",
            job.architecture
        ));
    }
    let policy = match job.mode.consistency {
        ConsistencySpec::Bsp => Policy::Bsp,
        ConsistencySpec::Asp => Policy::Asp,
        ConsistencySpec::Ssp { slack } => Policy::Ssp { slack },
        ConsistencySpec::KSync { workers } => Policy::KSync { workers: workers as usize },
        ConsistencySpec::Backup { workers } => Policy::KSync {
            workers: job.membership.workers.saturating_sub(workers).max(1) as usize,
        },
        ConsistencySpec::Buffered { .. } => Policy::Buffered,
        other => {
            return Err(format!(
                "no closed form: consistency {other}; bsp, ssp, asp, k-sync, backup and \
                 buffered have"
            ));
        }
    };
    obstacle(!job.filters.is_none(), "filters, which leave more of one gradient than of another");
    obstacle(job.exchange == Exchange::Separate, "separate push and pull");
    obstacle(!job.pull_filter().is_none(), "parameters of which only changes are sent");
    obstacle(job.servers > 1, "several servers");
    obstacle(!job.switches.is_empty(), "modes that change");
    obstacle(job.is_sparse(), "gradients of some of the keys");
    obstacle(job.budget.kind == BudgetKind::Partition, "a budget of passes over each partition");
    obstacle(job.mode.max_staleness.is_some(), "gradients that are dropped when too stale");
    obstacle(job.mode.in_flight.is_some_and(|most| most > 1), "several mini-batches in flight");
    obstacle(!scenario.faults.is_none(), "faults");
    obstacle(scenario.links.standby().is_some(), "a standby");
    obstacle(scenario.links.has_sites(), "links that the workers of a site share");
    obstacle(job.redundancy != Redundancy::None, "rounds that close without everybody");
    obstacle(job.work != WorkSpec::Equal, "work that is not divided equally");
    let shared = scenario.links.server();
    obstacle(shared.up.is_some() || shared.down.is_some(), "a link that all share");
    let mut workers = Vec::new();
    for worker in (0..job.membership.workers).map(WorkerId) {
        let link = scenario.links.of(worker).unwrap_or_default();
        for way in [&link.up, &link.down] {
            obstacle(!way.jitter.is_zero(), "jitter");
            obstacle(way.loss != Loss::default(), "loss");
            obstacle(!way.outages.is_empty(), "outages");
            obstacle(way.slow_start, "slow start");
        }
        let way = |spec: &LinkSpec, bytes: u64| ConnectionFlags {
            delay: spec.delay,
            rate: spec.rate.map(|rate| rate.bits_per_second() as f64),
            bytes,
        };
        let mut time = Duration::ZERO;
        match scenario.compute.of(worker) {
            Some(spec) => {
                obstacle(!spec.slow.is_empty(), "machines that are slower for a while");
                match spec.time {
                    TimeModel::Fixed(fixed) => time = fixed.mul_f64(spec.factor),
                    TimeModel::Measured => obstacle(true, "a measured computing time"),
                    _ => obstacle(true, "computing times that vary"),
                }
            }
            None => obstacle(true, "computing times that are not modelled"),
        }
        let [push, answer] = sizes(gradients, parameters, job.batch_size, time)
            .ok_or("no closed form: a model without parameters")?;
        let (up, down) = (way(&link.up, push), way(&link.down, answer));
        workers.push(Worker { compute: time, up, down });
    }
    predict(&Constant { policy, workers, gradients, obstacles })
}
