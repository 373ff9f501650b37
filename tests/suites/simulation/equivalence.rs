//! One job gives one result: in virtual time over any links, over real transports, and without a
//! server.

use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, DataFrom, Exchange};
use pstrain_roles::node::Event;
use pstrain_tests::{Kind, Simulated, Toy, VirtualRun, bits, run_cluster, sequential_bsp, within};
use pstrain_transports::simulation::SimulationError;
use pstrain_wire::worker::EndReason;

/// Runs `toy` under a policy; returns the bits of its parameters and their version.
fn trained(toy: &Toy, policy: &str, (link, compute): (&str, &str)) -> (Vec<u32>, u64) {
    let mut toy = toy.clone();
    toy.job.mode.consistency = policy.parse().expect("a policy");
    let run = VirtualRun::new(&toy, link, compute).run();
    assert_eq!(run.reason, EndReason::BudgetReached, "{policy} over {link}");
    (bits(&run.parameters), run.point.version.0)
}

#[test]
fn policies_with_equivalent_parameters_give_equal_runs() {
    let mut toy = Toy::new(4, 203);
    for exchange in [Exchange::Combined, Exchange::Separate] {
        toy.job.exchange = exchange;
        for budget in [BudgetKind::Global, BudgetKind::Partition] {
            toy.job.budget.kind = budget;
            for scenario in SCENARIOS {
                for (policy, others) in [
                    ("bsp", &["ssp:0", "delay:0", "dssp:0,0", "k-sync:4", "backup:0"][..]),
                    ("asp", &["buffered:1", "k-async:1", "ringmaster:1000000", "ssp:1000000"]),
                    ("ssp:3", &["dssp:3,3"]),
                    ("k-sync:3", &["backup:1"]),
                    ("k-batch-sync:1", &["k-sync:1", "backup:3"]),
                ] {
                    // Once a worker has used up its share, K workers and all but B workers are
                    // different numbers.
                    let few = |other: &str| other == "backup:1" && budget == BudgetKind::Partition;
                    let expected = trained(&toy, policy, scenario);
                    for other in others.iter().filter(|other| !few(other)) {
                        let is = trained(&toy, other, scenario);
                        assert_eq!(is, expected, "{other} is not {policy} over {scenario:?}");
                    }
                }
            }
        }
    }
}

/// Scenarios with various links and machines.
const SCENARIOS: [(&str, &str); 4] = [
    ("delay=0ms", "0ms"),
    ("1.delay=1ms 1.down.delay=1ms all.delay=40ms down.delay=60ms", "4.5ms 1.factor=7"),
    (
        "delay=10ms jitter=5ms down.delay=10ms down.jitter=9ms down.distribution=pareto loss=2% \
         down.loss=3% rate=1mbit down.rate=2mbit server.rate=3mbit",
        "normal:5ms,2ms 1.time=pareto:2ms,1.5",
    ),
    (
        "delay=30ms down.delay=30ms slow-start=on down.slow-start=on outage=300ms+200ms",
        "straggler:2ms,50ms,0.1,0.3 1.slow=10x@100ms+1s",
    ),
];

#[test]
fn bsp_in_virtual_time_equals_bsp_over_real_transports() {
    for consistency in [ConsistencySpec::Bsp, ConsistencySpec::Ssp { slack: 0 }] {
        for workers in [1, 2, 4] {
            let mut toy = Toy::new(workers, 203);
            toy.job.mode.consistency = consistency;
            let reference = bits(&sequential_bsp(&toy));
            for kind in [Kind::Memory, Kind::Tcp] {
                let real = toy.clone();
                let real = within(Duration::from_secs(60), move || run_cluster(kind, &real));
                assert_eq!(bits(&real.parameters), reference, "{workers} workers over {kind:?}");
            }
            for exchange in [Exchange::Combined, Exchange::Separate] {
                for from in [DataFrom::Worker, DataFrom::Server] {
                    toy.job.exchange = exchange;
                    toy.job.data.from = from;
                    for (link, compute) in SCENARIOS {
                        let run = VirtualRun::new(&toy, link, compute).run();
                        assert_eq!(run.reason, EndReason::BudgetReached);
                        let who = format!("{workers} workers, {exchange}, {from}, {link}");
                        assert_eq!(bits(&run.parameters), reference, "{who}");
                        let told = |end: &Option<_>| *end == Some(Ok(EndReason::BudgetReached));
                        assert!(run.workers.iter().all(told), "{who}: {:?}", run.workers);
                    }
                }
            }
        }
    }
}

fn asynchronous() -> VirtualRun {
    let mut toy = Toy::new(3, 150);
    toy.job.mode.consistency = ConsistencySpec::Asp;
    VirtualRun::new(&toy, "delay=10ms jitter=5ms down.delay=7ms loss=1%", "exponential:5ms")
}

#[test]
fn the_same_seed_gives_the_same_trace_on_any_number_of_threads() {
    let run = asynchronous().with_faults("1.crash@40ms 1.restart@90ms 2.duplicate@30ms");
    let once = run.run();
    assert_eq!(run.run(), once);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let run = run.clone();
            std::thread::spawn(move || run.run())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("a run"), once);
    }
}

#[test]
fn any_change_of_the_input_changes_the_trace() {
    let trace = |run: &VirtualRun| -> [u8; 32] { run.run().trace };
    let as_it_was = trace(&asynchronous());
    let mut other = asynchronous();
    other.stream = Stream::new(2);
    assert_ne!(trace(&other), as_it_was, "the network's seed");
    let mut other = asynchronous();
    other.job.seed += 1;
    assert_ne!(trace(&other), as_it_was, "the job's seed");
    let mut other = asynchronous();
    other.scenario.links =
        "delay=10ms jitter=5ms down.delay=7.000001ms loss=1%".parse().expect("a setting");
    assert_ne!(trace(&other), as_it_was, "a nanosecond of delay");
    let mut other = asynchronous();
    other.scenario.compute = "exponential:5.001ms".parse().expect("a setting");
    assert_ne!(trace(&other), as_it_was, "the machines");
    assert_ne!(trace(&asynchronous().with_faults("2.cut@20ms 2.heal@30ms")), as_it_was, "a cut");
    assert_eq!(trace(&asynchronous()), as_it_was);
}

#[test]
fn a_missing_link_or_computing_time_is_an_error_and_never_zero() {
    let toy = Toy::new(2, 40);
    let error = |link: &str, compute: &str| -> Result<Simulated, SimulationError> {
        VirtualRun::new(&toy, link, compute).try_run()
    };
    let second = WorkerId(1);
    assert_eq!(error("1.delay=1ms", "1ms").err(), Some(SimulationError::Link(second)));
    assert_eq!(error("none", "1ms").err(), Some(SimulationError::Link(WorkerId(0))));
    assert_eq!(error("server.rate=1mbit", "1ms").err(), Some(SimulationError::Link(WorkerId(0))));
    assert_eq!(error("delay=1ms", "1.time=1ms").err(), Some(SimulationError::Compute(second)));
    assert_eq!(error("delay=1ms", "none").err(), Some(SimulationError::Compute(WorkerId(0))));
    let measured = "1ms 2.time=measured";
    assert_eq!(error("delay=1ms", measured).err(), Some(SimulationError::Measured(second)));
    let mut run = VirtualRun::new(&toy, "delay=1ms", measured);
    run.measured = Some(Duration::from_millis(3));
    let said = VirtualRun::new(&toy, "delay=1ms", "1ms 2.time=3ms");
    assert_eq!(run.run().point, said.run().point, "measured is what was measured");
}

/// Jobs whose updates depend on all keys, with the number of workers that each needs.
fn looking_at_all_keys() -> Vec<Toy> {
    let toys = [
        (3, "mean", Some(0.05), None),
        (3, "mean", None, Some(0.05)),
        (5, "krum:1", None, None),
        (5, "krum:1,3", Some(0.02), Some(0.1)),
        (2, "sum", Some(1e6), Some(1e6)),
    ];
    let toys = toys.map(|(workers, aggregation, norm, contribution)| {
        let mut toy = Toy::new(workers, 203);
        toy.job.aggregation = aggregation.parse().expect("an aggregation");
        (toy.job.update.clip_norm, toy.job.update.clip_contribution) = (norm, contribution);
        toy
    });
    toys.into()
}

#[test]
fn updates_that_depend_on_all_keys_are_identical_over_any_number_of_servers() {
    for mut toy in looking_at_all_keys() {
        for policy in ["bsp", "k-sync:4", "delay:2", "asp"] {
            toy.job.mode.consistency = policy.parse().expect("a policy");
            if toy.job.validate().is_err() {
                continue; // krum needs rounds of all workers
            }
            let ends = [1, 2, 4].map(|servers| {
                toy.job.servers = servers;
                let run =
                    VirtualRun::new(&toy, "delay=1ms down.delay=2ms 1.delay=9ms", "3ms").run();
                assert_eq!(run.reason, EndReason::BudgetReached, "{policy} over {servers}");
                (bits(&run.parameters), run.point, run.ledger)
            });
            let [one, two, four] = ends;
            let update = toy.job.update;
            assert_eq!(one, two, "{policy} with {update:?} over two servers");
            assert_eq!(one, four, "{policy} with {update:?} over four servers");
            toy.job.servers = 1;
        }
    }
}

#[test]
fn auto_makes_the_same_choices_over_any_number_of_servers() {
    for (scenario, rate) in [(SCENARIOS[1], 0.1), (("delay=30ms down.delay=30ms", "2ms"), 4.0)] {
        let mut toy = Toy::new(3, 1000);
        toy.job.mode.consistency = ConsistencySpec::Auto;
        toy.job.update.learning_rate = rate;
        toy.job.budget.epochs = 8;
        let [one, two, three] = [1, 2, 3].map(|servers| {
            toy.job.servers = servers;
            let run = VirtualRun::new(&toy, scenario.0, scenario.1).run();
            let is_chosen = |event: &&Event| {
                use Event as E;
                matches!(event, E::Switched { .. } | E::Adjusted { .. } | E::Restored { .. })
            };
            let chosen = run.events.iter().map(|(_, _, event)| event).filter(is_chosen);
            // Connecting to all servers takes a worker longer at the start; nothing else does.
            (bits(&run.parameters), run.point, chosen.cloned().collect::<Vec<_>>())
        });
        assert!(one.2.len() > 1, "{:?}", one.2);
        assert_eq!(one, two, "over two servers");
        assert_eq!(one, three, "over three servers");
    }
}
