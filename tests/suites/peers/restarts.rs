//! Runs whose meeting point dies and goes on from its last checkpoint, in random schedules.

use pstrain_tests::{PeerFaults, Toy, for_seeds, run_peers};
use pstrain_wire::worker::EndReason;

use super::{describe, gossip, schedules};

/// The jobs and their descriptions: workers with the same parameters, and with models of their own.
type Jobs = (fn(u64, u64) -> Toy, fn(u64, u64) -> String);
const JOBS: [Jobs; 2] = [
    (schedules::job_of, schedules::describe),
    (gossip::job_of, |seed, least| describe(&gossip::job_of(seed, least))),
];

#[test]
fn a_run_that_goes_back_to_checkpoints_ends_at_the_same_parameters() {
    for (job_of, describe) in JOBS {
        let (mut restarts, mut regrouped) = (0, 0);
        let ran = for_seeds(
            1200,
            |seed| describe(seed, 1),
            |seed| {
                let mut toy = job_of(seed, 1);
                // After a restart no gradient is computed ahead.
                toy.job.mode.in_flight = None;
                let [wanted, run] = [PeerFaults::None, PeerFaults::Restarts]
                    .map(|faults| run_peers(&toy, faults, seed));
                let ends = (run.reason, &run.workers);
                assert_eq!(run.reason, EndReason::BudgetReached, "{:?} {ends:?}", run.reasons);
                assert_eq!((run.version, &run.parameters), (wanted.version, &wanted.parameters));
                restarts += run.restarts;
                regrouped += run.groups.saturating_sub(1);
            },
        );
        ran.expect_above(1200, restarts, "restarts");
        ran.expect_above(1200, regrouped, "groups that were formed again");
    }
}
