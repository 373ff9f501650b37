//! Workers with models of their own: equal to the definition of D-PSGD, the same over every
//! transport, and under random faults each update is one from the models before.

use std::time::Duration;

use pstrain_compute::id::{BatchId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::collective::Rank;
use pstrain_policy::combining::Scheme;
use pstrain_policy::gossip::{Graph, JobGraph};
use pstrain_policy::job::InitialFrom;
use pstrain_policy::trainer::Trainer;
use pstrain_tests::{
    Kind, PeerFaults, Toy, VirtualRun, bits, for_seeds, intervals, partition_of, run_peers,
    simulate_toy_peers,
};
use pstrain_wire::worker::EndReason;

use super::{
    GRAPHS, describe, drawn, hold_under_faults, on_threads, peers, plain, set_graph,
    survive_a_death,
};

fn gossip(graph: Graph, workers: u32, rows: usize) -> Toy {
    let mut toy = peers(Architecture::DPsgd, workers, rows);
    set_graph(&mut toy, graph);
    toy
}

#[test]
fn every_transport_ends_at_the_models_of_virtual_time() {
    for (graph, workers) in GRAPHS.into_iter().flat_map(|it| [1, 2, 5, 9].map(|n| (it, n))) {
        let toy = gossip(graph, workers, 203);
        let wanted = simulate_toy_peers(&VirtualRun::new(&toy, "delay=3ms 2.delay=9ms", "4ms"));
        assert_eq!(wanted.reason, EndReason::BudgetReached);
        for kind in Kind::ALL {
            let run = on_threads(kind, &toy);
            assert_eq!(run.version, wanted.version, "{graph}, {workers} workers over {kind:?}");
            let is_same = bits(&run.parameters) == bits(&wanted.parameters);
            assert!(is_same, "{graph}, {workers} workers over {kind:?}");
        }
    }
}

/// The mean of all models after D-PSGD by its definition, in f64 but for the gradients.
#[expect(clippy::expect_used, reason = "a failure here fails the test")]
fn by_definition(toy: &Toy, updates: u64) -> Vec<f64> {
    let (job, workers) = (&toy.job, toy.job.membership.workers);
    let model = job.build_model().expect("a valid model");
    let mut trainers: Vec<Trainer> = (0..workers)
        .map(|worker| {
            let examples = partition_of(&toy.train, workers, WorkerId(worker));
            let seed = Stream::new(job.seed);
            Trainer::new(model.clone(), examples, seed, WorkerId(worker), job.batch_size)
                .expect("a valid part")
        })
        .collect();
    let initial: Vec<f64> = job.initial(&model).into_iter().map(f64::from).collect();
    let mut models = vec![initial; workers as usize];
    let members: Vec<WorkerId> = (0..workers).map(WorkerId).collect();
    let edges = JobGraph::new(job.graph, Stream::new(job.seed), &job.edges).edges(&members);
    let degree = |rank: u32| edges.iter().filter(|it| it.0 == rank || it.1 == rank).count();
    for update in 0..updates {
        let mut next = models.clone();
        for (one, other) in &edges {
            let weight = 1.0 / (1 + degree(*one).max(degree(*other))) as f64;
            for key in 0..model.parameters() {
                let flow = weight * (models[*other as usize][key] - models[*one as usize][key]);
                next[*one as usize][key] += flow;
                next[*other as usize][key] -= flow;
            }
        }
        for (worker, trainer) in (0..).zip(&mut trainers) {
            let at: Vec<f32> = models[worker as usize].iter().map(|value| *value as f32).collect();
            let mut gradient = Vec::new();
            let task = Task::own(WorkerId(worker), BatchId(update));
            trainer.compute(task, &at, &mut gradient).expect("a mini-batch");
            for (value, step) in next[worker as usize].iter_mut().zip(gradient) {
                *value -= f64::from(job.update.learning_rate) * f64::from(step);
            }
        }
        models = next;
    }
    let mean = |key: usize| models.iter().map(|it| it[key]).sum::<f64>() / f64::from(workers);
    (0..model.parameters()).map(mean).collect()
}

#[test]
fn the_mean_of_the_models_is_by_the_definition() {
    for (graph, workers) in GRAPHS.into_iter().flat_map(|it| [2, 6, 9].map(|n| (it, n))) {
        let mut toy = plain(Architecture::DPsgd, workers, 203, false);
        set_graph(&mut toy, graph);
        toy.job.budget.epochs = 10;
        let run = simulate_toy_peers(&VirtualRun::new(&toy, "delay=3ms 2.delay=9ms", "4ms"));
        assert!(run.version > 20, "{}", run.version);
        let wanted = by_definition(&toy, run.version);
        for (wanted, found) in wanted.iter().zip(&run.parameters) {
            let difference = (wanted - f64::from(*found)).abs();
            assert!(difference < 1e-4, "{graph}, {workers} workers: {wanted} {found}");
        }
    }
}

/// A round takes the time of a gradient, or of the slowest neighbor's parameters: both at once.
#[test]
fn a_round_waits_for_neighbors_alone() {
    let mut random = Stream::new(6).fork("closed forms of gossip", 0).rng();
    for (graph, workers) in GRAPHS.into_iter().flat_map(|it| (1..=9).map(move |n| (it, n))) {
        let mut toy = gossip(graph, workers, 40 * workers as usize);
        toy.job.membership.lease = Duration::from_secs(3600);
        (toy.job.batch_size, toy.job.budget.epochs) = (2, 1);
        let mut draw = |_| [(); 3].map(|()| 1 + random.below(20_000));
        let machines: Vec<[u64; 3]> = (0..workers).map(&mut draw).collect();
        let (mut link, mut compute) = (String::new(), String::new());
        for (worker, [up, down, time]) in (1..).zip(&machines) {
            link += &format!("{worker}.delay={up}us {worker}.down.delay={down}us ");
            compute += &format!("{worker}.time={time}us ");
        }
        let run = simulate_toy_peers(&VirtualRun::new(&toy, &link, &compute));
        assert_eq!(run.version, 20);
        // From a round in which all wait for nothing but each other on, the recurrence of the
        // rounds gives the times, whatever the start was: compare differences at the end.
        let members: Vec<WorkerId> = (0..workers).map(WorkerId).collect();
        let mut ends = vec![0_u64; workers as usize];
        let mut updates = Vec::new();
        for _ in 0..200 {
            let next = |rank: u32| {
                let [_, down, compute] = machines[rank as usize];
                let neighbors = Scheme::of(&toy.job).expect("no server").place(rank, &members, 0);
                let neighbors = neighbors.neighbors();
                let of_neighbor = |it: Rank| ends[it as usize] + machines[it as usize][0] + down;
                let values = neighbors.into_iter().map(of_neighbor).max().unwrap_or_default();
                values.max(ends[rank as usize] + compute)
            };
            ends = (0..workers).map(next).collect();
            let reports = ends.iter().zip(&machines).map(|(end, [up, ..])| end + up);
            updates.push(reports.max().unwrap_or_default());
        }
        let wanted = updates[199] - updates[199 - 12];
        let times = intervals(&run.updates);
        let found: Duration = times[times.len() - 12..].iter().sum();
        // A cycle of the slowest ways may have any length: its mean holds up to one of them.
        let (wanted, longest) = (Duration::from_micros(wanted), Duration::from_micros(60_000));
        assert!(found.abs_diff(wanted) <= longest, "{graph} {workers}: {found:?} {wanted:?}");
    }
}

/// With equal links and machines a round takes the longer of a gradient and a hop.
#[test]
fn gradients_are_computed_while_parameters_travel() {
    for (graph, workers) in GRAPHS.into_iter().flat_map(|it| [2, 5, 9].map(|n| (it, n))) {
        for (compute, wanted) in [(7, 10), (31, 31)] {
            let mut toy = gossip(graph, workers, 40 * workers as usize);
            (toy.job.batch_size, toy.job.budget.epochs) = (2, 1);
            let link = "delay=6ms down.delay=4ms";
            let run = simulate_toy_peers(&VirtualRun::new(&toy, link, &format!("{compute}ms")));
            let times = intervals(&run.updates);
            let last = &times[times.len() - 8..];
            let wanted = Duration::from_millis(wanted);
            assert!(last.iter().all(|time| *time == wanted), "{graph} {workers}: {last:?}");
        }
    }
}

/// A job drawn from a seed.
pub(super) fn job_of(seed: u64, least: u64) -> Toy {
    drawn(Architecture::DPsgd, seed, least)
}

#[test]
fn without_faults_every_schedule_ends_at_the_same_models() {
    for_seeds(
        120,
        |seed| describe(&job_of(seed, 1)),
        |seed| {
            let mut toy = job_of(seed, 1);
            toy.job.initial = InitialFrom::Seed; // else the first worker that is ready has them
            let [one, other] = [seed, seed + 1000].map(|it| run_peers(&toy, PeerFaults::None, it));
            assert_eq!((one.reason, one.groups), (EndReason::BudgetReached, 1));
            assert_eq!((one.version, &one.parameters), (other.version, &other.parameters));
            let ended = |end: &Option<_>| *end == Some(Ok(EndReason::BudgetReached));
            assert!(one.workers.iter().all(ended), "{:?}", one.workers);
        },
    );
}

#[test]
fn after_a_death_the_others_go_on() {
    survive_a_death(job_of);
}

#[test]
fn each_update_is_one_from_the_models_before_whatever_happens() {
    hold_under_faults(job_of);
}

#[test]
fn the_mean_has_no_model_of_a_process_that_is_gone() {
    // Worker 1 sends its model, dies, and another process with its id joins at this version, before
    // worker 2 has sent its model.
    let toy = job_of(12_077_484_656_654_148_513, 2);
    let run = run_peers(&toy, PeerFaults::Many, 12_077_484_656_654_148_513);
    assert!(run.groups > 1, "{:?}", run.reasons);
}
