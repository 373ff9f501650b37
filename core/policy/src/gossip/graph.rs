//! Graphs of workers.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::collective::Rank;
use pstrain_compute::named;
use pstrain_compute::named::{Number, Word};
use pstrain_compute::rng::Stream;

/// Which workers are neighbors. Every graph is connected, without loops, and undirected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Graph {
    /// Each rank and the next one, and the last and the first.
    #[default]
    Ring,
    /// Rows and columns of a grid, as near to a square as the number of ranks has divisors, both
    /// closed to rings; a ring for a prime number of ranks.
    Torus,
    /// All are neighbors.
    Complete,
    /// Ranks at a distance of 1, 2, 4, ... along a ring (Assran et al., ICML 2019).
    Exponential,
    /// A random connected graph in which all have the same number of neighbors.
    Regular {
        /// The number of neighbors.
        degree: u32,
    },
}

/// Most neighbors in a random graph.
const MOST_DEGREE: u64 = 64;

named!(Graph: "graph", ',' {
    Ring = Word::new("ring", &[], "two neighbors each"),
    Torus = Word::new("torus", &[], "a grid with closed rows and columns: four neighbors each"),
    Complete = Word::new("complete", &[], "all workers are neighbors"),
    Exponential = Word::new("exponential", &[],
        "neighbors at distances 1, 2, 4, ... along a ring"),
    Regular { degree } = Word::new("regular", &[Number::whole("D", 2..=MOST_DEGREE)],
        "a random graph of the job's seed: D neighbors each, or one more where the parity asks"),
});

/// An edge, the lower rank first.
type Edge = (Rank, Rank);

/// Most exchanges of the ends of two edges, until a random graph has no edge twice.
const MOST_EXCHANGES: usize = 100_000;

impl Graph {
    /// The edges among `ranks` ranks, in order. `seed` draws random graphs.
    #[must_use]
    pub fn edges(self, ranks: u32, seed: Stream) -> Vec<Edge> {
        let mut edges = BTreeSet::new();
        let mut add = |one: Rank, other: Rank| {
            if one != other {
                edges.insert((one.min(other), one.max(other)));
            }
        };
        match self {
            Self::Ring => (0..ranks).for_each(|rank| add(rank, (rank + 1) % ranks)),
            Self::Torus => {
                let width = width(ranks);
                for rank in 0..ranks {
                    let row = rank - rank % width;
                    add(rank, row + (rank % width + 1) % width);
                    add(rank, (rank + width) % ranks);
                }
            }
            Self::Complete => {
                (0..ranks).for_each(|one| (0..one).for_each(|other| add(one, other)));
            }
            Self::Exponential => {
                let distances = (0..u32::BITS).map(|power| 1 << power);
                for distance in distances.take_while(|distance| *distance < ranks) {
                    (0..ranks).for_each(|rank| add(rank, (rank + distance) % ranks));
                }
            }
            Self::Regular { degree } => return regular(degree, ranks, seed),
        }
        edges.into_iter().collect()
    }

    /// The neighbors that `rank` asks in pairwise exchanges, and the ones that ask it, in order. An
    /// edge has one direction, and no directions form a cycle. In a graph whose ranks fall into two
    /// classes without edges inside a class, one class asks and the other answers.
    #[must_use]
    pub fn directions(self, rank: Rank, ranks: u32, seed: Stream) -> (Vec<Rank>, Vec<Rank>) {
        let edges = self.edges(ranks, seed);
        let neighbors = |rank| neighbors(&edges, rank);
        // Colors in the order of a search through the connected graph: two if two are enough.
        let mut colors: Vec<Option<u32>> = vec![None; ranks as usize];
        let mut found = VecDeque::from([0]);
        while let Some(next) = found.pop_front() {
            if colors[next as usize].is_some() {
                continue;
            }
            let taken: BTreeSet<u32> =
                neighbors(next).filter_map(|other| colors[other as usize]).collect();
            colors[next as usize] = (0..ranks).find(|color| !taken.contains(color));
            found.extend(neighbors(next));
        }
        neighbors(rank).partition(|other| colors[rank as usize] < colors[*other as usize])
    }

    /// `rank` and its neighbors, in order, with their Metropolis weights. `seed` draws random
    /// graphs.
    #[must_use]
    pub fn weights(self, rank: Rank, ranks: u32, seed: Stream) -> Vec<(Rank, f64)> {
        let edges = self.edges(ranks, seed);
        let mut degrees = vec![0_u32; ranks as usize];
        for (one, other) in &edges {
            degrees[*one as usize] += 1;
            degrees[*other as usize] += 1;
        }
        let mut weights: Vec<(Rank, f64)> = neighbors(&edges, rank)
            .map(|other| {
                let degree = degrees[rank as usize].max(degrees[other as usize]);
                (other, 1.0 / f64::from(1 + degree))
            })
            .collect();
        let own = 1.0 - weights.iter().map(|(_, weight)| weight).sum::<f64>();
        weights.push((rank, own));
        weights.sort_unstable_by_key(|(rank, _)| *rank);
        weights
    }
}

/// The neighbors of a rank, in the order of the edges.
fn neighbors(edges: &[Edge], rank: Rank) -> impl Iterator<Item = Rank> {
    edges.iter().filter_map(move |&(one, other)| match rank {
        rank if rank == one => Some(other),
        rank if rank == other => Some(one),
        _ => None,
    })
}

/// The length of the rows of a torus: the smallest divisor from the square root on.
fn width(ranks: u32) -> u32 {
    let is_width = |width: &u32| width * width >= ranks && ranks.is_multiple_of(*width);
    (1..=ranks).find(is_width).unwrap_or(1)
}

/// A random connected graph: a ring through all ranks in a random order, and random edges that give
/// each rank `degree` neighbors; one rank has one more if `degree` and `ranks` are odd.
fn regular(degree: u32, ranks: u32, seed: Stream) -> Vec<Edge> {
    if degree + 1 >= ranks {
        return Graph::Complete.edges(ranks, seed);
    }
    let mut random = seed.fork("graph", ranks.into()).rng();
    let mut order: Vec<Rank> = (0..ranks).collect();
    random.shuffle(&mut order);
    let sorted = |one: Rank, other: Rank| (one.min(other), one.max(other));
    let next = order.iter().cycle().skip(1);
    let ring: BTreeSet<Edge> =
        order.iter().zip(next).map(|(one, other)| sorted(*one, *other)).collect();
    // Ends of edges that are still to be drawn, and a partner for the last of an odd number.
    let mut ends: Vec<Rank> =
        (0..ranks).flat_map(|rank| core::iter::repeat_n(rank, degree as usize - 2)).collect();
    if ends.len() % 2 == 1 {
        ends.push(order[0]);
    }
    random.shuffle(&mut ends);
    let mut drawn: Vec<Edge> = ends.chunks_exact(2).map(|two| (two[0], two[1])).collect();
    let is_wrong = |drawn: &[Edge], place: usize| {
        let edge = sorted(drawn[place].0, drawn[place].1);
        let same = drawn.iter().filter(|it| sorted(it.0, it.1) == edge).count();
        edge.0 == edge.1 || ring.contains(&edge) || same > 1
    };
    for _ in 0..MOST_EXCHANGES {
        let Some(wrong) = (0..drawn.len()).find(|place| is_wrong(&drawn, *place)) else { break };
        // Exchanging ends with another edge keeps all degrees.
        let other = random.below(drawn.len() as u64) as usize;
        let (one, two) = (drawn[wrong], drawn[other]);
        if wrong != other {
            (drawn[wrong], drawn[other]) = ((one.0, two.1), (two.0, one.1));
        }
    }
    let drawn = drawn.into_iter().map(|(one, other)| sorted(one, other));
    let drawn = drawn.filter(|(one, other)| one != other);
    ring.iter().copied().chain(drawn).collect::<BTreeSet<_>>().into_iter().collect()
}
