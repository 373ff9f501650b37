//! Instruction counts of the hot paths: worker steps, pushes, simulated runs. On a shared machine
//! times vary by half from run to run, while counts hardly vary, so changes are judged by counts.
//!
//! `tests/measure/instructions.sh` runs this under callgrind, and fails if a count is above its
//! limit. The limits are a tenth above the counts with Rust 1.95 on x86-64. Valgrind has AVX2 and
//! no AVX-512, so the kernels of AVX2 are counted. A change that lowers a count also lowers its
//! limit; a change that needs a higher limit gives the reason in its own commit.

#![expect(missing_docs, unused_qualifications, reason = "what the macros below make of it")]
#![expect(clippy::unwrap_used, reason = "a failure here fails the benchmark")]

use std::hint::black_box;
use std::time::Duration;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_data::{Prepared, Settings, SyntheticNslKdd};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_tests::{Driven, Stepping, Toy, VirtualRun};

const SSP: ConsistencySpec = ConsistencySpec::Ssp { slack: 3 };
/// Steps, and turns of pushes, that are counted together.
const STEPS: u32 = 100;
const TURNS: u32 = 100;
/// Workers that push, next to others that may be idle.
const BUSY: u32 = 4;

fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// A worker of the reference task after a few steps.
fn worker(batch: u32) -> Stepping {
    let source = SyntheticNslKdd { rows: 4_000, seed: 1 };
    let data = Prepared::load(&source, &Settings::default()).unwrap();
    let spec = ModelSpec::Mlp { hidden: vec![21], activation: Activation::Relu };
    let mut worker = Stepping::new(&data, &spec, batch);
    (0..10).for_each(|_| worker.step());
    worker
}

#[library_benchmark(setup = worker)]
#[bench::batch_32(args = (32), config = at_most(6_340_000))]
#[bench::batch_128(args = (128), config = at_most(19_300_000))]
fn steps(mut worker: Stepping) -> Stepping {
    (0..STEPS).for_each(|_| worker.step());
    black_box(worker)
}

/// A server after a few answered pushes.
fn server(consistency: ConsistencySpec, workers: u32) -> Driven {
    let mut server = Driven::new(consistency, workers);
    (0..10).for_each(|_| server.turn(BUSY));
    server
}

#[library_benchmark(setup = server)]
#[bench::bsp(args = (ConsistencySpec::Bsp, BUSY), config = at_most(5_140_000))]
#[bench::ssp(args = (SSP, BUSY), config = at_most(7_040_000))]
#[bench::asp(args = (ConsistencySpec::Asp, BUSY), config = at_most(7_020_000))]
// The cost of a push does not depend on the number of idle workers.
#[bench::asp_beside_1000_idle(args = (ConsistencySpec::Asp, BUSY + 1000), config = at_most(7_550_000))]
fn pushes(mut server: Driven) -> Driven {
    (0..TURNS).for_each(|_| server.turn(BUSY));
    black_box(server)
}

/// A few epochs over links with jitter.
fn run(consistency: ConsistencySpec, workers: u32) -> VirtualRun {
    let mut toy = Toy::new(workers, 800);
    toy.job.mode = Mode::of(consistency);
    let link = "all.delay=20ms all.jitter=5ms all.distribution=normal";
    VirtualRun { measured: Some(Duration::from_millis(4)), ..VirtualRun::new(&toy, link, "4ms") }
}

#[library_benchmark(setup = run)]
#[bench::bsp(args = (ConsistencySpec::Bsp, 2), config = at_most(11_360_000))]
#[bench::ssp(args = (SSP, 8), config = at_most(13_620_000))]
fn simulation(run: VirtualRun) -> VirtualRun {
    let outcome = run.run_unseen();
    assert!(outcome.reason.is_some());
    run
}

library_benchmark_group!(name = everything, benchmarks = [steps, pushes, simulation]);

main!(library_benchmark_groups = everything);
