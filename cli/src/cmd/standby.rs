//! `pstrain server --standby-of`, and how a server that can have a standby runs.

use anyhow::bail;
use pstrain_core::job::Job;
use pstrain_core::node::{Replica, ReplicaConfig, Server, Shard, WorkerError};
use pstrain_core::rng::Stream;
use pstrain_transports::Address;

use crate::args::ServerArgs;
use crate::exit::Failed;

/// What runs a job: a server alone, or one that has a standby or is one.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them in a process")]
pub(crate) enum Role {
    Server(Server),
    Replica(Replica),
}

impl Role {
    /// A new server that standbys may follow; none has the number of another process.
    pub(crate) fn primary(server: Server, number: u64) -> Self {
        Self::Replica(Replica::primary(config(number, String::new()), server))
    }

    /// A standby of a server of the same job, which workers reach at `address`.
    pub(super) fn standby(address: String, number: u64, job: Job) -> anyhow::Result<Self> {
        Ok(Self::Replica(Replica::standby(config(number, address), job)?))
    }

    /// A new server that does not coordinate, which standbys may follow.
    pub(super) fn primary_shard(shard: Shard, number: u64) -> Replica {
        Replica::primary_shard(config(number, String::new()), shard)
    }

    /// The server that coordinates, as it is here.
    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Server(server) => Some(server),
            Self::Replica(replica) => replica.server(),
        }
    }

    /// The server that coordinates, if there is one here by now.
    pub(crate) fn into_server(self) -> Option<Server> {
        match self {
            Self::Server(server) => Some(server),
            Self::Replica(replica) => replica.into_server(),
        }
    }
}

/// What is known of a server that has a standby or is one, from when it begins.
pub(super) fn config(id: u64, address: String) -> ReplicaConfig {
    ReplicaConfig { id, address, stream: Stream::new(id) }
}

/// Why a server that has a standby, or is one, could not go on.
pub(super) fn failed(error: WorkerError) -> anyhow::Error {
    let what = match error {
        WorkerError::Refused(why) => format!("the server refused this standby: {why}"),
        WorkerError::Unreachable { why, .. } => {
            format!("cannot reach the server that it stands by for: {why}")
        }
        other => other.to_string(),
    };
    Failed(what).into()
}

/// Where workers reach a standby that listens at `local`.
pub(super) fn address(args: &ServerArgs, local: &Address) -> anyhow::Result<Address> {
    let address = args.advertise.clone().unwrap_or_else(|| local.clone());
    if address.is_unspecified() {
        bail!("--listen {local}: say with --advertise HOST:PORT where workers reach this server");
    }
    Ok(address)
}
