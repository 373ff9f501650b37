//! Filters in whole runs: one seed gives one result over every transport, messages get shorter
//! where size matters, and no gradient part is lost or counted twice by faults.

use std::time::Duration;

use pstrain_compute::filter::{ErrorFeedback, Filters};
use pstrain_policy::job::Job;
use pstrain_roles::node::Event;
use pstrain_tests::{Kind, Toy, VirtualRun, bits, run_cluster, sequential_bsp, trial_of, within};
use pstrain_wire::worker::EndReason;

const LIMIT: Duration = Duration::from_secs(60);

/// Chains with each filter.
pub(crate) const CHAINS: [&str; 12] = [
    "zero-skip",
    "significant:0.02",
    "random-skip:0.5",
    "random-k:0.3",
    "top-k:0.1",
    "fp16",
    "bf16",
    "int8",
    "one-bit",
    "qsgd:4",
    "powersgd:1",
    "top-k:0.2,random-skip:0.9,int8",
];

pub(crate) fn filter(job: &mut Job, chain: &str, error_feedback: ErrorFeedback) {
    let chain = Filters::read_chain(chain).unwrap_or_else(|error| panic!("{error}"));
    job.filters = Filters { chain, error_feedback, ..Filters::default() };
}

#[test]
fn bsp_with_filters_gives_the_same_result_over_every_transport_and_in_virtual_time() {
    for chain in CHAINS {
        let mut toy = Toy::new(3, 120);
        filter(&mut toy.job, chain, ErrorFeedback::Auto);
        let expected = bits(&VirtualRun::new(&toy, "delay=3ms jitter=2ms", "1ms").run().parameters);
        for kind in Kind::ALL {
            let toy = toy.clone();
            let outcome = within(LIMIT, move || run_cluster(kind, &toy));
            assert_eq!(outcome.reason, EndReason::BudgetReached);
            assert_eq!(bits(&outcome.parameters), expected, "{chain} over {kind:?}");
        }
        let plain = bits(&sequential_bsp(&toy));
        assert_eq!(plain == expected, chain == "zero-skip", "{chain}");
    }
}

#[test]
fn filters_that_keep_everything_change_no_bit() {
    let toy = Toy::new(3, 120);
    let plain = bits(&sequential_bsp(&toy));
    for (chain, error_feedback) in [
        ("zero-skip", ErrorFeedback::Auto),
        ("top-k:1", ErrorFeedback::On),
        ("random-k:1", ErrorFeedback::Off),
        ("significant:0,random-skip:1", ErrorFeedback::Auto),
    ] {
        let mut toy = toy.clone();
        filter(&mut toy.job, chain, error_feedback);
        assert_eq!(
            bits(&VirtualRun::new(&toy, "delay=1ms", "1ms").run().parameters),
            plain,
            "{chain}"
        );
    }
}

/// If a push is dropped, repeated, fenced or lost, its content returns to the residual, and the
/// recomputed mini-batch is not counted twice. So with a sparsifier that keeps all keys, the result
/// is identical bit for bit.
#[test]
fn filters_that_keep_everything_change_no_bit_under_faults() {
    let (mut compared, mut dropped) = (0, 0);
    for seed in 0..400 {
        let trial = trial_of(seed);
        let links = trial.run.scenario.links.to_string();
        if ["rate", "loss", "slow-start"].iter().any(|word| links.contains(word)) {
            continue; // fewer bytes take less time there, so the schedules differ
        }
        let mut filtered = trial.run.clone();
        filter(&mut filtered.job, "top-k:1", ErrorFeedback::On);
        if filtered.job.validate().is_err() {
            continue;
        }
        let (plain, filtered) = (trial.run.run(), filtered.run());
        assert_eq!((plain.ended, plain.ledger), (filtered.ended, filtered.ledger), "seed {seed}");
        assert_eq!(bits(&plain.parameters), bits(&filtered.parameters), "seed {seed}");
        compared += 1;
        let is_drop = |event: &Event| matches!(event, Event::Dropped { .. });
        dropped += filtered.events.iter().filter(|(_, _, event)| is_drop(event)).count();
    }
    assert!(compared > 50 && dropped > 100, "{compared} runs with {dropped} drops");
}

/// All checkers of the harness are active: exactly-once, versions, membership, the ledger, and a
/// replay of the whole training on the sent gradients.
#[test]
fn random_faults_violate_no_invariant_with_any_filters() {
    let mut forgot = 0;
    for seed in 0..300_u64 {
        let mut trial = trial_of(seed);
        let chain = CHAINS[seed as usize % CHAINS.len()];
        filter(&mut trial.run.job, chain, ErrorFeedback::Auto);
        if trial.run.job.validate().is_err() {
            continue;
        }
        let run = trial.run.run();
        let is_loss = |event: &Event| matches!(event, Event::Forgot { .. });
        forgot += run.events.iter().filter(|(_, _, event)| is_loss(event)).count();
    }
    assert!(forgot > 0, "nobody ever came back as another incarnation");
}

#[test]
fn a_link_is_occupied_for_the_filtered_bytes_only() {
    let time = |chain: &str| {
        let mut toy = Toy::new(2, 160);
        filter(&mut toy.job, chain, ErrorFeedback::Auto);
        let run = VirtualRun::new(&toy, "rate=80kbit", "1ms").run();
        let pushes = run.arrivals.iter().filter(|arrival| arrival.is_push);
        let reported = run.events.iter().filter_map(|(_, _, event)| match event {
            Event::Pushed { bytes, .. } => Some(*bytes),
            _ => None,
        });
        let (frames, payloads): (u64, u64) =
            (pushes.map(|arrival| arrival.bytes).sum(), reported.sum());
        (run.ended, frames, payloads)
    };
    let (plain, frames, payloads) = time("none");
    for (chain, most) in [("fp16", 0.5), ("int8", 0.3), ("top-k:0.05", 0.1), ("one-bit", 0.2)] {
        let (ended, left, payload) = time(chain);
        assert!(payload as f64 <= payloads as f64 * most, "{chain}: {payload} of {payloads}");
        assert!(left < frames && ended < plain, "{chain}: {left} of {frames}, {ended:?}");
        // A filtered encoding costs a few bytes in the header.
        assert!(left - payload < frames - payloads + 2000, "{chain}");
    }
}
