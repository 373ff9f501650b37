//! The closed form against published cases, and against a simulation one push at a time.

use super::*;

fn job(policy: Policy, cycles_ms: &[u64], gradients: u64) -> Constant {
    let worker = |ms: &u64| Worker { compute: Duration::from_millis(*ms), ..Worker::default() };
    let workers = cycles_ms.iter().map(worker).collect();
    Constant { policy, workers, gradients, obstacles: Vec::new() }
}

fn near(found: f64, wanted: f64, within: f64) {
    assert!((found - wanted).abs() <= within, "{found} is not {wanted}");
}

/// Simulates a job; returns its total time, and the mean staleness of each worker in the second
/// half of the run.
fn played(policy: Policy, cycles: &[u64], gradients: u64) -> (u64, Vec<f64>) {
    let slack = match policy {
        Policy::Bsp => 0,
        Policy::Asp => u64::MAX,
        Policy::Ssp { slack } => slack,
        other => panic!("{other:?} knows no slack"),
    };
    let mut version = 0;
    let mut clocks = vec![0_u64; cycles.len()];
    // For each computing worker: when its push arrives, and the version that it is based on.
    let mut busy: Vec<Option<(u64, u64)>> = cycles.iter().map(|time| Some((*time, 0))).collect();
    let mut stale = vec![Vec::new(); cycles.len()];
    loop {
        let next = busy.iter().enumerate().filter_map(|(worker, busy)| Some(((*busy)?, worker)));
        let ((now, base), worker) = next.min_by_key(|((due, _), worker)| (*due, *worker)).unwrap();
        if version >= gradients / 2 {
            stale[worker].push((version - base) as f64);
        }
        version += 1;
        clocks[worker] += 1;
        busy[worker] = None;
        if version == gradients {
            let mean = |all: &Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
            return (now, stale.iter().map(mean).collect());
        }
        let lowest = clocks.iter().copied().min().unwrap();
        for (worker, busy) in busy.iter_mut().enumerate() {
            if busy.is_none() && clocks[worker] - lowest <= slack {
                *busy = Some((now + cycles[worker], version));
            }
        }
    }
}

#[test]
fn a_cycle_is_compute_and_both_ways_with_their_bytes() {
    let way = |ms, rate, bytes| ConnectionFlags { delay: Duration::from_millis(ms), rate, bytes };
    let worker = Worker {
        compute: Duration::from_millis(4),
        up: way(100, Some(8e6), 10_000),
        down: way(1, None, 10_000),
    };
    let policy = Policy::Bsp;
    let found =
        predict(&Constant { policy, workers: vec![worker], gradients: 3, obstacles: vec![] });
    let found = found.unwrap();
    assert_eq!(found.cycles, [Duration::from_millis(115)]);
    assert_eq!(found.total, Duration::from_millis(345));
}

#[test]
fn the_published_setting_is_ten_times_faster_without_waiting() {
    let worker = |ms: u64| Worker {
        compute: Duration::from_micros(4500),
        up: ConnectionFlags { delay: Duration::from_millis(ms), ..ConnectionFlags::default() },
        ..Worker::default()
    };
    let job = |policy| Constant {
        policy,
        workers: vec![worker(1), worker(100)],
        gradients: 73_900,
        obstacles: vec![],
    };
    let (bsp, asp) = (predict(&job(Policy::Bsp)).unwrap(), predict(&job(Policy::Asp)).unwrap());
    near(bsp.total.as_secs_f64(), 3861.0, 1.0);
    near(asp.total.as_secs_f64(), 386.0, 0.5);
    near(asp.shares[0], 0.95, 1e-9);
    let stale = asp.staleness.unwrap();
    assert_eq!(stale.mean, 1.0);
    near(stale.workers[1], 19.0, 1e-9);
    near(stale.workers[0], 1.0 / 19.0, 1e-9);
    for slack in [1, 3, 10, 30] {
        let ssp = predict(&job(Policy::Ssp { slack })).unwrap();
        near(ssp.total.as_secs_f64(), 3861.0, 4.0);
        assert_eq!(ssp.shares, [0.5, 0.5]);
    }
}

#[test]
fn total_times_are_those_of_workers_played_out() {
    let sets: [&[u64]; 6] =
        [&[7], &[5, 5], &[3, 7, 11], &[1, 100], &[10, 10, 10, 31], &[2, 3, 5, 7, 11, 13]];
    for cycles in sets {
        for policy in [1, 2, 5].map(|slack| Policy::Ssp { slack }).into_iter().chain([Policy::Asp])
        {
            for gradients in [1, 2, 9, 100, 1001] {
                let (total, _) = played(policy, cycles, gradients);
                let found = predict(&job(policy, cycles, gradients)).unwrap();
                let case = format!("{policy:?}, {cycles:?}, {gradients} gradients");
                assert_eq!(found.total, Duration::from_millis(total), "{case}");
            }
        }
    }
}

#[test]
fn staleness_is_that_of_workers_played_out() {
    let cases: [(Policy, &[u64]); 7] = [
        (Policy::Asp, &[5, 5, 5]),
        (Policy::Asp, &[3, 7, 11]),
        (Policy::Asp, &[1, 100]),
        (Policy::Ssp { slack: 3 }, &[3, 7, 11]),
        (Policy::Ssp { slack: 1 }, &[1, 100]),
        (Policy::Ssp { slack: 2 }, &[4, 9, 9]),
        (Policy::Ssp { slack: 4 }, &[6, 6, 6, 6]),
    ];
    for (policy, cycles) in cases {
        let (_, played) = played(policy, cycles, 40_000);
        let found = predict(&job(policy, cycles, 40_000)).unwrap().staleness.unwrap();
        for (found, played) in found.workers.iter().zip(&played) {
            assert!(
                (found - played).abs() < 0.02 * played.max(1.0),
                "{policy:?} {cycles:?}: {found} {played}"
            );
        }
    }
}

#[test]
fn equal_workers_are_stale_by_all_others() {
    for policy in [Policy::Asp, Policy::Ssp { slack: 2 }] {
        let found = predict(&job(policy, &[10; 8], 8000)).unwrap();
        assert_eq!(found.staleness, Some(Staleness { mean: 7.0, workers: vec![7.0; 8] }));
        near(found.throughput, 800.0, 1e-9);
    }
}

#[test]
fn updates_of_the_first_take_what_the_last_of_those_takes() {
    let cycles = [3, 7, 11];
    let total = |policy, gradients| predict(&job(policy, &cycles, gradients)).unwrap().total;
    let ms = Duration::from_millis;
    for (workers, round) in [(1, 3), (2, 7), (3, 11)] {
        assert_eq!(total(Policy::KSync { workers }, 5 * workers as u64), ms(5 * round));
    }
    let found = predict(&job(Policy::KSync { workers: 2 }, &cycles, 10)).unwrap();
    assert_eq!((found.shares, found.staleness.unwrap().mean), (vec![0.5, 0.5, 0.0], 0.0));
    assert_eq!(total(Policy::Buffered, 100), total(Policy::Asp, 100));
}

#[test]
fn slack_zero_is_bsp() {
    let times = [3, 8];
    let ssp = predict(&job(Policy::Ssp { slack: 0 }, &times, 11)).unwrap();
    assert_eq!(ssp, predict(&job(Policy::Bsp, &times, 11)).unwrap());
    assert_eq!(ssp.total, Duration::from_millis(6 * 8));
}

#[test]
fn staleness_is_left_open_while_slack_is_used_up() {
    let found = predict(&job(Policy::Ssp { slack: 100 }, &[9, 10], 500)).unwrap();
    assert_eq!(found.staleness, None);
}

#[test]
fn what_has_no_closed_form_says_why() {
    let mut jittery = job(Policy::Asp, &[1], 1);
    jittery.obstacles = vec!["jitter of worker 1".into(), "loss of worker 2".into()];
    let why = predict(&jittery).unwrap_err();
    assert!(why.contains("jitter of worker 1, loss of worker 2"), "{why}");
    assert!(predict(&job(Policy::Asp, &[], 1)).unwrap_err().contains("no workers"));
    assert!(predict(&job(Policy::Asp, &[3, 0], 1)).unwrap_err().contains("worker 2"));
    let mut stuck = job(Policy::Bsp, &[1], 1);
    stuck.workers[0].up =
        ConnectionFlags { rate: Some(0.0), bytes: 1, ..ConnectionFlags::default() };
    assert!(predict(&stuck).unwrap_err().contains("for ever"));
}
