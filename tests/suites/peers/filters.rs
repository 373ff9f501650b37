//! All-reduces of filtered gradients: the bits of a server, short messages, and no part of a
//! gradient lost or counted twice.

use std::time::Duration;

use pstrain_compute::filter::{ErrorFeedback, Filters};
use pstrain_policy::architecture::Architecture;
use pstrain_tests::{
    Kind, PeerFaults, Toy, VirtualRun, bits, for_seeds, intervals, run_peers, simulate_toy_peers,
};
use pstrain_wire::worker::EndReason;

use super::equivalence::{COMPUTE, LINK};
use super::schedules::{describe, faults_of, job_of};
use super::{on_threads, peers};
use crate::filters::{CHAINS, filter};

/// A job of an all-gather with a chain of filters, drawn from a seed.
fn filtered_job_of(seed: u64, least: u64) -> Toy {
    let mut toy = job_of(seed, least);
    toy.job.architecture = Architecture::AllGather;
    toy.job.mode.in_flight = None;
    filter(&mut toy.job, CHAINS[seed as usize % CHAINS.len()], ErrorFeedback::Auto);
    toy
}

#[test]
fn an_all_gather_of_filtered_gradients_is_bsp_at_a_server_bit_for_bit() {
    for chain in CHAINS {
        for error_feedback in [ErrorFeedback::Auto, ErrorFeedback::On, ErrorFeedback::Off] {
            for workers in [1, 2, 5, 8] {
                let mut toy = Toy::new(workers, 149);
                filter(&mut toy.job, chain, error_feedback);
                if toy.job.validate().is_err() {
                    continue; // zero-skip loses nothing that could be fed back
                }
                let server = VirtualRun::new(&toy, LINK, COMPUTE).run();
                toy.job.architecture = Architecture::AllGather;
                let run = simulate_toy_peers(&VirtualRun::new(&toy, LINK, COMPUTE));
                let which = format!("{chain} {error_feedback:?}, {workers} workers");
                assert_eq!(run.reason, EndReason::BudgetReached, "{which}");
                assert_eq!(run.version, server.point.version.0, "{which}");
                assert_eq!(bits(&run.parameters), bits(&server.parameters), "{which}");
            }
        }
    }
}

#[test]
fn filtered_gradients_are_the_same_over_every_transport() {
    for chain in CHAINS {
        for in_flight in [None, Some(2)] {
            let mut toy = peers(Architecture::AllGather, 5, 203);
            filter(&mut toy.job, chain, ErrorFeedback::Auto);
            toy.job.mode.in_flight = in_flight;
            let wanted = simulate_toy_peers(&VirtualRun::new(&toy, LINK, COMPUTE)).parameters;
            for kind in Kind::ALL {
                let run = on_threads(kind, &toy);
                assert_eq!(run.reason, EndReason::BudgetReached, "{chain} over {kind:?}");
                assert_eq!(bits(&run.parameters), bits(&wanted), "{chain} over {kind:?}");
            }
        }
    }
}

/// By size, an all-reduce takes the algorithm that takes the filters.
#[test]
fn auto_gathers_filtered_gradients_that_cannot_be_added_on_their_way() {
    let end = |architecture, chain| {
        let mut toy = peers(architecture, 5, 203);
        filter(&mut toy.job, chain, ErrorFeedback::Auto);
        bits(&simulate_toy_peers(&VirtualRun::new(&toy, LINK, COMPUTE)).parameters)
    };
    for chain in ["top-k:0.1", "int8"] {
        let gathered = end(Architecture::AllGather, chain);
        assert_eq!(end(Architecture::BySize, chain), gathered, "{chain}");
    }
    assert_eq!(end(Architecture::BySize, "fp16"), end(Architecture::Butterfly, "fp16"));
}

/// The checker of the lab filters each gradient itself: the ones of updates that were given up
/// leave no residual, and the ones of updates that were made leave theirs.
#[test]
fn no_part_of_a_gradient_is_lost_or_counts_twice_whatever_happens() {
    let (mut regrouped, mut missed, mut ended, mut forgot) = (0, 0, 0, 0);
    let ran = for_seeds(
        4800,
        |seed| describe(seed, 2),
        |seed| {
            let run = run_peers(&filtered_job_of(seed, 2), faults_of(seed), seed);
            regrouped += run.groups.saturating_sub(1);
            missed += run.missed;
            ended += u64::from(run.reason == EndReason::BudgetReached);
            forgot += run.forgot;
        },
    );
    ran.expect_above(4800, regrouped, "groups that were formed again");
    ran.expect_above(400, missed, "missed updates");
    ran.expect_above(2400, ended, "runs that used up their budget");
    ran.expect_above(100, forgot, "residuals lost with a membership");
}

/// With a sparsifier that keeps all keys nothing changes, whichever updates are given up.
#[test]
fn filters_that_keep_everything_change_no_bit_under_faults() {
    let mut regrouped = 0;
    let ran = for_seeds(
        1200,
        |seed| describe(seed, 2),
        |seed| {
            let mut toy = filtered_job_of(seed, 2);
            filter(&mut toy.job, "top-k:1", ErrorFeedback::On);
            let filtered = run_peers(&toy, PeerFaults::Many, seed);
            toy.job.filters = Filters::default();
            let plain = run_peers(&toy, PeerFaults::Many, seed);
            assert_eq!((filtered.reason, filtered.version), (plain.reason, plain.version));
            assert_eq!(bits(&filtered.parameters), bits(&plain.parameters));
            regrouped += plain.groups.saturating_sub(1);
        },
    );
    ran.expect_above(1200, regrouped, "groups that were formed again");
}

/// An update takes the gradient, a hop, and the bytes that a worker sends to all others.
#[test]
fn a_link_is_occupied_for_the_filtered_bytes_only() {
    let time = |chain: &str| {
        let mut toy = peers(Architecture::AllGather, 4, 160);
        toy.job.membership.lease = Duration::from_secs(3600);
        filter(&mut toy.job, chain, ErrorFeedback::Auto);
        let run = simulate_toy_peers(&VirtualRun::new(&toy, "rate=80kbit", "1ms"));
        let time: Duration = intervals(&run.updates).into_iter().sum();
        (run.sent, time)
    };
    let ((plain, unfiltered), longest) = time("none");
    assert_eq!(plain, unfiltered);
    for (chain, most) in [("fp16", 0.5), ("int8", 0.3), ("top-k:0.05", 0.1), ("one-bit", 0.2)] {
        let ((bytes, unfiltered), time) = time(chain);
        assert_eq!(unfiltered, plain, "{chain}");
        assert!(bytes as f64 <= plain as f64 * most, "{chain}: {bytes} of {plain}");
        assert!(time < longest, "{chain}: {time:?} of {longest:?}");
    }
}

/// Gradients that are added on their way keep their form; others are sent whole.
#[test]
fn filters_that_an_architecture_cannot_have_are_refused_with_the_cure() {
    let valid = |architecture, chain: &str, in_flight| {
        let mut toy = peers(architecture, 4, 160);
        filter(&mut toy.job, chain, ErrorFeedback::Auto);
        toy.job.mode.in_flight = in_flight;
        toy.job.validate().map_err(|error| error.to_string())
    };
    for architecture in [Architecture::AllGather, Architecture::BySize] {
        for chain in CHAINS {
            assert_eq!(valid(architecture, chain, Some(2)), Ok(()), "{architecture} {chain}");
        }
    }
    for architecture in [Architecture::Ring, Architecture::Hierarchical { fanout: 2 }] {
        assert_eq!(valid(architecture, "fp16", None), Ok(()));
        let why = valid(architecture, "top-k:0.1", None).unwrap_err();
        assert!(why.contains("all-reduce:all-gather"), "{why}");
    }
    for architecture in [Architecture::DPsgd, Architecture::InNetwork { slots: 2, values: 9 }] {
        let why = valid(architecture, "fp16", None).unwrap_err();
        assert!(why.contains("no filters"), "{why}");
    }
    let mut toy = peers(Architecture::AllGather, 4, 160);
    filter(&mut toy.job, "top-k:0.1", ErrorFeedback::Auto);
    toy.job.membership.partial_after = Some(Duration::from_secs(1));
    let why = toy.job.validate().unwrap_err().to_string();
    assert!(why.contains("no filters with partial-after"), "{why}");
}
