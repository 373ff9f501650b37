//! Measures of how much the workers' parts differ: the degree of non-IID.

use serde::Serialize;

/// Measures of a whole partition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skew {
    /// Measures of each worker's part.
    pub workers: Vec<WorkerSkew>,
    /// The mean L1 distance, weighted by each worker's fraction of the rows.
    pub mean_l1: f64,
    /// The largest L1 distance.
    pub max_l1: f64,
    /// The Gini coefficient of the workers' row counts: 0 if all are equal.
    pub gini: f64,
}

/// Measures of one worker's part. Distances are to the distribution of classes over all training
/// rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerSkew {
    /// Number of the worker's rows.
    pub rows: u64,
    /// Fraction of all training rows.
    pub share: f64,
    /// Number of the worker's rows of each class.
    pub class_counts: Vec<u64>,
    /// Sum of the absolute differences, 0 to 2. (Twice the total variation distance; called earth
    /// mover's distance in federated learning.)
    pub l1: f64,
    /// Hellinger distance, 0 to 1.
    pub hellinger: f64,
    /// Jensen-Shannon divergence in bits, 0 to 1.
    pub jensen_shannon: f64,
}

impl Skew {
    /// Measures the partition in which row `i` has class `labels[i]` and worker `owners[i]`.
    ///
    /// Ignores rows of classes from `classes` up, and rows of workers from `workers` up.
    #[must_use]
    pub fn of(labels: &[u16], classes: usize, owners: &[u32], workers: u32) -> Self {
        let mut counts = vec![vec![0_u64; classes]; workers as usize];
        for (&label, &owner) in labels.iter().zip(owners) {
            if let Some(count) =
                counts.get_mut(owner as usize).and_then(|counts| counts.get_mut(usize::from(label)))
            {
                *count += 1;
            }
        }
        let mut all = vec![0_u64; classes];
        for counts in &counts {
            for (sum, count) in all.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        let rows: u64 = all.iter().sum();
        let global = distribution(&all);
        let workers: Vec<WorkerSkew> = counts
            .into_iter()
            .map(|class_counts| WorkerSkew::of(class_counts, &global, rows))
            .collect();
        let mean_l1 = workers.iter().map(|worker| worker.share * worker.l1).sum();
        let max_l1 = workers.iter().map(|worker| worker.l1).fold(0.0, f64::max);
        let gini = gini(workers.iter().map(|worker| worker.share).collect());
        Self { workers, mean_l1, max_l1, gini }
    }
}

impl WorkerSkew {
    fn of(class_counts: Vec<u64>, global: &[f64], all_rows: u64) -> Self {
        let own = distribution(&class_counts);
        let rows = class_counts.iter().sum();
        Self {
            rows,
            share: rows as f64 / all_rows.max(1) as f64,
            class_counts,
            l1: own.iter().zip(global).map(|(p, q)| (p - q).abs()).sum(),
            hellinger: hellinger(&own, global),
            jensen_shannon: jensen_shannon(&own, global),
        }
    }
}

fn distribution(counts: &[u64]) -> Vec<f64> {
    let total = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|&count| count as f64 / total).collect()
}

fn hellinger(p: &[f64], q: &[f64]) -> f64 {
    let overlap: f64 = p.iter().zip(q).map(|(p, q)| (p * q).sqrt()).sum();
    (1.0 - overlap).max(0.0).sqrt()
}

fn jensen_shannon(p: &[f64], q: &[f64]) -> f64 {
    let against_middle =
        |p: f64, q: f64| if p > 0.0 { p * (2.0 * p / (p + q)).log2() } else { 0.0 };
    let sum: f64 =
        p.iter().zip(q).map(|(&p, &q)| against_middle(p, q) + against_middle(q, p)).sum();
    (sum / 2.0).max(0.0)
}

fn gini(mut shares: Vec<f64>) -> f64 {
    shares.sort_unstable_by(f64::total_cmp);
    let count = shares.len() as f64;
    let total: f64 = shares.iter().sum();
    if total <= 0.0 {
        return 0.0;
    }
    let ranked: f64 =
        shares.iter().enumerate().map(|(rank, share)| (rank as f64 + 1.0) * share).sum();
    (2.0 * ranked / (count * total) - (count + 1.0) / count).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_have_no_skew_and_disjoint_parts_have_all_of_it() {
        let even = Skew::of(&[0, 1, 0, 1], 2, &[0, 0, 1, 1], 2);
        assert_eq!((even.mean_l1, even.max_l1, even.gini), (0.0, 0.0, 0.0));
        assert_eq!((even.workers[1].hellinger, even.workers[1].jensen_shannon), (0.0, 0.0));

        let apart = Skew::of(&[0, 0, 1, 1], 2, &[0, 0, 1, 1], 2);
        assert_eq!((apart.mean_l1, apart.max_l1, apart.workers[0].share), (1.0, 1.0, 0.5));
        assert!((apart.workers[0].hellinger - (1.0 - 0.5_f64.sqrt()).sqrt()).abs() < 1e-12);
        assert!((hellinger(&[1.0, 0.0], &[0.0, 1.0]) - 1.0).abs() < 1e-12);
        assert!((jensen_shannon(&[1.0, 0.0], &[0.0, 1.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn unequal_sizes_show_in_the_gini_coefficient() {
        let uneven = Skew::of(&[0; 4], 1, &[0, 1, 1, 1], 2);
        assert!((uneven.gini - 0.25).abs() < 1e-12, "{}", uneven.gini);
        assert_eq!(uneven.workers[0].rows, 1);
    }
}
