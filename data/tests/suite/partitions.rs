//! Partitions assign every training row to exactly one worker; impossible ones return an error.

use proptest::prelude::*;
use pstrain_compute::rng::Stream;
use pstrain_data::partition::{PartitionError, PartitionSpec, assign};

/// Random class labels, with about the class shares of the reference task.
fn labels(rows: usize) -> Vec<u16> {
    let mut rng = Stream::new(9).rng();
    let class = |draw| match draw {
        0..535 => 0,
        535..900 => 1,
        900..990 => 2,
        990..998 => 3,
        _ => 4,
    };
    (0..rows).map(|_| class(rng.below(1000))).collect()
}

fn sizes(owners: &[u32], workers: u32) -> Vec<usize> {
    let mut sizes = vec![0; workers as usize];
    for &owner in owners {
        sizes[owner as usize] += 1;
    }
    sizes
}

fn any_spec(workers: u32) -> impl Strategy<Value = PartitionSpec> {
    prop_oneof![
        Just(PartitionSpec::Iid),
        Just(PartitionSpec::PaperNonIid),
        Just(PartitionSpec::ByClass),
        (0.01..100.0).prop_map(|alpha| PartitionSpec::Dirichlet { alpha }),
        (0.0..=1.0).prop_map(|q| PartitionSpec::Mix { q }),
        prop::collection::vec(0.1..10.0, workers as usize).prop_map(PartitionSpec::Sizes),
    ]
}

proptest! {
    #[test]
    fn every_row_has_one_worker_and_the_seed_determines_it(
        (workers, spec) in (1_u32..9).prop_flat_map(|workers| (Just(workers), any_spec(workers))),
        rows in 1_usize..2000,
        seed: u64,
    ) {
        let labels = labels(rows);
        let stream = Stream::new(seed);
        match assign(&spec, (&labels, 5), workers, 1, stream) {
            Ok(owners) => {
                prop_assert_eq!(owners.len(), rows);
                prop_assert!(owners.iter().all(|&owner| owner < workers));
                prop_assert!(sizes(&owners, workers).iter().all(|&size| size > 0));
                prop_assert_eq!(assign(&spec, (&labels, 5), workers, 1, stream), Ok(owners));
            }
            // Too few rows for every worker are an error, not an empty partition.
            Err(error) => prop_assert!(
                !matches!(error, PartitionError::Parameter { .. } | PartitionError::Sizes { .. }),
                "{error}"
            ),
        }
    }

    #[test]
    fn equal_parts_differ_by_at_most_one_row(workers in 1_u32..20, rows in 20_usize..3000, seed: u64) {
        let (labels, stream) = (labels(rows), Stream::new(seed));
        let owners = assign(&PartitionSpec::Iid, (&labels, 5), workers, 1, stream).unwrap();
        let sizes = sizes(&owners, workers);
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
    }

    #[test]
    fn sizes_follow_their_weights(weights in prop::collection::vec(1.0_f64..20.0, 1..8), seed: u64) {
        let rows = 1000;
        let workers = weights.len() as u32;
        let spec = PartitionSpec::Sizes(weights.clone());
        let owners = assign(&spec, (&labels(rows), 5), workers, 1, Stream::new(seed)).unwrap();
        let total: f64 = weights.iter().sum();
        for (size, weight) in sizes(&owners, workers).iter().zip(&weights) {
            prop_assert!((*size as f64 - rows as f64 * weight / total).abs() <= 1.0);
        }
    }

    #[test]
    fn each_half_of_the_papers_split_holds_its_own_classes_only(workers in 2_u32..9, seed: u64) {
        let labels = labels(3000);
        let (split, stream) = (PartitionSpec::PaperNonIid, Stream::new(seed));
        let owners = assign(&split, (&labels, 5), workers, 1, stream).unwrap();
        let mut normal = [0_i32; 2];
        for (&class, &owner) in labels.iter().zip(&owners) {
            let side = (owner % 2) as usize;
            match class {
                0 => normal[side] += 1,
                1 | 3 => prop_assert_eq!(side, 0),
                _ => prop_assert_eq!(side, 1),
            }
        }
        prop_assert!((normal[0] - normal[1]).abs() <= 1);
        let sizes = sizes(&owners, workers);
        for side in 0..2 {
            let members = || sizes.iter().skip(side).step_by(2);
            prop_assert!(members().max().unwrap() - members().min().unwrap() <= 1);
        }
    }

    #[test]
    fn a_mix_with_q_1_equals_the_papers_split(workers in 1_u32..6, seed: u64) {
        let labels = labels(500);
        let stream = Stream::new(seed);
        let mixed = assign(&PartitionSpec::Mix { q: 1.0 }, (&labels, 5), workers, 1, stream);
        let split = PartitionSpec::PaperNonIid;
        prop_assert_eq!(mixed, assign(&split, (&labels, 5), workers, 1, stream));
    }
}

#[test]
fn by_class_assigns_classes_round_robin_and_shares_them_among_many_workers() {
    let labels = labels(5000);
    for (workers, owner_of) in [(1, [0; 5]), (2, [0, 1, 0, 1, 0]), (5, [0, 1, 2, 3, 4])] {
        let owners =
            assign(&PartitionSpec::ByClass, (&labels, 5), workers, 1, Stream::new(1)).unwrap();
        for (&class, owner) in labels.iter().zip(owners) {
            assert_eq!(owner, owner_of[usize::from(class)]);
        }
    }
    let owners = assign(&PartitionSpec::ByClass, (&labels, 5), 7, 1, Stream::new(1)).unwrap();
    let sizes = sizes(&owners, 7);
    assert!(labels.iter().zip(&owners).all(|(&class, owner)| u32::from(class) == owner % 5));
    assert!(sizes[0].abs_diff(sizes[5]) <= 1 && sizes[1].abs_diff(sizes[6]) <= 1, "{sizes:?}");
}

#[test]
fn a_mix_agrees_with_the_papers_split_on_the_expected_share_of_rows() {
    let labels = labels(20_000);
    let of = |spec| assign(&spec, (&labels, 5), 2, 1, Stream::new(4)).unwrap();
    let paper = of(PartitionSpec::PaperNonIid);
    for (q, expected) in [(0.0, 0.5), (0.5, 0.75), (0.9, 0.95)] {
        let mixed = of(PartitionSpec::Mix { q });
        let same = mixed.iter().zip(&paper).filter(|(a, b)| a == b).count() as f64 / 20_000.0;
        assert!((same - expected).abs() < 0.015, "q {q}: {same}");
    }
}

#[test]
fn a_dirichlet_draw_gives_every_worker_the_minimum_or_fails() {
    let labels = labels(4000);
    let spec = PartitionSpec::Dirichlet { alpha: 0.1 };
    let owners = assign(&spec, (&labels, 5), 4, 300, Stream::new(2)).unwrap();
    assert!(sizes(&owners, 4).iter().all(|&size| size >= 300));
    // The minimum is capped at half of an even share.
    let spec = PartitionSpec::Dirichlet { alpha: 0.5 };
    let few = assign(&spec, (&labels[..100], 5), 4, 64, Stream::new(2)).unwrap();
    assert!(sizes(&few, 4).iter().all(|&size| size >= 12));
    let refused =
        assign(&PartitionSpec::Dirichlet { alpha: 0.01 }, (&labels, 5), 8, 400, Stream::new(2));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "partition dirichlet:0.01: none of 1000 draws gave each of 8 workers at least 250 rows \
         (a mini-batch, or half of an even share); use a larger alpha, fewer workers or a \
         smaller batch-size"
    );
}

#[test]
fn impossible_partitions_are_refused_with_the_reason() {
    let told = |spec: &str, rows, workers| {
        let spec: PartitionSpec = spec.parse().unwrap();
        assign(&spec, (&labels(rows), 5), workers, 1, Stream::new(1)).unwrap_err().to_string()
    };
    assert_eq!(
        told("sizes:1,2", 100, 3),
        "partition sizes: 2 sizes for 3 workers; give one size per worker"
    );
    for workers in [0, 101] {
        assert_eq!(
            told("iid", 100, workers),
            format!(
                "{workers} workers for 100 training rows; at least one worker, and one row for \
                 each, is needed"
            )
        );
    }
    assert_eq!(
        told("sizes:1000,1", 100, 2),
        "partition sizes:1000,1 leaves worker 2 of 2 without rows; use fewer workers or another \
         partition"
    );
    let broken = PartitionSpec::Dirichlet { alpha: f64::NAN };
    assert!(matches!(
        assign(&broken, (&labels(100), 5), 2, 1, Stream::new(1)),
        Err(PartitionError::Parameter { .. })
    ));
}
