//! staleness.csv: histograms of the staleness of applied gradients and of the age of information.

use std::collections::BTreeMap;
use std::path::Path;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::Event;
use serde::{Deserialize, Serialize};

use super::age::{Age, Growth};

/// The histograms of each worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Histograms(Vec<Worker>);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Worker {
    /// Number of gradients by staleness.
    staleness: BTreeMap<u64, u64>,
    age: Age,
    /// Nanoseconds that the age of information spent in each bin.
    ages: Vec<u64>,
}

/// The columns of staleness.csv and their meaning.
pub(crate) const COLUMNS: [(&str, &str); 5] = [
    ("measure", "`staleness_updates` or `age_s`"),
    ("worker", "The worker, counted from 1, or `all`"),
    ("from", "Lower bound of the bin"),
    ("to", "Upper bound of the bin; of staleness the same number"),
    (
        "amount",
        "Gradients with that staleness, or seconds that the age of information was in the bin",
    ),
];

/// Bins per doubling of the age. Ages below this many nanoseconds have a bin each.
const PER_OCTAVE: u64 = 4;

/// Returns the bin of an age in nanoseconds.
const fn bin(nanos: u64) -> u64 {
    if nanos < PER_OCTAVE {
        return nanos;
    }
    let octave = nanos.ilog2() as u64 - PER_OCTAVE.ilog2() as u64;
    octave * PER_OCTAVE + (nanos >> octave)
}

/// Returns the lower bound of a bin in nanoseconds.
const fn lower(bin: u64) -> u64 {
    if bin < PER_OCTAVE {
        return bin;
    }
    let octave = bin / PER_OCTAVE - 1;
    (PER_OCTAVE + bin % PER_OCTAVE) << octave
}

impl Worker {
    fn aged(&mut self, growth: Option<Growth>) {
        let Some(Growth { from, to }) = growth else { return };
        let nanos = |span: std::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let (mut from, to) = (nanos(from), nanos(to));
        let last = bin(to) as usize;
        if self.ages.len() <= last {
            self.ages.resize(last + 1, 0);
        }
        while from < to {
            let bin = bin(from);
            let end = to.min(lower(bin + 1));
            self.ages[bin as usize] += end - from;
            from = end;
        }
    }

    fn add(&mut self, other: &Self) {
        for (staleness, times) in &other.staleness {
            *self.staleness.entry(*staleness).or_default() += times;
        }
        self.ages.resize(self.ages.len().max(other.ages.len()), 0);
        for (sum, time) in self.ages.iter_mut().zip(&other.ages) {
            *sum += time;
        }
    }
}

impl Histograms {
    pub(super) fn new(workers: usize) -> Self {
        Self(vec![Worker::default(); workers])
    }

    pub(super) fn note(&mut self, now: Time, event: &Event) {
        match event {
            Event::Applied { worker, staleness, age, .. } => {
                if let Some(worker) = self.0.get_mut(worker.0 as usize) {
                    *worker.staleness.entry(*staleness).or_default() += 1;
                    let growth = worker.age.applied(now, *age);
                    worker.aged(growth);
                }
            }
            Event::Started { .. } => self.0.iter_mut().for_each(|worker| worker.age.begun(now)),
            Event::Following { .. } => {
                self.0.iter_mut().for_each(|worker| worker.age.forget());
            }
            Event::Ended { .. } => {
                for worker in &mut self.0 {
                    let growth = worker.age.ended(now);
                    worker.aged(growth);
                }
            }
            _ => {}
        }
    }

    /// Writes the file: for each measure, for all workers together and for each, the number of
    /// gradients (staleness) or of seconds (age) in each bin.
    pub(super) fn write(&self, path: &Path) -> csv::Result<()> {
        let mut file = csv::Writer::from_path(path)?;
        file.write_record(COLUMNS.map(|(name, _)| name))?;
        let mut all = Worker::default();
        for worker in &self.0 {
            all.add(worker);
        }
        let named = (0..).map(|id| WorkerId(id).to_string()).zip(&self.0);
        let named: Vec<_> = [("all".to_owned(), &all)].into_iter().chain(named).collect();
        for (name, worker) in &named {
            for (staleness, times) in &worker.staleness {
                let value = staleness.to_string();
                file.write_record(["staleness_updates", name, &value, &value, &times.to_string()])?;
            }
        }
        let seconds =
            |nanos: u64| format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        for (name, worker) in &named {
            for (bin, &time) in (0..).zip(&worker.ages).filter(|(_, time)| **time > 0) {
                let (from, to) = (seconds(lower(bin)), seconds(lower(bin + 1)));
                file.write_record(["age_s", name, &from, &to, &seconds(time)])?;
            }
        }
        file.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bins_follow_each_other_without_a_gap() {
        for number in 0..240 {
            assert!(lower(number) < lower(number + 1), "{number}");
            assert_eq!(bin(lower(number)), number);
            assert_eq!(bin(lower(number + 1) - 1), number);
        }
        assert_eq!(lower(bin(1_000_000) + PER_OCTAVE), 2 * lower(bin(1_000_000)));
    }

    #[test]
    fn a_growing_age_spends_its_time_in_every_bin_it_passes() {
        let mut worker = Worker::default();
        let nanos = Duration::from_nanos;
        worker.aged(Some(Growth { from: nanos(7), to: nanos(21) }));
        let spent: Vec<(u64, u64)> = (0..)
            .zip(worker.ages.iter().copied())
            .filter(|(_, time)| *time > 0)
            .map(|(bin, time)| (lower(bin), time))
            .collect();
        assert_eq!(spent, [(7, 1), (8, 2), (10, 2), (12, 2), (14, 2), (16, 4), (20, 1)]);
    }
}
