//! Block proximal gradient: without delay, it equals the published algorithm written without
//! servers, blocks or working sets, over every transport.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use pstrain_compute::filter::Filters;
use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::optim::{OptimizerSpec, Proximal};
use pstrain_compute::params::{BlockOrder, Blocks};
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_policy::job::{ALL_EXAMPLES, JobError};
use pstrain_policy::mode::Mode;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::Event;
use pstrain_tests::{Kind, Toy, partition_of, run_cluster, within};

use super::LIMIT;

const LAMBDA: f32 = 0.001;

fn toy(workers: u32, order: BlockOrder) -> Toy {
    let mut toy = Toy::sparse(workers, 150);
    toy.job.blocks = Some(Blocks { count: 7, order });
    toy.job.batch_size = ALL_EXAMPLES;
    toy.job.budget.epochs = 20;
    toy.job.update.optimizer = OptimizerSpec::Diagonal;
    toy.job.update.learning_rate = 0.5;
    toy.job.update.weight_decay = 0.0;
    toy.job.update.proximal = Proximal::L1 { lambda: LAMBDA };
    toy
}

/// Li et al. (OSDI 2014), algorithm 3, sequentially: for each block in turn, `G` and `U` of all
/// data, then `w = soft(w - rate G / U, rate lambda / U)` at its keys.
fn by_hand(toy: &Toy) -> Vec<f32> {
    let (job, seed) = (&toy.job, Stream::new(toy.job.seed));
    let (workers, blocks) = (job.membership.workers, job.blocks.unwrap());
    let model = job.build_model().unwrap();
    let mut params = vec![0.0_f32; model.parameters()];
    let parts: Vec<_> =
        (0..workers).map(|worker| partition_of(&toy.train, workers, WorkerId(worker))).collect();
    let curvature = |worker: usize, key: u32| -> f32 {
        let part = &parts[worker];
        let entries = (0..part.len()).filter_map(|row| {
            let row = part.row(row);
            let place = row.columns.iter().position(|column| *column == key)?;
            Some(f64::from(row.values[place]))
        });
        (0.25 * entries.map(|value| value * value).sum::<f64>() / part.len() as f64) as f32
    };
    let mut trainers: Vec<Trainer> = (0..workers)
        .zip(&parts)
        .map(|(worker, part)| {
            Trainer::new(model.clone(), part.clone(), seed, WorkerId(worker), job.batch_size)
                .unwrap()
        })
        .collect();
    for update in 0..u64::from(job.budget.epochs) {
        let all_keys = |(worker, trainer): (u32, &mut Trainer)| {
            let mut gradient = Vec::new();
            let task = Task::own(WorkerId(worker), BatchId(update));
            let computed = trainer.compute(task, &params, &mut gradient).unwrap();
            (f64::from(computed.samples) / toy.train.len() as f64, gradient)
        };
        let gradients: Vec<_> = (0..).zip(&mut trainers).map(all_keys).collect();
        let block = blocks.keys(seed, Version(update), params.len() as u64).unwrap();
        for key in block.indices() {
            let (mut g, mut u) = (0.0_f32, 0.0_f32);
            for (worker, (share, gradient)) in gradients.iter().enumerate() {
                g += *share as f32 * gradient[key];
                u += *share as f32 * curvature(worker, key as u32);
            }
            if u > 0.0 {
                let rate = job.update.learning_rate / u;
                let moved = params[key] - rate * g;
                let left = moved.abs() - rate * LAMBDA;
                params[key] = if left > 0.0 { left.copysign(moved) } else { 0.0 };
            }
        }
    }
    params
}

#[test]
fn without_delay_blocks_equal_the_sequential_algorithm_over_every_transport() {
    for (workers, order) in
        [(1, BlockOrder::Random), (1, BlockOrder::Sequence), (3, BlockOrder::Random)]
    {
        let toy = toy(workers, order);
        let reference = by_hand(&toy);
        let moved = reference.iter().filter(|value| **value != 0.0).count();
        assert!(moved > 10 && moved < 300, "{moved} are not 0");
        for kind in Kind::ALL {
            let toy = toy.clone();
            let outcome = within(LIMIT, move || run_cluster(kind, &toy));
            assert_eq!(outcome.version, 20);
            // Compared as numbers, not bits: an empty sum has no -0.
            assert_eq!(outcome.parameters.as_slice(), reference.as_slice(), "{kind:?}");
        }
    }
}

#[test]
fn a_worker_sends_the_values_of_a_block_and_receives_the_changed_ones() {
    let toy = toy(1, BlockOrder::Random);
    let touched = toy.train.touched();
    let blocks = toy.job.blocks.unwrap();
    let outcome = {
        let toy = toy.clone();
        within(LIMIT, move || run_cluster(Kind::Memory, &toy))
    };
    let (mut pushed, mut given) = (Vec::new(), Vec::new());
    for event in &outcome.events {
        match event {
            Event::Pushed { bytes, .. } => pushed.push(*bytes),
            Event::Given { bytes, .. } => given.push(*bytes),
            _ => {}
        }
    }
    let of_block = |update: u64| -> u64 {
        let block = blocks.keys(Stream::new(toy.job.seed), Version(update), 300).unwrap();
        touched.iter().filter(|key| block.indices().contains(&(**key as usize))).count() as u64
    };
    let wanted: Vec<u64> = (0..20).map(|update| 4 * of_block(update)).collect();
    assert_eq!(pushed, wanted);
    assert_eq!(given[0], 4 * touched.len() as u64);
    // The values of the previous block, and a key or a bit for each.
    for (update, bytes) in (0..).zip(&given[1..]) {
        assert!(*bytes <= 5 * of_block(update), "{bytes} bytes after update {update}");
    }
}

#[test]
fn filters_apply_to_the_current_block_only_and_kkt_visits_each_block() {
    let mut toy = toy(1, BlockOrder::Sequence);
    let reference = by_hand(&toy);
    for chain in ["zero-skip", "kkt:1:1000", "kkt:1:2"] {
        toy.job.filters.chain = Filters::read_chain(chain).unwrap();
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(Kind::Tcp, &toy));
        assert_eq!(outcome.parameters.as_slice(), reference.as_slice(), "{chain}");
    }
}

#[test]
fn any_bounded_delay_ends_and_updates_parameters() {
    for consistency in ["delay:1", "delay:4", "delay:inf"] {
        let mut toy = toy(3, BlockOrder::Random);
        toy.job.mode = Mode::of(consistency.parse().unwrap());
        toy.job.budget.epochs = 40;
        // A pass takes all of the worker's data, which are one mini-batch, through all blocks.
        assert_eq!((toy.job.pass_over(50), toy.job.blocks.map(|it| it.count)), (7, Some(7)));
        let outcome = within(LIMIT, move || run_cluster(Kind::Memory, &toy));
        assert_eq!(outcome.version, 40, "{consistency}");
        let changed = outcome.parameters.iter().filter(|value| **value != 0.0).count();
        assert!(changed > 10, "{consistency}: {changed} are not 0");
    }
}

#[test]
fn settings_incompatible_with_blocks_are_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&mut Toy), words: &str| {
        let mut toy = toy(2, BlockOrder::Random);
        change(&mut toy);
        let error: JobError = toy.job.validate().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(&|toy| toy.job.mode = Mode::of("asp".parse().unwrap()), "consistency = bsp or delay");
    refused(&|toy| toy.job.mode.max_staleness = Some(1), "max-staleness = none");
    refused(&|toy| toy.job.blocks = "301".parse().ok(), "a column of the data");
    refused(&|toy| toy.job.work = "speed".parse().unwrap(), "work = equal");
    refused(&|toy| toy.job.update.optimizer = OptimizerSpec::ADAM, "another optimizer than adam");
    refused(&|toy| toy.job.mode.staleness = "inverse".parse().unwrap(), "staleness = plain");
    let mut dense = Toy::new(2, 100);
    dense.job.blocks = "4".parse().ok();
    assert!(dense.job.validate().unwrap_err().to_string().contains("model = logistic"));
    (dense.job.blocks, dense.job.update.optimizer) = (None, OptimizerSpec::Diagonal);
    assert!(dense.job.validate().unwrap_err().to_string().contains("model = logistic"));
}
