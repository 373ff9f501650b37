//! One job gives one result over every transport; all-to-all is BSP at a server bit for bit.

use std::time::Duration;

use pstrain_compute::optim::OptimizerSpec;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::BudgetKind;
use pstrain_policy::rules::Aggregation;
use pstrain_tests::{
    Kind, PeersEnded, Toy, VirtualRun, run_peer_cluster, simulate_toy_peers, within,
};
use pstrain_wire::worker::EndReason;

use super::peers;

const LINK: &str = "delay=3ms down.delay=2ms 1.delay=9ms 2.rate=1mbit";
const COMPUTE: &str = "4ms 2.factor=3";

fn bits(parameters: &[f32]) -> Vec<u32> {
    parameters.iter().map(|value| value.to_bits()).collect()
}

fn virtually(toy: &Toy) -> PeersEnded {
    ended(simulate_toy_peers(&VirtualRun::new(toy, LINK, COMPUTE)))
}

fn ended(run: PeersEnded) -> PeersEnded {
    assert_eq!(run.reason, EndReason::BudgetReached);
    assert!(run.workers.iter().all(|end| *end == Ok(EndReason::BudgetReached)), "{run:?}");
    run
}

#[test]
fn every_transport_ends_at_the_parameters_of_virtual_time() {
    for workers in 1..=9 {
        for architecture in Architecture::replicated() {
            let toy = peers(architecture, workers, 203);
            let wanted = virtually(&toy);
            for kind in Kind::ALL {
                let toy = toy.clone();
                let run =
                    ended(within(Duration::from_secs(60), move || run_peer_cluster(kind, &toy)));
                let who = format!("{architecture}, {workers} workers over {kind:?}");
                assert_eq!(run.version, wanted.version, "{who}");
                assert_eq!(bits(&run.parameters), bits(&wanted.parameters), "{who}");
            }
        }
    }
}

/// Jobs that differ in all that an update depends on.
fn jobs(workers: u32) -> Vec<(String, Toy)> {
    let mut jobs = Vec::new();
    for optimizer in ["sgd", "momentum", "adam"] {
        for clip_norm in [None, Some(0.05)] {
            for budget in [BudgetKind::Global, BudgetKind::Partition] {
                for aggregation in [Aggregation::Mean, Aggregation::Sum] {
                    // 149 rows: parts of different sizes, with different numbers of mini-batches.
                    let mut toy = Toy::new(workers, 149);
                    toy.job.update.optimizer = match optimizer {
                        "sgd" => OptimizerSpec::Sgd,
                        "momentum" => OptimizerSpec::MOMENTUM,
                        _ => OptimizerSpec::ADAM,
                    };
                    toy.job.update.learning_rate /= 10.0;
                    toy.job.update.clip_norm = clip_norm;
                    toy.job.budget.kind = budget;
                    toy.job.aggregation = aggregation;
                    let name = format!("{optimizer}, {clip_norm:?}, {budget}, {aggregation}");
                    jobs.push((name, toy));
                }
            }
        }
    }
    jobs
}

#[test]
fn all_to_all_and_all_gather_are_bsp_at_a_server_bit_for_bit() {
    for workers in [1, 2, 3, 5, 8, 9] {
        for (name, mut toy) in jobs(workers) {
            let server = VirtualRun::new(&toy, LINK, COMPUTE).run();
            for architecture in [Architecture::AllToAll, Architecture::AllGather] {
                toy.job.architecture = architecture;
                let run = virtually(&toy);
                let which = format!("{architecture}, {workers} workers, {name}");
                assert_eq!(run.version, server.point.version.0, "{which}");
                assert!(bits(&run.parameters) == bits(&server.parameters), "{which}");
            }
        }
    }
}

#[test]
fn all_collectives_train_alike_up_to_rounding() {
    for workers in [2, 3, 7, 8] {
        let end = |architecture| virtually(&peers(architecture, workers, 203));
        let ends: Vec<_> = Architecture::replicated().map(end).collect();
        for end in &ends {
            assert_eq!(end.version, ends[0].version);
            for (one, other) in end.parameters.iter().zip(&ends[0].parameters) {
                assert!((one - other).abs() <= 1e-4 * (1.0 + one.abs()), "{one} {other}");
            }
        }
    }
}
