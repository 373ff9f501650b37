//! Each method of docs/federated.md against the formula of its paper: a reference of a few lines
//! replays the order of updates of a run in virtual time.
//!
//! Each worker has one row many times, so that a local step does not depend on the order of rows,
//! and the workers' models differ as much as their rows.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use pstrain_compute::examples::{Examples, Shape, Target};
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::model::{Loss, ModelSpec};
use pstrain_compute::optim::UpdateSpec;
use pstrain_policy::job::ALL_EXAMPLES;
use pstrain_roles::node::Event;
use pstrain_tests::{Simulated, Toy, VirtualRun, simulate_toy_peers};

const LINK: &str = "delay=3ms down.delay=2ms 1.delay=9ms";
const COMPUTE: &str = "4ms 2.factor=5";
const WORKERS: usize = 3;
/// Rows of the workers: 5, 4 and 4.
const ROWS: usize = 13;
const STEPS: usize = 3;
const RATE: f64 = 0.05;
/// Two weights and a bias.
type Values = [f64; 3];
/// The factor of a staleness.
type Factor = fn(i32) -> f64;

/// The inputs and the number to predict of each row of `worker`.
fn row(worker: usize) -> ([f32; 2], f32) {
    [([1.0, -0.5], 2.0), ([0.25, 1.5], -1.0), ([-1.0, 0.75], 0.5)][worker]
}

fn rows_of(worker: usize) -> f64 {
    (worker..ROWS).step_by(WORKERS).count() as f64
}

/// A linear model that workers train with `local` on all their rows at once.
fn toy(local: &str, optimizer: &str, rate: f64) -> Toy {
    let shape = Shape { inputs: 2, dense: 2, hot: 0, target: Target::Value, picture: None };
    let mut train = Examples::new(shape);
    for number in 0..ROWS {
        let (inputs, label) = row(number % WORKERS);
        train.push(&inputs, &[], label).unwrap();
    }
    let mut job = Toy::new(WORKERS as u32, ROWS).job;
    (job.model, job.loss) = (ModelSpec::Linear, Loss::Squared);
    job.update =
        UpdateSpec { optimizer: optimizer.parse().unwrap(), ..UpdateSpec::sgd(rate as f32) };
    job.local_training = local.parse().unwrap();
    (job.batch_size, job.budget.epochs) = (ALL_EXAMPLES, 6);
    (job.data.shape, job.data.train) = (shape, Fingerprint::of(&train));
    Toy { job, train }
}

/// The model that `worker` trains from `sent`: steps of gradient descent on the squared error, each
/// drawn back by `mu`.
fn trained(worker: usize, sent: Values, mu: f64) -> Values {
    let (inputs, label) = row(worker);
    let inputs = [f64::from(inputs[0]), f64::from(inputs[1]), 1.0];
    let mut own = sent;
    for _ in 0..STEPS {
        let error = (0..3).map(|key| own[key] * inputs[key]).sum::<f64>() - f64::from(label);
        for key in 0..3 {
            own[key] -= RATE * (2.0 * error * inputs[key] + mu * (own[key] - sent[key]));
        }
    }
    own
}

/// A contribution to an update: the worker, the version that it was sent, and its staleness.
#[derive(Clone, Copy)]
struct Part {
    worker: usize,
    sent: Values,
    staleness: i32,
}

/// Replays the updates of `run` from the initial parameters: `update` makes the next ones.
fn replay(
    toy: &Toy,
    run: &Simulated,
    mut update: impl FnMut(Values, &[Part]) -> Values,
) -> Vec<Values> {
    let initial = toy.job.initial(&toy.job.build_model().unwrap());
    let mut versions = vec![[0, 1, 2].map(|key| f64::from(initial[key]))];
    let mut parts = Vec::new();
    for (_, _, event) in &run.events {
        match event {
            Event::Applied { worker, base, staleness, .. } => parts.push(Part {
                worker: worker.0 as usize,
                sent: versions[base.0 as usize],
                staleness: *staleness as i32,
            }),
            Event::Updated { .. } => {
                versions.push(update(versions[versions.len() - 1], &parts));
                parts.clear();
            }
            _ => {}
        }
    }
    versions
}

fn plus(values: Values, factor: f64, other: Values) -> Values {
    [0, 1, 2].map(|key| values[key] + factor * other[key])
}

/// The difference that the training of `part` made.
fn difference(part: &Part, mu: f64) -> Values {
    plus(trained(part.worker, part.sent, mu), -1.0, part.sent)
}

/// The mean of the differences, by rows.
fn mean_difference(parts: &[Part], mu: f64) -> Values {
    let rows: f64 = parts.iter().map(|part| rows_of(part.worker)).sum();
    parts
        .iter()
        .fold([0.0; 3], |mean, part| plus(mean, rows_of(part.worker) / rows, difference(part, mu)))
}

fn assert_near(parameters: &[f32], expected: &[Values], what: &str) {
    let (first, last) = (expected[0], expected[expected.len() - 1]);
    for key in 0..3 {
        let (got, want) = (f64::from(parameters[key]), last[key]);
        assert!((got - want).abs() < 1e-4 * (1.0 + want.abs()), "{what}: {got} is not {want}");
    }
    assert!(first != last && expected.len() > 6, "{what} trains");
}

/// Asserts that a run of `toy` ends where `update` leads.
fn assert_follows(toy: &Toy, what: &str, update: impl FnMut(Values, &[Part]) -> Values) {
    let run = VirtualRun::new(toy, LINK, COMPUTE).run();
    assert_near(&run.parameters, &replay(toy, &run, update), what);
}

#[test]
fn averaging_is_the_mean_of_the_workers_models_by_their_rows() {
    for (local, mu) in [("sgd:3,0.05", 0.0), ("proximal:3,0.05,2", 2.0)] {
        // McMahan et al. 2017, algorithm 1; with the proximal term Li et al. 2020, algorithm 2.
        assert_follows(&toy(local, "sgd", 1.0), local, |_, parts| {
            let rows: f64 = parts.iter().map(|part| rows_of(part.worker)).sum();
            parts.iter().fold([0.0; 3], |mean, part| {
                plus(mean, rows_of(part.worker) / rows, trained(part.worker, part.sent, mu))
            })
        });
    }
}

#[test]
fn a_server_optimiser_takes_the_negative_mean_difference_as_its_gradient() {
    // FedAvgM (Hsu et al. 2019): v <- 0.9 v + d, w <- w + v.
    let mut velocity = [0.0; 3];
    assert_follows(&toy("sgd:3,0.05", "momentum", 1.0), "momentum", |now, parts| {
        velocity = plus(mean_difference(parts, 0.0), 0.9, velocity);
        plus(now, 1.0, velocity)
    });
    // Reddi et al. 2021, algorithm 1, with AdaGrad and with Adam as their authors define them.
    let mut squares = [0.0; 3];
    assert_follows(&toy("sgd:3,0.05", "adagrad:0.001", 0.1), "adagrad", |now, parts| {
        let d = mean_difference(parts, 0.0);
        squares = [0, 1, 2].map(|key| squares[key] + d[key] * d[key]);
        [0, 1, 2].map(|key| now[key] + 0.1 * d[key] / (squares[key].sqrt() + 0.001))
    });
    let (mut mean, mut squares, mut step) = ([0.0; 3], [0.0; 3], 0);
    assert_follows(&toy("sgd:3,0.05", "adam:0.9,0.99,0.001", 0.1), "adam", |now, parts| {
        let d = mean_difference(parts, 0.0);
        step += 1;
        mean = [0, 1, 2].map(|key| 0.9 * mean[key] + 0.1 * d[key]);
        squares = [0, 1, 2].map(|key| 0.99 * squares[key] + 0.01 * d[key] * d[key]);
        let (one, two) = (1.0 - 0.9_f64.powi(step), 1.0 - 0.99_f64.powi(step));
        [0, 1, 2]
            .map(|key| now[key] + 0.1 * mean[key] / one / ((squares[key] / two).sqrt() + 0.001))
    });
}

#[test]
fn asynchronous_mixing_goes_towards_the_model_that_came() {
    // Xie, Koyejo and Gupta 2019, algorithm 1: x <- (1 - a_t) x + a_t x_new, a_t = a s(tau).
    let a = 0.6;
    let factors: [(&str, Factor); 3] = [
        ("mixing:0", |_| 1.0),
        ("mixing:0.5", |tau| (1.0 + f64::from(tau)).powf(-0.5)),
        (
            "mixing-hinge:10,1",
            |tau| if tau <= 1 { 1.0 } else { 1.0 / (10.0 * f64::from(tau - 1) + 1.0) },
        ),
    ];
    for (staleness, s) in factors {
        for (local, mu) in [("sgd:3,0.05", 0.0), ("proximal:3,0.05,2", 2.0)] {
            let mut toy = toy(local, "sgd", a);
            toy.job.mode.consistency = "asp".parse().unwrap();
            toy.job.mode.staleness = staleness.parse().unwrap();
            let mut stalest = 0;
            assert_follows(&toy, staleness, |now, parts| {
                let [part] = parts else { panic!("an update of one model") };
                stalest = stalest.max(part.staleness);
                let a_t = a * s(part.staleness);
                let new = trained(part.worker, part.sent, mu);
                [0, 1, 2].map(|key| (1.0 - a_t) * now[key] + a_t * new[key])
            });
            assert!(stalest > 2, "a slow worker's model is stale");
        }
    }
}

#[test]
fn a_buffer_adds_the_mean_of_the_differences_that_filled_it() {
    // Nguyen et al. 2022, algorithm 1: w <- w + rate / K sum of s(tau) d, s = (1 + tau)^-0.5.
    // There each difference counts the same: the mini-batches have one size.
    let mut toy = toy("sgd:3,0.05", "sgd", 0.7);
    (toy.job.batch_size, toy.job.budget.epochs) = (4, 12);
    toy.job.mode.consistency = "buffered:2".parse().unwrap();
    toy.job.mode.staleness = "polynomial:0.5".parse().unwrap();
    toy.train = toy.train.select(&(0..12).collect::<Vec<_>>());
    toy.job.data.train = Fingerprint::of(&toy.train);
    assert_follows(&toy, "buffered:2", |now, parts| {
        parts.iter().fold(now, |sum, part| {
            let factor = (1.0 + f64::from(part.staleness)).powf(-0.5);
            plus(sum, 0.7 / parts.len() as f64 * factor, difference(part, 0.0))
        })
    });
}

#[test]
fn without_a_server_an_all_reduce_averages_and_gossip_adds_to_the_neighbors_mean() {
    let initial = |toy: &Toy| {
        let initial = toy.job.initial(&toy.job.build_model().unwrap());
        [0, 1, 2].map(|key| f64::from(initial[key]))
    };
    // Stich 2019: the mean of the workers' models.
    let mut toy = toy("sgd:3,0.05", "sgd", 1.0);
    toy.job.architecture = "all-reduce:ring".parse().unwrap();
    let run = simulate_toy_peers(&VirtualRun::new(&toy, LINK, COMPUTE));
    let mut versions = vec![initial(&toy)];
    for _ in 0..run.version {
        let now = versions[versions.len() - 1];
        let parts = [0, 1, 2].map(|worker| Part { worker, sent: now, staleness: 0 });
        versions.push(plus(now, 1.0, mean_difference(&parts, 0.0)));
    }
    assert_near(&run.parameters, &versions, "all-reduce");
    // Lian et al. 2017 with a difference in place of the step: in a ring of three all are
    // neighbors, with weights of a third.
    toy.job.architecture = "gossip:d-psgd".parse().unwrap();
    let run = simulate_toy_peers(&VirtualRun::new(&toy, LINK, COMPUTE));
    let mut own = [initial(&toy); WORKERS];
    let mut means = vec![own[0]];
    for _ in 0..run.version {
        let mean = own.iter().fold([0.0; 3], |mean, own| plus(mean, 1.0 / 3.0, *own));
        let part = |worker: usize| Part { worker, sent: own[worker], staleness: 0 };
        own = [0, 1, 2].map(|worker| plus(mean, 1.0, difference(&part(worker), 0.0)));
        means.push(own.iter().fold([0.0; 3], |mean, own| plus(mean, 1.0 / 3.0, *own)));
    }
    assert_near(&run.parameters, &means, "gossip");
}
