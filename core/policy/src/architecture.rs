//! Architectures: where the parameters are, and the way that gradients take.

use serde::{Deserialize, Serialize};

use crate::collective::{Algorithm, Collective};
use pstrain_compute::named;
use pstrain_compute::named::{Number, Word};

/// Most packets in flight, and most values of one: 256 KiB.
const MOST_SLOTS: u64 = 65_536;
const MOST_VALUES: u64 = 65_536;

/// Most workers of a site.
const MOST_FANOUT: u64 = 1_000_000;

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
    /// As [`Ring`](Self::Ring), by the algorithm that suits the numbers of parameters and workers.
    BySize,
    /// As [`Ring`](Self::Ring), up and down a tree of sites: neighboring workers, whose first one
    /// adds up their gradients.
    Hierarchical {
        /// The workers, or sites, of a site.
        fanout: u32,
    },
    /// Every worker has all parameters; the meeting point adds up their gradients in slots.
    InNetwork {
        /// The packets of a worker in flight, at most.
        slots: u32,
        /// The values of a packet, at most.
        values: u32,
    },
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
        "the same, every worker sums all gradients itself: one step, any filters, the bits of bsp"),
    BySize = Word::new("all-reduce:auto", &[],
        "the same, by the algorithm that suits the number of parameters and of workers"),
    Hierarchical { fanout } = Word::new("hierarchical",
        &[Number::whole("FANOUT", 2..=MOST_FANOUT).usual("4")],
        "the same, in sites of FANOUT workers: the first of a site adds up their gradients"),
    InNetwork { slots, values } = Word::new("in-network",
        &[
            Number::whole("SLOTS", 1..=MOST_SLOTS).usual("64"),
            Number::whole("VALUES", 1..=MOST_VALUES).usual("4096"),
        ],
        "every worker has the parameters; the meeting point adds up packets of VALUES integers"),
    DPsgd = Word::new("gossip:d-psgd", &[],
        "every worker has a model of its own, and averages it with its neighbors in each round"),
    AdPsgd = Word::new("gossip:ad-psgd", &[],
        "the same at each worker's own pace: with one neighbor, drawn at random, at each update"),
});

impl Architecture {
    /// The all-reduce of the workers' gradients; `None` if there is none.
    #[must_use]
    pub const fn algorithm(self) -> Option<Algorithm> {
        Some(Algorithm::One(match self {
            Self::Server | Self::DPsgd | Self::AdPsgd | Self::InNetwork { .. } => return None,
            Self::BySize => return Some(Algorithm::BySize),
            Self::Ring => Collective::Ring,
            Self::HalvingDoubling => Collective::HalvingDoubling,
            Self::AllToAll => Collective::AllToAll,
            Self::Tree => Collective::Tree,
            Self::Butterfly => Collective::Butterfly,
            Self::AllGather => Collective::AllGather,
            Self::Hierarchical { fanout } => Collective::Hierarchical { fanout },
        }))
    }

    /// True if servers have the parameters.
    #[must_use]
    pub const fn has_server(self) -> bool {
        matches!(self, Self::Server)
    }

    /// True if every worker has the same parameters, and no server has them.
    #[must_use]
    pub const fn is_replicated(self) -> bool {
        !self.has_server() && !self.is_gossip()
    }

    /// All replicated architectures, in the order of the table, with the defaults of their numbers.
    pub fn replicated() -> impl Iterator<Item = Self> {
        let all = <Self as named::Named>::FAMILY.words.iter();
        let all = all.filter_map(|word| word.name.parse().ok());
        all.filter(|architecture: &Self| architecture.is_replicated())
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
