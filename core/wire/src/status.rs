//! Status of a job: what it waits for, and since when.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spent::{LinkFigures, Recent};
use pstrain_compute::id::{BatchId, Clock, ServerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_policy::job::DataFrom;

/// Answer to a status request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The job's name.
    pub job: String,
    /// The mode, with its consistency as the job file names it.
    pub consistency: String,
    /// The synchronisation rule of the mode, in words.
    pub rule: String,
    /// How long a worker may be silent before it is lost.
    pub lease: Duration,
    /// Where a worker's examples come from.
    pub data_from: DataFrom,
    /// The recipe of the job's data. The nodes only pass it on.
    pub recipe: String,
    /// The modelled network and machines, as the job has them ([`Job::scenario`]).
    ///
    /// [`Job::scenario`]: pstrain_policy::job::Job::scenario
    pub scenario: String,
    /// The mode that was requested and has not started, if there is one.
    pub ordered: Option<String>,
    /// The phase of the run.
    pub phase: Phase,
    /// Time since the server started.
    pub uptime: Duration,
    /// The current version: updates applied.
    pub version: Version,
    /// Examples applied.
    pub samples: u64,
    /// Examples in the budget.
    pub samples_wanted: u64,
    /// Passes over the training split so far.
    pub epoch: f64,
    /// Mean loss of the last mini-batches of all workers.
    pub loss: Option<f64>,
    /// The last evaluation.
    pub evaluated: Option<LatestEvaluation>,
    /// The run at its evaluations, the earliest first: at most [`MOST_MOMENTS`], fewer of the time
    /// that is longer ago.
    pub history: Vec<Moment>,
    /// The current wait of the job, if it waits.
    pub wait: Option<Wait>,
    /// The address of the server's standby, if it has one.
    pub standby: Option<String>,
    /// The address of the primary, if a standby answers. The standby reports what it knows.
    pub leader: Option<String>,
    /// All servers, if there are several: the coordinator first.
    pub servers: Vec<ServerStatus>,
    /// The share of the time, from 0 to 1, in which processes on the machine of the server wait for
    /// a processor, if its system tells. The driver fills this in.
    pub processor_wait: Option<f64>,
    /// Every worker id of the job, in order.
    pub members: Vec<MemberStatus>,
    /// Workers and servers that were refused recently, the last first. The driver fills this in.
    pub refused: Vec<RefusedStatus>,
}

/// A worker or server that introduced itself and was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedStatus {
    /// The name or number that it gave.
    pub who: String,
    /// The host of the peer; none if its connection was already gone.
    pub from: Option<String>,
    /// Why, in words.
    pub why: String,
    /// Number of refusals for this reason.
    pub times: u64,
    /// Time since the last refusal.
    pub ago: Duration,
}

/// One of several servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The server's number.
    pub server: ServerId,
    /// Number of initial servers of the job, if it is one of them.
    pub of: Option<u32>,
    /// The address for workers; empty if the server never connected, or is the coordinator.
    pub address: String,
    /// The keys that it has; none before it receives any.
    pub keys: Option<KeyRange>,
    /// How long it has been disconnected, if it is.
    pub away: Option<Duration>,
    /// Which process can take its place.
    pub successor: Successor,
    /// The address of its standby, if it has one.
    pub standby: Option<String>,
}

/// Which process can take the place of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Successor {
    /// Any process: the server never connected, or nothing has been decided yet.
    Any,
    /// A process with the server's checkpoints. All servers go back to the last complete one.
    Checkpoint,
    /// A process with the server's whole state: the same process, one with its log, or its standby.
    Heir,
}

/// Most moments of a run's history.
pub const MOST_MOMENTS: usize = 256;

/// A moment of a run's past.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The uptime then.
    pub at: Duration,
    /// The mean loss of the last mini-batches then.
    pub loss: Option<f64>,
    /// The main metric of the task on the held-out examples.
    pub metric: Option<f64>,
}

/// Quality of the parameters of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatestEvaluation {
    /// The version.
    pub version: Version,
    /// The mean loss on the held-out examples.
    pub loss: f64,
    /// The metrics by name, the main one of the task first.
    pub metrics: Vec<(String, f64)>,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The run waits for the workers that it needs.
    Gathering,
    /// The run trains.
    Training,
    /// Outstanding work is awaited before the run ends.
    Draining,
    /// The run has ended; the server says goodbye to its workers.
    Ending,
}

/// A wait of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The reason.
    pub reason: WaitReason,
    /// The awaited workers.
    pub workers: Vec<WorkerId>,
    /// How long the job has waited.
    pub waited: Duration,
    /// How much longer it will wait at most.
    pub left: Option<Duration>,
}

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitReason {
    /// The run needs more workers to start or to continue.
    Workers,
    /// The consistency waits for these workers' gradients.
    Gradients,
    /// Another mode starts once these workers' gradients have arrived.
    Fence,
    /// Keys move to or from a server once these workers' gradients have arrived.
    Keys,
    /// The run has ended and these workers have not said goodbye.
    Goodbyes,
    /// Another server of the job is not connected.
    Server(ServerId),
    /// The standby is gone, and not enough workers have voted for the server to continue alone.
    Standby,
    /// These workers cannot reach another node, which is connected to the coordinator or the
    /// meeting point.
    Unreached(ServerId),
    /// This node is a standby that has lost its primary: it waits for the primary, or for enough
    /// votes to lead in its place.
    Primary,
    /// Another server has not sent its part of a norm or of distances that an update needs, or,
    /// once the run has ended, of the parameters.
    Part(ServerId),
    /// The standby is connected but silent. No effect of the server is visible before the standby
    /// has confirmed it.
    StandbySilent,
    /// A worker has not sent the initial parameters.
    Initial,
    /// The run has ended, and a worker has not made the last evaluation.
    Evaluation,
}

/// One worker of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The worker's id.
    pub worker: WorkerId,
    /// The worker's name; empty if it never connected.
    pub name: String,
    /// The worker's state.
    pub state: MemberState,
    /// How long it has been in this state.
    pub since: Duration,
    /// Time since its last message.
    pub silent: Duration,
    /// Number of its iterations.
    pub clock: Clock,
    /// The mini-batch that it computes, or will compute next.
    pub batch: BatchId,
    /// Number of updates that it contributed to.
    pub updates: u64,
    /// Number of gradients that arrived.
    pub pushes: u64,
    /// Number of these gradients that were discarded.
    pub dropped: u64,
    /// Number of gradients that were called off while it computed them.
    pub called_off: u64,
    /// Number of updates that its last applied gradient had missed.
    pub staleness: u64,
    /// Where its time went recently.
    pub recent: Recent,
    /// Figures of its connection from the server's driver; none without a connection.
    pub link: Option<LinkFigures>,
    /// Mini-batches of its partition that were assigned to other workers.
    pub reassigned: u64,
    /// Why, if it left because of an error or was refused.
    pub why_left: Option<String>,
    /// The node that it cannot reach, and since when.
    pub unreached: Option<(Unreached, Duration)>,
    /// The workers that exchange messages with it by way of the meeting point.
    pub relayed: Vec<WorkerId>,
}

/// A node to which workers connect, other than the coordinator or the meeting point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Endpoint {
    /// Another server.
    Server(ServerId),
    /// A worker of the same group.
    Worker(WorkerId),
}

/// A node that a worker cannot reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreached {
    /// The node.
    pub node: Endpoint,
    /// The address at which it says that it is reached.
    pub address: String,
    /// Why, in words that may be shown as they are
    /// ([`is_presentable`](crate::name::is_presentable)).
    pub why: String,
}

/// State of a worker, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// Never connected.
    Awaited,
    /// Loads its data.
    Preparing,
    /// Has parameters and has not pushed its gradient yet.
    Computing,
    /// Waits for parameters.
    Waiting,
    /// Was disconnected; its lease has not expired.
    CutOff,
    /// Has used up its share of the budget.
    Finished,
    /// Its lease has expired.
    Lost,
    /// Left the job with a goodbye.
    Left,
    /// The server refused it.
    Refused,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gathering => "waiting for workers",
            Self::Training => "training",
            Self::Draining => "draining",
            Self::Ending => "ending",
        })
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(server) => return write!(f, "server {server} to come"),
            Self::Unreached(server) => return write!(f, "a way to server {server}"),
            Self::Part(server) => {
                return write!(
                    f,
                    "the part of a norm or of the last parameters on server {server}"
                );
            }
            Self::Standby => "the standby, or most workers' promise to do without it",
            Self::Primary => "the server that it stands by for, or most workers' promise",
            Self::Workers => "more workers",
            Self::Gradients => "gradients",
            Self::Fence => "the last gradients before another mode",
            Self::Keys => "the last gradients before keys move to another server",
            Self::Goodbyes => "goodbyes",
            Self::Initial => "the initial parameters",
            Self::Evaluation => "the last evaluation",
            Self::StandbySilent => "the standby, which is silent, to confirm what it was sent",
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "server {server}"),
            Self::Worker(worker) => write!(f, "worker {worker}"),
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Awaited => "awaited",
            Self::Preparing => "loading data",
            Self::Computing => "computing",
            Self::Waiting => "waiting",
            Self::CutOff => "cut off",
            Self::Finished => "finished",
            Self::Lost => "lost",
            Self::Left => "left",
            Self::Refused => "refused",
        })
    }
}
