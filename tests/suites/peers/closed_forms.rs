//! The time of an update equals closed forms to the nanosecond: a hop from worker a to worker b
//! takes the way up of a and the way down of b.

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::Version;
use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_tests::{VirtualRun, intervals, simulate_toy_peers};
use pstrain_transports::simulation::SiteTraffic;
use pstrain_wire::peers::{Piece, PieceHeader};
use pstrain_wire::{Message, frame_len};

use super::peers;

/// The times between updates, without the first ones: connections open meanwhile.
fn steady(architecture: Architecture, workers: u32, link: &str, compute: &str) -> Vec<Duration> {
    steady_with(None, (architecture, workers), link, compute)
}

/// The same, with so many gradients in flight.
fn steady_with(
    in_flight: Option<u32>,
    (architecture, workers): (Architecture, u32),
    link: &str,
    compute: &str,
) -> Vec<Duration> {
    let mut toy = peers(architecture, workers, 40 * workers as usize);
    toy.job.mode.in_flight = in_flight;
    toy.job.membership.lease = Duration::from_secs(3600);
    (toy.job.batch_size, toy.job.budget.epochs) = (2, 1);
    let run = simulate_toy_peers(&VirtualRun::new(&toy, link, compute));
    assert_eq!(run.version, 20);
    let times = intervals(&run.updates);
    times[times.len() - 8..].to_vec()
}

const fn is_butterfly(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::Butterfly | Architecture::BySize)
}

/// Hops of an all-reduce of N workers, one after another.
fn hops(architecture: Architecture, workers: u32) -> u32 {
    let log2_up = workers.next_power_of_two().trailing_zeros();
    match architecture {
        Architecture::Ring => 2 * (workers - 1),
        // A rank that is folded into its neighbor costs a hop at the begin and one at the end.
        Architecture::HalvingDoubling => 2 * log2_up,
        Architecture::AllToAll => 2 * u32::from(workers > 1),
        Architecture::Tree => 2 * workers.ilog2(),
        // The models of the tests are short vectors.
        Architecture::Butterfly | Architecture::BySize => {
            workers.ilog2() + 2 * u32::from(!workers.is_power_of_two())
        }
        Architecture::AllGather => u32::from(workers > 1),
        // One up and one down for each digit that is not 0 of a rank to base `fanout`.
        Architecture::Hierarchical { fanout } => {
            let digits = |rank: u32| {
                let digit = |power| rank / fanout.pow(power) % fanout;
                (0..5).filter(|power| digit(*power) > 0).count() as u32
            };
            2 * (0..workers).map(digits).max().unwrap_or_default()
        }
        // To the meeting point and back for the exponents, and for the values.
        Architecture::InNetwork { .. } => 2 * u32::from(workers > 1),
        Architecture::Server | Architecture::DPsgd | Architecture::AdPsgd => {
            unreachable!("it has no all-reduce")
        }
    }
}

#[test]
fn an_update_takes_a_gradient_and_the_hops_of_its_collective() {
    let mut random = Stream::new(3).fork("closed forms of peers", 0).rng();
    for workers in 1..=12 {
        for architecture in Architecture::replicated() {
            let mut draw = || 1 + random.below(20_000_000);
            let (up, down, compute) = (draw(), draw(), draw());
            let link = format!("delay={up}ns down.delay={down}ns");
            let times = steady(architecture, workers, &link, &format!("{compute}ns"));
            let hops = u64::from(hops(architecture, workers));
            let wanted = Duration::from_nanos(compute + hops * (up + down));
            // A partner that has no rank folded into it is ahead, and may save one of the hops.
            let is_uneven = is_butterfly(architecture) && !workers.is_power_of_two();
            let spared = Duration::from_nanos(u64::from(is_uneven) * (up + down));
            assert!(
                times.iter().all(|time| (wanted - spared..=wanted).contains(time)),
                "{architecture} {workers}: {times:?}"
            );
        }
    }
}

#[test]
fn the_start_of_the_group_is_no_training_time() {
    for architecture in Architecture::replicated().chain([Architecture::DPsgd]) {
        let mut toy = peers(architecture, 4, 160);
        toy.job.membership.lease = Duration::from_secs(3600);
        (toy.job.batch_size, toy.job.budget.epochs) = (2, 1);
        let link = "delay=10ms down.delay=10ms";
        let run = simulate_toy_peers(&VirtualRun::new(&toy, link, "5ms"));
        let period = *intervals(&run.updates).last().expect("updates");
        // Connections may be open at one end a hop earlier than at the other.
        let (wanted, hop) = (20 * period, Duration::from_millis(20));
        assert!(run.time.abs_diff(wanted) <= hop, "{architecture}: {:?} {wanted:?}", run.time);
    }
}

#[test]
fn with_two_gradients_in_flight_an_update_takes_the_longer_of_a_gradient_and_the_sum() {
    for workers in [2_u32, 3, 4, 8] {
        for architecture in Architecture::replicated() {
            if is_butterfly(architecture) && !workers.is_power_of_two() {
                continue; // some partners are ahead
            }
            for compute in [1, 7, 60] {
                let link = "delay=2ms down.delay=1ms";
                let compute = Duration::from_millis(compute);
                let one = (architecture, workers);
                let times = steady_with(Some(2), one, link, &format!("{}ms", compute.as_millis()));
                let sum = Duration::from_millis(3) * hops(architecture, workers);
                let wanted = compute.max(sum);
                assert!(times.iter().all(|time| *time == wanted), "{one:?} {wanted:?} {times:?}");
            }
        }
    }
}

/// The setting `all.delay` is of the way up alone.
#[test]
fn without_a_delay_down_a_hop_is_the_way_up() {
    for architecture in Architecture::replicated() {
        let times = steady(architecture, 4, "all.delay=5ms", "2ms");
        let wanted = Duration::from_millis(2 + 5 * u64::from(hops(architecture, 4)));
        assert!(times.iter().all(|time| *time == wanted), "{architecture}: {times:?}");
    }
}

#[test]
fn in_a_tree_the_slowest_way_to_the_root_and_back_counts() {
    let mut random = Stream::new(4).fork("closed forms of peers", 0).rng();
    for workers in 2..=11 {
        let mut draw = |_| [random.below(20_000), random.below(20_000), random.below(20_000)];
        let machines: Vec<[u64; 3]> = (0..workers).map(&mut draw).collect();
        let (link, compute) = texts(&machines);
        let round_trip = |worker: u32| {
            let mut time = machines[worker as usize][2];
            let mut below = worker;
            while below > 0 {
                let above = (below - 1) / 2;
                let [[up, down, _], [their_up, their_down, _]] =
                    [below, above].map(|it| machines[it as usize]);
                time += up + their_down + their_up + down;
                below = above;
            }
            time
        };
        let wanted = Duration::from_micros((0..workers).map(round_trip).max().unwrap_or_default());
        let times = steady(Architecture::Tree, workers, &link, &compute);
        assert!(times.iter().all(|time| *time == wanted), "{link} {compute}: {times:?} {wanted:?}");
    }
}

/// Each of the two workers with the longest links waits for values from the other: in an all-to-all
/// for a way there and back, in an all-gather for one way, which two updates make in turn.
#[test]
fn where_all_send_to_all_the_two_longest_links_count() {
    let mut random = Stream::new(5).fork("closed forms of peers", 0).rng();
    for workers in 2..=9 {
        let mut draw = |_| [random.below(20_000), random.below(20_000), 3000];
        let machines: Vec<[u64; 3]> = (0..workers).map(&mut draw).collect();
        let (link, compute) = texts(&machines);
        let mut links: Vec<u64> = machines.iter().map(|[up, down, _]| up + down).collect();
        links.sort_unstable();
        let wanted = Duration::from_micros(3000 + links.iter().rev().take(2).sum::<u64>());
        let times = steady(Architecture::AllToAll, workers, &link, &compute);
        assert!(times.iter().all(|time| *time == wanted), "{link}: {times:?}, not {wanted:?}");
        let two = Duration::from_micros(2 * 3000 + links.iter().rev().take(2).sum::<u64>());
        let times = steady(Architecture::AllGather, workers, &link, &compute);
        let sums: Vec<Duration> = times.windows(2).map(|two| two.iter().sum()).collect();
        assert!(sums.iter().all(|sum| *sum == two), "{link}: {sums:?}, not {two:?}");
    }
}

/// Settings of machines with a delay up, one down, and a time of a gradient, in microseconds.
fn texts(machines: &[[u64; 3]]) -> (String, String) {
    let (mut link, mut compute) = (String::new(), String::new());
    for (worker, [up, down, time]) in (1..).zip(machines) {
        link += &format!("{worker}.delay={up}us {worker}.down.delay={down}us ");
        compute += &format!("{worker}.time={time}us ");
    }
    (link, compute)
}

/// At 8 Mbit/s a byte takes a microsecond. The toy has 99 parameters: chunks of equal size.
#[test]
fn in_a_ring_each_hop_sends_a_share_of_the_values() {
    for (architecture, workers, share) in
        [(Architecture::Ring, 3, 33), (Architecture::Ring, 9, 11), (Architecture::Tree, 2, 99)]
    {
        let header = PieceHeader { version: Version(1), piece: 0, answers: false };
        let values = Arc::new(vec![1.0; share]);
        let piece = Message::Piece(Piece { header, values });
        let bytes = frame_len(&piece, &mut Vec::new());
        let times = steady(architecture, workers, "delay=4ms down.delay=1ms rate=8mbit", "7ms");
        let hop = Duration::from_millis(5) + Duration::from_micros(bytes);
        let wanted = Duration::from_millis(7) + hop * hops(architecture, workers);
        assert!(times.iter().all(|time| *time == wanted), "{workers}: {times:?} {wanted:?}");
    }
}

/// Eight workers in two sites: a hop within a site takes 3 ms, one between them 53 ms.
#[test]
fn a_hop_between_sites_crosses_the_links_of_both() {
    let link = "delay=1ms down.delay=2ms site.size=4 site.delay=20ms site.down.delay=30ms";
    for (architecture, wanted) in [
        (Architecture::Hierarchical { fanout: 4 }, 5 + 2 * (3 + 53)),
        (Architecture::AllGather, 5 + 53),
        (Architecture::AllToAll, 5 + 2 * 53),
        // The meeting point is at the switch of the sites.
        (Architecture::InNetwork { slots: 1, values: 99 }, 5 + 2 * 53),
    ] {
        let times = steady(architecture, 8, link, "5ms");
        let wanted = Duration::from_millis(wanted);
        assert!(times.iter().all(|time| *time == wanted), "{architecture}: {times:?} {wanted:?}");
    }
}

/// The link of a site has 8 Mbit/s, a microsecond for a byte, and the others take no time. One sum
/// of a site leaves it and another comes, where each of four workers would send a gradient.
#[test]
fn the_link_of_a_site_carries_one_sum_of_it() {
    let header = PieceHeader { version: Version(1), piece: 0, answers: false };
    let piece = Message::Piece(Piece { header, values: Arc::new(vec![1.0; 99]) });
    let bytes = frame_len(&piece, &mut Vec::new());
    let link = "delay=0ms site.size=4 site.rate=8mbit site.down.rate=8mbit";
    let times = steady(Architecture::Hierarchical { fanout: 4 }, 8, link, "5ms");
    // The rates of both sites, up to the first site and back.
    let wanted = Duration::from_millis(5) + Duration::from_micros(4 * bytes);
    assert!(times.iter().all(|time| *time == wanted), "{times:?} {wanted:?}");
    // Each of four workers sends its gradient to the four of the other site.
    let times = steady(Architecture::AllGather, 8, link, "5ms");
    let least = Duration::from_micros(16 * bytes).max(wanted * 3 / 2);
    assert!(times.iter().all(|time| *time >= least), "{times:?} {least:?}");
}

/// Bytes over the links of two sites of two workers, for each update: up and down.
fn site_bytes(architecture: Architecture) -> Vec<[u64; 2]> {
    let carried = |epochs| {
        let mut toy = peers(architecture, 4, 160);
        (toy.job.batch_size, toy.job.budget.epochs) = (2, epochs);
        let link = "all.delay=1ms site.size=2 site.delay=5ms";
        let run = simulate_toy_peers(&VirtualRun::new(&toy, link, "3ms"));
        (run.version, run.sites)
    };
    let ((few, before), (many, after)) = (carried(2), carried(12));
    let each = |(before, after): (&SiteTraffic, &SiteTraffic)| {
        let up = after.up_bytes - before.up_bytes;
        let down = after.down_bytes - before.down_bytes;
        [up, down].map(|bytes| bytes / (many - few))
    };
    assert_eq!(before.iter().map(|it| it.site).collect::<Vec<_>>(), [0, 1]);
    before.iter().zip(&after).map(each).collect()
}

/// One sum of a site leaves it in an update, and one comes back. Reports to the meeting point and
/// heartbeats are less than a third of a vector.
#[test]
fn a_site_of_a_hierarchy_sends_one_vector_where_others_send_more() {
    let toy = peers(Architecture::Ring, 4, 160);
    let values = Arc::new(vec![0.0; toy.job.build_model().expect("a model").parameters()]);
    let header = PieceHeader { version: Version(9), piece: 0, answers: false };
    let vector = frame_len(&Message::Piece(Piece { header, values }), &mut Vec::new());
    let is_near = |vectors: u64, bytes: u64| {
        (vector * vectors..vector * vectors + vector / 3).contains(&bytes)
    };
    let [first, second] = site_bytes(Architecture::Hierarchical { fanout: 2 })[..] else {
        panic!("two sites")
    };
    assert!(is_near(1, first[0]) && is_near(1, second[1]), "{first:?} {second:?}, of {vector}");
    assert!(is_near(1, first[1]) && is_near(1, second[0]), "{first:?} {second:?}, of {vector}");
    // Each worker of a site sends its whole vector to both workers of the other.
    for [up, down] in site_bytes(Architecture::AllGather) {
        assert!(is_near(4, up) && is_near(4, down), "{up} {down}, of {vector}");
    }
}
