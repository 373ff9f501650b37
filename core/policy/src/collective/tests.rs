use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::architecture::Architecture;
use pstrain_compute::float16::Float16;
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;

fn all() -> impl Iterator<Item = Collective> {
    let one = |architecture: Architecture| match architecture.algorithm()? {
        Algorithm::One(collective) => Some(collective),
        Algorithm::BySize => None,
    };
    let defaults = Architecture::replicated().filter_map(one);
    defaults.chain([2, 3, 1000].map(|fanout| Collective::Hierarchical { fanout }))
}

/// Bytes and messages that a rank sends.
type Sent = (usize, usize);

/// Lets all ranks reduce their vectors; messages of one rank to another stay in order, and the
/// order of all others is drawn. Returns the sums of each rank, and what it sent.
fn reduce(collective: Collective, vectors: &[Vec<f32>], seed: u64) -> (Vec<Vec<f32>>, Vec<Sent>) {
    let scheme = (collective, Precision::Single);
    reduce_weighted(scheme, vectors, &vec![1.0; vectors.len()], seed)
}

/// As [`reduce`], with a factor for each vector.
fn reduce_weighted(
    (collective, precision): (Collective, Precision),
    vectors: &[Vec<f32>],
    factors: &[f32],
    seed: u64,
) -> (Vec<Vec<f32>>, Vec<Sent>) {
    let parts = vectors.iter().cloned().zip(factors.iter().copied()).map(Some).collect();
    reduce_parts((collective, precision), (vectors[0].len(), None), parts, seed)
}

/// As [`reduce_weighted`]; some ranks may have no vector of so many values. If there is a number of
/// `trained` values, ranges of these come one by one, the last first, before the rest.
fn reduce_parts(
    (collective, precision): (Collective, Precision),
    (len, trained): (usize, Option<usize>),
    mut parts: Vec<Option<(Vec<f32>, f32)>>,
    seed: u64,
) -> (Vec<Vec<f32>>, Vec<Sent>) {
    let mut rng = Stream::new(seed).rng();
    let ranks = parts.len() as u32;
    let new = |rank| {
        let reduction = Reduction::new(collective, precision, rank, ranks, len);
        match trained {
            Some(trained) => reduction.by_layers(trained),
            None => reduction,
        }
    };
    let mut ends = vec![trained.unwrap_or_default(); parts.len()];
    let mut reductions: Vec<Reduction> = (0..ranks).map(new).collect();
    let mut links: BTreeMap<(Rank, Rank), VecDeque<Outgoing>> = BTreeMap::new();
    let mut sent = vec![(0, 0); parts.len()];
    let mut begun: Vec<Rank> = Vec::new();
    let mut post = |from: Rank, out: Vec<Outgoing>, links: &mut BTreeMap<_, VecDeque<_>>| {
        for outgoing in out {
            let (bytes, messages) = &mut sent[from as usize];
            *bytes += outgoing.content.bytes() as usize;
            *messages += 1;
            links.entry((from, outgoing.to)).or_default().push_back(outgoing);
        }
    };
    loop {
        let waiting: Vec<Rank> = (0..ranks).filter(|rank| !begun.contains(rank)).collect();
        let full: Vec<(Rank, Rank)> =
            links.iter().filter(|(_, queue)| !queue.is_empty()).map(|(link, _)| *link).collect();
        let choices = waiting.len() + full.len();
        if choices == 0 {
            break;
        }
        let choice = rng.below(choices as u64) as usize;
        let mut out = Vec::new();
        if let Some(&rank) = waiting.get(choice) {
            let reduction = &mut reductions[rank as usize];
            let (end, part) = (&mut ends[rank as usize], &parts[rank as usize]);
            if let Some((own, factor)) = part
                && rng.below(4) > 0
                && let begin = rng.below(*end as u64 + 1)
                && let Ok(keys) = KeyRange::new(begin, *end as u64)
            {
                reduction.give(keys, &own[keys.indices()], (*factor, len), &mut out);
                *end = begin as usize;
                post(rank, out, &mut links);
                continue;
            }
            begun.push(rank);
            match parts[rank as usize].take() {
                Some((own, factor)) => reduction.begin(own, factor, &mut out),
                None => reduction.begin_without(len, &mut out),
            }
            post(rank, out, &mut links);
        } else {
            let (from, to) = full[choice - waiting.len()];
            let Outgoing { piece, content, .. } =
                links.get_mut(&(from, to)).unwrap().pop_front().unwrap();
            reductions[to as usize].receive(from, piece, plain(content), &mut out).unwrap();
            post(to, out, &mut links);
        }
    }
    assert!(reductions.iter().all(Reduction::is_done), "{collective:?} with {ranks} ranks");
    (reductions.into_iter().map(|reduction| reduction.into_parts().0).collect(), sent)
}

#[test]
fn ranges_that_come_as_layers_are_computed_end_at_the_bits_of_whole_vectors() {
    for collective in all() {
        for (seed, ranks) in (0..).zip([1, 2, 3, 4, 5, 7]) {
            let len = 70_000 + 9_000 * ranks as usize;
            let parts: Vec<_> =
                vectors(ranks, len, seed).into_iter().map(|it| Some((it, 0.3))).collect();
            let scheme = (collective, Precision::Single);
            let (wanted, sent) = reduce_parts(scheme, (len, None), parts.clone(), seed);
            let (found, also) = reduce_parts(scheme, (len, Some(len - 5_000)), parts, seed + 1);
            assert_eq!(sent, also, "{collective:?}, {ranks} ranks");
            for (wanted, found) in wanted.iter().zip(&found) {
                assert_eq!(bits(wanted), bits(found), "{collective:?}, {ranks} ranks");
            }
        }
    }
}

fn plain(content: Content) -> Arc<Vec<f32>> {
    match content {
        Content::Values(values) => values,
        Content::Encoded(..) => unreachable!("a reduction encodes nothing"),
    }
}

fn vectors(ranks: u32, len: usize, seed: u64) -> Vec<Vec<f32>> {
    let one = |rank: u32| {
        let mut rng = Stream::new(seed).fork("vector", rank.into()).rng();
        (0..len).map(|_| (rng.unit() as f32 - 0.5) * 8.0).collect()
    };
    (0..ranks).map(one).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The sum of all vectors, in the order of the ranks.
fn in_order(vectors: &[Vec<f32>]) -> Vec<f32> {
    let mut sum = vectors[0].clone();
    vectors[1..].iter().for_each(|vector| reduction::add(&mut sum, vector));
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_sum_without_some_ranks_is_the_sum_of_the_others_at_all_ranks(
        absent in proptest::collection::vec(any::<bool>(), 1..18), len in 1_usize..70, seed: u64,
        sixteen: bool,
    ) {
        let ranks = absent.len() as u32;
        let precision = match sixteen {
            true => Precision::Sixteen(Float16::Half),
            false => Precision::Single,
        };
        let vectors = vectors(ranks, len, seed);
        let parts = || vectors.iter().cloned().zip(&absent);
        let present: Vec<Vec<f32>> =
            parts().filter(|(_, is_absent)| !**is_absent).map(|(vector, _)| vector).collect();
        let wanted = match present.is_empty() {
            true => vec![0.0; len],
            false => in_order(&present),
        };
        for collective in all() {
            let parts = parts().map(|(vector, is_absent)| (!is_absent).then_some((vector, 1.0)));
            let (sums, sent) = reduce_parts((collective, precision), (len, None), parts.collect(), seed);
            for sum in &sums {
                prop_assert_eq!(bits(sum), bits(&sums[0]));
            }
            let slack = if sixteen { 0.02 } else { 1e-5 } * ranks as f32;
            for (sum, wanted) in sums[0].iter().zip(&wanted) {
                prop_assert!((sum - wanted).abs() <= slack, "{:?}", collective);
            }
            // Nothing is sent in place of what is not there.
            if present.is_empty() {
                prop_assert!(sent.iter().all(|(bytes, _)| *bytes == 0), "{:?}", collective);
            }
        }
    }

    #[test]
    fn all_ranks_end_with_the_same_bits_whatever_the_order_of_messages(
        ranks in 1_u32..18, len in 1_usize..70, seed: u64,
    ) {
        let vectors = vectors(ranks, len, seed);
        let wanted = in_order(&vectors);
        for collective in all() {
            let (sums, _) = reduce(collective, &vectors, seed);
            for sum in &sums {
                prop_assert_eq!(bits(sum), bits(&sums[0]));
            }
            for (sum, wanted) in sums[0].iter().zip(&wanted) {
                prop_assert!((sum - wanted).abs() <= 1e-5 * ranks as f32, "{:?}", collective);
            }
        }
        for collective in [Collective::AllToAll, Collective::AllGather] {
            let (sums, _) = reduce(collective, &vectors, seed);
            prop_assert_eq!(bits(&sums[0]), bits(&wanted));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_of_16_bits_take_half_the_bytes_and_all_ranks_have_the_same_sum(
        ranks in 1_u32..18, len in 1_usize..70, seed: u64,
    ) {
        let vectors = vectors(ranks, len, seed);
        let (wanted, factors) = (in_order(&vectors), vec![1.0; vectors.len()]);
        for (format, error) in [(Float16::Half, 11), (Float16::Brain, 8)] {
            let precision = Precision::Sixteen(format);
            for collective in all() {
                let scheme = (collective, precision);
                let (sums, sent) = reduce_weighted(scheme, &vectors, &factors, seed);
                let single = reduce(collective, &vectors, seed).1;
                for (rank, sum) in sums.iter().enumerate() {
                    prop_assert_eq!(bits(sum), bits(&sums[0]), "{:?}", collective);
                    // A piece with an odd number of values has one half to spare.
                    let ((bytes, messages), (all, same)) = (sent[rank], single[rank]);
                    prop_assert_eq!(messages, same);
                    prop_assert!((all / 2..=all / 2 + 2 * messages).contains(&bytes));
                }
                // A partial sum is at most 4 a rank, and each is rounded once more.
                let roundings = f32::from(ranks as u16 + 1) * 4.0 * f32::from(ranks as u16);
                let bound = roundings / 2_f32.powi(error);
                for (sum, wanted) in sums[0].iter().zip(&wanted) {
                    prop_assert!(ranks == 1 || (sum - wanted).abs() <= bound, "{:?}", collective);
                }
            }
        }
    }
}

#[test]
fn a_single_rank_rounds_nothing() {
    let scheme = (Collective::Ring, Precision::Sixteen(Float16::Half));
    let (sums, _) = reduce_weighted(scheme, &[vec![1.000_1]], &[1.0], 1);
    assert_eq!(sums, [[1.000_1]]);
}

#[test]
fn sums_of_vectors_of_all_lengths_are_the_same_at_all_ranks() {
    for ranks in 1..=9 {
        for len in [1, 7, 64, 65, 100_000] {
            let vectors = vectors(ranks, len, u64::from(ranks));
            for collective in all() {
                let (sums, _) = reduce(collective, &vectors, 1);
                assert!(sums.iter().all(|sum| bits(sum) == bits(&sums[0])));
            }
        }
    }
}

/// A slow link would otherwise collect a large gradient in the memory of its sender, whose
/// transport gives the connection up.
#[test]
fn a_rank_begins_a_bounded_number_of_values_and_goes_on_as_sums_come() {
    let most = reduction::most_begun(2);
    for collective in all() {
        let len = 4 * most;
        let mut ends =
            [0, 1].map(|rank| Reduction::new(collective, Precision::Single, rank, 2, len));
        let mut links: [VecDeque<Outgoing>; 2] = Default::default();
        for (rank, end) in ends.iter_mut().enumerate() {
            let mut out = Vec::new();
            end.begin(vec![1.0; len], 0.5, &mut out);
            let begun: usize =
                out.iter().map(|outgoing| outgoing.content.bytes() as usize / 4).sum();
            assert!(begun <= most, "{collective:?}: {begun} values at rank {rank}");
            links[rank].extend(out);
        }
        while links.iter().any(|link| !link.is_empty()) {
            for from in [0, 1] {
                let Some(Outgoing { piece, content, .. }) = links[from].pop_front() else {
                    continue;
                };
                let (mut out, to) = (Vec::new(), 1 - from);
                ends[to].receive(from as Rank, piece, plain(content), &mut out).unwrap();
                links[to].extend(out);
                let waiting: usize =
                    links[to].iter().map(|outgoing| outgoing.content.bytes() as usize / 4).sum();
                assert!(waiting <= 2 * most, "{collective:?}: {waiting} values wait");
                assert!(ends[to].excess().all(|spare| spare.capacity() > 0));
            }
        }
        for end in ends {
            assert!(end.is_done());
            assert!(end.into_parts().0.iter().all(|sum| *sum == 1.0), "{collective:?}");
        }
    }
}

#[test]
fn values_with_a_factor_have_the_bits_of_values_that_were_multiplied_before() {
    for ranks in 1..=5 {
        let factors: Vec<f32> = (0..ranks).map(|rank| 0.1 + rank as f32 / 7.0).collect();
        let vectors = vectors(ranks, 1000, 7);
        let multiplied: Vec<Vec<f32>> = vectors
            .iter()
            .zip(&factors)
            .map(|(vector, factor)| vector.iter().map(|value| value * factor).collect())
            .collect();
        for collective in all() {
            let (sums, _) = reduce_weighted((collective, Precision::Single), &vectors, &factors, 3);
            let (wanted, _) = reduce(collective, &multiplied, 3);
            assert_eq!(bits(&sums[0]), bits(&wanted[0]), "{collective:?} with {ranks} ranks");
        }
    }
}

#[test]
fn a_rank_sends_as_many_bytes_as_the_closed_form_says() {
    let len = 64 * 3 * 5 * 7;
    for ranks in 2..=9 {
        let vectors = vectors(ranks, len, 3);
        let share = 4 * 2 * (ranks as usize - 1) * len / ranks as usize;
        for collective in [Collective::Ring, Collective::AllToAll] {
            let (_, sent) = reduce(collective, &vectors, 2);
            // Chunks differ by one value at most, and a chunk is sent twice.
            assert!(sent.iter().all(|(bytes, _)| bytes.abs_diff(share) <= 8 * ranks as usize));
        }
        let (_, sent) = reduce(Collective::AllGather, &vectors, 2);
        let all = 4 * (ranks as usize - 1) * len;
        assert!(sent.iter().all(|(bytes, _)| *bytes == all), "{sent:?}, not {all}");
        if ranks.is_power_of_two() {
            let (_, sent) = reduce(Collective::HalvingDoubling, &vectors, 2);
            assert!(sent.iter().all(|(bytes, _)| *bytes == share), "{sent:?}, not {share}");
            let (_, sent) = reduce(Collective::Butterfly, &vectors, 2);
            let whole = 4 * ranks.ilog2() as usize * len;
            assert!(sent.iter().all(|(bytes, _)| *bytes == whole), "{sent:?}, not {whole}");
        }
    }
}

#[test]
fn the_neighbors_of_neighbors_are_mutual() {
    for collective in all() {
        for ranks in 1..=17 {
            for rank in 0..ranks {
                for other in collective.neighbors(rank, ranks) {
                    assert_ne!(rank, other);
                    assert!(collective.neighbors(other, ranks).contains(&rank));
                }
            }
        }
    }
}

#[test]
fn values_that_do_not_belong_to_the_reduction_are_refused() {
    let mut reduction = Reduction::new(Collective::Ring, Precision::Single, 0, 3, 30);
    let mut receive = |from, piece, len| {
        reduction.receive(from, piece, Arc::new(vec![0.0; len]), &mut Vec::new())
    };
    assert_eq!(receive(2, 3, 10), Err(ReductionError::Piece { piece: 3, pieces: 3 }));
    let wrong = ReductionError::Length { piece: 0, wanted: 10, given: 9 };
    assert_eq!(receive(2, 0, 9), Err(wrong));
    assert_eq!(receive(1, 0, 10), Err(ReductionError::Unexpected { piece: 0 }));
    assert_eq!(receive(2, 0, 10), Ok(()));
    assert_eq!(receive(2, 0, 10), Err(ReductionError::Unexpected { piece: 0 }));
    assert_eq!(receive(2, 2, 10), Ok(()));
    assert_eq!(receive(2, 2, 10), Ok(()), "chunk 2 passes rank 0 twice");
}

#[test]
fn the_first_rank_of_a_site_is_the_only_one_that_other_sites_know() {
    let tree = Collective::Hierarchical { fanout: 4 };
    let neighbors = |rank| tree.neighbors(rank, 22);
    assert_eq!(neighbors(0), [1, 2, 3, 4, 8, 12, 16]);
    assert_eq!(neighbors(4), [0, 5, 6, 7]);
    assert_eq!(neighbors(15), [12]);
    assert_eq!(neighbors(16), [0, 17, 18, 19, 20]);
    assert_eq!(neighbors(20), [16, 21]);
}
