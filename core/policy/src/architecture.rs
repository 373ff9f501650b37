//! Architectures: where the parameters are, and the way that gradients take.

use serde::{Deserialize, Serialize};

use crate::collective::Collective;
use pstrain_compute::named;
use pstrain_compute::named::Word;

/// The architecture of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Architecture {
    /// Servers have the parameters, and workers push gradients to them.
    #[default]
    Server,
    /// Every worker has all parameters; gradients are summed along a ring of the workers.
    Ring,
    /// The same, by recursive halving and doubling.
    HalvingDoubling,
    /// The same, with a share of the keys summed at each worker.
    AllToAll,
    /// The same, up and down a binary tree of the workers.
    Tree,
    /// Every worker has a model of its own, and averages it with its neighbors' in each round.
    DPsgd,
    /// As [`Ring`](Self::Ring), by recursive doubling.
    Butterfly,
    /// The same, with all gradients summed at each worker.
    AllGather,
    /// Every worker has a model of its own, trains at its own pace, and averages it with one
    /// neighbor's at each update.
    AdPsgd,
}

named!(Architecture: "architecture", ',' {
    Server = Word::new("server", &[], "servers have the parameters"),
    Ring = Word::new("all-reduce:ring", &[],
        "every worker has the parameters; gradients are summed along a ring"),
    HalvingDoubling = Word::new("all-reduce:halving-doubling", &[],
        "the same, by recursive halving and doubling: fewer steps than a ring"),
    AllToAll = Word::new("all-reduce:all-to-all", &[],
        "the same, each worker sums a share of the keys: bit for bit as bsp at a server"),
    Tree = Word::new("all-reduce:tree", &[], "the same, up and down a binary tree"),
    Butterfly = Word::new("all-reduce:butterfly", &[],
        "the same, by recursive doubling: half the steps of halving-doubling, and more bytes"),
    AllGather = Word::new("all-reduce:all-gather", &[],
        "the same, every worker sums all gradients itself: one step, bit for bit as bsp"),
    DPsgd = Word::new("gossip:d-psgd", &[],
        "every worker has a model of its own, and averages it with its neighbors in each round"),
    AdPsgd = Word::new("gossip:ad-psgd", &[],
        "the same at each worker's own pace: with one neighbor, drawn at random, at each update"),
});

impl Architecture {
    /// The all-reduce of the workers' gradients; `None` if there is none.
    #[must_use]
    pub const fn collective(self) -> Option<Collective> {
        match self {
            Self::Server | Self::DPsgd | Self::AdPsgd => None,
            Self::Ring => Some(Collective::Ring),
            Self::HalvingDoubling => Some(Collective::HalvingDoubling),
            Self::AllToAll => Some(Collective::AllToAll),
            Self::Tree => Some(Collective::Tree),
            Self::Butterfly => Some(Collective::Butterfly),
            Self::AllGather => Some(Collective::AllGather),
        }
    }

    /// All architectures with an all-reduce, in the order of the table.
    pub fn all_reduces() -> impl Iterator<Item = Self> {
        let all = <Self as named::Named>::FAMILY.words.iter();
        let all = all.filter_map(|word| word.name.parse().ok());
        all.filter(|architecture: &Self| architecture.collective().is_some())
    }

    /// True if each worker has a model of its own.
    #[must_use]
    pub const fn is_gossip(self) -> bool {
        matches!(self, Self::DPsgd | Self::AdPsgd)
    }

    /// True if no worker waits for the updates of all others.
    #[must_use]
    pub const fn is_asynchronous(self) -> bool {
        matches!(self, Self::AdPsgd)
    }
}
