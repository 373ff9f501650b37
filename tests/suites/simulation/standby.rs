//! A standby in virtual time: its cost, the outcome when either server dies or is cut off, and
//! random schedules of such faults.
//!
//! Every run checks the invariant: workers see one history, and the server that is left at the end
//! has the end of that history ([`pstrain_tests::run_stood_by`]).

use std::fmt::Write as _;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::OnLoss;
use pstrain_policy::mode::Mode;
use pstrain_roles::node::Event;
use pstrain_tests::{StoodBy, Toy, for_seeds, run_stood_by};
use pstrain_wire::worker::EndReason;

const LINK: &str = "all.delay=1ms all.down.delay=1ms";
const STANDBY: &str = "all.delay=1ms all.down.delay=1ms standby.delay=4ms standby.down.delay=3ms";
const LEASE: Duration = Duration::from_millis(500);

fn toy(workers: u32, consistency: ConsistencySpec) -> Toy {
    let mut toy = Toy::new(workers, 240);
    toy.job.mode = Mode::of(consistency);
    toy.job.membership.on_loss = OnLoss::Wait;
    toy.job.membership.lease = LEASE;
    toy.job.budget.epochs = 12;
    toy
}

/// Returns the time from a failure to the first update after it.
fn resumed(run: &StoodBy, failure: usize) -> Duration {
    let failover = run.failover.as_ref().expect("it has a standby");
    failover.failures[failure].resumed.expect("it continues")
}

/// Checks that nothing was lost, and the numbers of takeovers and of continuations without a
/// standby.
#[track_caller]
fn came_through(run: &StoodBy, takeovers: u64, alone: u64) {
    let failover = run.failover.as_ref().expect("it has a standby");
    assert_eq!(run.reason, Some(EndReason::BudgetReached), "{failover:?}");
    assert!(failover.acknowledged > 0);
    assert_eq!((failover.lost, failover.updates_lost, failover.repeated), (0, 0, 0));
    assert_eq!((failover.takeovers, failover.alone), (takeovers, alone), "{failover:?}");
}

#[test]
fn a_standby_lengthens_each_update_by_its_round_trip() {
    let toy = toy(3, ConsistencySpec::Bsp);
    let [without, with] = [LINK, STANDBY].map(|link| run_stood_by(&toy, link, "5ms", "none"));
    came_through(&with, 0, 0);
    assert_eq!(without.failover, None);
    assert_eq!(with.parameters, without.parameters);
    for (run, round) in [(&without, 7), (&with, 14)] {
        // Once the standby follows, which takes some updates, all rounds are alike.
        let updates = run.updates().split_off(20);
        let rounds = updates.windows(2).map(|pair| pair[1].since(pair[0]));
        assert!(rounds.clone().count() > 50);
        rounds.for_each(|took| assert_eq!(took, Duration::from_millis(round)));
    }
    // Pushes are replicated to the standby, so more bytes go to it than come back.
    let failover = with.failover.unwrap();
    assert!(failover.down_bytes > failover.up_bytes && failover.up_bytes > 0, "{failover:?}");
}

#[test]
fn without_a_standby_the_run_ends_with_its_server() {
    let toy = toy(2, ConsistencySpec::Bsp);
    let run = run_stood_by(&toy, LINK, "5ms", "server.crash@300ms");
    let failover = run.failover.unwrap();
    assert_eq!(run.reason, None);
    assert!(failover.acknowledged > 10 && failover.updates_lost > 10, "{failover:?}");
    assert_eq!(failover.lost, failover.acknowledged);
    assert_eq!(failover.failures.len(), 1);
    assert_eq!(failover.failures[0].resumed, None);
}

#[test]
fn if_either_server_dies_or_is_cut_off_bsp_ends_at_the_same_parameters() {
    let toy = toy(3, ConsistencySpec::Bsp);
    let calm = run_stood_by(&toy, LINK, "5ms", "none");
    for (faults, takeovers, alone, least, most) in [
        ("server.crash@300ms", 1, 0, 0, 250),
        ("standby.crash@300ms", 0, 1, 0, 250),
        // Workers must miss the server for a lease before they turn to the standby.
        ("server.cut@300ms", 1, 0, 400, 1000),
        ("standby.cut@300ms", 0, 1, 250, 500),
        // Undetected: the messages in flight arrive after the heal.
        ("server.cut@300ms server.heal@350ms", 0, 0, 50, 70),
    ] {
        let run = run_stood_by(&toy, STANDBY, "5ms", faults);
        came_through(&run, takeovers, alone);
        assert_eq!(run.parameters, calm.parameters, "{faults}");
        let took = resumed(&run, 0);
        let span = Duration::from_millis(least)..=Duration::from_millis(most);
        assert!(span.contains(&took), "{faults}: {took:?}");
        // The same seed gives the same trace.
        assert_eq!(run, run_stood_by(&toy, STANDBY, "5ms", faults));
        assert_ne!(run.trace, calm.trace);
    }
}

#[test]
fn a_restarted_server_stands_by_for_the_other_and_leads_again() {
    let mut toy = toy(3, ConsistencySpec::Bsp);
    toy.job.budget.epochs = 60;
    let calm = run_stood_by(&toy, LINK, "5ms", "none");
    // The second time, the server is cut off, learns that the other leads, and is restarted.
    let faults = "server.crash@200ms server.restart@700ms standby.crash@1s standby.restart@1500ms \
                  server.cut@2s server.heal@4s server.restart@4500ms";
    let run = run_stood_by(&toy, STANDBY, "5ms", faults);
    came_through(&run, 3, 0);
    assert_eq!(run.parameters, calm.parameters);
    let joined = run.events.iter().filter(|(_, it)| matches!(it, Event::StandbyJoined { .. }));
    assert_eq!(joined.count(), 4);
    let failover = run.failover.unwrap();
    assert!(failover.failures.iter().all(|failure| failure.resumed.is_some()), "{failover:?}");
}

#[test]
fn if_both_servers_die_the_run_ends() {
    let toy = toy(2, ConsistencySpec::Asp);
    let run = run_stood_by(&toy, STANDBY, "5ms", "server.crash@300ms standby.crash@301ms");
    assert_eq!(run.reason, None);
    let failover = run.failover.unwrap();
    assert_eq!(failover.lost, failover.acknowledged);
}

/// Draws a schedule: faults of one server at a time, with time to recover in between, and worker
/// faults during that time.
fn faults(workers: u32, end: Duration, seed: u64) -> String {
    let mut random = Stream::new(seed).fork("failures", 0).rng();
    let mut part = |most: Duration| most.mul_f64(random.unit());
    let mut text = String::new();
    let mut say = |who: &str, what: &str, at: Duration| {
        let _written = write!(text, "{who}.{what}@{}ns ", at.as_nanos());
    };
    let mut at = LEASE / 2 + part(LEASE * 3);
    while at < end {
        let victim = if part(LEASE) < LEASE / 2 { "server" } else { "standby" };
        let mended = at + LEASE / 20 + part(LEASE * 3);
        if part(LEASE) < LEASE / 2 {
            say(victim, "crash", at);
        } else {
            say(victim, "cut", at);
            say(victim, "heal", mended);
        }
        let worker = (1 + part(LEASE).as_nanos() as u32 % workers).to_string();
        if part(LEASE) < LEASE / 2 {
            say(&worker, "duplicate", at + part(LEASE));
        }
        // By then a deposed server has learnt of its deposition and can restart. A standby that was
        // cut off may be the first server that the workers hear from at that time.
        let anew = mended + LEASE * 3;
        ["server", "standby"].iter().for_each(|server| say(server, "restart", anew));
        let calm = anew + LEASE;
        match part(LEASE).as_millis() * 3 / LEASE.as_millis() {
            0 => {
                say(&worker, "crash", calm);
                say(&worker, "restart", calm + part(LEASE));
            }
            1 => {
                say(&worker, "cut", calm);
                say(&worker, "heal", calm + part(LEASE));
            }
            _ => {}
        }
        at = calm + LEASE * 3 + part(LEASE * 2);
    }
    text
}

#[test]
fn under_server_faults_at_random_there_is_one_history_and_bsp_is_unchanged() {
    let consistencies = [
        ConsistencySpec::Bsp,
        ConsistencySpec::Asp,
        ConsistencySpec::Bsp,
        ConsistencySpec::Ssp { slack: 2 },
        ConsistencySpec::Delay { bound: Some(2) },
    ];
    let (mut takeovers, mut alone) = (0, 0);
    let describe = |seed| format!("standby of trial {seed}");
    let ran = for_seeds(240, describe, |seed| {
        let consistency = consistencies[(seed % 5) as usize];
        let workers = 1 + (seed / 5 % 4) as u32;
        let mut toy = toy(workers, consistency);
        toy.job.seed = seed;
        // Long enough for some of the faults: a run that has ended has no faults.
        toy.job.budget.epochs = 12 * workers;
        let delay = ["50us", "1ms", "15ms"][(seed / 3 % 3) as usize];
        let link = format!("all.delay={delay} all.down.delay={delay} all.jitter=50us");
        let compute = "exponential:20ms";
        let calm = run_stood_by(&toy, &link, compute, "none");
        let end = calm.updates().last().map_or(Duration::ZERO, |at| at.since(Time::ZERO)) * 3;
        let rate = ["", " standby.down.rate=5mbit"][(seed % 2) as usize];
        let link = format!("{link} standby.delay={delay} standby.down.jitter={delay}{rate}");
        let faults = faults(workers, end, seed);
        let run = run_stood_by(&toy, &link, compute, &faults);
        let failover = run.failover.as_ref().unwrap();
        let case = format!("seed {seed}, {consistency}, {workers} workers, {faults}: {failover:?}");
        assert_eq!(run.reason, Some(EndReason::BudgetReached), "{case}");
        assert_eq!(failover.lost, 0, "{case}");
        assert_eq!((failover.updates_lost, failover.repeated), (0, 0), "{case}");
        assert_eq!(run.ledger.outstanding, 0, "{case}");
        if consistency == ConsistencySpec::Bsp {
            assert!(run.parameters == calm.parameters, "{case}");
        }
        takeovers += failover.takeovers;
        alone += failover.alone;
    });
    ran.expect_above(120, takeovers, "takeovers");
    ran.expect_above(120, alone, "servers that continued alone");
}
