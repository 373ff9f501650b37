//! Reasons for refusing a peer, in words that say what was wrong and what to do.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::identity::{Identity, OtherIdentity};
use pstrain_compute::counted::counted;
use pstrain_compute::id::{Incarnation, Sequence, ServerId, WorkerId};
use pstrain_compute::params::KeyRange;

/// The reason for closing a connection, sent to the peer before it is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The peers have no protocol version in common.
    #[error(
        "speaks protocol {} to {}, but this side speaks {ours}; use the same release on both",
        .theirs.0, .theirs.1
    )]
    Protocol {
        /// Protocol versions that the peer speaks.
        theirs: (u8, u8),
        /// The protocol version of this build.
        ours: u8,
    },
    /// The peer has another release.
    #[error("worker is release {worker}, the server is {server}; use the same release on both")]
    Build {
        /// The worker's release.
        worker: String,
        /// The server's release.
        server: String,
    },
    /// The job has no worker with this id.
    #[error("there is no worker {worker} in a job of {} (1 to {workers})", counted(*workers, "worker"))]
    UnknownWorker {
        /// The requested id.
        worker: WorkerId,
        /// Number of workers of the job.
        workers: u32,
    },
    /// Another process holds this worker id.
    #[error(
        "worker {worker} is there already ({owner}); choose another id, or none, or wait until its \
         lease is over"
    )]
    WorkerTaken {
        /// The requested id.
        worker: WorkerId,
        /// The name of that worker.
        owner: String,
    },
    /// All worker slots are taken.
    #[error(
        "{}",
        match workers {
            1 => "the only worker of the job is there; start the job with more".into(),
            workers =>
                alloc::format!("all {workers} workers of the job are there; start the job with more"),
        }
    )]
    Full {
        /// Number of workers of the job.
        workers: u32,
    },
    /// The server waits for the description of a worker's compute process: it has no job yet.
    #[error(
        "the server has no job yet: it waits for a worker with a compute process (--process), which \
         describes the model"
    )]
    DescriptionWanted,
    /// The description of a model makes no sense.
    #[error("{what}")]
    Description {
        /// Why, in words.
        what: String,
    },
    /// Some servers are not connected yet.
    #[error("server {server} of {servers} is not there yet; start it")]
    ServersMissing {
        /// The first missing server.
        server: ServerId,
        /// Number of servers of the job.
        servers: u32,
    },
    /// The server is connected, and another process claims its id without its state.
    #[error(
        "server {server} is there already; stop one of the two, or wait until its lease is over"
    )]
    ServerTaken {
        /// The server.
        server: ServerId,
    },
    /// Another process at another address has replaced a server. The worker must connect to the
    /// coordinator again to get the new address.
    #[error("server {server} is another process now, elsewhere; ask again where")]
    ServerMoved {
        /// The server.
        server: ServerId,
    },
    /// The peer cannot be a server of the job.
    #[error("{what}")]
    Server {
        /// Why, in words.
        what: String,
    },
    /// This node is a standby, which accepts no peers while it does not lead.
    #[error("it is a standby, and the server that it stands by for is at {leader}; ask that one")]
    Standby {
        /// Address of the primary.
        leader: String,
    },
    /// The primary has a standby already.
    #[error(
        "the server has a standby already, or waits for one that it has lost; stop that one, or \
         wait"
    )]
    HasStandby,
    /// The run has ended.
    #[error("the run is over")]
    Over,
    /// The worker's data differ from the data of the job.
    #[error(
        "the worker's data are not the job's: {difference}; give every worker the file that the \
         server has, or use --data server where the server sends the data"
    )]
    Data {
        /// The difference, in words.
        difference: String,
    },
    /// The incarnation was replaced by a newer one.
    #[error(
        "incarnation {incarnation} of this worker was replaced by a newer one; only one process \
         may be this worker"
    )]
    Fenced {
        /// The incarnation of the message.
        incarnation: Incarnation,
    },
    /// The keys do not match the keys of the model.
    #[error(fmt = write_keys)]
    Keys {
        /// The keys of the message.
        given: KeyRange,
        /// Number of values in the message.
        values: u64,
        /// The keys of the model.
        wanted: KeyRange,
    },
    /// Too many gradients in a row have NaN or infinite values.
    #[error(
        "its last {count} gradients are not finite, or its compute process skipped them (push \
         {sequence}, key {key}); look for bad input values, or try a smaller learning-rate, or \
         clip-norm"
    )]
    NotFinite {
        /// The number of such gradients in a row.
        count: u32,
        /// The sequence number of the last push.
        sequence: Sequence,
        /// The first key with such a value.
        key: u64,
    },
    /// The message is not expected in this state.
    #[error("{what}")]
    Unexpected {
        /// The expectation and the message that came, in words.
        what: String,
    },
    /// The peer sends far more messages than a worker needs to.
    #[error(
        "far more messages than a worker has to say; use the same release on both, and if they are \
         the same, somebody means harm"
    )]
    Flooding,
    /// The peer claims another identity than it has proved.
    #[error(fmt = write_identity)]
    Identity {
        /// The proved identity.
        is: Identity,
        /// The claimed identity.
        wanted: Identity,
    },
    /// The bytes are not a frame.
    #[error("{what}")]
    Frame {
        /// The error, in words.
        what: String,
    },
    /// The worker has no data, and the server has none to send.
    #[error(
        "the server keeps no rows to send, for the job says data-from = own; give the worker the \
         data with --data PATH"
    )]
    NoRows,
}

impl Refusal {
    /// True if another attempt cannot succeed. A slot that is taken may become free, and a message
    /// that was damaged may get through.
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
                | Self::Frame { .. }
        )
    }
}

impl From<OtherIdentity> for Refusal {
    fn from(OtherIdentity { is, wanted }: OtherIdentity) -> Self {
        Self::Identity { is, wanted }
    }
}

fn write_keys(
    given: &KeyRange,
    values: &u64,
    wanted: &KeyRange,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match values {
        // Without values the message was a request for these keys.
        0 => write!(f, "there are no keys {given}: the model has keys {wanted}"),
        _ => write!(f, "{values} values for keys {given}, but the model has keys {wanted}"),
    }
}

/// Writes the proved identity, and the one that it does not permit.
fn write_identity(is: &Identity, wanted: &Identity, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
