//! Reasons for refusing a peer, in words that say what was wrong and what to do.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::identity::{Identity, OtherIdentity};
use pstrain_compute::id::{Incarnation, Sequence, ServerId, WorkerId};
use pstrain_compute::params::KeyRange;

/// The reason for closing a connection, sent to the peer before it is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The peers have no protocol version in common.
    Protocol {
        /// Protocol versions that the peer speaks.
        theirs: (u8, u8),
        /// The protocol version of this build.
        ours: u8,
    },
    /// The peer has another release.
    Build {
        /// The worker's release.
        worker: String,
        /// The server's release.
        server: String,
    },
    /// The job has no worker with this id.
    UnknownWorker {
        /// The requested id.
        worker: WorkerId,
        /// Number of workers of the job.
        workers: u32,
    },
    /// Another process holds this worker id.
    WorkerTaken {
        /// The requested id.
        worker: WorkerId,
        /// The name of that worker.
        owner: String,
    },
    /// All worker slots are taken.
    Full {
        /// Number of workers of the job.
        workers: u32,
    },
    /// Some servers are not connected yet.
    ServersMissing {
        /// The first missing server.
        server: ServerId,
        /// Number of servers of the job.
        servers: u32,
    },
    /// The server is connected, and another process claims its id without its state.
    ServerTaken {
        /// The server.
        server: ServerId,
    },
    /// Another process at another address has replaced a server. The worker must connect to the
    /// coordinator again to get the new address.
    ServerMoved {
        /// The server.
        server: ServerId,
    },
    /// The peer cannot be a server of the job.
    Server {
        /// Why, in words.
        what: String,
    },
    /// This node is a standby, which accepts no peers while it does not lead.
    Standby {
        /// Address of the primary.
        leader: String,
    },
    /// The primary has a standby already.
    HasStandby,
    /// The run has ended.
    Over,
    /// The worker's data differ from the data of the job.
    Data {
        /// The difference, in words.
        difference: String,
    },
    /// The incarnation was replaced by a newer one.
    Fenced {
        /// The incarnation of the message.
        incarnation: Incarnation,
    },
    /// The keys do not match the keys of the model.
    Keys {
        /// The keys of the message.
        given: KeyRange,
        /// Number of values in the message.
        values: u64,
        /// The keys of the model.
        wanted: KeyRange,
    },
    /// The gradient has NaN or infinite values.
    NotFinite {
        /// The sequence number of the push.
        sequence: Sequence,
        /// The first key with such a value.
        key: u64,
    },
    /// The message is not expected in this state.
    Unexpected {
        /// The expectation and the message that came, in words.
        what: String,
    },
    /// The peer sends far more messages than a worker needs to.
    Flooding,
    /// The peer claims another identity than it has proved.
    Identity {
        /// The proved identity.
        is: Identity,
        /// The claimed identity.
        wanted: Identity,
    },
    /// The bytes are not a frame.
    Frame {
        /// The error, in words.
        what: String,
    },
    /// The worker has no data, and the server has none to send.
    NoRows,
}

impl Refusal {
    /// True if another attempt cannot succeed. A slot that is taken may become free.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        !matches!(
            self,
            Self::WorkerTaken { .. }
                | Self::Full { .. }
                | Self::ServersMissing { .. }
                | Self::ServerTaken { .. }
                | Self::ServerMoved { .. }
                | Self::Standby { .. }
                | Self::HasStandby
        )
    }
}

impl From<OtherIdentity> for Refusal {
    fn from(OtherIdentity { is, wanted }: OtherIdentity) -> Self {
        Self::Identity { is, wanted }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol { theirs: (min, max), ours } => write!(
                f,
                "speaks protocol {min} to {max}, but this side speaks {ours}; use the same \
                 release on both"
            ),
            Self::Build { worker, server } => write!(
                f,
                "worker is release {worker}, the server is {server}; use the same release on both"
            ),
            Self::UnknownWorker { worker, workers } => write!(
                f,
                "there is no worker {worker} in a job of {workers} workers (1 to {workers})"
            ),
            Self::WorkerTaken { worker, owner } => write!(
                f,
                "worker {worker} is there already ({owner}); choose another id, or none, or wait \
                 until its lease is over"
            ),
            Self::Full { workers } => {
                write!(f, "all {workers} workers of the job are there; start the job with more")
            }
            Self::ServersMissing { server, servers } => {
                write!(f, "server {server} of {servers} is not there yet; start it")
            }
            Self::ServerTaken { server } => write!(
                f,
                "server {server} is there already; stop one of the two, or wait until its lease is \
                 over"
            ),
            Self::ServerMoved { server } => {
                write!(f, "server {server} is another process now, elsewhere; ask again where")
            }
            Self::Standby { leader } => write!(
                f,
                "it is a standby, and the server that it stands by for is at {leader}; ask that one"
            ),
            Self::HasStandby => f.write_str(
                "the server has a standby already, or waits for one that it has lost; stop that \
                 one, or wait",
            ),
            Self::Over => f.write_str("the run is over"),
            Self::Data { difference } => write!(
                f,
                "the worker's data are not the job's: {difference}; give every worker the file \
                 that the server has, or use --data server where the server sends the data"
            ),
            Self::NoRows => f.write_str(
                "the server keeps no rows to send, for the job says data-from = own; give the \
                 worker the data with --data PATH",
            ),
            Self::Fenced { incarnation } => write!(
                f,
                "incarnation {incarnation} of this worker was replaced by a newer one; only one \
                 process may be this worker"
            ),
            // Without values the message was a request for these keys.
            Self::Keys { given, values: 0, wanted } => {
                write!(f, "there are no keys {given}: the model has keys {wanted}")
            }
            Self::Keys { given, values, wanted } => {
                write!(f, "{values} values for keys {given}, but the model has keys {wanted}")
            }
            Self::NotFinite { sequence, key } => write!(
                f,
                "gradient of push {sequence} is not finite at key {key}; look for bad input \
                 values, or try a smaller learning-rate, or clip-norm"
            ),
            Self::Identity { is, wanted } => write_identity(*is, *wanted, f),
            Self::Flooding => f.write_str(
                "far more messages than a worker has to say; use the same release on both, and if \
                 they are the same, somebody means harm",
            ),
            Self::Server { what } | Self::Unexpected { what } | Self::Frame { what } => {
                f.write_str(what)
            }
        }
    }
}

impl core::error::Error for Refusal {}

/// Writes the proved identity, and the one that it does not permit.
fn write_identity(is: Identity, wanted: Identity, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match wanted {
        Identity::Worker(Some(worker)) => write!(
            f,
            "its certificate says {is}, so it may not be worker {worker}; give it the \
                 certificate of worker {worker}, or leave the choice of the id to the certificate"
        ),
        Identity::Worker(None) => write!(
            f,
            "its certificate says {is}, so it may be no worker; give it one that was made with \
                 --worker"
        ),
        Identity::Server => write!(
            f,
            "its certificate says {is}, so it may be no server; give it one that was made with \
                 --server"
        ),
        Identity::Anyone | Identity::Client => write!(
            f,
            "its certificate says {is}, so it may neither ask for the status nor change the \
                 job; use one that was made with --client"
        ),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use pstrain_compute::id::WorkerId;

    #[test]
    fn another_identity_is_refused_for_good_and_named() {
        let [is, wanted] = [0, 1].map(|worker| Identity::Worker(Some(WorkerId(worker))));
        let refusal = Refusal::from(OtherIdentity { is, wanted });
        assert!(refusal.is_permanent());
        let text = refusal.to_string();
        assert!(text.contains("pstrain:worker:1") && text.contains("worker 2"), "{text}");
    }
}
