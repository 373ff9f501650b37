//! The server's accounting of computing, network and barrier time equals the modelled times.

use std::time::Duration;

use pstrain_policy::consistency::ConsistencySpec;
use pstrain_roles::node::Event;
use pstrain_tests::{Simulated, VirtualRun};
use pstrain_wire::TimeSpent;

use super::closed_forms::patient;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the time spent in each step of a worker.
fn steps(run: &Simulated, of: u32) -> Vec<TimeSpent> {
    let spent = |event: &Event| match event {
        Event::Pushed { worker, spent, .. } | Event::CalledOff { worker, spent, .. }
            if worker.0 == of =>
        {
            Some(*spent)
        }
        _ => None,
    };
    run.events.iter().filter_map(|(.., event)| spent(event)).collect()
}

#[test]
fn a_step_consists_of_the_modelled_computing_link_and_barrier_times() {
    let toy = patient(3, 203, ConsistencySpec::Bsp);
    let link = "delay=1ms down.delay=1ms 3.delay=60ms 3.down.delay=40ms";
    let run = VirtualRun::new(&toy, link, "10ms 1.time=25ms").run();
    let of = |compute, network, barrier| TimeSpent {
        compute: ms(compute),
        network: ms(network),
        barrier: ms(barrier),
        ..TimeSpent::default()
    };
    // A round takes 110 ms: the third worker's 10 ms and its link.
    for (worker, all) in [(0, of(25, 2, 83)), (1, of(10, 2, 98)), (2, of(10, 100, 0))] {
        let steps = steps(&run, worker);
        assert!(steps.len() > 20);
        // Before the first gradient no worker had to wait.
        assert_eq!(steps[0], TimeSpent { barrier: ms(0), ..all }, "worker {worker}");
        assert!(steps[1..].iter().all(|step| *step == all), "worker {worker}: {:?}", steps[1]);
    }
}

#[test]
fn under_asp_no_step_has_barrier_time() {
    let toy = patient(2, 203, ConsistencySpec::Asp);
    let run =
        VirtualRun::new(&toy, "delay=1ms down.delay=1ms 2.delay=100ms 2.down.delay=100ms", "10ms")
            .run();
    let second = steps(&run, 1);
    let all =
        TimeSpent { compute: ms(10), network: ms(200), barrier: ms(0), ..TimeSpent::default() };
    assert!(second.iter().all(|step| *step == all), "{second:?}");
    assert!(steps(&run, 0).iter().all(|step| step.barrier.is_zero()));
}

#[test]
fn with_more_mini_batches_in_flight_the_link_is_hidden_behind_computing() {
    let mut toy = patient(1, 400, ConsistencySpec::Asp);
    toy.job.mode.in_flight = Some(4);
    let run = VirtualRun::new(&toy, "delay=10ms down.delay=10ms", "10ms").run();
    let steps = steps(&run, 0);
    let total: TimeSpent = steps.iter().fold(TimeSpent::default(), |all, step| all + *step);
    // The end of the run calls off the gradient that is being computed, which ends a step too.
    let ends = |event: &Event| matches!(event, Event::Pushed { .. } | Event::CalledOff { .. });
    let last = run.events.iter().rfind(|(.., event)| ends(event)).expect("a gradient").0;
    assert_eq!(total.total(), last - run.grants(0)[0], "all of the time");
    let settled = &steps[4..steps.len() - 4];
    let all = TimeSpent { compute: ms(10), network: ms(0), barrier: ms(0), ..TimeSpent::default() };
    assert!(settled.iter().all(|step| *step == all), "{settled:?}");
}

#[test]
fn computing_that_is_called_off_is_no_network_time() {
    let policies = [
        ConsistencySpec::KSync { workers: 1 },
        ConsistencySpec::Backup { workers: 1 },
        ConsistencySpec::KBatchSync { gradients: 1 },
        ConsistencySpec::Malenia { gradients: 1 },
    ];
    for consistency in policies {
        let toy = patient(2, 203, consistency);
        let run = VirtualRun::new(&toy, "all.delay=0ms", "10ms 2.time=19ms").run();
        let of = |worker| steps(&run, worker).into_iter().fold(TimeSpent::default(), |a, b| a + b);
        let both = [of(0), of(1)];
        assert!(both.iter().all(|spent| spent.network == ms(0)), "{consistency}: {both:?}");
        let called_off = both[0].called_off + both[1].called_off;
        assert!(called_off > ms(0), "{consistency}: {both:?}");
    }
}

#[test]
fn a_worker_that_is_always_called_off_computes_all_the_time() {
    let toy = patient(2, 203, ConsistencySpec::KSync { workers: 1 });
    let link = "delay=3ms down.delay=2ms";
    let run = VirtualRun::new(&toy, link, "10ms 2.time=40ms").run();
    let updates = run.point.version.0;
    let stopped = steps(&run, 1);
    // Its parameters take 2 ms, and the call to stop takes 2 ms, once in 15 ms.
    let step = TimeSpent { compute: ms(15), called_off: ms(15), network: ms(0), barrier: ms(0) };
    assert_eq!(stopped.len() as u64, updates);
    let first = TimeSpent { network: ms(5), ..step };
    assert_eq!((stopped[0], &stopped[1..]), (first, &vec![step; updates as usize - 1][..]));
}
