//! Workers without a server: equal to a server where they must be, and the same parameters at every
//! worker, over every transport, in virtual time and under random faults.

mod closed_forms;
mod equivalence;
mod filters;
mod gossip;
mod identities;
mod not_finite;
mod pairs;
mod partial;
mod restarts;
mod schedules;
mod status;
mod stops;

use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::gossip::Graph;
use pstrain_policy::job::{BudgetKind, InitialFrom};
use pstrain_tests::{
    Kind, PeerFaults, PeersEnded, Toy, for_seeds, run_peer_cluster, run_peers, within,
};
use pstrain_wire::worker::EndReason;

/// The graphs of workers with models of their own.
const GRAPHS: [Graph; 6] = [
    Graph::Ring,
    Graph::Torus,
    Graph::Complete,
    Graph::Exponential,
    Graph::Regular { degree: 3 },
    Graph::File,
];

/// Gives a job a graph; as a file one has it, a random tree with one more edge.
fn set_graph(toy: &mut Toy, graph: Graph) {
    let workers = toy.job.membership.workers;
    (toy.job.graph, toy.job.edges) = (graph, Vec::new());
    if graph == Graph::File {
        let mut random = Stream::new(toy.job.seed).fork("edges", workers.into()).rng();
        let mut below = |most: u32| WorkerId(random.below(most.into()) as u32);
        let tree = (1..workers).map(|worker| (WorkerId(worker), below(worker)));
        toy.job.edges = tree.collect();
        let edge = (below(workers), below(workers));
        toy.job.edges.extend(Some(edge).filter(|(one, other)| one != other));
    }
}

/// A job of workers with models of their own, drawn from a seed.
fn drawn(architecture: Architecture, seed: u64, least: u64) -> Toy {
    let mut random = Stream::new(seed).fork("job of gossip", 0).rng();
    let workers = (least + random.below(7)) as u32;
    let rows = workers as usize * 17 + random.below(9) as usize;
    let mut toy = plain(architecture, workers, rows, random.below(2) == 0);
    set_graph(&mut toy, GRAPHS[random.below(6) as usize]);
    toy.job.batch_size = 4;
    toy.job.budget.epochs = 12;
    if random.below(3) == 0 {
        toy.job.budget.kind = BudgetKind::Partition;
    }
    toy.job.membership.lease = Duration::from_millis([200, 1000, 5000][random.below(3) as usize]);
    if random.below(3) == 0 {
        toy.job.initial = InitialFrom::Worker;
    }
    toy
}

/// A job of any architecture.
fn any(seed: u64, least: u64) -> Toy {
    match seed % 3 {
        0 => schedules::job_of(seed, least),
        1 => gossip::job_of(seed, least),
        _ => pairs::job_of(seed, least),
    }
}

fn describe(toy: &Toy) -> String {
    format!("{} workers, {}", toy.job.membership.workers, toy.job.graph)
}

/// After the death of a worker the others use up the budget.
fn survive_a_death(job_of: fn(u64, u64) -> Toy) {
    let (mut struck, mut regrouped) = (0, 0);
    let ran = for_seeds(
        1440,
        |seed| describe(&job_of(seed, 2)),
        |seed| {
            let toy = job_of(seed, 2);
            let run = run_peers(&toy, PeerFaults::One, seed);
            assert_eq!(run.reason, EndReason::BudgetReached, "{:?} {:?}", run.faults, run.reasons);
            let workers = toy.job.membership.workers as usize;
            let ended = |end: &&Option<_>| **end == Some(Ok(EndReason::BudgetReached));
            let finished = run.workers.iter().filter(ended).count();
            assert!(finished >= workers - 1, "{:?}", run.workers);
            struck += u64::from(!run.faults.is_empty());
            regrouped += u64::from(run.groups > 1);
        },
    );
    ran.expect_above(720, struck, "faults");
    ran.expect_above(480, regrouped, "groups that were formed again");
}

/// The lab's checker follows all updates under many faults. In a quarter of the schedules the
/// meeting point dies, too.
fn hold_under_faults(job_of: fn(u64, u64) -> Toy) {
    let (mut regrouped, mut ended) = (0, 0);
    let mut faults = Vec::new();
    let ran = for_seeds(
        4800,
        |seed| describe(&job_of(seed, 2)),
        |seed| {
            let many = match seed % 4 {
                0 => PeerFaults::ManyAndRestarts,
                _ => PeerFaults::Many,
            };
            let run = run_peers(&job_of(seed, 2), many, seed);
            regrouped += run.groups.saturating_sub(1);
            ended += u64::from(run.reason == EndReason::BudgetReached);
            faults.extend(run.faults.iter().map(|fault| format!("{fault:?}")));
        },
    );
    ran.expect_above(4800, regrouped, "groups that were formed again");
    ran.expect_above(2400, ended, "runs that used up their budget");
    let words = ["Kill", "Stop", "CutOneWay", "Cut", "Isolate", "Break"];
    ran.expect_each(words, |word| faults.iter().any(|fault| fault == word));
}

/// Runs a job as threads over a transport. On a processor with much to do, or an emulated one, no
/// worker is silent for the lease.
fn on_threads(kind: Kind, toy: &Toy) -> PeersEnded {
    let mut toy = toy.clone();
    toy.job.membership.lease = Duration::from_secs(30);
    within(Duration::from_secs(60), move || run_peer_cluster(kind, &toy))
}

/// A job without a server.
fn peers(architecture: Architecture, workers: u32, rows: usize) -> Toy {
    let mut toy = Toy::new(workers, rows);
    toy.job.architecture = architecture;
    toy
}

/// The same with an optimizer that the checker of the lab knows.
fn plain(architecture: Architecture, workers: u32, rows: usize, momentum: bool) -> Toy {
    let mut toy = peers(architecture, workers, rows);
    toy.job.update.weight_decay = 0.0;
    toy.job.update.optimizer = if momentum { OptimizerSpec::MOMENTUM } else { OptimizerSpec::Sgd };
    toy
}
