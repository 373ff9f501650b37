//! Gradients that are not finite: of one worker, whose data are at fault, or of all.

use pstrain_policy::architecture::Architecture;
use pstrain_roles::node::{Ledger, MOST_IN_A_ROW, NodeError};
use pstrain_tests::{PeersEnded, Toy, VirtualRun, simulate_toy_peers};
use pstrain_wire::Refusal;
use pstrain_wire::worker::EndReason;

use super::peers;

/// A job that evaluates only at its begin and its end.
fn job(architecture: Architecture) -> Toy {
    let mut toy = peers(architecture, 4, 160);
    toy.job.batch_size = 4;
    toy.job.stopping.evaluate_every = 1000.0;
    toy
}

fn all() -> impl Iterator<Item = Architecture> {
    Architecture::replicated().chain([Architecture::DPsgd, Architecture::AdPsgd])
}

fn virtual_run(toy: &Toy) -> VirtualRun {
    VirtualRun::new(toy, "delay=3ms 1.delay=9ms", "4ms")
}

#[test]
fn a_worker_with_bad_data_is_refused_and_harms_no_other() {
    for architecture in all() {
        let mut run = virtual_run(&job(architecture));
        run.partitions[2].dense_mut().for_each(|row| row.fill(f32::INFINITY));
        let PeersEnded { reason, parameters, workers, .. } = simulate_toy_peers(&run);
        assert_eq!(reason, EndReason::BudgetReached, "{architecture}");
        assert!(parameters.iter().all(|value| value.is_finite()), "{architecture}");
        let refused = |end: &Result<_, NodeError>| {
            matches!(end, Err(NodeError::Refused(Refusal::NotFinite { .. })))
        };
        let refused: Vec<bool> = workers.iter().map(refused).collect();
        assert_eq!(refused, [false, false, true, false], "{architecture}: {workers:?}");
    }
}

#[test]
fn a_run_that_diverges_ends_before_its_next_evaluation() {
    for architecture in all() {
        let mut toy = job(architecture);
        toy.job.update.learning_rate = 1e30;
        let run = simulate_toy_peers(&virtual_run(&toy));
        let is_diverged = matches!(run.reason, EndReason::Diverged(_));
        // Each of the four workers has a row of gradients that are not finite.
        let most = 30 + 4 * u64::from(MOST_IN_A_ROW);
        assert!(is_diverged && run.version < most, "{architecture}: {run:?}");
        assert!(run.parameters.iter().all(|value| value.is_finite()), "{architecture}");
    }
}

#[test]
fn updates_and_samples_are_those_of_the_gradients_that_were_applied() {
    for architecture in all() {
        let mut toy = job(architecture);
        toy.job.update.learning_rate = 1e30;
        let run = simulate_toy_peers(&virtual_run(&toy));
        let Ledger { assigned, applied, discarded, .. } = run.ledger;
        assert!(discarded > 0 && assigned == applied + discarded, "{architecture}: {run:?}");
        // Each mini-batch has 4 of the 40 examples of a worker.
        assert_eq!(run.samples, 4 * applied, "{architecture}");
        let of_update = if architecture == Architecture::AdPsgd { 1 } else { 4 };
        assert_eq!(run.updates.len() as u64, applied.div_ceil(of_update), "{architecture}");
    }
}

#[test]
fn a_mini_batch_that_is_not_finite_is_left_out_and_its_worker_stays() {
    for architecture in all() {
        let mut run = virtual_run(&job(architecture));
        let first = run.partitions[2].dense_mut().next();
        first.unwrap()[0] = f32::INFINITY;
        let PeersEnded { reason, parameters, workers, gradients, .. } = simulate_toy_peers(&run);
        assert_eq!(reason, EndReason::BudgetReached, "{architecture}");
        assert!(parameters.iter().all(|value| value.is_finite()), "{architecture}");
        assert!(workers.iter().all(Result::is_ok), "{architecture}: {workers:?}");
        assert!(gradients.0 > gradients.1 && gradients.1 > 1, "{architecture}: {gradients:?}");
    }
}
