//! Graphs of workers.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::collective::Rank;
use pstrain_compute::id::WorkerId;
use pstrain_compute::named;
use pstrain_compute::named::{Number, Word};
use pstrain_compute::rng::Stream;

/// Which workers are neighbors. Every graph is connected, without loops, and undirected.
/// [`JobGraph`] has its edges.
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
    /// The edges that the job lists, which its driver reads from a file.
    File,
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
    File = Word::new("file", &[],
        "the edges in a file, file:PATH: the numbers of two neighbors in a line; # begins a \
         comment"),
});

/// An edge between ranks, the lower rank first.
type Edge = (Rank, Rank);

/// An edge between workers.
pub type WorkerEdge = (WorkerId, WorkerId);

/// Most edges that a job lists.
pub const MOST_EDGES: usize = 1 << 20;

/// Most exchanges of the ends of two edges, until a random graph has no edge twice.
const MOST_EXCHANGES: usize = 100_000;

/// An error of the edges that a job lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeError {
    /// There are edges, but another graph.
    #[error("it is for graph = file, and this graph has edges of its own")]
    Unwanted,
    /// There are too many.
    #[error("there are {0} edges, {MOST_EDGES} at most are carried")]
    TooMany(usize),
    /// An edge from a worker to itself.
    #[error(
        "the edge {0} {0} joins a worker to itself; each worker counts its own model anyway, \
             leave it out"
    )]
    Loop(WorkerId),
    /// An edge of a worker that the job does not have.
    #[error(
        "the edge {0} {1} needs a worker that the job does not have: its workers are numbered \
             1 to {2}; leave it out, or have more workers"
    )]
    Worker(WorkerId, WorkerId, u32),
    /// The graph is not connected.
    #[error(
        "no way leads from worker 1 to worker {0}, so that their models would never meet; add \
             an edge, or have fewer workers"
    )]
    Apart(WorkerId),
}

/// The graph of a job, for any group of its workers.
#[derive(Clone, Debug)]
pub struct JobGraph {
    graph: Graph,
    /// Draws random graphs.
    seed: Stream,
    /// The edges of [`Graph::File`].
    listed: Arc<[WorkerEdge]>,
}

impl JobGraph {
    /// The graph of a job with this word, seed and list of edges.
    #[must_use]
    pub fn new(graph: Graph, seed: Stream, listed: &[WorkerEdge]) -> Self {
        Self { graph, seed, listed: listed.into() }
    }

    /// The stream from which the job's random graph is drawn.
    #[must_use]
    pub const fn seed(&self) -> Stream {
        self.seed
    }

    /// Checks the edges that a job of so many workers lists.
    ///
    /// # Errors
    /// [`EdgeError`] if they are no connected graph of these workers.
    pub fn check(graph: Graph, listed: &[WorkerEdge], workers: u32) -> Result<(), EdgeError> {
        if graph != Graph::File {
            return if listed.is_empty() { Ok(()) } else { Err(EdgeError::Unwanted) };
        }
        if listed.len() > MOST_EDGES {
            return Err(EdgeError::TooMany(listed.len()));
        }
        for &(one, other) in listed {
            if one == other {
                return Err(EdgeError::Loop(one));
            }
            if one.max(other).0 >= workers {
                return Err(EdgeError::Worker(one, other, workers));
            }
        }
        let members: Vec<WorkerId> = (0..workers).map(WorkerId).collect();
        match bridges(&induced(listed, &members), workers).first() {
            Some((_, apart)) => Err(EdgeError::Apart(WorkerId(*apart))),
            None => Ok(()),
        }
    }

    /// The edges among the ranks of a group, in order: `members` are its workers by rank, in the
    /// order of their ids.
    ///
    /// Listed edges are between workers, and a group has those of its members. If it is not
    /// connected then, the lowest rank of each part but the first is a neighbor of rank 0, too.
    #[must_use]
    pub fn edges(&self, members: &[WorkerId]) -> Vec<Edge> {
        let ranks = members.len() as u32;
        if self.graph != Graph::File {
            return self.graph.edges(ranks, self.seed);
        }
        let mut edges = induced(&self.listed, members);
        edges.extend(bridges(&edges, ranks));
        edges.into_iter().collect()
    }

    /// The edges that the job does not list and the group has, since it would not be connected
    /// without them.
    #[must_use]
    pub fn bridges(&self, members: &[WorkerId]) -> Vec<WorkerEdge> {
        if self.graph != Graph::File {
            return Vec::new();
        }
        let worker = |rank: Rank| members.get(rank as usize).copied();
        let bridges = bridges(&induced(&self.listed, members), members.len() as u32);
        let bridges = bridges.into_iter();
        bridges.filter_map(|(one, other)| Some((worker(one)?, worker(other)?))).collect()
    }

    /// The neighbors that `rank` asks in pairwise exchanges, and the ones that ask it, in order. An
    /// edge has one direction, and no directions form a cycle. In a graph whose ranks fall into two
    /// classes without edges inside a class, one class asks and the other answers.
    #[must_use]
    pub fn directions(&self, rank: Rank, members: &[WorkerId]) -> (Vec<Rank>, Vec<Rank>) {
        let (edges, ranks) = (self.edges(members), members.len() as u32);
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

    /// `rank` and its neighbors, in order, with their Metropolis weights.
    #[must_use]
    pub fn weights(&self, rank: Rank, members: &[WorkerId]) -> Vec<(Rank, f64)> {
        let edges = self.edges(members);
        let mut degrees = vec![0_u32; members.len()];
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

/// The listed edges between members of a group, as edges between their ranks.
fn induced(listed: &[WorkerEdge], members: &[WorkerId]) -> BTreeSet<Edge> {
    let rank = |worker| members.binary_search(&worker).ok().map(|rank| rank as Rank);
    let both = |(one, other): &WorkerEdge| Some((rank(*one)?, rank(*other)?));
    let edges = listed.iter().filter_map(both);
    edges.map(|(one, other)| (one.min(other), one.max(other))).collect()
}

/// The edges from rank 0 to the lowest rank of each part that the edges do not join to it.
fn bridges(edges: &BTreeSet<Edge>, ranks: u32) -> Vec<Edge> {
    // The root of each rank's part is its lowest rank (union-find, with paths halved).
    let mut above: Vec<Rank> = (0..ranks).collect();
    let root = |above: &mut Vec<Rank>, mut rank: Rank| {
        while above[rank as usize] != rank {
            above[rank as usize] = above[above[rank as usize] as usize];
            rank = above[rank as usize];
        }
        rank
    };
    for &(one, other) in edges {
        let (one, other) = (root(&mut above, one), root(&mut above, other));
        above[one.max(other) as usize] = one.min(other);
    }
    (1..ranks).filter(|rank| above[*rank as usize] == *rank).map(|rank| (0, rank)).collect()
}

impl Graph {
    /// The edges among `ranks` ranks, in order; none for a list of edges. `seed` draws random
    /// graphs.
    fn edges(self, ranks: u32, seed: Stream) -> Vec<Edge> {
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
            Self::File => {}
        }
        edges.into_iter().collect()
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
