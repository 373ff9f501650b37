//! Byzantine-robust combinations: a minority of the workers cannot lead them astray, no matter what
//! it sends.
//!
//! Sources: Yin, Chen, Ramchandran and Bartlett, ICML 2018 (median, trimmed mean); Blanchard, El
//! Mhamdi, Guerraoui and Stainer, NIPS 2017 (Krum). Every sum uses double precision and one fixed
//! order, so that a replay produces the same bits. If fewer workers contribute than configured,
//! fewer are left out.

use alloc::vec;
use alloc::vec::Vec;

use super::Gradient;
use crate::rules::Aggregation;
use pstrain_compute::id::WorkerId;
use pstrain_compute::sum::ExactSum;

/// Combines gradients into `combined`; gradients of one worker are consecutive. If the rule selects
/// workers, `nearest` holds the positions of the selected workers.
pub(super) fn combine<'a>(
    aggregation: Aggregation,
    gradients: impl Iterator<Item = Gradient<'a>>,
    nearest: &[u32],
    combined: &mut [f32],
) {
    let workers = by_worker(gradients);
    match aggregation {
        Aggregation::Median => {
            let most = workers.len().saturating_sub(1) / 2;
            trimmed(&workers, most, combined);
        }
        Aggregation::Trimmed { each } => {
            let most = workers.len().saturating_sub(1) / 2;
            trimmed(&workers, most.min(each as usize), combined);
        }
        Aggregation::Krum { .. } => {
            let chosen = nearest.iter().filter_map(|&place| workers.get(place as usize));
            mean(&chosen.collect::<Vec<_>>(), combined);
        }
        // These rules are sums with factors, which `weighted_sum` computes.
        Aggregation::Mean | Aggregation::Sum => {
            mean(&workers.iter().collect::<Vec<_>>(), combined);
        }
    }
}

/// Vector of a worker for an update: one gradient, or the mean of several.
enum Vector<'a> {
    Own(&'a [f32]),
    Mean(Vec<f32>),
}

impl Vector<'_> {
    fn values(&self) -> &[f32] {
        match self {
            Self::Own(values) => values,
            Self::Mean(values) => values,
        }
    }
}

/// Returns one vector per worker, so that a worker does not gain weight by sending more gradients.
fn by_worker<'a>(gradients: impl Iterator<Item = Gradient<'a>>) -> Vec<Vector<'a>> {
    let mut found: Vec<(WorkerId, Vec<&'a [f32]>)> = Vec::new();
    for gradient in gradients {
        match found.last_mut() {
            Some((worker, values)) if *worker == gradient.worker => values.push(gradient.values),
            _ => found.push((gradient.worker, vec![gradient.values])),
        }
    }
    let vector = |(_, values): (WorkerId, Vec<&'a [f32]>)| match values[..] {
        [own] => Vector::Own(own),
        _ => {
            let mut combined = vec![0.0; values.first().map_or(0, |values| values.len())];
            let values: Vec<_> = values.into_iter().map(Vector::Own).collect();
            mean(&values.iter().collect::<Vec<_>>(), &mut combined);
            Vector::Mean(combined)
        }
    };
    found.into_iter().map(vector).collect()
}

/// Writes the mean of each coordinate without its `each` smallest and `each` largest values.
fn trimmed(workers: &[Vector<'_>], each: usize, combined: &mut [f32]) {
    let mut values = Vec::with_capacity(workers.len());
    let kept = each..workers.len().saturating_sub(each).max(each);
    for (key, combined) in combined.iter_mut().enumerate() {
        values.clear();
        values.extend(workers.iter().map(|worker| worker.values()[key]));
        values.sort_unstable_by(f32::total_cmp);
        *combined = mean_of(values[kept.clone()].iter());
    }
}

fn mean(workers: &[&Vector<'_>], combined: &mut [f32]) {
    for (key, combined) in combined.iter_mut().enumerate() {
        *combined = mean_of(workers.iter().map(|worker| &worker.values()[key]));
    }
}

/// Returns the mean of finite values; the result lies within their range.
fn mean_of<'v>(values: impl ExactSizeIterator<Item = &'v f32>) -> f32 {
    let count = values.len().max(1) as f64;
    (values.map(|&value| f64::from(value)).sum::<f64>() / count) as f32
}

/// Returns the squared distance of each pair of workers' vectors over the local keys, in the order
/// (second, first), (third, first), (third, second), and so on.
pub(super) fn distances<'a>(gradients: impl Iterator<Item = Gradient<'a>>) -> Vec<ExactSum> {
    let workers = by_worker(gradients);
    let values = || workers.iter().map(Vector::values);
    let before = |(place, one)| values().take(place).map(move |other| (one, other));
    let pairs = values().enumerate().flat_map(before);
    pairs.map(|(one, other)| ExactSum::of_squared_distance(one, other)).collect()
}

/// Returns the positions of the `chosen` workers with the best Krum score, in the order of the
/// workers, from the pairwise distances. The first worker wins a tie.
pub(super) fn nearest(distances: &[ExactSum], faulty: u32, chosen: u32) -> Vec<u32> {
    // There are `count (count - 1) / 2` pairs.
    let count = (0..).find(|count| count * (count + 1) / 2 >= distances.len()).unwrap_or(0) + 1;
    let near = count.saturating_sub(faulty as usize + 2).max(1).min(count - 1);
    // A NaN distance counts as infinitely far.
    let far = |distance: f64| if distance.is_nan() { f64::INFINITY } else { distance };
    let values: Vec<f64> = distances.iter().map(|sum| far(sum.value())).collect();
    let distance = |one: usize, other: usize| {
        let (low, high) = (one.min(other), one.max(other));
        values[high * (high - 1) / 2 + low]
    };
    let score = |place: usize| {
        let others = (0..count).filter(|&other| other != place);
        let mut others: Vec<f64> = others.map(|other| distance(place, other)).collect();
        others.sort_unstable_by(f64::total_cmp);
        others.iter().take(near).sum::<f64>()
    };
    let scores: Vec<f64> = (0..count).map(score).collect();
    let mut places: Vec<u32> = (0..count as u32).collect();
    places.sort_by(|&one, &other| scores[one as usize].total_cmp(&scores[other as usize]));
    places.truncate(chosen.max(1) as usize);
    // In the order of the workers, independent of their scores.
    places.sort_unstable();
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use pstrain_compute::id::{Clock, PartId};

    fn combined(aggregation: Aggregation, vectors: &[Vec<f32>]) -> Vec<f32> {
        let mut combined = vec![0.0; vectors[0].len()];
        let gradients = vectors.iter().zip(0..).map(|(values, worker)| gradient(worker, values));
        let nearest = match aggregation {
            Aggregation::Krum { faulty, chosen } => {
                nearest(&distances(gradients.clone()), faulty, chosen)
            }
            _ => Vec::new(),
        };
        combine(aggregation, gradients, &nearest, &mut combined);
        combined
    }

    /// The squared distance of two vectors.
    fn apart(one: &[f32], other: &[f32]) -> f64 {
        ExactSum::of_squared_distance(one, other).value()
    }

    fn gradient(worker: u32, values: &[f32]) -> Gradient<'_> {
        Gradient {
            worker: WorkerId(worker),
            part: PartId(worker),
            clock: Clock(0),
            samples: 1,
            size: 0,
            keys: None,
            staleness: 0,
            base: None,
            values,
        }
    }

    #[test]
    fn medians_and_trimmed_means_are_those_of_each_coordinate() {
        let vectors =
            [[1.0, 9.0], [5.0, 7.0], [3.0, 1e30], [2.0, -8.0], [4.0, 0.0]].map(|v| v.to_vec());
        assert_eq!(combined(Aggregation::Median, &vectors), [3.0, 7.0]);
        assert_eq!(combined(Aggregation::Median, &vectors[..4]), [2.5, 8.0]);
        let trimmed = Aggregation::Trimmed { each: 1 };
        assert_eq!(combined(trimmed, &vectors), [3.0, 16.0 / 3.0]);
        // With too few workers the rule leaves out as many as it can.
        assert_eq!(combined(Aggregation::Trimmed { each: 9 }, &vectors), [3.0, 7.0]);
    }

    #[test]
    fn krum_takes_a_gradient_from_the_crowd() {
        let vectors = [[1.0, 0.0], [1.1, 0.0], [1e30, 0.0], [0.9, 0.0], [1.0, 0.1]]
            .map(|values| values.to_vec());
        // n - f - 2 = 2 neighbours: 0.02 for the first, the smallest score.
        assert_eq!(combined(Aggregation::Krum { faulty: 1, chosen: 1 }, &vectors), [1.0, 0.0]);
        let several = combined(Aggregation::Krum { faulty: 1, chosen: 4 }, &vectors);
        assert_eq!(several, [1.0, 0.025]);
    }

    #[test]
    fn a_worker_counts_once_however_often_it_sends() {
        let [one, bad, other] = [[1.0], [1e20], [2.0]];
        let mut combined = [0.0];
        let gradients = [(0, &one), (1, &bad), (1, &bad), (1, &bad), (2, &other)];
        let gradients = gradients.map(|(worker, values)| gradient(worker, values));
        combine(Aggregation::Median, gradients.into_iter(), &[], &mut combined);
        assert_eq!(combined, [2.0]);
    }

    /// Honest vectors and fewer arbitrary ones, in any order.
    fn attacks() -> impl Strategy<Value = (Vec<Vec<f32>>, Vec<Vec<f32>>, u64)> {
        let finite = |text: f32| if text.is_finite() { text } else { f32::MAX };
        (1..6_usize, 1..6_usize).prop_flat_map(move |(faulty, keys)| {
            let honest = prop::collection::vec(-1e3_f32..1e3, keys);
            let wild = prop::collection::vec(any::<f32>().prop_map(finite), keys);
            let count = 2 * faulty + 3;
            (
                prop::collection::vec(honest, count - faulty),
                prop::collection::vec(wild, faulty),
                any::<u64>(),
            )
        })
    }

    fn mixed(honest: &[Vec<f32>], faulty: &[Vec<f32>], order: u64) -> Vec<Vec<f32>> {
        let mut all: Vec<Vec<f32>> = honest.to_vec();
        for (place, vector) in faulty.iter().enumerate() {
            let at = (order.rotate_left(place as u32 * 11) % (all.len() as u64 + 1)) as usize;
            all.insert(at, vector.clone());
        }
        all
    }

    proptest! {
        #[test]
        fn fewer_than_half_cannot_leave_the_range_of_the_honest(
            (honest, faulty, order) in attacks(),
        ) {
            let vectors = mixed(&honest, &faulty, order);
            let each = faulty.len() as u32;
            for aggregation in [Aggregation::Median, Aggregation::Trimmed { each }] {
                for (key, value) in combined(aggregation, &vectors).into_iter().enumerate() {
                    let own = honest.iter().map(|values| values[key]);
                    let (least, most) = own.fold((f32::MAX, f32::MIN), |(least, most), value| {
                        (least.min(value), most.max(value))
                    });
                    prop_assert!((least..=most).contains(&value), "{aggregation} {key}: {value}");
                }
            }
        }

        #[test]
        fn krum_is_no_further_from_the_honest_than_they_are_from_each_other(
            (honest, faulty, order) in attacks(),
        ) {
            let vectors = mixed(&honest, &faulty, order);
            let krum = Aggregation::Krum { faulty: faulty.len() as u32, chosen: 1 };
            let chosen = combined(krum, &vectors);
            prop_assert!(vectors.contains(&chosen));
            // Its score is at most the score of an honest vector, which has n - f - 2 honest
            // neighbours.
            let widest = honest.iter().flat_map(|one| {
                honest.iter().map(|other| apart(one, other))
            }).fold(0.0, f64::max);
            let near = vectors.len() - faulty.len() - 2;
            let nearest = honest.iter().map(|other| apart(&chosen, other))
                .fold(f64::MAX, f64::min);
            prop_assert!(nearest <= near as f64 * widest, "{nearest} {widest}");
        }

        #[test]
        fn the_order_of_the_workers_does_not_matter_to_the_coordinates(
            (honest, faulty, order) in attacks(),
        ) {
            let one = mixed(&honest, &faulty, order);
            let other = mixed(&honest, &faulty, !order);
            let each = faulty.len() as u32;
            for aggregation in [Aggregation::Median, Aggregation::Trimmed { each }] {
                prop_assert_eq!(combined(aggregation, &one), combined(aggregation, &other));
            }
        }
    }
}
