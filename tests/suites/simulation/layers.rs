//! Gradients that leave layer by layer: the bits of whole ones, in less time where links and
//! computing overlap.

use std::time::Duration;

use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::Exchange;
use pstrain_roles::node::Event;
use pstrain_tests::{Simulated, Toy, VirtualRun};

use super::closed_forms::patient;

/// Bytes of a frame beside its values, at most.
const HEADER: u32 = 200;

/// A run of a network of times alone whose layers have these parameters, the first first.
fn timing(layers: &[u32], exchange: Exchange, link: &str, compute: &str) -> Simulated {
    let mut toy = patient(3, 120, ConsistencySpec::Bsp);
    toy.job.model = ModelSpec::Timing { layers: layers.to_vec() };
    toy.job.exchange = exchange;
    VirtualRun::new(&toy, link, compute).run()
}

fn step(run: &Simulated) -> Duration {
    let updates = run.updates();
    let first = updates[1] - updates[0];
    assert!(updates.windows(2).all(|two| two[1] - two[0] == first), "{updates:?}");
    first
}

/// The time that so many bytes take at 100 Mbit/s.
fn at_100mbit(bytes: u32) -> Duration {
    Duration::from_nanos(u64::from(bytes) * 80)
}

/// Jia et al., Figure 4: all but the first layer's push, update and pull can overlap with the
/// computing.
#[test]
fn a_step_takes_at_least_the_computing_and_the_push_and_pull_of_the_first_layer() {
    let rate = "all.rate=100mbit all.down.rate=100mbit all.delay=2ms all.down.delay=3ms";
    let (compute, delays) = (Duration::from_millis(90), Duration::from_millis(5));
    let whole = |layers: &[u32]| layers.iter().sum::<u32>() * 4;
    // A layer of 20,000 parameters takes 6.4 ms on the link, and at least 12 ms in the backward
    // pass.
    for layers in [&[20_000; 5][..], &[30_000, 20_000, 25_000], &[20_000, 17_000, 17_000, 17_000]] {
        let found = step(&timing(layers, Exchange::Layers, rate, "90ms"));
        let bound = compute + delays + 2 * at_100mbit(4 * layers[0]);
        let most = bound + 2 * at_100mbit(HEADER);
        assert!((bound..=most).contains(&found), "{layers:?}: {found:?}, not {bound:?}");
        let found = step(&timing(layers, Exchange::Combined, rate, "90ms"));
        let bound = compute + delays + 2 * at_100mbit(whole(layers));
        let most = bound + 2 * at_100mbit(HEADER);
        assert!((bound..=most).contains(&found), "{layers:?}: {found:?}, not {bound:?}");
    }
    // Links slower than the computing: the gradients wait for each other, in both directions at
    // once.
    let layers = [20_000; 5];
    let found = step(&timing(&layers, Exchange::Layers, rate, "3ms"));
    let bound = Duration::from_millis(1) + delays + at_100mbit(whole(&layers));
    let last = at_100mbit(2 * 4 * layers[0] + 10 * HEADER) + Duration::from_millis(2);
    assert!((bound..=bound + last).contains(&found), "{found:?}, not {bound:?}");
    // Links without a rate: nothing to gain, nothing to lose.
    let delay = "all.delay=2ms all.down.delay=3ms";
    assert_eq!(step(&timing(&layers, Exchange::Layers, delay, "90ms")), compute + delays);
}

/// A network with layers that are long enough to leave alone.
fn network(optimizer: OptimizerSpec) -> Toy {
    let mut toy = patient(3, 120, ConsistencySpec::Bsp);
    toy.job.model =
        ModelSpec::Mlp { hidden: vec![160, 160, 160, 160], activation: Activation::Relu };
    toy.job.update.optimizer = optimizer;
    toy
}

#[test]
fn layers_of_a_gradient_end_at_the_bits_of_a_whole_one() {
    const SLOW: &str = "all.rate=100mbit all.down.rate=100mbit all.delay=1ms";
    let adam = OptimizerSpec::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    for optimizer in [OptimizerSpec::Sgd, OptimizerSpec::MOMENTUM, adam] {
        for servers in [1, 2, 3] {
            let run = |exchange| {
                let mut toy = network(optimizer);
                (toy.job.servers, toy.job.exchange) = (servers, exchange);
                VirtualRun::new(&toy, SLOW, "20ms").run()
            };
            let (whole, layers) = (run(Exchange::Combined), run(Exchange::Layers));
            assert_eq!(whole.parameters, layers.parameters, "{optimizer:?}, {servers} servers");
            assert!(layers.point.time < whole.point.time.mul_f64(0.95), "{servers} servers");
            let messages = |run: &Simulated| {
                run.events.iter().filter(|it| matches!(it.2, Event::Given { .. })).count()
            };
            let more = messages(&layers) > messages(&whole);
            assert_eq!(more, servers == 1, "values before the update, of one server");
        }
    }
}

#[test]
fn out_of_step_layers_overlap_with_the_backward_pass() {
    let run = |exchange| {
        let mut toy = network(OptimizerSpec::Sgd);
        toy.job.mode.consistency = ConsistencySpec::Asp;
        toy.job.membership.workers = 1;
        toy.job.exchange = exchange;
        VirtualRun::new(&toy, "all.rate=100mbit", "30ms").run()
    };
    let (whole, layers) = (run(Exchange::Combined), run(Exchange::Layers));
    assert_eq!(whole.parameters, layers.parameters);
    assert!(layers.point.time < whole.point.time.mul_f64(0.8));
}
