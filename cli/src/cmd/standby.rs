//! `pstrain server --standby-of`, and how a server that can have a standby runs.

use pstrain_compute::rng::Stream;
use pstrain_policy::job::Job;
use pstrain_roles::node::{NodeError, Replica, ReplicaConfig, Replicate, Server, Shard};

use crate::durable::StandbyOf;
use crate::exit::Failed;

/// The state machine of a job: a server alone, or a replica, which has a standby or is one.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them in a process")]
pub(crate) enum Role {
    Server(Server),
    Replica(Replica),
}

impl Role {
    /// A new server that standbys may follow. `number` must differ from the number of any other
    /// process.
    pub(crate) fn primary(server: Server, number: u64) -> Self {
        Self::Replica(Replica::primary(config(number, None), server))
    }

    /// A standby of a server of the same job.
    pub(super) fn standby(of: &StandbyOf, number: u64, job: Job) -> anyhow::Result<Self> {
        Ok(Self::Replica(Replica::standby(config(number, Some(of)), job)?))
    }

    /// A new server that does not coordinate, which standbys may follow.
    pub(super) fn primary_shard(shard: Shard, number: u64) -> Replica {
        Replica::primary_shard(config(number, None), shard)
    }

    /// Sets the form in which gradients go to the standby from now on.
    pub(super) const fn set_replicate(&mut self, replicate: Replicate) {
        if let Self::Replica(replica) = self {
            replica.set_replicate(replicate);
        }
    }

    /// The coordinating server, as this process has it.
    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Server(server) => Some(server),
            Self::Replica(replica) => replica.server(),
        }
    }

    /// The coordinating server, if this process has one by now.
    pub(crate) fn into_server(self) -> Option<Server> {
        match self {
            Self::Server(server) => Some(server),
            Self::Replica(replica) => replica.into_server(),
        }
    }
}

/// Configuration of a primary, or of a standby if it began as in `of`.
pub(super) fn config(id: u64, of: Option<&StandbyOf>) -> ReplicaConfig {
    let (leader, address) = of.map_or_else(Default::default, |StandbyOf { primary, address }| {
        (primary.clone(), address.clone())
    });
    let replicate = Replicate::default();
    ReplicaConfig { id, address, leader, stream: Stream::new(id), replicate }
}

/// The error of a replica that failed; `of` is set if it began as a standby.
pub(super) fn failed(error: NodeError, of: Option<&StandbyOf>) -> anyhow::Error {
    let what = match error {
        NodeError::Refused(why) => format!("the server refused this standby: {why}"),
        NodeError::Unreachable { why, .. } => {
            let (there, here) =
                of.map_or_else(Default::default, |StandbyOf { primary, address }| {
                    (format!(", at {primary}"), format!(" at {address}"))
                });
            format!(
                "cannot reach the server that it stands by for{there}: {why}; see that it runs and \
                 can be reached from here. If it is gone for good, this one leads once half of the \
                 workers have come to it{here}: see that they run and can reach it there \
                 (--advertise)"
            )
        }
        other => other.to_string(),
    };
    Failed(what).into()
}
