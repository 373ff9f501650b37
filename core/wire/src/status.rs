//! How a job is doing: for whom it waits, and since when.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::holders::Unreached;
use crate::spent::{LinkFigures, Recent};
use pstrain_compute::id::{BatchId, Clock, ServerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_policy::job::DataFrom;

/// The answer to a status question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The job's name.
    pub job: String,
    /// The mode, with its consistency as the job names it.
    pub consistency: String,
    /// Who waits for whom under it, in words.
    pub rule: String,
    /// How long a worker may be silent.
    pub lease: Duration,
    /// Where a worker's examples come from.
    pub data_from: DataFrom,
    /// The recipe of the job's data, which the nodes only carry.
    pub recipe: String,
    /// The mode that was ordered and has not begun, if there is one.
    pub ordered: Option<String>,
    /// Where the run is.
    pub phase: Phase,
    /// Time since the server began.
    pub uptime: Duration,
    /// Updates applied.
    pub version: Version,
    /// Examples applied.
    pub samples: u64,
    /// Examples the budget asks for.
    pub samples_wanted: u64,
    /// Passes over the training split so far.
    pub epoch: f64,
    /// Mean loss of the last mini-batches of all workers.
    pub loss: Option<f64>,
    /// The last evaluation.
    pub evaluated: Option<LatestEvaluation>,
    /// For whom the job waits, if it does.
    pub wait: Option<Wait>,
    /// Where the server's standby is, if it has one.
    pub standby: Option<String>,
    /// Where the server that leads is, if a standby answers, which says what it knows of that.
    pub leader: Option<String>,
    /// The servers, where there are several: the one that coordinates first.
    pub servers: Vec<ServerStatus>,
    /// Every worker id of the job, in order.
    pub members: Vec<MemberStatus>,
    /// Workers and servers that were refused of late, the last first. The driver knows them.
    pub refused: Vec<RefusedStatus>,
}

/// A worker or server that said who it is and was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedStatus {
    /// The name or number that it gave.
    pub who: String,
    /// The host it came from; none if its connection was gone by then.
    pub from: Option<String>,
    /// Why, in words.
    pub why: String,
    /// How many times, for this reason.
    pub times: u64,
    /// The last time, before now.
    pub ago: Duration,
}

/// One of several servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its number.
    pub server: ServerId,
    /// How many servers the job began with, if it is one of them.
    pub of: Option<u32>,
    /// Where workers reach it; empty if it never came, or is the one that coordinates.
    pub address: String,
    /// The keys that it has; none before it is given some.
    pub keys: Option<KeyRange>,
    /// How long it has not been there, if it is not.
    pub away: Option<Duration>,
    /// Which process can take its place.
    pub successor: Successor,
    /// Where its standby is, if it has one.
    pub standby: Option<String>,
}

/// Which process can take the place of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Successor {
    /// Any: the server was never there, or nothing has been decided yet.
    Any,
    /// One with the checkpoints of the server. All servers go back to the last whole checkpoint.
    Checkpoint,
    /// One with all that the server had: the same process, one with its log, or its standby.
    Heir,
}

/// How good the parameters of a version are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatestEvaluation {
    /// The version.
    pub version: Version,
    /// The share of the held-out examples that it gets right.
    pub accuracy: f64,
    /// The mean loss on them.
    pub loss: f64,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waits for the workers it needs.
    Gathering,
    /// Trains.
    Training,
    /// Lets outstanding work come back before it ends.
    Draining,
    /// Is over; says goodbye.
    Ending,
}

/// What a job waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Why.
    pub reason: WaitReason,
    /// The workers that are awaited.
    pub workers: Vec<WorkerId>,
    /// How long already.
    pub waited: Duration,
    /// How long it will wait at most from now on.
    pub left: Option<Duration>,
}

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitReason {
    /// The run needs more workers to begin or to go on.
    Workers,
    /// The consistency waits for these workers' gradients.
    Gradients,
    /// Another mode begins once these workers' gradients have come.
    Fence,
    /// Keys move to or from a server once these workers' gradients have come.
    Keys,
    /// The run is over and these workers have not said goodbye.
    Goodbyes,
    /// Another server of the job is not there.
    Server(ServerId),
    /// The standby is gone, and the workers have not promised to follow the server alone.
    Standby,
    /// These workers cannot be with one of the other servers, which is there.
    Unreached(ServerId),
    /// Whoever answers stands by, and the server that leads is gone: for that one, or for enough
    /// promises to lead in its place.
    Primary,
    /// Another server has not said what its keys have of a norm or a distance, by which an update
    /// goes.
    Part(ServerId),
    /// Values that a client has pushed become part of the parameters once these workers' gradients
    /// have come.
    Push,
    /// The standby has a connection and is silent. Nothing that the server does has an effect
    /// before the standby confirms it.
    StandbySilent,
}

/// One worker of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its id.
    pub worker: WorkerId,
    /// Its name; empty if it was never there.
    pub name: String,
    /// What it is doing.
    pub state: MemberState,
    /// How long it has been doing that.
    pub since: Duration,
    /// When it was last heard from, before now.
    pub silent: Duration,
    /// Its iterations.
    pub clock: Clock,
    /// The mini-batch that it computes, or will next.
    pub batch: BatchId,
    /// Updates it contributed to.
    pub updates: u64,
    /// Gradients that came.
    pub pushes: u64,
    /// Those of them that were thrown away.
    pub dropped: u64,
    /// Updates that its last applied gradient had missed.
    pub staleness: u64,
    /// Where its time went of late.
    pub recent: Recent,
    /// Its connection, as whoever drives the server knows it; none without one.
    pub link: Option<LinkFigures>,
    /// Mini-batches of its partition that other workers were given.
    pub reassigned: u64,
    /// The other server that it cannot be with, and since when.
    pub unreached: Option<(Unreached, Duration)>,
}

/// What a worker is doing, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// Was never there.
    Awaited,
    /// Loads its data.
    Preparing,
    /// Has parameters and owes a gradient.
    Computing,
    /// Waits for parameters.
    Waiting,
    /// Was cut off and has its lease left.
    CutOff,
    /// Has used up its share of the budget.
    Finished,
    /// Its lease is over.
    Lost,
    /// Said goodbye.
    Left,
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
                return write!(f, "what server {server} has of a norm, by which the update goes");
            }
            Self::Standby => "the standby, or most workers' promise to do without it",
            Self::Primary => "the server that it stands by for, or most workers' promise",
            Self::Workers => "more workers",
            Self::Gradients => "gradients",
            Self::Fence => "the last gradients before another mode",
            Self::Keys => "the last gradients before keys move to another server",
            Self::Goodbyes => "goodbyes",
            Self::Push => "the last gradients before the parameters are those that were pushed",
            Self::StandbySilent => "the standby, which is silent, to confirm what it was sent",
        })
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
        })
    }
}
