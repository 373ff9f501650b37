use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nalgebra::{DMatrix, SymmetricEigen};
use proptest::prelude::*;

use super::*;
use crate::collective::{Outgoing, Rank};
use pstrain_compute::rng::Stream;

/// The values of a piece of a short vector.
const PIECE: usize = 16 * 1024;
const SEED: Stream = Stream::new(7);

fn graphs() -> impl Iterator<Item = Graph> {
    let named = [Graph::Ring, Graph::Torus, Graph::Complete, Graph::Exponential];
    named.into_iter().chain((2..6).map(|degree| Graph::Regular { degree }))
}

/// The neighbors of a rank.
fn neighbors(graph: Graph, rank: Rank, ranks: u32) -> Vec<Rank> {
    let weights = graph.weights(rank, ranks, SEED).into_iter();
    weights.map(|(other, _)| other).filter(|other| *other != rank).collect()
}

fn mixing(graph: Graph, rank: Rank, ranks: u32, len: usize) -> Mixing {
    Mixing::new(rank, graph.weights(rank, ranks, SEED).into(), len)
}

fn matrix(graph: Graph, ranks: u32) -> DMatrix<f64> {
    let mut matrix = DMatrix::zeros(ranks as usize, ranks as usize);
    for rank in 0..ranks {
        for (other, weight) in graph.weights(rank, ranks, SEED) {
            matrix[(rank as usize, other as usize)] = weight;
        }
    }
    matrix
}

#[test]
fn averaging_keeps_the_mean_and_brings_models_together_on_every_graph() {
    for graph in graphs() {
        for ranks in 1..=33 {
            let matrix = matrix(graph, ranks);
            assert!((&matrix - matrix.transpose()).amax() < 1e-15, "{graph} of {ranks}");
            for sum in matrix.row_sum().iter() {
                assert!((sum - 1.0).abs() < 1e-12, "{graph} of {ranks}: {sum}");
            }
            let mut eigenvalues: Vec<f64> =
                SymmetricEigen::new(matrix).eigenvalues.iter().map(|it| it.abs()).collect();
            eigenvalues.sort_unstable_by(|one, other| other.total_cmp(one));
            // The graph is connected, and no round only exchanges two halves.
            let second = eigenvalues.get(1).copied().unwrap_or_default();
            assert!(second < 1.0 - 1e-4, "{graph} of {ranks}: {second}");
        }
    }
}

#[test]
fn graphs_have_their_degrees() {
    let degrees = |graph: Graph, ranks: u32| {
        let degree = |rank| neighbors(graph, rank, ranks).len();
        let degrees: Vec<usize> = (0..ranks).map(degree).collect();
        (degrees.iter().min().copied().unwrap(), degrees.iter().max().copied().unwrap())
    };
    assert_eq!(degrees(Graph::Ring, 1), (0, 0));
    assert_eq!(degrees(Graph::Ring, 2), (1, 1));
    assert_eq!(degrees(Graph::Ring, 9), (2, 2));
    assert_eq!(degrees(Graph::Torus, 16), (4, 4));
    assert_eq!(degrees(Graph::Torus, 12), (4, 4), "three rows of four");
    assert_eq!(degrees(Graph::Torus, 7), (2, 2), "a ring");
    assert_eq!(degrees(Graph::Complete, 5), (4, 4));
    assert_eq!(degrees(Graph::Exponential, 16), (7, 7), "1, 2 and 4 both ways, and 8");
    for ranks in 8..40 {
        for degree in 2..7 {
            let odd = ranks % 2 * degree % 2;
            let (least, most) = degrees(Graph::Regular { degree }, ranks);
            assert_eq!((least, most), (degree as usize, (degree + odd) as usize), "{ranks}");
        }
    }
}

#[test]
fn a_random_graph_depends_on_the_seed() {
    let graph = Graph::Regular { degree: 3 };
    assert_eq!(graph.edges(20, SEED), graph.edges(20, SEED));
    assert_ne!(graph.edges(20, SEED), graph.edges(20, Stream::new(8)));
}

/// Lets all ranks average their vectors, with messages in a random order.
fn mix(graph: Graph, vectors: &[Vec<f32>], order: u64) -> Vec<Vec<f32>> {
    let mut random = Stream::new(order).rng();
    let (ranks, len) = (vectors.len() as u32, vectors[0].len());
    let mut rounds: Vec<Mixing> = (0..ranks).map(|rank| mixing(graph, rank, ranks, len)).collect();
    let mut begun: Vec<Rank> = (0..ranks).collect();
    random.shuffle(&mut begun);
    let mut messages: Vec<(Rank, Outgoing)> = Vec::new();
    let mut sent: BTreeMap<(Rank, Rank), usize> = BTreeMap::new();
    while !(begun.is_empty() && messages.is_empty()) {
        let choice = random.below((begun.len() + messages.len()) as u64) as usize;
        if choice < begun.len() {
            let rank = begun.swap_remove(choice);
            let mut out = Vec::new();
            rounds[rank as usize].begin(&vectors[rank as usize], &mut out);
            for outgoing in out {
                *sent.entry((rank, outgoing.to)).or_default() += outgoing.values.len();
                messages.push((rank, outgoing));
            }
        } else {
            let (from, Outgoing { to, piece, values }) = messages.swap_remove(choice - begun.len());
            rounds[to as usize].receive(from, piece, values).unwrap();
        }
    }
    for (one, other) in graph.edges(ranks, SEED) {
        assert_eq!((sent[&(one, other)], sent[&(other, one)]), (len, len));
    }
    rounds.into_iter().map(Mixing::into_values).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_round_is_the_product_with_the_weights_in_any_order_of_messages(
        graph in prop::sample::select(graphs().collect::<Vec<_>>()),
        ranks in 1_u32..10,
        len in prop::sample::select(vec![1_usize, 7, 65, PIECE, PIECE + 1]),
        seed: u64,
    ) {
        let vector = |rank: u32| -> Vec<f32> {
            let mut random = Stream::new(seed).fork("vector", rank.into()).rng();
            (0..len).map(|_| random.unit() as f32 * 8.0 - 4.0).collect()
        };
        let vectors: Vec<Vec<f32>> = (0..ranks).map(vector).collect();
        let mixed = mix(graph, &vectors, seed);
        prop_assert_eq!(&mixed, &mix(graph, &vectors, seed.wrapping_add(1)));
        let matrix = matrix(graph, ranks);
        for value in [0, len / 2, len - 1] {
            let column = |of: &[Vec<f32>]| {
                nalgebra::DVector::from_iterator(of.len(), of.iter().map(|it| f64::from(it[value])))
            };
            let (before, after) = (column(&vectors), column(&mixed));
            prop_assert!((&matrix * &before - &after).amax() < 1e-6);
            // Rounding to f32 is all that moves the mean.
            prop_assert!((before.mean() - after.mean()).abs() < 4.0 * f64::from(f32::EPSILON));
        }
    }
}

#[test]
fn values_that_do_not_belong_to_a_round_are_refused() {
    use crate::collective::ReductionError;
    use alloc::sync::Arc;

    let mut round = mixing(Graph::Ring, 0, 5, 3);
    let values = || Arc::new(vec![1.0, 2.0, 3.0]);
    assert_eq!(round.receive(1, 0, values()), Ok(()));
    let again = ReductionError::Unexpected { piece: 0 };
    assert_eq!(round.receive(1, 0, values()), Err(again), "twice");
    assert_eq!(round.receive(2, 0, values()), Err(again), "no neighbor");
    assert_eq!(round.receive(4, 1, values()), Err(ReductionError::Piece { piece: 1, pieces: 1 }));
    let short = ReductionError::Length { piece: 0, wanted: 3, given: 1 };
    assert_eq!(round.receive(4, 0, Arc::new(vec![1.0])), Err(short));
    assert!(!round.is_done());
}
