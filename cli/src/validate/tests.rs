//! The closed form against virtual time, which is independent of it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::experiment::{cells, resolve};

/// Returns the closed form of a job and its run in virtual time. The lease is long enough that no
/// heartbeat is due, which would occupy a link with a rate.
fn closed_and_simulated(settings: &str) -> (Result<Prediction, String>, Record) {
    let text = format!(
        "name = 'job'\ntitle = 'A job'\n[job]\ndata = 'synthetic:600'\nbatch-size = 16\n\
         epochs = 2\nlease = '1h'\nmodel = 'mlp:4'\n{settings}"
    );
    let mut spec = Spec::parse("job.toml", &text).unwrap();
    resolve(&mut spec, &[]).unwrap();
    let cells = cells(&spec);
    let run = Run::new(&spec, &cells[0], 0).unwrap();
    let stop = AtomicBool::new(false);
    let backend = VirtualTime::default();
    let simulated = backend.execute(&run, &stop).unwrap().unwrap();
    let closed = closed_form(&backend.job(&run).unwrap(), &run, &simulated).unwrap();
    (closed, simulated)
}

/// Returns the total time of a job by closed form and in virtual time.
fn both(settings: &str) -> (Duration, Duration) {
    let (closed, simulated) = closed_and_simulated(settings);
    (closed.unwrap().total, Duration::from_secs_f64(simulated.metrics["time_s"]))
}

const POLICIES: [&str; 4] = ["bsp", "asp", "ssp:1", "ssp:3"];
const LINKS: [(u32, &str); 3] = [
    (2, "1.delay=1ms 2.delay=37ms"),
    (2, "delay=3ms 1.down.delay=2ms 2.down.delay=11ms"),
    (3, "1.delay=2ms 2.delay=9ms 3.delay=31ms"),
];

/// Checks that the closed form and virtual time agree for each policy, link and compute time.
fn check_the_same(policies: [&str; 4]) {
    for policy in policies {
        for (workers, link) in LINKS {
            for compute in ["4500us", "7ms 2.factor=3"] {
                let job = format!(
                    "consistency = '{policy}'\nworkers = {workers}\nlink = '{link}'\n\
                     compute = '{compute}'"
                );
                let (closed, simulated) = both(&job);
                assert_eq!(closed, simulated, "{job}");
            }
        }
    }
}

#[test]
fn without_rates_both_are_the_same() {
    check_the_same(POLICIES);
}

#[test]
fn updates_of_the_first_gradients_are_the_same_too() {
    check_the_same(["k-sync:1", "k-sync:2", "backup:1", "buffered:4"]);
}

#[test]
fn a_machine_that_was_too_busy_is_not_judged() {
    let record = |time_s: f64, stalled_s: f64| {
        let mut record = Record::default();
        let metrics = [
            ("time_s", time_s),
            ("shaping.stalled_s", stalled_s),
            ("shaping.messages.late_median_ms", 0.083),
            ("workers.1.updates", 1.0),
            ("workers.2.updates", 1.0),
        ];
        record.metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        record
    };
    let simulated = record(10.0, 0.0);
    let reference = Measurement::of(&simulated, &simulated);
    let judge = |time_s, stalled_s| {
        let backend = Measurement::of(&record(time_s, stalled_s), &simulated);
        let agreement = Agreement::of(&[(&reference, &backend)]);
        (backend.is_busy(), agreement.judged, agreement.busy, agreement.good)
    };
    // 40 % slower: with 1.4 of 28 worker-seconds lost in stalls, and with almost none.
    assert_eq!(judge(14.0, 1.4), (true, 0, 1, false));
    assert_eq!(judge(14.0, 0.01), (false, 1, 0, false));
    assert_eq!(judge(10.2, 0.01), (false, 1, 0, true));
}

#[test]
fn with_rates_they_differ_by_a_few_bytes_of_the_first_cycle() {
    // In a run this short, every number takes one byte on the wire. So all pushes have the same
    // size, and so have all answers, except each worker's first: it acknowledges no push and is 6
    // bytes shorter. On the way up, a worker's first pull of 25 bytes follows its message that it
    // is ready, which may be what starts the run.
    let (up, down) = (1_000_000, 100_000);
    let time =
        |bytes: u32, rate: u32| Duration::from_secs_f64(f64::from(bytes * 8) / f64::from(rate));
    for policy in POLICIES {
        for (workers, link) in LINKS {
            let job = format!(
                "consistency = '{policy}'\nworkers = {workers}\ncompute = '4500us'\n\
                 link = '{link} rate={up}bit 2.down.rate={down}bit'"
            );
            let (closed, simulated) = both(&job);
            assert!(simulated + time(6, down) >= closed, "{job}: {closed:?} {simulated:?}");
            assert!(simulated <= closed + time(25, up), "{job}: {closed:?} {simulated:?}");
        }
    }
}

#[test]
fn runs_without_a_server_have_no_closed_form_of_a_servers_consistency() {
    for architecture in ["all-reduce:ring", "in-network", "gossip:d-psgd", "gossip:ad-psgd"] {
        let settings = format!(
            "workers = 3\narchitecture = '{architecture}'\nlink = 'all.delay=2ms'\ncompute = '3ms'"
        );
        let (closed, _) = closed_and_simulated(&settings);
        let why = closed.unwrap_err();
        assert!(why.contains(&format!("architecture {architecture}")), "{why}");
    }
    let two = "workers = 2\nservers = 2\nlink = 'all.delay=2ms'\ncompute = '3ms'";
    assert!(closed_and_simulated(two).0.unwrap_err().contains("several servers"));
}
