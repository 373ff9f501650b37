//! Architectures together with other settings.

use super::{DataFrom, Exchange, InitialFrom, Job, JobError, OnLoss, Redundancy, WorkSpec};
use crate::consistency::ConsistencySpec;
use crate::rules::{Aggregation, ParticipationSpec, StalenessSpec};

impl Job {
    /// Checks that an architecture other than servers can do what the job asks for.
    pub(super) fn check_architecture(&self) -> Result<(), JobError> {
        let architecture = self.architecture;
        match architecture.collective().and_then(|_| self.all_reduce_needs()) {
            Some(needs) => Err(JobError::Architecture { architecture, needs }),
            None => Ok(()),
        }
    }

    /// The first setting that an all-reduce cannot have: its required value, and the reason.
    fn all_reduce_needs(&self) -> Option<&'static str> {
        let mode = &self.mode;
        let mean_or_sum = matches!(self.aggregation, Aggregation::Mean | Aggregation::Sum);
        let is_equal = matches!(self.work, WorkSpec::Equal);
        let needs = [
            (
                mode.consistency == ConsistencySpec::Bsp && self.switches.is_empty(),
                "consistency = bsp, and no switch: each sum has a gradient of every worker",
            ),
            (
                mode.staleness == StalenessSpec::Plain
                    && mode.participation == ParticipationSpec::Plain,
                "staleness = plain and participation = plain: no gradient is late",
            ),
            (mean_or_sum, "aggregation = mean or sum: gradients are added on their way"),
            (self.filters.is_none(), "no filters: sums are sent as they are"),
            (self.servers == 1, "servers = 1: no server has parameters"),
            (self.blocks.is_none(), "no blocks: an update changes all keys"),
            (
                self.redundancy == Redundancy::None && is_equal,
                "redundancy = none and work = equal: each worker computes on its own rows",
            ),
            (self.exchange == Exchange::Combined, "exchange = combined: workers pull nothing"),
            (
                !self.is_sparse() && !self.model.has_state(),
                "a model of dense parameters without state beside them",
            ),
            (
                self.update.clip_contribution.is_none(),
                "no clip-contribution: gradients are added on their way",
            ),
            (self.initial == InitialFrom::Seed, "initial parameters from the seed"),
            (
                self.data.from != DataFrom::Server,
                "data-from = worker or own: there is no server to send rows",
            ),
            (
                matches!(self.membership.on_loss, OnLoss::Continue | OnLoss::Stop),
                "on-worker-loss = continue or stop: the others cannot wait within a sum",
            ),
        ];
        needs.into_iter().find(|(holds, _)| !holds).map(|(_, needs)| needs)
    }
}
