use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use nalgebra::{DMatrix, SymmetricEigen};
use proptest::prelude::*;

use super::*;
use crate::collective::{Content, Outgoing, Rank, ReductionError};
use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::{Random, Stream};

/// The values of a piece of a short vector.
const PIECE: usize = 16 * 1024;
const SEED: Stream = Stream::new(7);

fn graphs() -> impl Iterator<Item = Graph> {
    let named = [Graph::Ring, Graph::Torus, Graph::Complete, Graph::Exponential, Graph::File];
    named.into_iter().chain((2..6).map(|degree| Graph::Regular { degree }))
}

/// All of so many workers, in the order of their ranks.
fn all(ranks: u32) -> Vec<WorkerId> {
    (0..ranks).map(WorkerId).collect()
}

/// The edges of a file: a random tree of the workers, and some more.
fn listed(workers: u32) -> Vec<WorkerEdge> {
    let mut random = SEED.fork("edges of a file", workers.into()).rng();
    let mut below = |most: u32| WorkerId(random.below(most.into()) as u32);
    let tree = (1..workers).map(|worker| (WorkerId(worker), below(worker))).collect::<Vec<_>>();
    let more = (0..workers / 2).map(|_| (below(workers), below(workers)));
    tree.into_iter().chain(more.filter(|(one, other)| one != other)).collect()
}

fn graph_of(graph: Graph, workers: u32) -> JobGraph {
    let listed = if graph == Graph::File { listed(workers) } else { Vec::new() };
    JobGraph::check(graph, &listed, workers).unwrap();
    JobGraph::new(graph, SEED, &listed)
}

fn weights(graph: Graph, rank: Rank, ranks: u32) -> Vec<(Rank, f64)> {
    graph_of(graph, ranks).weights(rank, &all(ranks))
}

/// The neighbors of a rank.
fn neighbors(graph: Graph, rank: Rank, ranks: u32) -> Vec<Rank> {
    let weights = weights(graph, rank, ranks).into_iter();
    weights.map(|(other, _)| other).filter(|other| *other != rank).collect()
}

fn mixing(graph: Graph, rank: Rank, ranks: u32, len: usize) -> Mixing {
    Mixing::new(rank, weights(graph, rank, ranks).into(), len)
}

fn matrix(graph: Graph, ranks: u32) -> DMatrix<f64> {
    let mut matrix = DMatrix::zeros(ranks as usize, ranks as usize);
    for rank in 0..ranks {
        for (other, weight) in weights(graph, rank, ranks) {
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
    let edges = |seed| JobGraph::new(graph, Stream::new(seed), &[]).edges(&all(20));
    assert_eq!(edges(7), edges(7));
    assert_ne!(edges(7), edges(8));
}

#[test]
fn a_group_has_the_listed_edges_of_its_members_and_stays_connected() {
    // A star around worker 3, and a tail of 5 and 6.
    let edge = |one, other| (WorkerId(one), WorkerId(other));
    let listed =
        [edge(3, 0), edge(1, 3), edge(3, 2), edge(4, 3), edge(3, 1), edge(4, 5), edge(6, 5)];
    let graph = JobGraph::new(Graph::File, SEED, &listed);
    let group = |members: &[u32]| members.iter().copied().map(WorkerId).collect::<Vec<_>>();
    let whole = [(0, 3), (1, 3), (2, 3), (3, 4), (4, 5), (5, 6)];
    assert_eq!(graph.edges(&all(7)), whole);
    assert_eq!(graph.bridges(&all(7)), []);
    // Ranks are places: without worker 2, worker 3 is rank 2.
    let members = group(&[0, 1, 3, 4, 5, 6]);
    assert_eq!(graph.edges(&members), [(0, 2), (1, 2), (2, 3), (3, 4), (4, 5)]);
    assert_eq!(graph.bridges(&members), []);
    // Without the center 0, 1, 2 and the tail are parts.
    let members = group(&[0, 1, 2, 4, 5, 6]);
    assert_eq!(graph.bridges(&members), [edge(0, 1), edge(0, 2), edge(0, 4)]);
    assert_eq!(graph.edges(&members), [(0, 1), (0, 2), (0, 3), (3, 4), (4, 5)]);
    assert_eq!(graph.edges(&group(&[5])), []);
    // Every group of a random graph is connected.
    let graph = graph_of(Graph::File, 12);
    for set in 1_u32..1 << 12 {
        let members: Vec<WorkerId> =
            all(12).into_iter().filter(|it| set >> it.0 & 1 == 1).collect();
        let edges = graph.edges(&members);
        let (mut found, mut next) = (BTreeSet::from([0]), Vec::from([0]));
        while let Some(rank) = next.pop() {
            let ends = edges.iter().filter(|it| it.0 == rank || it.1 == rank);
            let ends = ends.map(|(one, other)| if *one == rank { *other } else { *one });
            next.extend(ends.filter(|other| found.insert(*other)));
        }
        assert_eq!(found.len(), members.len(), "{members:?}: {edges:?}");
    }
}

#[test]
fn edges_that_are_no_graph_of_the_workers_are_refused() {
    let edge = |one: u32, other: u32| (WorkerId(one - 1), WorkerId(other - 1));
    let refused = |listed: &[WorkerEdge], workers| {
        JobGraph::check(Graph::File, listed, workers).map_err(|error| error.to_string())
    };
    assert_eq!(refused(&[], 1), Ok(()));
    assert_eq!(refused(&[edge(1, 2), edge(2, 1), edge(3, 2)], 3), Ok(()));
    for (listed, workers, told) in [
        (&[edge(1, 2), edge(2, 2)][..], 2, "the edge 2 2 joins a worker to itself"),
        (&[edge(1, 2), edge(2, 3)], 2, "its workers are numbered 1 to 2; leave it out"),
        (&[edge(1, 2), edge(4, 3)], 4, "no way leads from worker 1 to worker 3"),
        (&[edge(1, 2)], 3, "no way leads from worker 1 to worker 3"),
        (&[], 2, "no way leads from worker 1 to worker 2"),
    ] {
        let error = refused(listed, workers).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    let many = vec![edge(1, 2); MOST_EDGES + 1];
    assert_eq!(JobGraph::check(Graph::File, &many, 2), Err(EdgeError::TooMany(MOST_EDGES + 1)));
    assert_eq!(JobGraph::check(Graph::Ring, &[edge(1, 2)], 2), Err(EdgeError::Unwanted));
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
                *sent.entry((rank, outgoing.to)).or_default() +=
                    outgoing.content.bytes() as usize / 4;
                messages.push((rank, outgoing));
            }
        } else {
            let (from, Outgoing { to, piece, content }) =
                messages.swap_remove(choice - begun.len());
            let Content::Values(values) = content else { unreachable!("nothing is encoded") };
            rounds[to as usize].receive(from, piece, values).unwrap();
        }
    }
    for (one, other) in graph_of(graph, ranks).edges(&all(ranks)) {
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

#[test]
fn directions_of_pairwise_exchanges_form_no_cycle() {
    for graph in graphs() {
        for ranks in 1..=33 {
            let directed = graph_of(graph, ranks);
            let directions = |rank| directed.directions(rank, &all(ranks));
            let mut asked = BTreeMap::new();
            for rank in 0..ranks {
                let (asks, askers) = directions(rank);
                let mut both = [asks.clone(), askers.clone()].concat();
                both.sort_unstable();
                assert_eq!(both, neighbors(graph, rank, ranks), "{graph} of {ranks}");
                assert!(asks.iter().all(|other| directions(*other).1.contains(&rank)));
                asked.insert(rank, asks);
            }
            // Ranks that ask none are taken away until none is left.
            while !asked.is_empty() {
                let left = asked.clone();
                asked.retain(|_, asks| asks.iter().any(|other| left.contains_key(other)));
                assert!(asked.len() < left.len(), "{graph} of {ranks}: {asked:?}");
            }
        }
    }
    let two_classes = [(Graph::Ring, 8), (Graph::Torus, 16), (Graph::Ring, 2)];
    for (graph, ranks) in two_classes {
        for rank in 0..ranks {
            let (asks, askers) = graph_of(graph, ranks).directions(rank, &all(ranks));
            assert!(asks.is_empty() || askers.is_empty(), "{graph} of {ranks}: {rank}");
        }
    }
}

/// Workers that exchange in pairs, with what is on its way between them.
struct Pairs {
    graph: Graph,
    /// The workers in the order of their ranks.
    ranks: Vec<WorkerId>,
    workers: Vec<(Pairwise, Arc<Vec<f32>>)>,
    ways: BTreeMap<(WorkerId, WorkerId), VecDeque<Parcel>>,
}

impl Pairs {
    fn new(graph: Graph, workers: u32, len: usize, random: &mut Random) -> Self {
        let mut worker = |worker: u32| {
            let values = (0..len).map(|_| random.unit() as f32 * 8.0 - 4.0).collect();
            (Pairwise::new(len, SEED.fork("worker", worker.into())), Arc::new(values))
        };
        let workers = (0..workers).map(&mut worker).collect();
        let mut pairs = Self { graph, ranks: Vec::new(), workers, ways: BTreeMap::new() };
        pairs.regroup(random);
        pairs
    }

    /// All connections break, and the workers get other ranks.
    fn regroup(&mut self, random: &mut Random) {
        self.ways.clear();
        self.ranks = (0..self.workers.len() as u32).map(WorkerId).collect();
        random.shuffle(&mut self.ranks);
        let awaits: Vec<Option<WorkerId>> =
            self.workers.iter().map(|(pairs, _)| pairs.awaits()).collect();
        for rank in 0..self.ranks.len() {
            let worker = self.ranks[rank];
            let ranks = self.ranks.len() as u32;
            let graph = graph_of(self.graph, ranks);
            let (asks, askers) = graph.directions(rank as u32, &all(ranks));
            let of = |ranks: Vec<Rank>| ranks.iter().map(|it| self.ranks[*it as usize]).collect();
            let waits = (0..).map(WorkerId).zip(&awaits);
            let waits = waits.filter(|(_, of)| **of == Some(worker)).map(|(it, _)| it).collect();
            let mut out = Vec::new();
            let directions = (of(asks), of(askers));
            let (pairs, parameters) = &mut self.workers[worker.0 as usize];
            pairs.regroup(directions, waits, |_| true, parameters, &mut out);
            self.send(worker, out);
        }
    }

    fn send(&mut self, from: WorkerId, out: Vec<Parcel>) {
        for parcel in out {
            self.ways.entry((from, parcel.to)).or_default().push_back(parcel);
        }
    }

    fn begin(&mut self, worker: WorkerId) {
        let (pairs, parameters) = &mut self.workers[worker.0 as usize];
        let mut out = Vec::new();
        pairs.begin(parameters, &mut out);
        self.send(worker, out);
    }

    /// Delivers the next parcel of a connection. Returns false if none is on its way.
    fn deliver(&mut self, random: &mut Random) -> bool {
        let full: Vec<(WorkerId, WorkerId)> =
            self.ways.iter().filter(|(_, way)| !way.is_empty()).map(|(ends, _)| *ends).collect();
        if full.is_empty() {
            return false;
        }
        let (from, to) = full[random.below(full.len() as u64) as usize];
        let parcel = self.ways.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
        let Parcel { exchange, piece, values, .. } = parcel;
        let (pairs, parameters) = &mut self.workers[to.0 as usize];
        let mut out = Vec::new();
        pairs.receive(from, exchange, (piece, values), parameters, &mut out).unwrap();
        self.send(to, out);
        true
    }

    fn sum(&self, value: usize) -> f64 {
        self.workers.iter().map(|(_, parameters)| f64::from(parameters[value])).sum()
    }

    fn spread(&self) -> f32 {
        let values = || self.workers.iter().map(|(_, parameters)| parameters[0]);
        values().fold(f32::MIN, f32::max) - values().fold(f32::MAX, f32::min)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn pairwise_exchanges_keep_the_mean_and_end_whatever_connections_break(
        graph in prop::sample::select(graphs().collect::<Vec<_>>()),
        workers in 1_u32..10,
        len in prop::sample::select(vec![1_usize, 7, PIECE + 1]),
        seed: u64,
    ) {
        let mut random = Stream::new(seed).fork("schedule", 0).rng();
        let mut pairs = Pairs::new(graph, workers, len, &mut random);
        let places = [0, len / 2, len - 1];
        let mut wanted = places.map(|place| pairs.sum(place));
        let mut updates = vec![0_u64; workers as usize];
        let (mut breaks, most) = (0, 12);
        loop {
            let idle: Vec<usize> = (0..workers as usize)
                .filter(|it| pairs.workers[*it].0.is_over() && updates[*it] < most)
                .collect();
            match random.below(64) {
                0 if breaks < 40 => {
                    breaks += 1;
                    pairs.regroup(&mut random);
                }
                1..20 if !idle.is_empty() => {
                    let worker = idle[random.below(idle.len() as u64) as usize];
                    // A step between two exchanges.
                    let step = random.unit() as f32;
                    let (_, parameters) = &mut pairs.workers[worker];
                    Arc::make_mut(parameters).iter_mut().for_each(|value| *value += step);
                    wanted.iter_mut().for_each(|sum| *sum += f64::from(step));
                    pairs.begin(WorkerId(worker as u32));
                    updates[worker] += 1;
                }
                _ => {
                    let moved = pairs.deliver(&mut random);
                    let is_over = pairs.workers.iter().all(|(pairs, _)| pairs.is_over());
                    if !moved && idle.is_empty() {
                        prop_assert!(is_over, "workers wait for each other");
                        break;
                    }
                }
            }
        }
        for (place, wanted) in places.into_iter().zip(wanted) {
            // Rounding to f32 is all that moves the mean.
            prop_assert!((pairs.sum(place) - wanted).abs() < 1e-4, "{} {wanted}", pairs.sum(place));
        }
        for _ in 0..2000 {
            let worker = WorkerId(random.below(workers.into()) as u32);
            pairs.begin(worker);
            while pairs.deliver(&mut random) {}
        }
        prop_assert!(pairs.spread() < 1e-3, "{}", pairs.spread());
    }
}

#[test]
fn an_exchange_that_was_made_is_answered_again_and_not_made_again() {
    let [asker, other] = [WorkerId(0), WorkerId(1)];
    let group = |pairs: &mut Pairwise, own: WorkerId, waits, parameters: &[f32]| {
        let directions = match own == asker {
            true => (vec![other], vec![]),
            false => (vec![], vec![asker]),
        };
        let mut out = Vec::new();
        pairs.regroup(directions, waits, |_| true, parameters, &mut out);
        out
    };
    let (mut one, mut two) = (Pairwise::new(1, SEED), Pairwise::new(1, SEED));
    let (mut of_one, mut of_two) = (Arc::new(vec![1.0]), Arc::new(vec![4.0]));
    group(&mut one, asker, BTreeSet::new(), &of_one);
    group(&mut two, other, BTreeSet::new(), &of_two);
    let mut out = Vec::new();
    one.begin(&of_one, &mut out);
    let take = |pairs: &mut Pairwise, from, parcel: Parcel, parameters: &mut Arc<Vec<f32>>| {
        let Parcel { exchange, piece, values, .. } = parcel;
        let mut out = Vec::new();
        pairs.receive(from, exchange, (piece, values), parameters, &mut out).unwrap();
        out
    };
    let lost = take(&mut two, asker, out.remove(0), &mut of_two);
    assert_eq!((lost.len(), of_two[0]), (1, 2.5));
    // The answer is lost, and the other one changes its parameters meanwhile.
    of_two = Arc::new(vec![7.0]);
    let mut again = group(&mut one, asker, BTreeSet::new(), &of_one);
    group(&mut two, other, BTreeSet::from([asker]), &of_two);
    let mut answer = take(&mut two, asker, again.remove(0), &mut of_two);
    assert_eq!((answer.clone(), of_two[0]), (lost, 7.0));
    take(&mut one, other, answer.remove(0), &mut of_one);
    assert_eq!((one.is_over(), of_one[0]), (true, 2.5));

    let unexpected = ReductionError::Unexpected { piece: 0 };
    let values = || (0, Arc::new(vec![1.0]));
    let mut receive = |from, number| {
        let exchange = Exchange { number, answers: false };
        two.receive(from, exchange, values(), &mut of_two, &mut Vec::new())
    };
    assert_eq!(receive(WorkerId(2), 2), Err(unexpected), "no neighbor");
    assert_eq!(receive(asker, 0), Err(unexpected), "an earlier exchange");
    assert_eq!(receive(asker, 2), Ok(()));
    let answer = Exchange { number: 9, answers: true };
    let answered = two.receive(asker, answer, values(), &mut of_two, &mut Vec::new());
    assert_eq!(answered, Err(unexpected), "it has asked nothing");
}

/// Its answer lost, a worker asks again in a group in which the other one has asked it meanwhile.
#[test]
fn two_workers_that_ask_each_other_tell_requests_from_answers() {
    let ids = [WorkerId(0), WorkerId(1)];
    let mut pairs = ids.map(|id| Pairwise::new(1, SEED.fork("worker", id.0.into())));
    let mut models = [1.0, 4.0].map(|value| Arc::new(vec![value]));
    let regroup = |pairs: &mut [Pairwise; 2], asker: usize, models: &[Arc<Vec<f32>>; 2]| {
        let awaits = [pairs[0].awaits(), pairs[1].awaits()];
        [0, 1].map(|own| {
            let other = ids[1 - own];
            let directions =
                if own == asker { (vec![other], vec![]) } else { (vec![], vec![other]) };
            let waits = if awaits[1 - own].is_some() { BTreeSet::from([other]) } else { [].into() };
            let mut out = Vec::new();
            pairs[own].regroup(directions, waits, |_| true, &models[own], &mut out);
            out
        })
    };
    let take = |pairs: &mut [Pairwise; 2], to: usize, parcel: &Parcel, models: &mut [_; 2]| {
        let (values, mut out) = ((parcel.piece, Arc::clone(&parcel.values)), Vec::new());
        let received =
            pairs[to].receive(ids[1 - to], parcel.exchange, values, &mut models[to], &mut out);
        received.unwrap();
        out
    };
    regroup(&mut pairs, 0, &models);
    let mut out = Vec::new();
    pairs[0].begin(&models[0], &mut out);
    take(&mut pairs, 1, &out[0], &mut models); // the answer is lost
    let again = regroup(&mut pairs, 1, &models);
    pairs[1].begin(&models[1], &mut Vec::new());
    let lost = take(&mut pairs, 1, &again[0][0], &mut models);
    assert_eq!(lost.len(), 2, "the answer, and a request of its own");
    let [of_first, of_second] = regroup(&mut pairs, 1, &models);
    assert_eq!(of_first[0].exchange.number, of_second[0].exchange.number);
    assert_eq!(take(&mut pairs, 0, &of_second[0], &mut models), [], "it waits for its answer");
    let answer = take(&mut pairs, 1, &of_first[0], &mut models);
    let answers = take(&mut pairs, 0, &answer[0], &mut models);
    take(&mut pairs, 1, &answers[0], &mut models);
    assert_eq!(models.map(|model| model[0]), [2.5, 2.5]);
    assert!(pairs.iter().all(Pairwise::is_over));
}
