//! From a job's settings to what arithmetic alone says of it.

use pstrain_core::consistency::ConsistencySpec;
use pstrain_core::id::WorkerId;
use pstrain_core::job::{BudgetKind, Exchange, Job};
use pstrain_core::protocol::HEADER_BYTES;
use pstrain_transports::scenario::{LinkSpec, Loss, Scenario, TimeModel};

use super::closed_form::{Constant, Policy, Prediction, Way, Worker, predict};

/// Bytes of the control part of a push or of parameters, about: it depends on the numbers in it.
const CONTROL_BYTES: u64 = 24;

/// Predicts the job, if all its times are constant; `gradients` is how many it takes.
///
/// # Errors
///
/// In words, why there is no closed form.
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
    let policy = match job.consistency {
        ConsistencySpec::Bsp => Policy::Bsp,
        ConsistencySpec::Asp => Policy::Asp,
        ConsistencySpec::Ssp { slack } => Policy::Ssp { slack },
    };
    obstacle(job.exchange == Exchange::Separate, "separate push and pull");
    obstacle(job.budget.kind == BudgetKind::Partition, "a budget of passes over each partition");
    obstacle(!scenario.faults.is_none(), "faults");
    let shared = scenario.links.server();
    obstacle(shared.up.is_some() || shared.down.is_some(), "a link that all share");
    let bytes = HEADER_BYTES as u64 + CONTROL_BYTES + parameters * size_of::<f32>() as u64;
    let mut workers = Vec::new();
    for worker in (0..job.membership.workers).map(WorkerId) {
        let link = scenario.links.of(worker).unwrap_or_default();
        for way in [&link.up, &link.down] {
            obstacle(!way.jitter.is_zero(), "jitter");
            obstacle(way.loss != Loss::default(), "loss");
            obstacle(!way.outages.is_empty(), "outages");
            obstacle(way.slow_start, "slow start");
        }
        let way = |spec: &LinkSpec| Way {
            delay: spec.delay,
            rate: spec.rate.map(|rate| rate.bits_per_second() as f64),
            bytes,
        };
        let mut time = std::time::Duration::ZERO;
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
        workers.push(Worker { compute: time, up: way(&link.up), down: way(&link.down) });
    }
    predict(&Constant { policy, workers, gradients, obstacles })
}
