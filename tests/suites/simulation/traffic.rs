//! Messages take link time in proportion to their bytes, alone on a link and sharing it.

use std::time::Duration;

use pstrain_compute::decided::Decided;
use pstrain_compute::id::{BatchId, Sequence, Version, WorkerId};
use pstrain_compute::model::ModelSpec;
use pstrain_compute::params::KeyRange;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_roles::node::Event;
use pstrain_tests::{Arrival, Simulated, Toy, VirtualRun};
use pstrain_transports::simulation::Origin;
use pstrain_wire::worker::{EndReason, Parameters, ParametersHeader};
use pstrain_wire::{Message, frame_len};

use super::closed_forms::patient;

fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Returns the bytes on the wire of the parameters of a round, without their values.
fn parameters_without_values(round: u64, parameters: u64) -> u64 {
    let decided = (round > 0).then_some(Decided::after(None, Sequence(round), None));
    let header = ParametersHeader {
        version: Version(round),
        keys: KeyRange::new(0, parameters).expect("some keys"),
        sequence: Sequence(round + 1),
        task: Task::own(WorkerId(0), BatchId(round)),
        ahead: 0,
        decided,
    };
    let message =
        Message::Parameters(Parameters { header, values: Vec::new().into(), changes: None });
    frame_len(&message, &mut Vec::new())
}

fn pushes(run: &Simulated) -> impl Iterator<Item = &Arrival> {
    run.arrivals.iter().filter(|arrival| arrival.is_push)
}

/// A timing job, in which only message sizes and times matter, with parameters of `bytes` bytes.
fn timing(
    workers: u32,
    rows: usize,
    consistency: ConsistencySpec,
    link: &str,
    compute: &str,
    bytes: u64,
) -> VirtualRun {
    let mut toy: Toy = patient(workers, rows, consistency);
    toy.job.model = ModelSpec::Timing { layers: vec![1] };
    let mut run = VirtualRun::new(&toy, link, compute);
    run.weight = Some(bytes);
    run
}

#[test]
fn a_bsp_round_takes_the_transmission_time_of_its_slowest_worker() {
    let toy = patient(2, 203, ConsistencySpec::Bsp);
    // 8 Mbit/s are one byte per 1000 ns, 80 Mbit/s one byte per 100 ns.
    let link = "1.delay=3ms 1.down.delay=2ms 2.delay=5ms 2.down.delay=1ms rate=8mbit \
                down.rate=80mbit";
    let run = VirtualRun::new(&toy, link, "4ms 2.time=7ms").run();
    let values = run.parameters.len() as u64;
    let updates = run.updates();
    let own = [ns(3_000_000 + 2_000_000 + 4_000_000), ns(5_000_000 + 1_000_000 + 7_000_000)];
    let mut by_round = [pushes(&run), pushes(&run)];
    let connections = [run.arrivals[0].peer, run.arrivals.last().expect("messages").peer];
    assert_ne!(connections[0], connections[1]);
    for (round, &updated) in updates.iter().enumerate() {
        let down = (parameters_without_values(round as u64, values) + 4 * values) * 100;
        let arrives = (0..2).map(|worker| {
            let push = by_round[worker].find(|push| push.peer.0 == worker as u64).expect("a push");
            let granted = run.grants(worker as u32)[round];
            granted + ns(down) + own[worker] + ns(push.bytes * 1000)
        });
        assert_eq!(Some(updated), arrives.max(), "round {round}");
    }
    assert_eq!(run.point.time, updates[updates.len() - 1] - run.grants(0)[0]);
}

#[test]
fn a_timing_job_takes_as_long_as_a_real_one_of_that_size() {
    let link = "delay=3ms down.delay=2ms rate=8mbit down.rate=80mbit";
    let bytes = 40_000;
    let run = timing(1, 64, ConsistencySpec::Bsp, link, "4ms", bytes).run();
    let mut expected = Duration::ZERO;
    for (round, push) in pushes(&run).enumerate() {
        let down = parameters_without_values(round as u64, 1) + bytes;
        let up = push.bytes - 4 + bytes;
        expected += ns(9_000_000 + down * 100 + up * 1000);
    }
    assert_eq!(run.point.time, expected);
    assert_eq!(run.parameters, [0.0], "nothing was computed");
    // Twice the model takes twice the time for its bytes.
    let twice = timing(1, 64, ConsistencySpec::Bsp, link, "4ms", 2 * bytes).run();
    let rounds = run.point.version.0 as u32;
    assert_eq!(twice.point.time - run.point.time, ns(bytes * 1100) * rounds);
}

#[test]
fn messages_of_one_worker_queue_for_its_rate() {
    // A worker sends its ready message and its pull at the same moment.
    let run = timing(1, 16, ConsistencySpec::Bsp, "delay=10ms rate=8kbit", "1ms", 100).run();
    let [hello, ready, pull] = [run.arrivals[0], run.arrivals[1], run.arrivals[2]];
    assert!(!pull.is_push && ready.at > hello.at);
    assert_eq!(pull.at - ready.at, Duration::from_millis(pull.bytes), "a byte in 1 ms");
}

#[test]
fn a_busy_uplink_at_the_server_carries_exactly_its_rate() {
    // 8 Gbit/s are one byte per nanosecond. Ten workers need 10 * 100 us for their pushes, and less
    // than that for everything else.
    let link = "delay=10us down.delay=10us server.up.rate=8gbit";
    let run = timing(10, 3000, ConsistencySpec::Asp, link, "50us", 100_000).run();
    let bytes = |arrival: &Arrival| arrival.bytes + u64::from(arrival.is_push) * (100_000 - 4);
    let first = run.arrivals.iter().position(|arrival| arrival.is_push).expect("a push");
    let busy = &run.arrivals[first..];
    let busy = &busy[..busy.iter().rposition(|arrival| arrival.is_push).expect("a push")];
    assert!(busy.len() > 900);
    let mut carried = 0;
    for arrival in &busy[1..] {
        carried += bytes(arrival);
        assert_eq!(arrival.at - busy[0].at, ns(carried));
    }
}

#[test]
fn a_busy_downlink_at_the_server_carries_exactly_its_rate() {
    let link = "delay=10us down.delay=10us server.down.rate=8gbit";
    let run = timing(10, 3000, ConsistencySpec::Asp, link, "50us", 100_000).run();
    let received: Vec<(Time, u64)> = run
        .events
        .iter()
        .filter_map(|(at, from, event)| match (from, event) {
            (Origin::Worker(_), Event::Received { sequence, version }) => {
                let round = sequence.0 - 1;
                let decided = (round > 0).then_some(Decided::after(None, Sequence(round), None));
                let header = ParametersHeader {
                    version: *version,
                    keys: KeyRange::new(0, 1).expect("a key"),
                    sequence: *sequence,
                    task: Task::own(WorkerId(0), BatchId(round)),
                    ahead: 0,
                    decided,
                };
                let values = Vec::new().into();
                let message = Message::Parameters(Parameters { header, values, changes: None });
                Some((*at, frame_len(&message, &mut Vec::new()) + 100_000))
            }
            _ => None,
        })
        .collect();
    assert!(received.len() > 900);
    let mut carried = 0;
    for (at, bytes) in &received[1..] {
        carried += bytes;
        assert_eq!(*at - received[0].0, ns(carried));
    }
}

#[test]
fn slow_start_takes_the_flights_that_the_window_needs() {
    // Ten segments of 1448 bytes, doubled each round trip; after two seconds of computation the
    // window restarts.
    for (bytes, flights) in [(10_000, 1), (60_000, 3), (250_000, 5), (1_000_000, 7)] {
        let link = "delay=20ms down.delay=30ms slow-start=on";
        let run = timing(1, 40, ConsistencySpec::Bsp, link, "2s", bytes).run();
        let sent = run
            .events
            .iter()
            .filter_map(|(at, _, event)| matches!(event, Event::Sent { .. }).then_some(*at));
        let mut pushes = 0;
        for (sent, arrival) in sent.zip(pushes_of(&run)) {
            let took = Duration::from_millis(20 + 50 * (flights - 1));
            assert_eq!(arrival - sent, took, "{bytes} bytes");
            pushes += 1;
        }
        assert_eq!(pushes, run.point.version.0);
    }
}

fn pushes_of(run: &Simulated) -> impl Iterator<Item = Time> + '_ {
    pushes(run).map(|push| push.at)
}

#[test]
fn without_idle_time_the_window_stays_open() {
    // The round trip is 50 ms and the timeout 250 ms; two pushes are 60 ms apart.
    let link = "delay=20ms down.delay=30ms slow-start=on";
    let run = timing(1, 40, ConsistencySpec::Bsp, link, "10ms", 60_000).run();
    let updates = run.updates();
    let late = updates.windows(2).skip(3).all(|two| two[1] - two[0] == Duration::from_millis(60));
    assert!(late, "{updates:?}");
}

/// A message takes four leases each way, on a link of its own or on a shared one.
#[test]
fn a_worker_with_a_long_transmission_is_not_lost() {
    for (consistency, link) in [
        (ConsistencySpec::Bsp, "all.delay=1ms all.rate=100kbit all.down.rate=100kbit"),
        (ConsistencySpec::Asp, "all.delay=1ms all.rate=100kbit all.down.rate=100kbit"),
        (ConsistencySpec::Bsp, "all.delay=1ms server.rate=200kbit"),
    ] {
        let mut run = timing(2, 200, consistency, link, "1ms", 50_000);
        run.job.membership.lease = Duration::from_secs(1);
        let done = run.run();
        let training = done.events.iter().map(|(.., event)| event);
        let mut training = training.take_while(|event| !matches!(event, Event::Ended { .. }));
        let cut = training.find(|event| {
            let gone = matches!(event, Event::CutOff { .. } | Event::Departed { .. });
            gone || matches!(event, Event::Redialling { .. })
        });
        assert_eq!(cut, None, "{link}");
        assert_eq!(done.reason, EndReason::BudgetReached);
    }
}
