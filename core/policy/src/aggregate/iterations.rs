//! DynSGD: every iteration of the workers contributes the mean of the gradients that have arrived.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::{Clock, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};

/// Largest number of iterations whose means are kept, each as large as the parameters. A gradient
/// of a worker that is further behind counts for the oldest iteration kept.
pub const MOST_OPEN_ITERATIONS: usize = 32;

/// The iterations that some worker may still contribute to, with their means so far.
///
/// An iteration is closed when all workers of the job have passed it, except workers that have
/// left. Workers that never came hold it open until too many iterations are open.
///
/// Changes are planned first, and then carried out for one block of keys after another, in the same
/// order for each block.
///
/// Invariant: the changes emitted for each iteration add up to the mean of the gradients counted
/// for it, weighted by their examples.
///
/// Jiang, Cui, Zhang and Yu, SIGMOD 2017, DynSGD.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Iterations {
    open: BTreeMap<Clock, Mean>,
    /// Buffers of the means of open iterations, and free buffers.
    #[serde(skip)]
    means: Vec<Vec<f32>>,
    free: Vec<usize>,
    /// Iterations below this one are closed.
    floor: Clock,
    /// The next iteration of each worker; `None` for workers that have left.
    next: BTreeMap<WorkerId, Option<Clock>>,
    /// Number of workers by their next iteration; workers that have not contributed yet are at the
    /// first.
    standing: BTreeMap<Clock, u32>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Mean {
    samples: u64,
    /// Index of its values in `means`.
    place: usize,
}

/// The change that a gradient makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revision {
    /// Index in `means` of the mean of its iteration.
    place: usize,
    scale: f32,
    /// Its share of the mean; `None` if it is the first gradient of its iteration.
    share: Option<f32>,
    /// True if more gradients may contribute to the mean.
    keeps: bool,
}

impl Iterations {
    /// Saves or restores the arrays, after serde has processed the other fields.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut means = self.means.len();
        archive.small(&mut means)?;
        // Each buffer belongs to an open iteration or is free.
        if means > self.open.len() + self.free.len() {
            return Err(SavedError::Small);
        }
        self.means.resize_with(means, Vec::new);
        for mean in &mut self.means {
            if archive.is_there(mean.len())? {
                archive.own("mean", mean)?;
            }
        }
        Ok(())
    }

    /// Creates the state of a job with `workers` workers, before anything has arrived.
    pub(super) fn new(workers: u32) -> Self {
        Self { standing: BTreeMap::from([(Clock(0), workers)]), ..Self::default() }
    }

    /// Counts a gradient of so many examples and values, and plans its revision.
    pub(super) fn add(
        &mut self,
        (worker, clock): (WorkerId, Clock),
        (samples, scale): (u32, f32),
        values: usize,
    ) -> Revision {
        let clock = clock.max(self.floor);
        let samples = u64::from(samples);
        let (place, share) = if let Some(mean) = self.open.get_mut(&clock) {
            mean.samples += samples;
            (mean.place, Some((samples as f64 / mean.samples as f64) as f32))
        } else {
            let place = self.free.pop().unwrap_or(self.means.len());
            if place == self.means.len() {
                self.means.push(Vec::new());
            }
            self.open.insert(clock, Mean { samples, place });
            (place, None)
        };
        self.passed(worker, Clock(clock.0 + 1));
        let keeps = self.open.contains_key(&clock);
        if keeps && let Some(mean) = self.means.get_mut(place) {
            mean.resize(values, 0.0);
        }
        Revision { place, scale, share, keeps }
    }

    /// Returns the factor of a lone gradient, if it is the first of its iteration: the update then
    /// is its values times the factor.
    pub(super) const fn alone(revision: &Revision) -> Option<f32> {
        if revision.share.is_none() { Some(revision.scale) } else { None }
    }

    /// Carries out, for the keys from `first` on, a revision for which [`Self::alone`] has a
    /// factor.
    pub(super) fn begin(&mut self, first: usize, revision: &Revision, values: &[f32]) {
        if revision.keeps {
            let scale = revision.scale;
            self.mean(first, revision)
                .iter_mut()
                .zip(values)
                .for_each(|(mean, value)| *mean = scale * value);
        }
    }

    /// Carries out a revision by a gradient's values for the keys from `first` on. Adds the change
    /// of the mean to `sum`, or overwrites `sum` with it if `ADDS` is false.
    pub(super) fn revise<const ADDS: bool>(
        &mut self,
        first: usize,
        revision: &Revision,
        values: &[f32],
        sum: &mut [f32],
    ) {
        let &Revision { scale, share, keeps, .. } = revision;
        let put = |sum: &mut f32, change: f32| *sum = if ADDS { *sum + change } else { change };
        let mean = self.mean(first, revision);
        let sums = sum.iter_mut().zip(values);
        match share {
            None => {
                sums.for_each(|(sum, value)| put(sum, scale * value));
                self.begin(first, revision, values);
            }
            Some(share) if keeps => {
                for ((sum, value), mean) in sums.zip(mean) {
                    let change = (scale * value - *mean) * share;
                    *mean += change;
                    put(sum, change);
                }
            }
            Some(share) => {
                for ((sum, value), mean) in sums.zip(mean) {
                    put(sum, (scale * value - *mean) * share);
                }
            }
        }
    }

    /// Returns the values, for the keys from `first` on, of the mean that a revision changes.
    fn mean(&mut self, first: usize, revision: &Revision) -> &mut [f32] {
        let mean = self.means.get_mut(revision.place);
        mean.and_then(|mean| mean.get_mut(first..)).unwrap_or_default()
    }

    /// Completes an update of all keys: frees the buffers of closed iterations except one, which is
    /// kept for reuse.
    pub(super) fn finish(&mut self) {
        let (means, kept) = (&mut self.means, self.free.last().copied());
        for place in self.free.iter().filter(|place| Some(**place) != kept) {
            if let Some(mean) = means.get_mut(*place) {
                *mean = Vec::new();
            }
        }
    }

    /// Sets the next iteration of `worker` to `next`, and closes iterations that no worker can
    /// contribute to any more.
    fn passed(&mut self, worker: WorkerId, next: Clock) {
        let before = self.next.get(&worker).copied().unwrap_or(Some(Clock(0)));
        if let Some(before) = before {
            self.release(before);
        }
        let next = before.map_or(next, |before| before.max(next));
        self.next.insert(worker, Some(next));
        *self.standing.entry(next).or_default() += 1;
        if let Some((&slowest, _)) = self.standing.first_key_value() {
            self.floor = self.floor.max(slowest);
        }
        while let Some(oldest) = self.open.first_entry() {
            if *oldest.key() >= self.floor {
                break;
            }
            self.free.push(oldest.remove().place);
        }
        while self.open.len() > MOST_OPEN_ITERATIONS
            && let Some((clock, mean)) = self.open.pop_first()
        {
            self.floor = Clock(clock.0 + 1);
            self.free.push(mean.place);
        }
    }

    /// Stops waiting for `worker` until it contributes again.
    pub(super) fn left(&mut self, worker: WorkerId) {
        if let Some(Some(before)) = self.next.insert(worker, None) {
            self.release(before);
        }
    }

    fn release(&mut self, clock: Clock) {
        if let Some(count) = self.standing.get_mut(&clock) {
            *count -= 1;
            if *count == 0 {
                self.standing.remove(&clock);
            }
        }
    }

    /// Bytes kept from update to update.
    pub(super) fn memory_bytes(&self) -> usize {
        self.means.iter().map(Vec::len).sum::<usize>() * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: u32 = 4;

    fn add(iterations: &mut Iterations, worker: u32, clock: u64, value: f32) -> f32 {
        let revision = iterations.add((WorkerId(worker), Clock(clock)), (1, 1.0), 1);
        let mut sum = [0.0];
        iterations.revise::<false>(0, &revision, &[value], &mut sum);
        iterations.finish();
        sum[0]
    }

    #[test]
    fn a_late_gradient_is_averaged_in_and_those_before_revised() {
        let mut iterations = Iterations::new(WORKERS);
        assert_eq!(add(&mut iterations, 0, 0, 8.0), 8.0);
        assert_eq!(add(&mut iterations, 1, 0, 4.0), -2.0, "6 in all");
        assert_eq!(add(&mut iterations, 2, 1, 1.0), 1.0, "another iteration");
        assert_eq!(add(&mut iterations, 2, 0, 9.0), 1.0, "7 in all");
    }

    #[test]
    fn what_all_have_passed_is_forgotten() {
        let mut iterations = Iterations::new(WORKERS);
        for clock in 0..100 {
            for worker in 0..WORKERS {
                add(&mut iterations, worker, clock, 1.0);
            }
            assert!(iterations.open.len() <= 1, "{iterations:?}");
        }
        assert_eq!(iterations.memory_bytes(), 4, "one mean, kept for its memory");
        iterations.left(WorkerId(3));
        for clock in 100..110 {
            for worker in 0..3 {
                add(&mut iterations, worker, clock, 1.0);
            }
            assert!(iterations.open.len() <= 1, "nobody waits for the fourth: {iterations:?}");
        }
        add(&mut iterations, 3, 100, 1.0);
        assert_eq!(iterations.floor, Clock(110), "it continues where the others are");
    }

    #[test]
    fn the_memory_is_bounded_when_a_worker_stays_behind() {
        let mut iterations = Iterations::new(WORKERS);
        assert_eq!(add(&mut iterations, 1, 0, 3.0), 3.0);
        for clock in 0..10 * MOST_OPEN_ITERATIONS as u64 {
            add(&mut iterations, 0, clock, 1.0);
            assert!(iterations.memory_bytes() <= 4 * (MOST_OPEN_ITERATIONS + 1));
        }
        // Iteration 1 is long closed: the gradient counts as the second of the oldest iteration
        // kept.
        assert_eq!(add(&mut iterations, 1, 1, 3.0), 1.0);
        assert_eq!(add(&mut iterations, 2, 0, 2.0), 0.0, "(1 + 3 + 2) / 3");
    }
}
