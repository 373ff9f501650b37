//! Messages between a worker and its server, field by field.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::holders::{Holders, Unreached};
use crate::payload::{Content, Parts, Payload};
use crate::received::Received;
use crate::release::{BUILD, PROTOCOL_VERSION};
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::decided::Decided;
use pstrain_compute::filter::{self, Encoded, Form};
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{
    BatchId, Incarnation, PartId, Sequence, ServerId, Term, Version, WorkerId,
};
use pstrain_compute::params::{Coverage, KeyRange, first_not_finite};
use pstrain_compute::task::Task;
use pstrain_policy::job::Job;

pub use crate::received::Seen;

/// Worker to server: introduces the worker and its capabilities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest protocol version that the worker speaks.
    pub protocol_min: u8,
    /// The newest protocol version that the worker speaks.
    pub protocol_max: u8,
    /// The worker's release ([`BUILD`]).
    pub build: String,
    /// A name for people, such as the host's.
    pub name: String,
    /// The requested worker id; none to let the server choose.
    pub worker: Option<WorkerId>,
    /// The membership that the worker had before it lost its connection.
    pub resume: Option<Resume>,
    /// True if the worker requests its examples from the server.
    pub wants_examples: bool,
    /// The latest term that the worker has voted for or followed; it follows no leader of an
    /// earlier one.
    pub term: Term,
    /// The other server because of which the worker disconnected from all servers, if it did.
    pub unreached: Option<Unreached>,
}

impl Hello {
    /// Makes the Hello of a new worker of this release that has its own examples.
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
        }
    }
}

/// A membership to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The worker id.
    pub worker: WorkerId,
    /// The incarnation that the server issued.
    pub incarnation: Incarnation,
    /// The run that the server announced ([`Welcome::run`]).
    pub run: u64,
    /// The last push that the server has allowed.
    pub allowed: Sequence,
    /// The last push that the worker knows to be decided.
    pub decided: Sequence,
}

/// Answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The protocol version of the connection.
    pub protocol: u8,
    /// Distinguishes runs of servers at the same address.
    pub run: u64,
    /// The worker's id.
    pub worker: WorkerId,
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// True if the requested membership continues. The worker then repeats pushes without answer.
    pub resumed: bool,
    /// True if the server sends the worker its examples.
    pub examples_from_server: bool,
    /// The job.
    pub job: Job,
    /// Which server has which keys, and the servers' addresses.
    pub holders: Holders,
    /// The job's digest as the server computes it ([`super::job_digest`]). If the worker computes
    /// another one, the two do not mean the same job.
    pub digest: [u8; 32],
    /// The term of the leading server; 0 where there can be no standby.
    pub term: Term,
    /// The address of the server's standby, if it has one.
    pub standby: Option<String>,
}

/// Worker to server: requests packed examples of one of the worker's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullExamples {
    /// The part.
    pub part: PartId,
    /// The first requested row.
    pub from: u64,
}

/// Maximum bytes of packed examples in one message.
pub const EXAMPLES_CHUNK_BYTES: u32 = 256 * 1024;

/// Some rows of the requested part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExamplesChunk {
    /// Position of the rows.
    pub rows: ExampleRows,
    /// The rows as [`pstrain_compute::examples::Examples::pack`] writes them: the payload.
    pub packed: Vec<u8>,
}

/// Position of a chunk in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExampleRows {
    /// The first row of the chunk.
    pub from: u64,
    /// Number of rows in the whole part.
    pub total: u64,
}

/// Worker to server: the worker's data are loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Number of examples in each of the worker's parts.
    pub rows: BTreeMap<PartId, u64>,
    /// Fingerprint of the whole training split that the parts were taken from; none if the server
    /// sent the examples.
    pub train: Option<Fingerprint>,
}

/// Worker to server: requests parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The requested keys.
    pub keys: KeyRange,
    /// The last push that the worker knows to be allowed; 0 if there was none.
    pub allowed: Sequence,
}

/// Worker to server: a gradient with the metadata that the server needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// Everything but the values.
    pub header: PushHeader,
    /// The gradient, one value for each key: the payload. Shared, because the worker keeps it until
    /// the push is answered.
    pub gradient: Arc<Vec<f32>>,
    /// The encoded gradient, which travels instead if there is one; `gradient` is decoded from it.
    pub encoded: Option<Arc<Encoded>>,
    /// Receiver-side metadata of the values.
    pub seen: Seen,
}

impl Push {
    /// Makes a push that travels unencoded.
    #[must_use]
    pub const fn new(header: PushHeader, gradient: Arc<Vec<f32>>) -> Self {
        Self { header, gradient, encoded: None, seen: Seen { finite: false } }
    }

    /// Returns the first key whose value is NaN or infinite.
    #[must_use]
    pub fn first_not_finite(&self) -> Option<u64> {
        if self.seen.finite { None } else { first_not_finite(self.header.keys, &self.gradient) }
    }

    /// Returns the bytes of the gradient on the wire, without frame and header.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let plain = || self.gradient.len() * size_of::<f32>();
        self.encoded.as_ref().map_or_else(plain, |encoded| encoded.bytes.len()) as u64
    }
}

impl Parts for Push {
    const CONTENT: Option<Content> = Some(Content::Gradient);

    fn append_control(&self, bytes: &mut Vec<u8>) {
        let form = self.encoded.as_ref().map(|encoded| &encoded.form);
        codec::append(&(self.header, form), bytes);
    }

    fn payload(&self) -> Payload<'_> {
        match &self.encoded {
            Some(encoded) => Payload::Borrowed(&encoded.bytes),
            None => Payload::of(&self.gradient),
        }
    }

    /// Decodes an encoded gradient here, so that the server sees plain values.
    fn of_parts(control: &[u8], payload: Received, most_values: usize) -> Result<Self, Malformed> {
        let (header, form): (PushHeader, Option<Form>) = codec::read(control)?;
        let Some(form) = form else {
            let (gradient, seen) = payload.into_values().ok_or(Malformed)?;
            return Ok(Self { seen, ..Self::new(header, gradient) });
        };
        let keys = usize::try_from(header.keys.len()).map_err(|_too_many| Malformed)?;
        // Before decoding: a short payload may stand for any number of values.
        if keys > most_values {
            return Err(Malformed);
        }
        let bytes = payload.into_bytes();
        let gradient =
            filter::decode(&form, &bytes, keys).map_err(|filter::Malformed| Malformed)?;
        let encoded = Arc::new(Encoded { form, bytes });
        Ok(Self { encoded: Some(encoded), ..Self::new(header, Arc::new(gradient)) })
    }
}

/// The fields of a [`Push`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushHeader {
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The sequence number of the push.
    pub sequence: Sequence,
    /// The version that the gradient was computed on.
    pub base: Version,
    /// The mini-batch that the gradient was computed from.
    pub task: Task,
    /// Number of examples that it was computed from.
    pub samples: u32,
    /// Mean loss over the mini-batch, before the update.
    pub loss: f32,
    /// Time the computation took, in nanoseconds.
    pub compute_ns: u64,
    /// The keys of the gradient.
    pub keys: KeyRange,
    /// True if the push also pulls.
    pub pull: bool,
    /// The last push that the worker knows to be allowed.
    pub allowed: Sequence,
}

impl PushHeader {
    /// Makes the header of a push that `given` allows: the gradient is of one example, without
    /// loss, and computed in no time. The push also pulls.
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

/// Server to worker: parameters and the permission to push, once, or a few times on them and on
/// later versions.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Everything but the values.
    pub header: ParametersHeader,
    /// The values, one for each key but the keys that the worker was sent early: the payload.
    /// Shared by all workers that pull this version.
    pub values: Arc<Vec<f32>>,
    /// The changes since the last parameters of this connection, which travel instead of the
    /// values: the payload, if there is one.
    pub changes: Option<Arc<Encoded>>,
}

impl Parameters {
    /// Values of some keys of `version`, before its update is made. They permit nothing, and hold
    /// only if the parameters that follow leave them out.
    #[must_use]
    pub const fn early(version: Version, keys: KeyRange, values: Arc<Vec<f32>>) -> Self {
        let task = Task { part: PartId(0), batch: BatchId(0), examples: 0 };
        let sequence = Sequence(0);
        let header = ParametersHeader { version, keys, sequence, task, ahead: 0, decided: None };
        Self { header, values, changes: None }
    }

    /// Removes the values of keys that the worker was sent early.
    pub fn leave_out(&mut self, early: &Coverage) {
        let keys = self.header.keys;
        let rest = early.gaps(keys).filter_map(|gap| self.values.get(gap.within(keys)?));
        self.values = Arc::new(rest.collect::<Vec<_>>().concat());
    }

    /// True for values of [`Self::early`].
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.header.sequence == Sequence(0)
    }

    /// Returns the bytes of the values on the wire, without frame and header.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let plain = || self.values.len() * size_of::<f32>();
        self.changes.as_ref().map_or_else(plain, |changes| changes.bytes.len()) as u64
    }
}

impl Parts for Parameters {
    const CONTENT: Option<Content> = Some(Content::Values);

    fn append_control(&self, bytes: &mut Vec<u8>) {
        let form = self.changes.as_ref().map(|changes| &changes.form);
        codec::append(&(self.header, form), bytes);
    }

    fn payload(&self) -> Payload<'_> {
        match &self.changes {
            Some(changes) => Payload::Borrowed(&changes.bytes),
            None => Payload::of(&self.values),
        }
    }

    /// Leaves changes encoded: only the node has the parameters that they apply to.
    fn of_parts(control: &[u8], payload: Received, _: usize) -> Result<Self, Malformed> {
        let (header, form): (ParametersHeader, Option<Form>) = codec::read(control)?;
        Ok(match form {
            None => {
                let (values, _) = payload.into_values().ok_or(Malformed)?;
                Self { header, values, changes: None }
            }
            Some(form) => {
                let changes = Some(Arc::new(Encoded { form, bytes: payload.into_bytes() }));
                Self { header, values: Arc::default(), changes }
            }
        })
    }
}

/// The fields of [`Parameters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParametersHeader {
    /// The version of the values.
    pub version: Version,
    /// The keys of the values.
    pub keys: KeyRange,
    /// The push that is allowed now; 0 with [early](Parameters::early) values. If the worker was
    /// allowed this push before, and still computes it on an earlier version, it must compute it on
    /// this version instead.
    pub sequence: Sequence,
    /// The mini-batch that it must be computed from.
    pub task: Task,
    /// Number of further pushes that the worker may send without waiting for an answer: from the
    /// tasks that follow ([`Job::following`]), each on the newest parameters it has.
    pub ahead: u32,
    /// The decision on the last decided push; every push before it was decided, too.
    pub decided: Option<Decided>,
}

/// A sign of life. The server answers it with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's incarnation, if it has one.
    pub incarnation: Option<Incarnation>,
    /// A worker's: the gradient that it has just stopped computing, if there is one.
    pub called_off: Option<CalledOff>,
}

impl Heartbeat {
    /// The heartbeat of a node that has stopped nothing.
    #[must_use]
    pub const fn of(incarnation: Option<Incarnation>) -> Self {
        Self { incarnation, called_off: None }
    }
}

/// A gradient that was called off while its worker computed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalledOff {
    /// The push that it was for.
    pub sequence: Sequence,
    /// The version that it was computed on.
    pub base: Version,
    /// Time from the receipt of its parameters, or the previous gradient, to the call, in
    /// nanoseconds.
    pub compute_ns: u64,
}

/// Server to worker: the run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Why.
    pub reason: EndReason,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// The budget is used up.
    BudgetReached,
    /// An evaluation reached the target of the job.
    TargetReached,
    /// As many evaluations as the job's patience were none the best.
    NoImprovement,
    /// A person asked the server to stop.
    Stopped,
    /// A worker departed, and the job demands to stop then, or it did not come back in time.
    WorkerLost(WorkerId, Departure),
    /// There were too few workers for longer than the patience of the job.
    TooFewWorkers {
        /// Workers that are present.
        present: u32,
        /// Workers that are needed.
        needed: u32,
    },
    /// The parameters, or the gradients of all workers, are no longer finite numbers.
    Diverged(Version),
    /// A server did not connect, or come back, in time, or came back without its parameters.
    ServerLost(ServerId),
    /// Of workers without a server, none is left that has the parameters of this version.
    ParametersLost(Version),
    /// Workers without a server reached their meeting point, but no group of them made an update
    /// for longer than the patience of the job. The last group halted because of this worker.
    Apart(WorkerId),
}

/// How a worker departed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// It sent a goodbye.
    Left,
    /// Its lease expired.
    Lost,
    /// The server refused it.
    Refused,
    /// Another process took over its worker id.
    Replaced,
}

/// Worker to server: the worker leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bye {
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// Why it cannot go on, if it leaves because of an error.
    pub why: Option<String>,
}

impl EndReason {
    /// True if the run did what it was asked to do.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Stopped) || self.is_complete()
    }

    /// True if the run ended because a node was lost that may come back.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        match self {
            Self::WorkerLost(..)
            | Self::TooFewWorkers { .. }
            | Self::ServerLost(_)
            | Self::ParametersLost(_)
            | Self::Apart(_) => true,
            Self::BudgetReached
            | Self::TargetReached
            | Self::NoImprovement
            | Self::Stopped
            | Self::Diverged(_) => false,
        }
    }

    /// True if the run came to the end that the job foresees.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::BudgetReached | Self::TargetReached | Self::NoImprovement)
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "has left",
            Self::Lost => "was lost",
            Self::Refused => "was refused",
            Self::Replaced => "was replaced by another process",
        })
    }
}

impl EndReason {
    /// Returns the reason in few words, without its cure.
    #[must_use]
    pub fn in_short(self) -> String {
        match self {
            Self::BudgetReached | Self::TargetReached | Self::NoImprovement | Self::Stopped => {
                self.to_string()
            }
            Self::WorkerLost(worker, how) => alloc::format!("worker {worker} {how}"),
            Self::TooFewWorkers { .. } => String::from("too few workers"),
            Self::ServerLost(server) => alloc::format!("server {server} was lost"),
            Self::ParametersLost(_) => "all workers with the parameters were lost".into(),
            Self::Apart(_) => "workers did not reach each other".into(),
            Self::Diverged(_) => String::from("training diverged"),
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BudgetReached => f.write_str("the budget is used up"),
            Self::TargetReached => f.write_str("the target is reached"),
            Self::NoImprovement => f.write_str("evaluations improve no more"),
            Self::Stopped => f.write_str("stopped on request"),
            Self::WorkerLost(worker, how) => {
                let absence = match how {
                    Departure::Lost => " and did not come back in time",
                    Departure::Left | Departure::Refused | Departure::Replaced => "",
                };
                write!(
                    f,
                    "worker {worker} {how}{absence}, and on-worker-loss does not let the run \
                     continue without it (continue would)"
                )
            }
            Self::TooFewWorkers { present, needed } => {
                write!(
                    f,
                    "too few workers: {needed} needed, {present} there; start more of them, or let \
                     the run do with fewer (workers, min-workers)"
                )
            }
            Self::Apart(worker) => write!(
                f,
                "the workers reach their meeting point, but no group of them has made an update in \
                 time, the last one for want of worker {worker}; look at the links between the \
                 workers, or give a longer lease"
            ),
            Self::ParametersLost(version) => write!(
                f,
                "all workers that had made update {version} were lost, and the parameters since \
                 the last evaluation with them; start the run again, with more workers"
            ),
            Self::ServerLost(server) => write!(
                f,
                "server {server} was not there in time, and it alone has its part of the \
                 parameters; see that it runs and can reach the coordinator, and start the run \
                 again"
            ),
            Self::Diverged(Version(0)) => f.write_str(
                "training diverged: most workers find no finite gradient at the initial \
                 parameters; look for bad input values, and at a compute process with pstrain \
                 compute check, or try other initial parameters",
            ),
            Self::Diverged(version) => write!(
                f,
                "training diverged: parameters or gradients are not finite after update \
                 {version}; try a smaller learning-rate, or clip-norm"
            ),
        }
    }
}
