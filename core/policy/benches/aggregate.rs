//! Cost of a push under each rule, and under `auto`, relative to plain ASP, where every gradient is
//! an update with weight 1: combining it and updating the parameters, with plain gradient descent
//! and eight workers that take turns.
//!
//! The rules take turns, too, so that other load on the machine affects all of them; the median of
//! each is printed. Compare ratios of one run, not times of different runs.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "a benchmark prints what it finds")]
#![expect(clippy::expect_used, reason = "a benchmark's own settings are right")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pstrain_compute::id::{Clock, PartId, Version, WorkerId};
use pstrain_compute::optim::UpdateSpec;
use pstrain_compute::time::Time;
use pstrain_policy::aggregate::{Aggregator, Gradient};
use pstrain_policy::auto::{Auto, Choice, Seen, Snapshots};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::{Aggregation, Closing, ParticipationSpec, StalenessSpec};

const WORKERS: u32 = 8;

const UPDATE: UpdateSpec = UpdateSpec::sgd(0.01);

/// A server's parameters under one rule.
struct Bench {
    name: String,
    mode: Mode,
    aggregator: Aggregator,
    auto: Option<Auto>,
    looks: Snapshots,
    parameters: Arc<Vec<f32>>,
    version: u64,
    /// Nanoseconds per push, for each turn.
    times: Vec<f64>,
}

impl Bench {
    fn new(mode: &Mode, d: usize) -> Self {
        let auto = (mode.consistency == ConsistencySpec::Auto).then(|| Auto::new(d as u64));
        let name = mode.to_string();
        let mode = if auto.is_some() { Auto::first(true) } else { *mode };
        let mut aggregator = Aggregator::new(Aggregation::Mean, &UPDATE, &mode, WORKERS, d)
            .expect("the update is valid");
        (0..WORKERS).for_each(|worker| aggregator.set_rows(WorkerId(worker), 1000));
        Self {
            name,
            mode,
            aggregator,
            auto,
            looks: Snapshots::default(),
            parameters: Arc::new(vec![0.5; d]),
            version: 0,
            times: Vec::new(),
        }
    }

    /// Applies `pushes` gradients, each as an update.
    fn turn(&mut self, pushes: u64, gradients: &[Vec<f32>], base: &[f32]) {
        let begin = Instant::now();
        for _ in 0..pushes {
            let worker = self.version % u64::from(WORKERS);
            let gradient = Gradient {
                worker: WorkerId(worker as u32),
                part: PartId(worker as u32),
                clock: Clock(self.version / u64::from(WORKERS)),
                samples: 64,
                size: 0,
                keys: None,
                staleness: u64::from(WORKERS) - 1,
                base: self.aggregator.needs_base().then_some(base),
                values: &gradients[worker as usize],
            };
            if let Some(auto) = &mut self.auto {
                let compute = Duration::from_millis(5);
                let seen = Seen {
                    worker: gradient.worker,
                    now: Time::ZERO + compute * self.version as u32,
                    given: Time::ZERO + compute * self.version.saturating_sub(1) as u32,
                    compute,
                    loss: 0.5,
                    rows: 1000,
                    version: Version(self.version),
                };
                let mut choice = auto.pushed(&self.mode, seen);
                if let Some(Choice::Look(look)) = choice {
                    let sums = self
                        .looks
                        .look(look, &self.parameters, self.parameters.len())
                        .unwrap_or_default();
                    choice = auto.looked(&self.mode, &sums);
                }
                if let Some(Choice::Mode { mode, .. }) = choice {
                    self.aggregator.set_mode(&mode);
                    self.mode = mode;
                }
            }
            let one = core::iter::once(gradient);
            let version = Version(self.version);
            self.aggregator.update(one, &mut self.parameters, Closing::Everything, version);
            self.version += 1;
        }
        self.times.push(begin.elapsed().as_nanos() as f64 / pushes as f64);
    }

    fn median(&mut self) -> f64 {
        self.times.sort_by(f64::total_cmp);
        self.times[self.times.len() / 2]
    }
}

fn measure(d: usize, turns: usize, pushes: u64) {
    let asp = Mode::of(ConsistencySpec::Asp);
    let mut modes = vec![asp];
    modes.extend(
        [
            StalenessSpec::Inverse,
            StalenessSpec::POLYNOMIAL,
            StalenessSpec::DynSgd,
            StalenessSpec::DELAY,
            StalenessSpec::DELAY_ADAPTIVE,
            StalenessSpec::GapAware,
        ]
        .map(|staleness| Mode { staleness, ..asp }),
    );
    modes.extend(
        [ParticipationSpec::Share, ParticipationSpec::Incremental]
            .map(|participation| Mode { participation, ..asp }),
    );
    modes.push(Mode::of(ConsistencySpec::Auto));
    let mut benches: Vec<Bench> = modes.iter().map(|mode| Bench::new(mode, d)).collect();
    let value = |key: usize| (key % 97) as f32 * 1e-3 - 0.05;
    let gradients: Vec<Vec<f32>> = (0..WORKERS as usize)
        .map(|worker| (0..d).map(|key| value(key + worker)).collect())
        .collect();
    let base = vec![0.49; d];
    for _ in 0..turns {
        for bench in &mut benches {
            bench.turn(pushes, &gradients, &base);
        }
    }
    println!(
        "{d} parameters, {WORKERS} workers\n{:<36} {:>12} {:>7} {:>10}",
        "", "ns a push", "times", "kept"
    );
    let plain = benches[0].median();
    for bench in &mut benches {
        let (median, kept) = (bench.median(), bench.aggregator.memory_bytes());
        println!("{:<36} {median:>12.0} {:>7.2} {kept:>10}", bench.name, median / plain);
    }
    println!();
}

fn main() {
    measure(2_084, 201, 64);
    measure(1_000_000, 21, 8);
}
