//! Virtual time equals closed forms to the nanosecond.
//!
//! Training time lasts from the first grant of parameters to the last update, as in the training
//! curve.

use std::time::Duration;

use pstrain_compute::rng::Stream;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, Exchange};
use pstrain_roles::node::Event;
use pstrain_tests::{Simulated, Toy, VirtualRun};
use pstrain_wire::worker::EndReason;

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A job with a lease so long that no heartbeat interferes.
pub(super) fn patient(workers: u32, rows: usize, consistency: ConsistencySpec) -> Toy {
    let mut toy = Toy::new(workers, rows);
    toy.job.membership.lease = Duration::from_secs(3600);
    toy.job.mode.consistency = consistency;
    toy
}

#[test]
fn waiting_before_the_run_begins_is_not_counted() {
    // The second worker joins seconds after the first.
    let toy = patient(2, 203, ConsistencySpec::Bsp);
    let run = VirtualRun::new(&toy, "1.delay=1ms 2.delay=3s down.delay=1s", "4ms").run();
    let mut granted = run.events.iter().filter_map(|(.., event)| match event {
        Event::Granted { waited, .. } => Some(*waited),
        _ => None,
    });
    assert_eq!([granted.next(), granted.next()], [Some(Duration::ZERO); 2]);
    assert!(granted.any(|waited| waited > Duration::from_secs(2)), "the first waits for the other");
}

#[test]
fn a_bsp_round_takes_as_long_as_its_slowest_worker() {
    let mut random = Stream::new(1).fork("closed forms", 0).rng();
    for _ in 0..40 {
        let workers = 1 + random.below(5) as u32;
        let (mut link, mut compute, mut slowest) = (String::new(), String::new(), 0);
        for worker in 1..=workers {
            let mut draw = || random.below(20_000);
            let (up, down, time) = (draw(), draw(), draw());
            link += &format!("{worker}.delay={up}us {worker}.down.delay={down}us ");
            compute += &format!("{worker}.time={time}us ");
            slowest = slowest.max(up + down + time);
        }
        let toy = patient(workers, 203, ConsistencySpec::Bsp);
        let run = VirtualRun::new(&toy, &link, &compute).run();
        let rounds = run.point.version.0;
        assert!(rounds >= 203 * 3 / (8 * u64::from(workers)));
        assert_eq!(run.point.time, us(slowest) * rounds as u32, "{link} {compute}");
        let updates = run.updates();
        assert!(updates.windows(2).all(|two| two[1] - two[0] == us(slowest)), "{link} {compute}");
    }
}

#[test]
fn separate_push_and_pull_cost_a_second_round_trip() {
    let mut toy = patient(3, 120, ConsistencySpec::Bsp);
    toy.job.exchange = Exchange::Separate;
    let run = VirtualRun::new(&toy, "delay=7ms down.delay=2ms", "5ms").run();
    let updates = run.updates();
    // Push, acknowledgement, pull, parameters; the last push needs no pull.
    assert!(updates.windows(2).all(|two| two[1] - two[0] == ms(5 + 2 * 9)));
    assert_eq!(run.point.time, ms(5 + 2 * 9) * run.point.version.0 as u32 - ms(9));
}

#[test]
fn a_slow_machine_computes_longer_by_its_factor_and_within_its_window() {
    let toy = patient(2, 64, ConsistencySpec::Bsp);
    let run = VirtualRun::new(&toy, "delay=1ms down.delay=1ms", "3ms 2.factor=4").run();
    assert_eq!(run.point.time, ms(14) * run.point.version.0 as u32);
    // Until the first parameters arrive, three messages go up and two down: 5 ms. Mini-batches then
    // begin at 6 ms + k * 5 ms. The one that begins at 31 ms does a third of its work until 32 ms,
    // and the rest at half the speed.
    let run = VirtualRun::new(&toy, "delay=1ms down.delay=1ms", "3ms slow=2x@32ms+100s").run();
    let rounds = run.point.version.0 as u32;
    assert_eq!(run.point.time, ms(5) * 5 + ms(2 + 1 + 4) + ms(2 + 6) * (rounds - 6));
}

#[test]
fn asp_throughput_is_the_sum_of_the_inverse_cycles() {
    let mut toy = patient(3, 120, ConsistencySpec::Asp);
    toy.job.budget.epochs = 30;
    let link = "1.delay=1ms 2.delay=2ms 3.delay=500us 1.down.delay=1ms 2.down.delay=1ms";
    let run = VirtualRun::new(&toy, link, "1ms 2.time=4ms 3.time=3.5ms").run();
    let cycles = [ms(3), ms(7), ms(4)];
    for (worker, cycle) in (0..).zip(cycles) {
        let first = run.grants(worker)[0];
        let mut expected = (1_u32..).map(|turn| first + cycle * turn);
        let applied = run.applied(worker);
        assert!(applied.iter().all(|(at, _)| Some(*at) == expected.next()), "worker {worker}");
    }
    // Any 84 ms, a multiple of all cycles, contain 28 + 12 + 21 updates.
    let updates = run.updates();
    let (begin, end) = (updates[50], updates[updates.len() - 1]);
    let mut windows = 0;
    let mut at = begin;
    while at + ms(84) <= end {
        let within = updates.iter().filter(|time| (at..at + ms(84)).contains(time)).count();
        assert_eq!(within, 28 + 12 + 21, "from {at}");
        (at, windows) = (at + ms(1), windows + 1);
    }
    assert!(windows > 100, "only {windows} windows");
}

#[test]
fn n_equal_asynchronous_workers_have_a_staleness_of_n_minus_1() {
    for workers in [1, 2, 5, 16] {
        let toy = patient(workers, 640, ConsistencySpec::Asp);
        let run = VirtualRun::new(&toy, "delay=3ms down.delay=1ms", "2ms").run();
        for worker in 0..workers {
            let staleness: Vec<u64> = run.applied(worker).iter().map(|(_, s)| *s).collect();
            assert_eq!(staleness[0], u64::from(worker), "all begin with version 0");
            let rest = &staleness[1..];
            assert!(rest.len() > 2 && rest.iter().all(|s| *s == u64::from(workers) - 1));
        }
    }
}

#[test]
fn two_workers_see_each_others_updates_in_the_ratio_of_their_cycles() {
    for (fast, slow) in [(3, 7), (1, 10), (4, 5)] {
        let mut toy = patient(2, 200, ConsistencySpec::Asp);
        toy.job.budget.epochs = 20;
        let compute = format!("1.time={}ms 2.time={}ms", fast - 1, slow - 1);
        let run = VirtualRun::new(&toy, "delay=1ms", &compute).run();
        // Compares numbers of turns that take the same time.
        let of = |worker: u32, turns: u64| -> u64 {
            let applied = run.applied(worker);
            applied[4..].iter().take(10 * turns as usize).map(|(_, staleness)| staleness).sum()
        };
        // The mean staleness of the fast worker is fast / slow, the slow worker's is slow / fast.
        assert_eq!(of(0, slow), 10 * fast, "{fast} and {slow}");
        assert_eq!(of(1, fast), 10 * slow, "{fast} and {slow}");
        // The shares of the updates have the same ratio.
        let all = run.grants(0)[0]..run.grants(0)[0] + ms(fast * slow * 8);
        let share = |worker: u32| {
            run.applied(worker).iter().filter(|(at, _)| all.contains(at)).count() as u64
        };
        assert_eq!((share(0) + 1, share(1) + 1), (8 * slow, 8 * fast), "{fast} and {slow}");
    }
}

#[test]
fn under_ssp_all_workers_converge_to_the_slowest_pace() {
    for slack in [1, 3, 10] {
        let mut toy = patient(3, 240, ConsistencySpec::Ssp { slack });
        toy.job.budget.epochs = 10;
        let compute = "1.time=1ms 2.time=2ms 3.time=9ms";
        let run = VirtualRun::new(&toy, "delay=1ms", compute).run();
        let updates = run.updates();
        let begin = run.grants(0)[0] + ms(10) * (3 * slack as u32 + 3);
        for turn in 0..40 {
            let from = begin + ms(10) * turn;
            let within = updates.iter().filter(|at| (from..from + ms(10)).contains(at)).count();
            assert_eq!(within, 3, "slack {slack}, turn {turn}");
        }
        // The lead of the fastest worker reaches the slack and never exceeds it.
        let mut most = 0;
        let (mut fast, mut slow) = (0_u64, 0_u64);
        for (_, _, event) in &run.events {
            if let Event::Applied { worker, .. } = event {
                fast += u64::from(worker.0 == 0);
                slow += u64::from(worker.0 == 2);
                most = most.max(fast - slow);
            }
        }
        assert_eq!(
            most,
            slack + 1,
            "it has finished one mini-batch more than it may lead when it begins"
        );
    }
}

#[test]
fn under_a_partition_budget_training_ends_with_the_slowest_worker() {
    let mut toy = patient(2, 80, ConsistencySpec::Asp);
    toy.job.budget.kind = BudgetKind::Partition;
    let run = VirtualRun::new(&toy, "delay=1ms 2.delay=9ms", "1ms 2.time=3ms").run();
    // 40 rows in batches of 8, three times.
    assert_eq!((run.applied(0).len(), run.applied(1).len()), (15, 15));
    let first = |worker| run.grants(worker)[0];
    let end = |worker| run.applied(worker)[14].0;
    assert_eq!((end(0), end(1)), (first(0) + ms(2) * 15, first(1) + ms(12) * 15));
    assert_eq!(run.point.time, end(1) - first(0).min(first(1)));
}

#[test]
fn an_outage_costs_exactly_the_delay_of_messages_in_flight() {
    let toy = patient(1, 64, ConsistencySpec::Bsp);
    let time = |link: &str| -> Duration {
        let run: Simulated = VirtualRun::new(&toy, link, "4ms").run();
        run.point.time
    };
    // Parameters are granted at 3 * 5 ms + 2 * 2 ms; a cycle is 2 ms down, 4 ms, 5 ms up.
    let given_out = |cycle: u64| 19 + 11 * cycle;
    let undisturbed = time("delay=5ms down.delay=2ms");
    let cycles = 24;
    assert_eq!(undisturbed, ms(11 * cycles));
    for (from, length, way, costs) in [
        // The push is in flight and is held up.
        (given_out(3) + 8, 50, "up", 50),
        // The outage begins during the computation and ends before the push.
        (given_out(3) + 3, 2, "up", 0),
        // The outage begins during the computation and ends 7 ms after the push was sent.
        (given_out(3) + 3, 10, "up", 7),
        // The parameters are in flight.
        (given_out(5) + 1, 30, "down", 30),
        // Messages are in flight in the other direction only.
        (given_out(5) + 1, 4, "up", 0),
    ] {
        let link = format!("delay=5ms down.delay=2ms {way}.outage={from}ms+{length}ms");
        assert_eq!(time(&link), undisturbed + ms(costs), "{link}");
    }
}

#[test]
fn while_a_worker_is_awaited_the_others_stop_after_a_pass() {
    use ConsistencySpec as C;
    let passes = 203_u64.div_ceil(2).div_ceil(8);
    for (consistency, most) in [
        (C::Malenia { gradients: 2 }, passes),
        (C::Malenia { gradients: 1000 }, passes),
        // One pass, plus a gradient that is gathered for the next table.
        (C::Ringleader, passes + 1),
    ] {
        let mut toy = patient(2, 203, consistency);
        toy.job.budget.epochs = 20;
        let run = VirtualRun::new(&toy, "delay=0s", "1ms 2.time=10s").run();
        let (updates, grants) = (run.updates(), run.grants(0));
        let between = |two: &[_]| grants.iter().filter(|at| (two[0]..two[1]).contains(*at)).count();
        let busiest = updates.windows(2).map(between).max().expect("there are updates");
        assert!(busiest as u64 <= most, "{consistency}: {busiest} mini-batches for one update");
        assert!(updates.len() > 10, "{consistency}: only {} updates", updates.len());
        assert_eq!(run.reason, EndReason::BudgetReached);
    }
}

#[test]
fn with_unbounded_delay_no_worker_runs_ahead_of_the_budget() {
    let mut toy = patient(2, 203, ConsistencySpec::Delay { bound: None });
    toy.job.budget.epochs = 20;
    let run = VirtualRun::new(&toy, "delay=0s", "1ms 2.time=10s").run();
    let iterations = run.point.version.0;
    // Mini-batches beyond the last iteration are shorter than the batch size.
    assert!(run.grants(0).len() as u64 <= iterations + 2 * 20, "{iterations} iterations");
    assert!(run.ledger.discarded <= 2 * 20, "{:?}", run.ledger);
}
