//! Work in proportion to speed: a slow worker has small mini-batches, so that all finish together.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::level::{Line, level};
use super::{Assigner, Timed, set_rows};
use crate::consistency::Cohort;
use pstrain_compute::id::{BatchId, PartId, Version, WorkerId};
use pstrain_compute::pass::Pass;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;

/// The smallest mini-batch size of a worker, unless the job's is smaller.
const LEAST: u32 = 8;
/// Weight of the past in a smoothed time.
const MEMORY: f64 = 0.8;
/// The largest change of a mini-batch size at once, in percent.
const STEP: u64 = 20;
/// The smallest relative reduction of the longest time that is worth a rebalance.
const GAIN: f64 = 0.001;

/// Assigner with mini-batch sizes by speed. Each worker goes through its own partition in
/// mini-batches of its own size. The sizes of all N members sum to N times the job's batch size,
/// and shift from workers that take long from parameters to gradient to workers that are fast.
///
/// A worker's time is modelled as `start + slope * size`: a part that does not depend on the size,
/// such as the trip over a slow link, and the computing time of an example, both smoothed. If only
/// computing takes time the sizes become `B_i = N B speed_i / sum(speed)`.
///
/// The number of a mini-batch is the position of its first example in the sequence of the worker's
/// passes, so that each pass covers all examples once at any sizes. What remains of a pass is
/// balanced ([`Pass::size_at`]), so that a mini-batch may be smaller than the worker's size.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BySpeed {
    batch_size: u32,
    workers: Vec<Account>,
    /// Examples of each partition; 0 until a worker has reported it.
    rows: Vec<u64>,
    /// Gradients since the last rebalance.
    pushes: usize,
}

/// State of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    /// True if it was a member at the last rebalance.
    counts: bool,
    size: u32,
    speed: Option<Speed>,
    /// When its last gradient arrived.
    last: Time,
    /// The first example that was never assigned.
    next: u64,
    /// Mini-batches that were assigned and not completed.
    again: BTreeSet<(BatchId, u32)>,
}

/// Modelled time of a worker, in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Speed {
    start: f64,
    slope: f64,
}

impl BySpeed {
    pub(super) fn new(workers: u32, batch_size: u32) -> Self {
        let workers = workers as usize;
        let account = Account {
            counts: false,
            size: batch_size,
            speed: None,
            last: Time::ZERO,
            next: 0,
            again: BTreeSet::new(),
        };
        Self { batch_size, workers: vec![account; workers], rows: vec![0; workers], pushes: 0 }
    }

    const fn least(&self) -> u64 {
        let least = if self.batch_size < LEAST { self.batch_size } else { LEAST };
        least as u64
    }

    /// Redistributes the sizes of departed workers over the members.
    fn share_out(&mut self, members: &[usize]) {
        for (index, account) in self.workers.iter_mut().enumerate() {
            let counts = members.binary_search(&index).is_ok();
            if !counts && account.counts {
                // A worker that comes back may be another machine.
                (account.size, account.speed) = (self.batch_size, None);
            }
            account.counts = counts;
        }
        let total = members.len() as u64 * u64::from(self.batch_size);
        let least = self.least();
        let line = |&index: &usize| Line {
            start: 0.0,
            slope: 1.0 / f64::from(self.workers[index].size),
            least,
            most: total,
        };
        let sum: u64 = members.iter().map(|&index| u64::from(self.workers[index].size)).sum();
        if sum != total {
            let sizes = level(total, &members.iter().map(line).collect::<Vec<_>>());
            self.set_sizes(members, &sizes);
        }
    }

    /// Shifts examples from the slowest workers to the others. Workers that have not been measured
    /// yet keep their sizes.
    fn rebalance(&mut self, members: &[usize]) {
        let least = self.least();
        let measured = |&index: &usize| {
            let account = &self.workers[index];
            let (size, Speed { start, slope }) = (u64::from(account.size), account.speed?);
            let step = (size * STEP / 100).max(1);
            // A mini-batch is never larger than the partition.
            let most = (size + step).min(self.rows[index]).max(size);
            let least = (size - step).max(least).min(size);
            Some((index, Line { start, slope, least, most }))
        };
        let (known, lines): (Vec<usize>, Vec<Line>) = members.iter().filter_map(measured).unzip();
        let before: Vec<u64> =
            known.iter().map(|&index| u64::from(self.workers[index].size)).collect();
        let after = level(before.iter().sum(), &lines);
        let longest = |sizes: &[u64]| {
            let times = lines.iter().zip(sizes).map(|(line, &size)| line.time(size));
            times.fold(0.0, f64::max)
        };
        if longest(&after) < longest(&before) * (1.0 - GAIN) {
            self.set_sizes(&known, &after);
        }
    }

    fn set_sizes(&mut self, workers: &[usize], sizes: &[u64]) {
        for (&index, &size) in workers.iter().zip(sizes) {
            self.workers[index].size = size as u32;
        }
    }
}

impl Assigner for BySpeed {
    fn assign(&mut self, worker: WorkerId, _version: Version) -> Option<Task> {
        let index = worker.0 as usize;
        let (account, rows) = (self.workers.get_mut(index)?, *self.rows.get(index)?);
        let part = PartId::from(worker);
        if let Some((batch, examples)) = account.again.pop_first() {
            return Some(Task { part, batch, examples });
        }
        let batch = BatchId(account.next);
        let place = account.next.checked_rem(rows)?;
        let examples = Pass::new(rows, account.size).size_at(place) as u32;
        account.next = account.next.saturating_add(examples.into());
        Some(Task { part, batch, examples })
    }

    fn timed(&mut self, worker: WorkerId, timed: Timed) {
        let account = &mut self.workers[worker.0 as usize];
        let Timed { granted, now, compute, samples } = timed;
        // A pipelined mini-batch waited for the previous one.
        let began = granted.max(account.last);
        account.last = now;
        self.pushes += 1;
        let slope = compute.as_secs_f64() / f64::from(samples);
        if slope <= 0.0 || !slope.is_finite() {
            return;
        }
        let start = now.since(began).saturating_sub(compute).as_secs_f64();
        let smooth = |past: f64, new: f64| past + (1.0 - MEMORY) * (new - past);
        account.speed = Some(match account.speed {
            None => Speed { start, slope },
            Some(past) => {
                Speed { start: smooth(past.start, start), slope: smooth(past.slope, slope) }
            }
        });
    }

    fn put_back(&mut self, worker: WorkerId, task: Task) {
        if let Some(account) = self.workers.get_mut(worker.0 as usize) {
            account.again.insert((task.batch, task.examples));
        }
    }

    fn set_rows(&mut self, worker: WorkerId, rows: &[u64]) -> Result<(), String> {
        rows.iter().try_for_each(|&rows| set_rows(&mut self.rows, worker.into(), rows))
    }

    fn updated(&mut self, members: &Cohort) {
        if self.pushes < members.len() {
            return;
        }
        self.pushes = 0;
        let members: Vec<usize> = members.workers().map(|worker| worker.0 as usize).collect();
        self.share_out(&members);
        self.rebalance(&members);
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use pstrain_compute::id::Clock;

    /// Simulated machines that compute rounds.
    struct Machines {
        assigner: BySpeed,
        cohort: Cohort,
        /// Microseconds independent of the size, and microseconds per example.
        speeds: Vec<(u32, u32)>,
        now: Time,
        /// The examples that each machine was assigned, in the order of its passes.
        given: Vec<Vec<u64>>,
    }

    impl Machines {
        fn new(batch_size: u32, rows: u64, speeds: &[(u32, u32)]) -> Self {
            let mut assigner = BySpeed::new(speeds.len() as u32, batch_size);
            let mut cohort = Cohort::default();
            for worker in (0..).map(WorkerId).take(speeds.len()) {
                assigner.set_rows(worker, &[rows]).unwrap();
                cohort.join(worker, Clock(0), 1);
            }
            let given = vec![Vec::new(); speeds.len()];
            Self { assigner, cohort, speeds: speeds.into(), now: Time::ZERO, given }
        }

        fn members(&self) -> Vec<WorkerId> {
            self.cohort.workers().collect()
        }

        fn sizes(&self) -> Vec<u32> {
            let size = |worker: WorkerId| self.assigner.workers[worker.0 as usize].size;
            self.members().into_iter().map(size).collect()
        }

        /// The longest predicted time of the measured machines.
        fn longest(&self) -> f64 {
            let time = |worker: WorkerId| {
                let account = &self.assigner.workers[worker.0 as usize];
                let Speed { start, slope } = account.speed?;
                Some(start + slope * f64::from(account.size))
            };
            self.members().into_iter().filter_map(time).fold(0.0, f64::max)
        }

        /// Simulates one round, in which worker `i` takes `noise[i]` percent longer than its
        /// machine does, and each worker of `lost` is assigned a mini-batch and leaves. Returns the
        /// tasks of the others.
        fn round(&mut self, noise: &[u32], lost: &[WorkerId]) -> Vec<Task> {
            let (granted, mut tasks) = (self.now, Vec::new());
            for worker in self.members() {
                let index = worker.0 as usize;
                let task = self.assigner.assign(worker, Version(0)).unwrap();
                if lost.contains(&worker) {
                    self.assigner.put_back(worker, task);
                    self.cohort.leave(worker);
                    continue;
                }
                let samples = u64::from(task.examples);
                self.given[index].extend(task.batch.0..task.batch.0 + samples);
                let (start, each) = self.speeds[index];
                let percent = u64::from(100 + noise[index]);
                let compute = Duration::from_micros(u64::from(each) * samples * percent / 100);
                let now = granted + compute + Duration::from_micros(start.into());
                self.now = self.now.max(now);
                let samples = task.examples;
                self.assigner.timed(worker, Timed { granted, now, compute, samples });
                tasks.push(task);
            }
            tasks
        }

        fn update(&mut self) {
            self.assigner.updated(&self.cohort);
        }
    }

    proptest! {
        /// Over random machines, noise, losses and returns.
        #[test]
        fn the_sum_is_constant_and_the_longest_time_never_rises(
            batch_size in 1_u32..200,
            rows in 1_u64..2000,
            speeds in prop::collection::vec((0_u32..20_000, 1_u32..500), 1..9),
            rounds in prop::collection::vec((any::<[u8; 9]>(), 0_u32..40), 1..60),
        ) {
            let mut machines = Machines::new(batch_size, rows, &speeds);
            for (noise, lost) in rounds {
                let noise = noise.map(|noise| u32::from(noise) / 4);
                let leaves = (machines.cohort.len() > 1 && (lost as usize) < speeds.len())
                    .then_some(WorkerId(lost));
                machines.round(&noise, leaves.as_slice());
                let (before, longest) = (machines.sizes(), machines.longest());
                let whole = before.iter().sum::<u32>() == batch_size * before.len() as u32;
                machines.update();
                let after = machines.sizes();
                prop_assert_eq!(after.iter().sum::<u32>(), batch_size * after.len() as u32);
                prop_assert!(after.iter().all(|&size| size >= batch_size.min(8)));
                if whole {
                    prop_assert!(machines.longest() <= longest);
                    for (before, after) in before.iter().zip(&after) {
                        let step = (before / 5).max(1);
                        prop_assert!(before.abs_diff(*after) <= step, "{} to {}", before, after);
                    }
                }
                for worker in (0..speeds.len() as u32).map(WorkerId) {
                    if lost == 39 && !machines.cohort.contains(worker) {
                        machines.cohort.join(worker, Clock(0), 1); // after the update, as in a run
                    }
                }
                let sizes = machines.sizes();
                prop_assert_eq!(sizes.iter().sum::<u32>(), batch_size * sizes.len() as u32);
            }
            // Each example once a pass, except mini-batches of workers that left.
            for (index, given) in machines.given.iter_mut().enumerate() {
                let account = &machines.assigner.workers[index];
                for &(batch, examples) in &account.again {
                    given.extend(batch.0..batch.0 + u64::from(examples));
                }
                given.sort_unstable();
                prop_assert_eq!(given, &(0..account.next).collect::<Vec<_>>());
            }
        }

        #[test]
        fn equal_speeds_are_equal_mini_batches(
            batch_size in 1_u32..200,
            workers in 1_usize..20,
            speed in (0_u32..20_000, 1_u32..500),
        ) {
            let mut machines = Machines::new(batch_size, 500, &vec![speed; workers]);
            let pass = Pass::new(500, batch_size);
            for round in (0..30).map(BatchId) {
                let wanted = (pass.rows_before(round), pass.size(round) as u32);
                for task in machines.round(&vec![0; workers], &[]) {
                    prop_assert_eq!((task.batch.0, task.examples), wanted);
                }
                machines.update();
            }
        }

        /// If only computing takes time, `B_i = N B speed_i / sum(speed)` up to rounding.
        #[test]
        fn sizes_become_those_in_proportion_to_speed(
            each in prop::collection::vec(100_u32..1000, 2..8),
        ) {
            let speeds: Vec<(u32, u32)> = each.iter().map(|&each| (0, each)).collect();
            let mut machines = Machines::new(1000, 1_000_000, &speeds);
            for _ in 0..60 {
                machines.round(&vec![0; each.len()], &[]);
                machines.update();
            }
            let all: f64 = each.iter().map(|&each| 1.0 / f64::from(each)).sum();
            for (size, each) in machines.sizes().into_iter().zip(each) {
                let share = 1000.0 * speeds.len() as f64 / f64::from(each) / all;
                // A rebalance with too little gain is skipped.
                prop_assert!((f64::from(size) - share).abs() < 1.0 + 0.01 * share);
            }
        }
    }

    #[test]
    fn a_slow_link_counts_and_so_does_waiting_behind_another() {
        let mut machines = Machines::new(100, 1_000_000, &[(40_000, 1000), (0, 1000)]);
        for _ in 0..30 {
            machines.round(&[0; 2], &[]);
            machines.update();
        }
        assert_eq!(machines.sizes(), [80, 120]);

        // Two pipelined mini-batches: the second starts when the first arrives, and takes as long.
        let mut assigner = BySpeed::new(1, 100);
        let ms = Duration::from_millis;
        for now in [12, 22, 32] {
            let (granted, now) = (Time::ZERO, Time::ZERO + ms(now));
            let timed = Timed { granted, now, compute: ms(10), samples: 100 };
            assigner.timed(WorkerId(0), timed);
        }
        let speed = assigner.workers[0].speed.unwrap();
        assert!((speed.start - 0.002 * 0.64).abs() < 1e-9, "{speed:?}");
    }
}
