//! The exchange of a group of workers for an update, and its result at each of them.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::architecture::Architecture;
use crate::collective::{
    Algorithm, Collective, Content, Encoding, Gathering, Outgoing, Precision, Rank, Reduction,
    ReductionError, presence,
};
use crate::gossip::{JobGraph, Mixing};
use crate::in_network::{Layout, Packet, PacketError, Streaming};
use crate::job::Job;
use pstrain_compute::filter::Filtered;
use pstrain_compute::id::WorkerId;
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;

/// How the workers of a group combine their work.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// All apply the sum of their gradients to the same parameters.
    Reduce(Algorithm, Precision, Participants),
    /// The same; each sends its filtered gradient to all others.
    Gather,
    /// The same; the sum is made by the meeting point, with so many packets in flight of so many
    /// values.
    InNetwork {
        /// The packets of a worker in flight, at most.
        slots: u32,
        /// The values of a packet, at most.
        values: u32,
    },
    /// Each averages its parameters with its neighbors', and applies its own gradient.
    Gossip(JobGraph),
    /// The same with one neighbor at each update, which others do not wait for.
    Pairwise(JobGraph),
}

/// The ranks whose gradients a sum has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Participants {
    /// All ranks that have a mini-batch left.
    All,
    /// The ranks that have their gradients in time. The sum says which.
    InTime,
}

/// A rank's part of the sum of an update.
#[derive(Debug)]
pub enum Part {
    /// Its mean gradient, and its share.
    Gradient(Vec<f32>, f32),
    /// The same, if the scheme is [`Scheme::Gather`].
    Filtered(Filtered, f32),
    /// Its mini-batch counts, but its gradient is not finite.
    NotFinite,
    /// It has no mini-batch left, or its gradient is not here in time.
    None,
}

/// The place of a rank in a group, for all updates of the group.
#[derive(Clone, Debug)]
pub enum Place {
    /// The algorithm, the precision, whose gradients a sum has, the rank, and the number of ranks.
    Reduce(Collective, Precision, Participants, Rank, u32),
    /// The rank, and the number of ranks.
    Gather(Rank, u32),
    /// Packets in flight, values of a packet, and the number of ranks.
    InNetwork(u32, u32, u32),
    /// The rank; it and its neighbors, in order, with their weights.
    Gossip(Rank, Arc<[(Rank, f64)]>),
}

/// One rank's part of an update.
#[derive(Debug)]
pub enum Combining {
    /// The sum of all gradients.
    Reduce(Reduction),
    /// The sum of the gradients that are here in time, of a rank of so many.
    InTime(Reduction, Rank, u32),
    /// The sum of all filtered gradients.
    Gather(Gathering),
    /// The same as the first, made by the meeting point.
    InNetwork(Streaming),
    /// The average of the neighbors' parameters, and the rank's own gradient.
    Gossip(Mixing, Own),
}

/// A rank's own gradient.
#[derive(Debug)]
pub enum Own {
    /// It is being computed.
    Awaited,
    /// It is here; none if the rank has used up its own budget.
    Here(Option<Vec<f32>>),
}

/// The result of an update's exchange.
#[derive(Debug)]
pub enum Combined {
    /// A gradient to apply, and the ranks that have no part in it.
    Gradient(Vec<f32>, Vec<Rank>),
    /// The average of parameters, to which a gradient is to be applied.
    Average(Vec<f32>, Option<Vec<f32>>),
}

impl Scheme {
    /// The scheme of a job, which is [valid](Job::validate); none where servers have the
    /// parameters.
    #[must_use]
    pub fn of(job: &Job) -> Option<Self> {
        let graph = || JobGraph::new(job.graph, Stream::new(job.seed), &job.edges);
        match job.architecture {
            Architecture::DPsgd => Some(Self::Gossip(graph())),
            Architecture::AdPsgd => Some(Self::Pairwise(graph())),
            Architecture::InNetwork { slots, values } => Some(Self::InNetwork { slots, values }),
            architecture => {
                let algorithm = architecture.algorithm()?;
                let participants = match job.membership.partial_after {
                    None => Participants::All,
                    Some(_) => Participants::InTime,
                };
                let encoding = Encoding::of(algorithm, &job.filters)?;
                Some(match encoding {
                    Encoding::Values(precision) => Self::Reduce(algorithm, precision, participants),
                    Encoding::Filtered => Self::Gather,
                })
            }
        }
    }

    /// True if each worker has a model of its own.
    #[must_use]
    pub const fn is_gossip(&self) -> bool {
        matches!(self, Self::Gossip(..) | Self::Pairwise(..))
    }

    /// True if each worker makes updates at its own pace.
    #[must_use]
    pub const fn is_asynchronous(&self) -> bool {
        matches!(self, Self::Pairwise(..))
    }

    /// The place of `rank` in a group of `members`, by rank, with so many parameters.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn place(&self, rank: Rank, members: &[WorkerId], parameters: usize) -> Place {
        let ranks = members.len() as u32;
        assert!(rank < ranks, "rank {rank} of {ranks}");
        match self {
            Self::Reduce(algorithm, precision, participants) => {
                let collective = algorithm.choose(ranks, parameters);
                Place::Reduce(collective, *precision, *participants, rank, ranks)
            }
            Self::Gather => Place::Gather(rank, ranks),
            Self::InNetwork { slots, values } => Place::InNetwork(*slots, *values, ranks),
            Self::Gossip(graph) | Self::Pairwise(graph) => {
                Place::Gossip(rank, graph.weights(rank, members).into())
            }
        }
    }
}

impl Part {
    /// A gradient and its share: zeros in place of none.
    fn gradient(self, parameters: usize) -> (Vec<f32>, f32) {
        match self {
            Self::Gradient(gradient, factor) => (gradient, factor),
            Self::NotFinite | Self::None => (vec![0.0; parameters], 1.0),
            Self::Filtered(..) => unreachable!("no gradient of this scheme is filtered"),
        }
    }
}

impl Place {
    /// The ranks that this one sends to or receives from, in order.
    #[must_use]
    pub fn neighbors(&self) -> Vec<Rank> {
        match self {
            Self::Reduce(collective, _, _, rank, ranks) => collective.neighbors(*rank, *ranks),
            Self::Gather(rank, ranks) => Collective::AllGather.neighbors(*rank, *ranks),
            Self::InNetwork(..) => Vec::new(),
            Self::Gossip(rank, weights) => {
                weights.iter().map(|(other, _)| *other).filter(|other| other != rank).collect()
            }
        }
    }
}

impl Combining {
    /// The part of a rank in an update with `len` parameters, after `updates` of its group.
    #[must_use]
    pub fn new(place: &Place, len: usize, updates: u64) -> Self {
        match place {
            Place::Reduce(collective, precision, participants, rank, ranks) => {
                let reduction = |len| Reduction::new(*collective, *precision, *rank, *ranks, len);
                match participants {
                    Participants::All => Self::Reduce(reduction(len)),
                    Participants::InTime => {
                        Self::InTime(reduction(len + presence::words(*ranks)), *rank, *ranks)
                    }
                }
            }
            Place::Gather(rank, ranks) => Self::Gather(Gathering::new(*rank, *ranks, len)),
            Place::InNetwork(slots, values, ranks) => {
                let layout = Layout::new(len, *slots, *values);
                Self::InNetwork(Streaming::new(layout, *ranks, updates))
            }
            Place::Gossip(rank, weights) => {
                Self::Gossip(Mixing::new(*rank, Arc::clone(weights), len), Own::Awaited)
            }
        }
    }

    /// Takes the gradient's keys in the order in which its layers are computed, those from
    /// `trained` on at the end. All ranks must do so.
    #[must_use]
    pub fn by_layers(self, trained: usize) -> Self {
        match self {
            Self::Reduce(reduction) => Self::Reduce(reduction.by_layers(trained)),
            other => other,
        }
    }

    /// Takes a range of the rank's own gradient, of so many parameters, which is summed `factor`
    /// times, before the rest is there. Does nothing where the gradient is needed whole, or if keys
    /// of the range were given before.
    pub fn give_range(
        &mut self,
        keys: KeyRange,
        values: &[f32],
        (factor, parameters): (f32, usize),
        out: &mut Vec<Outgoing>,
    ) {
        if let Self::Reduce(reduction) = self {
            reduction.give(keys, values, (factor, parameters), out);
        }
    }

    /// True if a part of the rank's own gradient was given, and the rest was not.
    #[must_use]
    pub fn is_given_in_part(&self) -> bool {
        matches!(self, Self::Reduce(reduction) if reduction.is_given_in_part())
    }

    /// Begins, before the gradient is here.
    ///
    /// # Panics
    /// If it has begun already, or the number of parameters is another.
    pub fn begin(&mut self, parameters: &[f32], out: &mut Vec<Outgoing>) {
        match self {
            Self::Reduce(_) | Self::InTime(..) | Self::Gather(_) | Self::InNetwork(_) => {}
            Self::Gossip(mixing, _) => mixing.begin(parameters, out),
        }
    }

    /// Takes the rank's own part of an update of so many parameters.
    ///
    /// # Panics
    /// If it has been taken already, or the number of values is another.
    pub fn give(&mut self, part: Part, parameters: usize, out: &mut Vec<Outgoing>) {
        match self {
            Self::Reduce(reduction) => match part {
                Part::NotFinite | Part::None => reduction.begin_without(parameters, out),
                part => {
                    let (gradient, factor) = part.gradient(parameters);
                    reduction.begin(gradient, factor, out);
                }
            },
            Self::Gather(gathering) => match part {
                Part::Filtered(filtered, factor) => gathering.begin(&filtered, factor, out),
                Part::NotFinite | Part::None => gathering.begin_without(out),
                Part::Gradient(..) => unreachable!("every gradient of this scheme is filtered"),
            },
            Self::InTime(reduction, rank, ranks) => {
                let mut values = match part {
                    Part::Gradient(mut gradient, factor) => {
                        gradient.iter_mut().for_each(|value| *value *= factor);
                        gradient
                    }
                    Part::NotFinite => vec![0.0; parameters],
                    Part::Filtered(..) => unreachable!("no gradient of this scheme is filtered"),
                    Part::None => {
                        let len = parameters + presence::words(*ranks);
                        return reduction.begin_without(len, out);
                    }
                };
                presence::append(*rank, *ranks, &mut values);
                reduction.begin(values, 1.0, out);
            }
            Self::InNetwork(streaming) => {
                let (gradient, factor) = part.gradient(parameters);
                streaming.begin(gradient, factor);
            }
            Self::Gossip(_, own) => {
                assert!(matches!(own, Own::Awaited), "there is a gradient already");
                *own = Own::Here(match part {
                    Part::Gradient(gradient, _) => Some(gradient),
                    Part::NotFinite | Part::None => None,
                    Part::Filtered(..) => unreachable!("no gradient of this scheme is filtered"),
                });
            }
        }
    }

    /// The ranks whose values this one waits for, in order; none if it waits for all gradients.
    #[must_use]
    pub fn late(&self) -> BTreeSet<Rank> {
        match self {
            Self::InTime(reduction, ..) => reduction.awaited(),
            Self::Reduce(_) | Self::Gather(_) | Self::InNetwork(_) | Self::Gossip(..) => {
                BTreeSet::new()
            }
        }
    }

    /// Receives values of another rank.
    ///
    /// # Errors
    /// [`ReductionError`] if the sender had not to send them.
    pub fn receive(
        &mut self,
        from: Rank,
        piece: u32,
        content: Content,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), ReductionError> {
        match (self, content) {
            (Self::Reduce(reduction) | Self::InTime(reduction, ..), Content::Values(values)) => {
                reduction.receive(from, piece, values, out)
            }
            (Self::Gossip(mixing, _), Content::Values(values)) => {
                mixing.receive(from, piece, values)
            }
            (Self::Gather(gathering), Content::Encoded(factor, values)) => {
                gathering.receive(from, piece, factor, values)
            }
            _ => Err(ReductionError::Unexpected { piece }),
        }
    }

    /// Lends memory for values to send.
    pub fn lend(&mut self, spares: Vec<Arc<Vec<f32>>>) {
        match self {
            Self::Reduce(reduction) | Self::InTime(reduction, ..) => reduction.lend(spares),
            Self::Gather(_) | Self::InNetwork(_) | Self::Gossip(..) => {}
        }
    }

    /// Receives a sum of the meeting point.
    ///
    /// # Errors
    /// [`PacketError`] if its number of values is not the one of its turn.
    pub fn receive_sum(&mut self, sum: &Packet) -> Result<(), PacketError> {
        match self {
            Self::InNetwork(streaming) => streaming.receive(sum),
            Self::Reduce(_) | Self::InTime(..) | Self::Gather(_) | Self::Gossip(..) => Ok(()),
        }
    }

    /// The packets to send to the meeting point now.
    pub fn packets(&mut self) -> impl Iterator<Item = Packet> + '_ {
        let streaming = match self {
            Self::InNetwork(streaming) => Some(streaming),
            Self::Reduce(_) | Self::InTime(..) | Self::Gather(_) | Self::Gossip(..) => None,
        };
        streaming.into_iter().flat_map(Streaming::packets)
    }

    /// Repeats the packets that the meeting point has not answered.
    pub fn repeat(&mut self) {
        if let Self::InNetwork(streaming) = self {
            streaming.repeat();
        }
    }

    /// Memory that is not needed: of values that were received and used.
    pub fn excess(&mut self) -> impl Iterator<Item = Arc<Vec<f32>>> + '_ {
        let reduction = match self {
            Self::Reduce(reduction) | Self::InTime(reduction, ..) => Some(reduction),
            Self::Gather(_) | Self::InNetwork(_) | Self::Gossip(..) => None,
        };
        reduction.into_iter().flat_map(Reduction::excess)
    }

    /// True if the own gradient and all values of other ranks are here.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Reduce(reduction) | Self::InTime(reduction, ..) => reduction.is_done(),
            Self::Gather(gathering) => gathering.is_done(),
            Self::InNetwork(streaming) => streaming.is_done(),
            Self::Gossip(mixing, own) => mixing.is_done() && matches!(own, Own::Here(_)),
        }
    }

    /// The result, and memory to [lend](Self::lend) to the next update.
    ///
    /// # Panics
    /// If it is not done.
    #[must_use]
    pub fn into_parts(self) -> (Combined, Vec<Arc<Vec<f32>>>) {
        match self {
            Self::Reduce(reduction) => {
                let (sum, spares) = reduction.into_parts();
                (Combined::Gradient(sum, Vec::new()), spares)
            }
            Self::InTime(reduction, _, ranks) => {
                let (mut sum, spares) = reduction.into_parts();
                let absent = presence::take_absent(ranks, &mut sum);
                (Combined::Gradient(sum, absent), spares)
            }
            Self::Gather(gathering) => {
                (Combined::Gradient(gathering.into_sum(), Vec::new()), Vec::new())
            }
            Self::InNetwork(streaming) => {
                (Combined::Gradient(streaming.into_values(), Vec::new()), Vec::new())
            }
            Self::Gossip(mixing, Own::Here(gradient)) => {
                (Combined::Average(mixing.into_values(), gradient), Vec::new())
            }
            Self::Gossip(_, Own::Awaited) => unreachable!("the gradient is not here"),
        }
    }
}
