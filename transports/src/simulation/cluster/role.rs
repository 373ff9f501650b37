//! The nodes of a job as one type.

use pstrain_compute::time::Time;
use pstrain_roles::node::{Input, Node, Outbox, Replica, Server, Shard, Worker};

/// A node of a job.
#[derive(Debug)]
pub(super) enum Role {
    /// A server without a standby.
    Server(Box<Server>),
    /// A server with a standby, or the standby.
    Replica(Box<Replica>),
    /// A server that does not coordinate.
    Shard(Box<Shard>),
    Worker(Box<Worker>),
}

impl Node for Role {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        match self {
            Self::Server(node) => node.handle(now, input, out),
            Self::Replica(node) => node.handle(now, input, out),
            Self::Shard(node) => node.handle(now, input, out),
            Self::Worker(node) => node.handle(now, input, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Self::Server(node) => node.deadline(),
            Self::Replica(node) => node.deadline(),
            Self::Shard(node) => node.deadline(),
            Self::Worker(node) => node.deadline(),
        }
    }
}

impl Role {
    pub(super) fn leads(&self) -> bool {
        match self {
            Self::Server(_) => true,
            Self::Replica(replica) => replica.leads(),
            Self::Shard(_) | Self::Worker(_) => false,
        }
    }

    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Server(server) => Some(server),
            Self::Replica(replica) => replica.server(),
            Self::Shard(_) | Self::Worker(_) => None,
        }
    }

    pub(super) fn into_server(self) -> Option<Server> {
        match self {
            Self::Server(server) => Some(*server),
            Self::Replica(replica) => replica.into_server(),
            Self::Shard(_) | Self::Worker(_) => None,
        }
    }
}
