//! Sparse models: working sets only select the values that are sent, and change no result.

mod blocks;

use std::time::Duration;

use pstrain_compute::filter::{Filters, PullFilter};
use pstrain_compute::optim::{OptimizerSpec, Proximal};
use pstrain_policy::job::{DataFrom, Exchange};
use pstrain_roles::node::Event;
use pstrain_tests::{Kind, Toy, run_cluster, sequential_bsp, within};
use pstrain_wire::worker::EndReason;

const LIMIT: Duration = Duration::from_secs(60);

/// Compares with a reference without working sets, whose gradients have a value for every key.
fn is_sequential(toy: &Toy, kinds: &[Kind]) {
    let reference = sequential_bsp(toy);
    assert!(reference.iter().any(|value| *value != 0.0));
    for &kind in kinds {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(kind, &toy));
        assert_eq!(outcome.reason, EndReason::BudgetReached, "{kind:?}");
        // Compared as numbers, not bits: an empty sum has no -0.
        assert_eq!(outcome.parameters.as_slice(), reference.as_slice(), "{kind:?}");
    }
}

#[test]
fn sparse_bsp_is_sequential_sgd_on_all_keys_over_every_transport() {
    for workers in [1, 2, 4] {
        is_sequential(&Toy::sparse(workers, 203), &Kind::ALL);
    }
}

#[test]
fn sparse_bsp_is_sequential_with_every_optimizer_and_proximal_step() {
    for optimizer in [OptimizerSpec::Sgd, OptimizerSpec::ADAGRAD, OptimizerSpec::ADAM] {
        let mut toy = Toy::sparse(3, 150);
        toy.job.update.optimizer = optimizer;
        toy.job.update.proximal = Proximal::L1 { lambda: 0.01 };
        is_sequential(&toy, &[Kind::Memory]);
    }
    let mut toy = Toy::sparse(3, 150);
    toy.job.update.optimizer = OptimizerSpec::Ftrl { beta: 1.0, l1: 0.01, l2: 0.0 };
    is_sequential(&toy, &[Kind::Memory]);
}

#[test]
fn sparse_bsp_is_sequential_with_separate_messages_and_examples_from_the_server() {
    let mut toy = Toy::sparse(3, 150);
    toy.job.exchange = Exchange::Separate;
    is_sequential(&toy, &Kind::ALL);
    toy.job.data.from = DataFrom::Server;
    is_sequential(&toy, &Kind::ALL);
}

#[test]
fn omitting_unchanged_parameters_from_pulls_changes_nothing() {
    for mut toy in [Toy::sparse(3, 150), Toy::new(3, 150)] {
        toy.job.filters.pull = PullFilter::Changed { delta: 0.0 };
        is_sequential(&toy, &Kind::ALL);
    }
}

/// With one worker, the server would not have moved the parameters that the filter omits.
#[test]
fn the_kkt_filter_of_one_worker_changes_nothing() {
    let mut toy = Toy::sparse(1, 200);
    toy.job.update.optimizer = OptimizerSpec::Sgd;
    toy.job.update.weight_decay = 0.0;
    toy.job.update.proximal = Proximal::L1 { lambda: 0.01 };
    let bytes = |toy: &Toy| {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(Kind::Memory, &toy));
        let pushed = outcome.events.iter().map(|event| match event {
            Event::Pushed { bytes, .. } => *bytes,
            _ => 0,
        });
        pushed.sum::<u64>()
    };
    let without = bytes(&toy);
    toy.job.filters.chain = Filters::read_chain("kkt:1:1000").unwrap();
    is_sequential(&toy, &[Kind::Memory, Kind::Tcp]);
    let with = bytes(&toy);
    assert!(2 * with < without, "{with} of {without} bytes");
}
