//! Updates of large vectors by each optimiser, in bytes read or written per second, compared with a
//! loop that only streams through as much memory: an optimiser slower than the stream is bound by
//! computation. Also the time to close a round.
//!
//! `cargo bench -p pstrain-policy --features std --bench update`

use std::sync::Arc;

use divan::Bencher;
use divan::counter::BytesCount;
use pstrain_compute::id::{Clock, PartId, Version, WorkerId};
use pstrain_compute::optim::{OptimizerSpec, UpdateSpec, Updater};
use pstrain_policy::aggregate::{Aggregator, Gradient};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::{Aggregation, Closing};

/// 16 MB and 100 MB.
const SIZES: [usize; 2] = [4_194_304, 26_214_400];
const VALUE: usize = size_of::<f32>();

fn main() {
    divan::main();
}

/// Updates `values` parameters; an update reads or writes `arrays` arrays.
fn update(bencher: Bencher<'_, '_>, optimizer: OptimizerSpec, values: usize, arrays: usize) {
    let spec = UpdateSpec { optimizer, ..UpdateSpec::sgd(1e-6) };
    let Ok(mut updater) = Updater::new(&spec, values) else { return };
    let (mut params, gradient) = (vec![0.5; values], vec![0.25; values]);
    let mut version = Version(0);
    bencher.counter(BytesCount::new(values * arrays * VALUE)).bench_local(|| {
        updater.apply(&mut params, &gradient, version);
        version = Version(version.0 + 1);
    });
}

/// Reads two arrays and writes one of them.
#[divan::bench(args = SIZES)]
fn stream(bencher: Bencher<'_, '_>, values: usize) {
    let (mut to, from) = (vec![0.5_f32; values], vec![0.25_f32; values]);
    bencher.counter(BytesCount::new(values * 3 * VALUE)).bench_local(|| {
        for (to, from) in to.iter_mut().zip(divan::black_box(&from)) {
            *to += 1e-6 * from;
        }
    });
}

#[divan::bench(args = SIZES)]
fn sgd(bencher: Bencher<'_, '_>, values: usize) {
    update(bencher, OptimizerSpec::Sgd, values, 3);
}

/// Reads and writes the velocity in addition.
#[divan::bench(args = SIZES)]
fn momentum(bencher: Bencher<'_, '_>, values: usize) {
    update(bencher, OptimizerSpec::MOMENTUM, values, 5);
}

/// Reads and writes both moments in addition.
#[divan::bench(args = SIZES)]
fn adam(bencher: Bencher<'_, '_>, values: usize) {
    update(bencher, OptimizerSpec::ADAM, values, 7);
}

/// Closes a round of `gradients` gradients as a server does: combines and applies them. A gradient
/// has 100 MB.
#[divan::bench(args = [2, 4, 8])]
fn close(bencher: Bencher<'_, '_>, gradients: u32) {
    const VALUES: usize = SIZES[1];
    let mode = Mode::of(ConsistencySpec::Bsp);
    let update = UpdateSpec::sgd(1e-6);
    let aggregator = Aggregator::new(Aggregation::Mean, &update, &mode, gradients, VALUES);
    let Ok(mut aggregator) = aggregator else { return };
    let given: Vec<Vec<f32>> = (0..gradients).map(|_| vec![0.25; VALUES]).collect();
    let gradient = |worker: u32, values| Gradient {
        worker: WorkerId(worker),
        part: PartId(worker),
        clock: Clock(0),
        samples: 32,
        size: 0,
        staleness: 0,
        base: None,
        keys: None,
        values,
    };
    let all = || (0..).zip(&given).map(|(worker, values)| gradient(worker, &values[..]));
    let mut parameters = Arc::new(vec![0.5; VALUES]);
    bencher.bench_local(|| {
        aggregator.update(all(), &mut parameters, Closing::Everything, Version(0));
    });
}
