//! Gossip: every worker has a model of its own, and averages it with its neighbors in a graph.
//!
//! In D-PSGD a round of worker `i` with parameters `x_i` is
//!
//! ```text
//! x_i <- sum_j W_ij x_j - rate * g_i(x_i)
//! ```
//!
//! where `W_ij` is 0 unless `j` is `i` or a neighbor (Lian et al., "Can decentralized algorithms
//! outperform centralized algorithms?", NIPS 2017, algorithm 1). The gradient needs no values of
//! neighbors: it is computed while parameters travel. With Metropolis weights, `1 / (1 +
//! max(degree_i, degree_j))` for neighbors, `W` is symmetric, and its rows and columns sum to 1 on
//! every graph: averaging keeps the mean of all models, and each round shrinks their differences by
//! the second largest eigenvalue of `W` (Xiao and Boyd, "Fast linear iterations for distributed
//! averaging", Systems and Control Letters 2004).

//!
//! In AD-PSGD each worker makes updates at its own pace. At each of them it averages its parameters
//! with one neighbor's, drawn at random, and applies a gradient of its parameters before that (Lian
//! et al., "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018, algorithm
//! 1). Both models become their mean in one step, so that the mean of all models is kept.

mod average;
mod graph;
mod mixing;
mod pairwise;
mod pieces;

pub use average::average;
pub use graph::{EdgeError, Graph, JobGraph, MOST_EDGES, WorkerEdge};
pub use mixing::Mixing;
pub use pairwise::{Exchange, Pairwise, Parcel};

#[cfg(test)]
mod tests;
