//! One job gives one result over every transport; all-to-all is BSP at a server bit for bit.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::time::Duration;

use pstrain_compute::filter::FilterSpec;
use pstrain_compute::id::{BatchId, WorkerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_compute::optim::{OptimizerSpec, UpdateSpec};
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::{BudgetKind, Exchange};
use pstrain_policy::rules::Aggregation;
use pstrain_policy::trainer::Trainer;
use pstrain_tests::{Kind, PeersEnded, Toy, VirtualRun, bits, partition_of, simulate_toy_peers};
use pstrain_wire::worker::EndReason;

use super::{on_threads, peers, plain};

pub(super) const LINK: &str = "delay=3ms down.delay=2ms 1.delay=9ms 2.rate=1mbit";
pub(super) const COMPUTE: &str = "4ms 2.factor=3";

fn virtually(toy: &Toy) -> PeersEnded {
    ended(simulate_toy_peers(&VirtualRun::new(toy, LINK, COMPUTE)))
}

fn ended(run: PeersEnded) -> PeersEnded {
    assert_eq!(run.reason, EndReason::BudgetReached);
    assert!(run.workers.iter().all(|end| *end == Ok(EndReason::BudgetReached)), "{run:?}");
    run
}

#[test]
fn every_transport_ends_at_the_parameters_of_virtual_time() {
    for workers in 1..=9 {
        for architecture in Architecture::replicated() {
            let toy = peers(architecture, workers, 203);
            let wanted = virtually(&toy);
            for kind in Kind::ALL {
                let run = ended(on_threads(kind, &toy));
                let who = format!("{architecture}, {workers} workers over {kind:?}");
                assert_eq!(run.version, wanted.version, "{who}");
                assert_eq!(bits(&run.parameters), bits(&wanted.parameters), "{who}");
            }
        }
    }
}

#[test]
fn values_of_16_bits_are_the_same_over_every_transport() {
    for filter in [FilterSpec::Fp16, FilterSpec::Bf16] {
        for architecture in Architecture::replicated().filter(|it| it.algorithm().is_some()) {
            let mut toy = peers(architecture, 5, 203);
            let exact = virtually(&toy);
            toy.job.filters.chain = vec![filter];
            let wanted = virtually(&toy);
            assert!(bits(&wanted.parameters) != bits(&exact.parameters), "{architecture}");
            for (one, other) in wanted.parameters.iter().zip(&exact.parameters) {
                assert!((one - other).abs() <= 0.05 * (1.0 + one.abs()), "{one} {other}");
            }
            for kind in Kind::ALL {
                let run = ended(on_threads(kind, &toy));
                let who = format!("{architecture}, {filter} over {kind:?}");
                assert_eq!(bits(&run.parameters), bits(&wanted.parameters), "{who}");
            }
        }
    }
}

#[test]
fn gradients_given_layer_by_layer_end_at_the_same_bits() {
    // Fast enough for the lease.
    let virtually = |toy: &Toy| {
        let link = "all.rate=100mbit all.down.rate=100mbit 1.delay=9ms";
        ended(simulate_toy_peers(&VirtualRun::new(toy, link, COMPUTE)))
    };
    for architecture in Architecture::replicated().filter(|it| it.algorithm().is_some()) {
        for in_flight in [None, Some(2)] {
            let mut toy = plain(architecture, 3, 120, false);
            toy.job.model = ModelSpec::Mlp { hidden: vec![160; 4], activation: Activation::Relu };
            toy.job.mode.in_flight = in_flight;
            let whole = virtually(&toy);
            toy.job.exchange = Exchange::Layers;
            let who = format!("{architecture}, in-flight {in_flight:?}");
            for layers in [virtually(&toy), ended(on_threads(Kind::ALL[0], &toy))] {
                assert!(bits(&layers.parameters) == bits(&whole.parameters), "{who}");
            }
        }
    }
}

/// Messages between workers cross two links.
#[test]
fn sums_of_layers_overlap_with_the_backward_pass() {
    let slow = "all.rate=200mbit all.down.rate=200mbit all.delay=1ms all.down.delay=1ms";
    for architecture in Architecture::replicated().filter(|it| it.algorithm().is_some()) {
        let mut toy = plain(architecture, 3, 120, false);
        toy.job.model = ModelSpec::Timing { layers: vec![50_000; 12] };
        let time = |toy: &Toy| {
            ended(simulate_toy_peers(&VirtualRun::new(toy, slow, "400ms 2.factor=1.1"))).time
        };
        let computing = Duration::from_millis(440) * 15;
        let whole = time(&toy) - computing;
        toy.job.exchange = Exchange::Layers;
        let layers = time(&toy) - computing;
        assert!(layers < whole / 2, "{architecture}: {layers:?} beside computing, of {whole:?}");
    }
}

/// The parameters after so many updates, each with the mean gradient of the parameters before the
/// last update; the first two are of the initial ones.
fn one_update_late(toy: &Toy, updates: u64) -> Vec<f64> {
    let (job, workers) = (&toy.job, toy.job.membership.workers);
    let model = job.build_model().unwrap();
    let mut trainers: Vec<Trainer> = (0..workers)
        .map(|worker| {
            let examples = partition_of(&toy.train, workers, WorkerId(worker));
            let seed = Stream::new(job.seed);
            Trainer::new(model.clone(), examples, seed, WorkerId(worker), job.batch_size).unwrap()
        })
        .collect();
    let initial: Vec<f64> = job.initial(&model).into_iter().map(f64::from).collect();
    let (mut before, mut now) = (initial.clone(), initial);
    for update in 0..updates {
        let base: Vec<f32> = before.iter().map(|value| *value as f32).collect();
        before.clone_from(&now);
        let mut parts = Vec::new();
        for (worker, trainer) in (0..workers).zip(&mut trainers) {
            let mut gradient = Vec::new();
            let task = Task::own(WorkerId(worker), BatchId(update));
            let computed = trainer.compute(task, &base, &mut gradient).unwrap();
            parts.push((f64::from(computed.samples), gradient));
        }
        let all: f64 = parts.iter().map(|(samples, _)| samples).sum();
        for (samples, gradient) in parts {
            for (value, slope) in now.iter_mut().zip(gradient) {
                *value -= f64::from(job.update.learning_rate) * samples / all * f64::from(slope);
            }
        }
    }
    now
}

#[test]
fn with_two_gradients_in_flight_each_is_of_the_version_before_over_every_transport() {
    for architecture in Architecture::replicated() {
        let mut toy = plain(architecture, 5, 203, false);
        toy.job.mode.in_flight = Some(2);
        let wanted = virtually(&toy);
        let definition = one_update_late(&toy, wanted.version);
        let in_network = matches!(architecture, Architecture::InNetwork { .. });
        let most = if in_network { 1e-3 } else { 1e-5 };
        for (one, other) in wanted.parameters.iter().zip(definition) {
            let is_close = (f64::from(*one) - other).abs() <= most * (1.0 + other.abs());
            assert!(is_close, "{architecture}: {one} for {other}");
        }
        for kind in Kind::ALL {
            let run = ended(on_threads(kind, &toy));
            assert_eq!(bits(&run.parameters), bits(&wanted.parameters), "{architecture} {kind:?}");
        }
    }
}

/// Jobs that differ in all that an update depends on.
fn jobs(workers: u32) -> Vec<(String, Toy)> {
    let mut jobs = Vec::new();
    for optimizer in ["sgd", "momentum", "adam"] {
        for clip_norm in [None, Some(0.05)] {
            for budget in [BudgetKind::Global, BudgetKind::Partition] {
                for aggregation in [Aggregation::Mean, Aggregation::Sum] {
                    // 149 rows: parts of different sizes, with different numbers of mini-batches.
                    let mut toy = Toy::new(workers, 149);
                    toy.job.update.optimizer = match optimizer {
                        "sgd" => OptimizerSpec::Sgd,
                        "momentum" => OptimizerSpec::MOMENTUM,
                        _ => OptimizerSpec::ADAM,
                    };
                    toy.job.update.learning_rate /= 10.0;
                    toy.job.update.clip_norm = clip_norm;
                    toy.job.budget.kind = budget;
                    toy.job.aggregation = aggregation;
                    let name = format!("{optimizer}, {clip_norm:?}, {budget}, {aggregation}");
                    jobs.push((name, toy));
                }
            }
        }
    }
    jobs
}

#[test]
fn all_to_all_and_all_gather_are_bsp_at_a_server_bit_for_bit() {
    for workers in [1, 2, 3, 5, 8, 9] {
        for (name, toy) in jobs(workers) {
            assert_as_bsp(toy, &format!("{workers} workers, {name}"));
        }
    }
}

/// Asserts that the two architectures that sum in the order of the workers end as the server does.
fn assert_as_bsp(mut toy: Toy, which: &str) {
    let server = VirtualRun::new(&toy, LINK, COMPUTE).run();
    for architecture in [Architecture::AllToAll, Architecture::AllGather] {
        toy.job.architecture = architecture;
        let run = virtually(&toy);
        assert_eq!(run.version, server.point.version.0, "{architecture}, {which}");
        assert!(bits(&run.parameters) == bits(&server.parameters), "{architecture}, {which}");
    }
}

#[test]
fn differences_of_local_training_are_averaged_as_gradients_are() {
    for workers in [1, 2, 5, 8] {
        let mut toy = Toy::new(workers, 149);
        toy.job.update.learning_rate = 1.0;
        for local in [
            LocalTraining::Sgd { steps: 3, rate: 0.05 },
            LocalTraining::Proximal { steps: 2, rate: 0.05, mu: 0.5 },
        ] {
            toy.job.local_training = local;
            assert_as_bsp(toy.clone(), &format!("{local}, {workers} workers"));
        }
    }
}

#[test]
fn local_steps_of_one_worker_are_steps_of_smaller_mini_batches() {
    let mut toy = Toy::new(1, 144);
    toy.job.update = UpdateSpec::sgd(0.05);
    let small = toy.job.batch_size;
    let sgd = VirtualRun::new(&toy, LINK, COMPUTE).run();
    let rate = toy.job.update.learning_rate;
    toy.job.batch_size = small * 3;
    toy.job.update.learning_rate = 1.0;
    toy.job.local_training = LocalTraining::Sgd { steps: 3, rate };
    assert_eq!(144 % (3 * small), 0, "mini-batches of {small} begin where those of 3 times do");
    let compare = |toy: &Toy, steps| {
        let local = VirtualRun::new(toy, LINK, COMPUTE).run();
        assert_eq!(local.point.version.0 * steps, sgd.point.version.0);
        for (one, other) in local.parameters.iter().zip(sgd.parameters.iter()) {
            assert!((one - other).abs() <= 1e-5 * (1.0 + one.abs()), "{one} {other}");
        }
    };
    compare(&toy, 3);
    // A mini-batch of all examples has the random order of its pass, too.
    toy.job.batch_size = 144;
    toy.job.local_training = LocalTraining::Sgd { steps: 144 / small, rate };
    compare(&toy, u64::from(144 / small));
}

#[test]
fn all_collectives_train_alike_up_to_rounding() {
    for workers in [2, 3, 7, 8] {
        let end = |architecture| virtually(&peers(architecture, workers, 203));
        let ends: Vec<_> = Architecture::replicated().map(end).collect();
        for end in &ends {
            assert_eq!(end.version, ends[0].version);
            for (one, other) in end.parameters.iter().zip(&ends[0].parameters) {
                assert!((one - other).abs() <= 1e-4 * (1.0 + one.abs()), "{one} {other}");
            }
        }
    }
}
