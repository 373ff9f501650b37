//! Architectures together with other settings.

use super::{DataFrom, Exchange, Job, JobError, OnLoss, Redundancy, WorkSpec};
use crate::architecture::Architecture;
use crate::collective::{Encoding, Precision, presence};
use crate::consistency::ConsistencySpec;
use crate::gossip::{Graph, JobGraph};
use crate::rules::{Aggregation, ParticipationSpec, StalenessSpec};
use pstrain_compute::filter::{FilterSpec, KeyCaching};
use pstrain_compute::optim::OptimizerSpec;

impl Job {
    /// Checks that an architecture other than servers can do what the job asks for.
    pub(super) fn check_architecture(&self) -> Result<(), JobError> {
        let architecture = self.architecture;
        if self.graph != Graph::default() && !architecture.is_gossip() {
            return Err(JobError::Graph { graph: self.graph, architecture });
        }
        JobGraph::check(self.graph, &self.edges, self.membership.workers)
            .map_err(JobError::Edges)?;
        let needs = match architecture {
            Architecture::Server => None,
            _ => self.without_servers_needs(),
        };
        let needs = needs.or_else(|| self.partial_needs());
        needs.map_or(Ok(()), |needs| Err(JobError::Architecture { architecture, needs }))
    }

    /// The values of the vectors that workers add up, for so many parameters.
    #[must_use]
    pub const fn summed_values(&self, parameters: usize) -> usize {
        match self.membership.partial_after {
            None => parameters,
            Some(_) => parameters + presence::words(self.membership.workers),
        }
    }

    /// The form in which workers send what they add up; none if it is no form of the architecture.
    #[must_use]
    pub fn encoding(&self) -> Option<Encoding> {
        match self.architecture.algorithm() {
            Some(algorithm) => Encoding::of(algorithm, &self.filters),
            None => self.filters.is_none().then_some(Encoding::Values(Precision::Single)),
        }
    }

    /// The bytes that so many bytes of a worker's values in an update stand for without filters,
    /// in a group of `members`, for so many parameters.
    #[must_use]
    pub fn unfiltered(&self, bytes: u64, members: usize, parameters: u64) -> u64 {
        match self.encoding() {
            Some(Encoding::Values(precision)) => bytes * u64::from(precision.values_of_word()),
            Some(Encoding::Filtered) => {
                let receivers = members.saturating_sub(1) as u64;
                receivers.saturating_mul(parameters).saturating_mul(size_of::<f32>() as u64)
            }
            None => bytes,
        }
    }

    /// The first setting that sums without late gradients cannot have.
    fn partial_needs(&self) -> Option<&'static str> {
        self.membership.partial_after?;
        let needs = [
            (
                self.architecture.algorithm().is_some(),
                "partial-after = none: all-reduces and hierarchical sums alone leave late \
                 gradients out; at a server that is consistency = backup:1, k-sync:3, ...",
            ),
            (
                matches!(self.mode.in_flight, None | Some(1)),
                "in-flight = 1 with partial-after: a late gradient is of a later update itself",
            ),
            (
                self.filters.is_none(),
                "no filters with partial-after: the sum says whose gradients it has, in 32-bit \
                 values",
            ),
        ];
        needs.into_iter().find(|(holds, _)| !holds).map(|(_, needs)| needs)
    }

    /// True if gradients can travel without a server as `exchange` says.
    fn suits_without_servers(&self) -> bool {
        match self.exchange {
            Exchange::Combined => true,
            Exchange::Separate => false, // workers pull nothing
            Exchange::Layers => self.architecture.algorithm().is_some(),
        }
    }

    /// The first setting that workers without a server cannot have: its required value, and the
    /// reason.
    fn without_servers_needs(&self) -> Option<&'static str> {
        let mode = &self.mode;
        let architecture = self.architecture;
        let is_asynchronous = architecture.is_asynchronous();
        let is_bsp = mode.consistency == ConsistencySpec::Bsp && self.switches.is_empty();
        let is_gossip = self.architecture.is_gossip();
        let is_mean = self.aggregation == Aggregation::Mean;
        let mean_or_sum = is_mean || self.aggregation == Aggregation::Sum;
        let is_equal = matches!(self.work, WorkSpec::Equal);
        let needs = [
            (
                is_bsp || is_asynchronous,
                "consistency = bsp, and no switch: workers make each update together",
            ),
            (is_bsp, "consistency = bsp, and no switch: workers without a server have no other"),
            (
                mode.staleness == StalenessSpec::Plain
                    && mode.participation == ParticipationSpec::Plain,
                "staleness = plain and participation = plain: no gradient is late",
            ),
            match architecture.is_replicated() {
                true => (
                    matches!(mode.in_flight, None | Some(1 | 2)),
                    "in-flight = 1, or 2 for the next gradient during the sum of the last",
                ),
                false => (
                    matches!(mode.in_flight, None | Some(1)),
                    "in-flight = 1: a worker computes while its parameters travel",
                ),
            },
            (mode.max_staleness.is_none(), "max-staleness = none: no server drops late gradients"),
            (mean_or_sum || is_gossip, "aggregation = mean or sum: all gradients become one sum"),
            (is_mean || !is_gossip, "aggregation = mean: a worker applies its own gradient alone"),
            match architecture.algorithm() {
                Some(_) => (
                    self.encoding().is_some(),
                    "no filters but fp16 or bf16, without error feedback: gradients are added on \
                     their way. all-reduce:all-gather takes all filters",
                ),
                None => (self.filters.is_none(), "no filters: values are sent as they are"),
            },
            (
                !self.filters.chain.iter().any(|it| matches!(it, FilterSpec::Kkt { .. }))
                    || matches!(mode.in_flight, None | Some(1)),
                "in-flight = 1 with kkt: it selects keys by the current parameters",
            ),
            (
                self.filters.pull.is_none() && self.filters.key_caching == KeyCaching::On,
                "pull-filter = none and key-caching = on: workers pull nothing, and send no keys",
            ),
            (
                self.update.optimizer != OptimizerSpec::Diagonal,
                "another optimizer than diagonal: its bounds travel with the keys to a server",
            ),
            (self.servers == 1, "servers = 1: no server has parameters"),
            (self.blocks.is_none(), "no blocks: an update changes all keys"),
            (
                self.redundancy == Redundancy::None && is_equal,
                "redundancy = none and work = equal: each worker computes on its own rows",
            ),
            (self.suits_without_servers(), "exchange = combined, or layers with an all-reduce"),
            (
                self.filters.is_none() || !self.model.has_state(),
                "no filters with a model that has state beside its parameters",
            ),
            (
                self.update.clip_contribution.is_none(),
                "no clip-contribution: no server sees the gradients of single workers",
            ),
            (
                self.data.from != DataFrom::Server,
                "data-from = worker or own: there is no server to send rows",
            ),
            (
                matches!(self.membership.on_loss, OnLoss::Continue | OnLoss::Stop),
                "on-worker-loss = continue or stop: the others neither wait within an update nor \
                 have its rows",
            ),
        ];
        needs.into_iter().find(|(holds, _)| !holds).map(|(_, needs)| needs)
    }
}
