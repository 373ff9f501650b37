use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::rng::Stream;

/// Returns every set of `size` out of `of` workers, each in ascending order.
fn sets(of: u32, size: u32) -> Vec<Vec<WorkerId>> {
    (0_u32..1 << of)
        .filter(|mask| mask.count_ones() == size)
        .map(|mask| (0..of).filter(|bit| mask >> bit & 1 == 1).map(WorkerId).collect())
        .collect()
}

fn codes(workers: u32, tolerance: u32) -> Vec<Code> {
    let both = [Code::fractional(workers, tolerance), Code::cyclic(workers, tolerance)];
    both.into_iter().filter_map(Result::ok).collect()
}

/// Returns `sum_i a_i B_ij` for every partition `j`.
fn counted(decoder: &Decoder, present: &[WorkerId], weights: &[f64]) -> Vec<f64> {
    let mut counted = vec![0.0; decoder.code().workers() as usize];
    for (worker, weight) in present.iter().zip(weights) {
        for piece in decoder.code().pieces(*worker) {
            counted[piece.part.0 as usize] += weight * piece.coefficient;
        }
    }
    counted
}

#[test]
fn whoever_is_missing_every_partition_counts_once() {
    for workers in 1..=12 {
        for tolerance in 0..workers.min(4) {
            for code in codes(workers, tolerance) {
                let decoder = Decoder::new(code).unwrap();
                // The largest tolerated number of missing workers, and any smaller one.
                for missing in 0..=tolerance {
                    for present in sets(workers, workers - missing) {
                        let weights = decoder.weights(&present).unwrap();
                        for count in counted(&decoder, &present, &weights) {
                            assert!((count - 1.0).abs() < 1e-9, "{count} of {present:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn too_few_are_not_enough() {
    for (code, enough, short) in [
        (Code::cyclic(5, 2).unwrap(), &[0, 2, 4][..], &[1, 3][..]),
        (Code::fractional(6, 1).unwrap(), &[1, 2, 5], &[0, 1, 2, 3]),
    ] {
        let decoder = Decoder::new(code).unwrap();
        let workers = |ids: &[u32]| ids.iter().copied().map(WorkerId).collect::<Vec<_>>();
        assert!(decoder.weights(&workers(enough)).is_some());
        assert!(decoder.weights(&workers(short)).is_none());
    }
}

#[test]
fn each_worker_computes_one_partition_more_than_may_be_missing() {
    for code in [Code::cyclic(7, 2).unwrap(), Code::fractional(9, 2).unwrap()] {
        let mut replicas = vec![0; code.workers() as usize];
        for worker in (0..code.workers()).map(WorkerId) {
            let pieces = code.pieces(worker);
            assert_eq!(pieces.len(), 3);
            assert!(pieces.iter().all(|piece| piece.coefficient.abs() > 1e-3), "{pieces:?}");
            pieces.iter().for_each(|piece| replicas[piece.part.0 as usize] += 1);
        }
        assert!(replicas.iter().all(|&replicas| replicas == 3), "{replicas:?}");
    }
}

#[test]
fn nothing_missing_is_the_plain_sum() {
    for code in codes(6, 0) {
        let decoder = Decoder::new(code).unwrap();
        let everybody: Vec<WorkerId> = (0..6).map(WorkerId).collect();
        assert_eq!(decoder.weights(&everybody).unwrap(), [1.0; 6]);
        for worker in everybody {
            let piece = Piece { part: PartId(worker.0), coefficient: 1.0 };
            assert_eq!(decoder.code().pieces(worker), [piece]);
        }
    }
}

#[test]
fn digits_are_kept() {
    // The best of 200 random codes of these sizes have 190 and 2700: frequencies instead of random
    // vectors gain two digits.
    for (workers, tolerance, most) in [(10, 1, 1.01), (10, 3, 20.0), (16, 3, 60.0), (64, 2, 100.0)]
    {
        let decoder = Decoder::new(Code::cyclic(workers, tolerance).unwrap()).unwrap();
        let found = decoder.amplification();
        assert!(found <= most, "{workers} workers, {tolerance} missing: {found}");
    }
}

#[test]
fn neighbours_are_the_worst_to_miss() {
    for (workers, tolerance) in [(8, 3), (9, 3), (10, 3), (11, 2), (12, 3), (12, 2)] {
        let decoder = Decoder::new(Code::cyclic(workers, tolerance).unwrap()).unwrap();
        let mut worst: f64 = 0.0;
        for present in sets(workers, workers - tolerance) {
            let weights = decoder.weights(&present).unwrap();
            let mut sums = vec![0.0_f64; workers as usize];
            for (worker, weight) in present.iter().zip(weights) {
                for piece in decoder.code().pieces(*worker) {
                    sums[piece.part.0 as usize] += (weight * piece.coefficient).abs();
                }
            }
            worst = sums.into_iter().fold(worst, f64::max);
        }
        // The amplification at a few positions is close to the maximum over all sets.
        let found = decoder.amplification();
        assert!(found <= worst * (1.0 + 1e-9) && worst < 1.5 * found, "{found} of {worst}");
    }
}

#[test]
fn weights_of_adjacent_missing_workers_keep_their_digits() {
    for (workers, tolerance) in [(5, 2), (12, 3), (36, 2), (37, 2), (37, 3), (100, 2)] {
        let decoder = Decoder::new(Code::cyclic(workers, tolerance).unwrap()).unwrap();
        for first in 0..workers {
            let is_present = |worker: &u32| (worker + workers - first) % workers >= tolerance;
            let present: Vec<_> = (0..workers).filter(is_present).map(WorkerId).collect();
            let weights = decoder.weights(&present).unwrap();
            let mut sums = vec![0.0_f64; workers as usize];
            for (worker, weight) in present.iter().zip(weights) {
                for piece in decoder.code().pieces(*worker) {
                    sums[piece.part.0 as usize] += weight * piece.coefficient;
                }
            }
            let worst = sums.iter().map(|sum| (sum - 1.0).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-10, "{workers} workers, {tolerance} missing from {first}: {worst}");
        }
    }
}

#[test]
fn codes_that_cannot_be_are_refused_with_what_can() {
    let error = |code: Result<Code, CodeError>| code.unwrap_err().to_string();
    let groups = error(Code::fractional(10, 2));
    assert!(groups.contains("groups of 3") && groups.contains("cyclic:2"), "{groups}");
    assert!(error(Code::fractional(3, 3)).contains("choose 0 to 2"));
    assert!(error(Code::cyclic(2, 2)).contains("choose 0 to 1"));
    assert!(error(Code::cyclic(5000, 1)).contains("1024 workers at most"));
    let digits = Decoder::new(Code::cyclic(60, 12).unwrap()).unwrap_err().to_string();
    assert!(digits.contains("times as large"), "{digits}");
}

proptest! {
    #[test]
    fn the_coded_sum_is_the_plain_sum(
        workers in 2_u32..40,
        tolerance in 0_u32..4,
        seed: u64,
    ) {
        let tolerance = tolerance.min(workers - 1);
        let mut random = Stream::new(seed).rng();
        let gradients: Vec<Vec<f64>> =
            (0..workers).map(|_| (0..5).map(|_| random.unit() - 0.3).collect()).collect();
        let mut everybody: Vec<u32> = (0..workers).collect();
        random.shuffle(&mut everybody);
        let mut present: Vec<WorkerId> =
            everybody[tolerance as usize..].iter().copied().map(WorkerId).collect();
        present.sort_unstable();
        for code in codes(workers, tolerance) {
            let Ok(decoder) = Decoder::new(code) else { continue };
            let weights = decoder.weights(&present).unwrap();
            for value in 0..5 {
                let sent = |worker: &WorkerId| -> f64 {
                    let pieces = decoder.code().pieces(*worker).into_iter();
                    pieces.map(|p| p.coefficient * gradients[p.part.0 as usize][value]).sum()
                };
                let decoded: f64 = present.iter().zip(&weights).map(|(w, a)| a * sent(w)).sum();
                let plain: f64 = gradients.iter().map(|gradient| gradient[value]).sum();
                let size: f64 = gradients.iter().map(|gradient| gradient[value].abs()).sum();
                prop_assert!((decoded - plain).abs() <= 1e-6 * size, "{} {}", decoded, plain);
            }
        }
    }
}
