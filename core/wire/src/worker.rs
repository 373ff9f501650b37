//! Messages between a worker and its server, field by field.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::holders::{Holders, Unreached};
use crate::release::{BUILD, PROTOCOL_VERSION};
use pstrain_compute::decided::Decided;
use pstrain_compute::filter::Encoded;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{Incarnation, PartId, Sequence, ServerId, Term, Version, WorkerId};
use pstrain_compute::params::{KeyRange, first_not_finite};
use pstrain_compute::task::Task;
use pstrain_policy::job::Job;

/// Who is there and what it can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest protocol version it speaks.
    pub protocol_min: u8,
    /// The newest protocol version it speaks.
    pub protocol_max: u8,
    /// Its release ([`BUILD`]).
    pub build: String,
    /// A name for people, such as the host's.
    pub name: String,
    /// The worker id it wants; without one the server chooses.
    pub worker: Option<WorkerId>,
    /// The membership it had before it lost its connection.
    pub resume: Option<Resume>,
    /// Whether it asks for its examples instead of having them.
    pub wants_examples: bool,
    /// The latest term it has promised to follow.
    pub term: Term,
    /// The other server for which it went away from all of them, if it did.
    pub unreached: Option<Unreached>,
    /// The place of authentication. Empty so far, anything else is refused.
    pub credentials: Vec<u8>,
}

impl Hello {
    /// One of this release, from somebody who was never here and has its own examples.
    #[must_use]
    pub fn new(name: impl Into<String>, worker: Option<WorkerId>) -> Self {
        Self {
            protocol_min: PROTOCOL_VERSION,
            protocol_max: PROTOCOL_VERSION,
            build: String::from(BUILD),
            name: name.into(),
            worker,
            resume: None,
            wants_examples: false,
            term: Term(0),
            unreached: None,
            credentials: Vec::new(),
        }
    }
}

/// A membership to take up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The worker id.
    pub worker: WorkerId,
    /// The incarnation the server issued.
    pub incarnation: Incarnation,
    /// The run the server said it was ([`Welcome::run`]).
    pub run: u64,
    /// The last push that it was allowed.
    pub allowed: Sequence,
    /// The last push that it knows to be decided.
    pub decided: Sequence,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The protocol version that both will speak.
    pub protocol: u8,
    /// Tells one run of a server from another at the same address.
    pub run: u64,
    /// The worker's id.
    pub worker: WorkerId,
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// Whether the membership asked for goes on, so that a push without answer must be repeated.
    pub resumed: bool,
    /// Who has the worker's examples, for this worker.
    pub examples_from_server: bool,
    /// The job.
    pub job: Job,
    /// Which server has which keys, and where they are.
    pub holders: Holders,
    /// The job's digest as the server computes it ([`super::job_digest`]): if the worker's differs
    /// the two do not mean the same job.
    pub digest: [u8; 32],
    /// The term of whoever leads; 0 where there can be no standby.
    pub term: Term,
    /// Where the server's standby is, if it has one.
    pub standby: Option<String>,
}

/// A request for packed examples of one of the worker's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullExamples {
    /// The part.
    pub part: PartId,
    /// The first row wanted.
    pub from: u64,
}

/// Bytes of packed examples in one message, at most.
pub const EXAMPLES_CHUNK_BYTES: u32 = 256 * 1024;

/// Some rows of the part asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExamplesChunk {
    /// Which rows.
    pub rows: ExampleRows,
    /// The rows as [`pstrain_compute::examples::Examples::pack`] writes them: the payload.
    pub packed: Vec<u8>,
}

/// Which rows of a part a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExampleRows {
    /// The first row of the chunk.
    pub from: u64,
    /// Rows of the whole part.
    pub total: u64,
}

/// The worker's data are in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Examples in each of the worker's parts.
    pub rows: BTreeMap<PartId, u64>,
    /// The whole training split that the parts were taken from; none if the server sent the
    /// examples.
    pub train: Option<Fingerprint>,
}

/// A request for parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The keys wanted.
    pub keys: KeyRange,
    /// The last push that the worker knows to be allowed; 0 if there was none.
    pub allowed: Sequence,
}

/// A gradient with what the server must know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// Everything but the values.
    pub header: PushHeader,
    /// The gradient, one value for each key: the payload. Shared, because the worker keeps it
    /// until the push is answered.
    pub gradient: Arc<Vec<f32>>,
    /// The form in which it travels instead, if it does: of these, the gradient is made.
    pub encoded: Option<Arc<Encoded>>,
    /// What whoever received it has seen of it.
    pub seen: Seen,
}

/// What is known of a push beside what it says: it does not tell two pushes apart, nor who holds
/// them.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    /// Whether all values are known to be finite.
    pub finite: bool,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

impl PartialEq for Seen {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Push {
    /// One that travels as it is.
    #[must_use]
    pub const fn new(header: PushHeader, gradient: Arc<Vec<f32>>) -> Self {
        Self { header, gradient, encoded: None, seen: Seen { finite: false } }
    }

    /// The first key whose value is NaN or infinite.
    #[must_use]
    pub fn first_not_finite(&self) -> Option<u64> {
        if self.seen.finite { None } else { first_not_finite(self.header.keys, &self.gradient) }
    }

    /// Bytes of the gradient on the wire, without frame and header.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let plain = || self.gradient.len() * size_of::<f32>();
        self.encoded.as_ref().map_or_else(plain, |encoded| encoded.bytes.len()) as u64
    }
}

/// The fields of a [`Push`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushHeader {
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The number of the push.
    pub sequence: Sequence,
    /// The version it was computed on.
    pub base: Version,
    /// What it was computed from.
    pub task: Task,
    /// Examples it was computed from.
    pub samples: u32,
    /// Mean loss over the mini-batch, before the update.
    pub loss: f32,
    /// Time the computation took, in nanoseconds.
    pub compute_ns: u64,
    /// The keys of the gradient.
    pub keys: KeyRange,
    /// Whether this push also pulls.
    pub pull: bool,
    /// The last push that the worker knows to be allowed.
    pub allowed: Sequence,
}

impl PushHeader {
    /// Of the gradient for which `given` was given: of one example, without loss, computed in no
    /// time, and more parameters are wanted.
    #[must_use]
    pub const fn answering(given: &ParametersHeader, incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            sequence: given.sequence,
            base: given.version,
            task: given.task,
            samples: 1,
            loss: 0.0,
            compute_ns: 0,
            keys: given.keys,
            pull: true,
            allowed: given.sequence,
        }
    }
}

/// Parameters and the permission to push: once, or a few times on them and those that follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Everything but the values.
    pub header: ParametersHeader,
    /// The values, one for each key: the payload. Shared by all who pull this version.
    pub values: Arc<Vec<f32>>,
    /// Instead of them what has changed since those that came last over this connection: the
    /// payload, if there is one.
    pub changes: Option<Arc<Encoded>>,
}

impl Parameters {
    /// Bytes of the values on the wire, without frame and header.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let plain = || self.values.len() * size_of::<f32>();
        self.changes.as_ref().map_or_else(plain, |changes| changes.bytes.len()) as u64
    }
}

/// The fields of [`Parameters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParametersHeader {
    /// The version of the values.
    pub version: Version,
    /// The keys of the values.
    pub keys: KeyRange,
    /// The push that is allowed now. If that had been allowed already, and is still being computed
    /// on an earlier version, it shall be computed on this one instead.
    pub sequence: Sequence,
    /// What it must be computed from.
    pub task: Task,
    /// How many more pushes are allowed, without waiting for an answer, from the tasks that follow
    /// ([`Job::following`]) and on the newest parameters at hand.
    pub ahead: u32,
    /// What became of the last push that was decided; every one before it has been, too.
    pub decided: Option<Decided>,
}

/// A sign of life; the server answers it with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's incarnation, as far as it has one.
    pub incarnation: Option<Incarnation>,
}

/// The run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Why.
    pub reason: EndReason,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// The budget is used up.
    BudgetReached,
    /// Somebody asked the server to stop.
    Stopped,
    /// A worker was lost and the job says to stop then.
    WorkerLost(WorkerId),
    /// Too few workers for longer than the patience of the job.
    TooFewWorkers {
        /// Workers present.
        present: u32,
        /// Workers needed.
        needed: u32,
    },
    /// The parameters, or the gradients of all workers, are no longer finite numbers.
    Diverged(Version),
    /// A server did not come, or come back, in time, or came back without its parameters.
    ServerLost(ServerId),
}

/// A worker leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bye {
    /// Its incarnation.
    pub incarnation: Incarnation,
}

impl EndReason {
    /// Whether the run did what it was asked to do.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::BudgetReached | Self::Stopped)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BudgetReached => f.write_str("the budget is used up"),
            Self::Stopped => f.write_str("stopped on request"),
            Self::WorkerLost(worker) => {
                write!(
                    f,
                    "worker {worker} was lost and did not come back in time, and on-worker-loss \
                     does not let the run go on without it (continue would)"
                )
            }
            Self::TooFewWorkers { present, needed } => {
                write!(
                    f,
                    "too few workers came in time: {needed} needed, {present} there; start more of \
                     them, or let the run do with fewer (workers, min-workers)"
                )
            }
            Self::ServerLost(server) => write!(
                f,
                "server {server} was not there in time, and it alone has its part of the \
                 parameters; see that it runs and can reach the coordinator, and start the run \
                 again"
            ),
            Self::Diverged(version) => write!(
                f,
                "training diverged: parameters or gradients are not finite after update \
                 {version}; try a smaller learning-rate, or clip-norm"
            ),
        }
    }
}
