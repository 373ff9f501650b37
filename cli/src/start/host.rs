//! Nodes with what they keep and what surrounds them: the values that a plan opens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use pstrain_compute::id::ServerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::{
    Meeting, Replica, ReplicaConfig, Replicate, Server, Shard, ShardConfig, Trained,
};
use pstrain_transports::journal::{Checkpoints, CheckpointsOnly, Companions, Files, InputLog, Log};
use pstrain_transports::{Address, Begin, Punctuality};
use pstrain_wire::group::Place;
use pstrain_wire::worker::EndReason;

use super::fresh_run;
use super::plan::Says;
use crate::args::Output;
use crate::durable::{StandbyOf, State};
use crate::energy::{EnergySpec, Meter};
use crate::job::{Layers, Resolved};
use crate::messages;
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::process::Arithmetic;
use crate::progress::Progress;
use crate::record::{Folder, Recorder, Summary};
use crate::served::ServerData;
use crate::signals::Drain;

/// A node and its journal; `S` is a coordinating server or a shard.
pub(crate) enum Machine<S> {
    /// Keeps nothing and takes no standby: the server of a run in one process.
    Alone(S),
    /// Keeps checkpoints, which it may go back to, and takes no standby.
    Checkpointed(S, CheckpointsOnly),
    /// A server that may have a standby, or a standby. Keeps nothing.
    Replica(Replica),
    /// The same with a log of its inputs.
    Logged(Replica, InputLog),
    /// The meeting point of workers without a server, with the checkpoints that it keeps, if any.
    Meeting(Box<Meeting>, Option<CheckpointsOnly>),
}

/// A node from its opening to its end, or until it goes back to a checkpoint.
pub(crate) struct Life<S> {
    pub(crate) machine: Machine<S>,
    pub(super) begin: Begin,
    /// Time of the run at which it begins.
    pub(super) now: Time,
    /// Receives the time of commits.
    #[cfg(feature = "metrics")]
    pub(super) metrics: Option<Metrics>,
}

/// The node of a server with its surroundings.
pub(crate) enum Host {
    Job(Box<JobServer>),
    Shard(Box<ShardServer>),
}

/// A job with its data and its output: the same in all lives of its server.
#[derive(Debug)]
pub(crate) struct Training {
    pub(super) job: Job,
    pub(super) data: Arc<ServerData>,
    pub(super) arithmetic: Arithmetic,
    /// The initial parameters, if a file has them.
    pub(super) initial: Option<Arc<Vec<f32>>>,
    /// The text of its job file.
    pub(super) job_file: String,
    /// The folder of its state, if it keeps one.
    pub(super) state: Option<PathBuf>,
    /// The command that began it, as far as one that resumes it needs the same words.
    pub(super) command: String,
    pub(super) output: Output,
    /// The workers are other processes.
    pub(super) guests: bool,
    /// Period of the progress messages, if there are any.
    pub(super) says_every: Option<Duration>,
    pub(super) drain: Drain,
    /// The settings of the job about its energy.
    pub(super) energy: EnergySpec,
    /// Measures the energy of this machine in all lives of the server, if it can; none before the
    /// first one, or in virtual time.
    pub(super) meter: Option<Meter>,
}

/// A server with the job, its evaluation and its records.
pub(crate) struct JobServer {
    pub(super) training: Training,
    pub(super) life: Life<Server>,
    pub(super) recorder: Recorder,
    /// The primary, if this server began as a standby.
    pub(super) of: Option<StandbyOf>,
    /// How well links and computing times that are modelled were kept.
    pub(super) punctuality: Punctuality,
}

/// A server that does not coordinate.
pub(crate) struct ShardServer {
    pub(super) follower: Follower,
    pub(super) life: Life<Shard>,
}

/// A server that does not coordinate: the same in all its lives.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) config: ShardConfig,
    pub(super) coordinator: Address,
    pub(super) says: Says,
    pub(super) drain: Drain,
}

impl<S> Life<S> {
    /// The life of a new node.
    pub(super) fn new(machine: Machine<S>) -> Self {
        Self {
            machine,
            begin: Begin::start(),
            now: Time::ZERO,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }
}

impl Machine<Server> {
    /// The result of the run; none for a standby that never reached its primary.
    pub(super) fn trained(&self) -> Option<Trained> {
        match self {
            Self::Alone(server) | Self::Checkpointed(server, _) => Some(server.trained()),
            Self::Replica(replica) | Self::Logged(replica, _) => {
                replica.server().map(Server::trained)
            }
            Self::Meeting(meeting, _) => Some(meeting.trained()),
        }
    }
}

impl State {
    /// The checkpoints of a node that continues from this state.
    pub(super) fn checkpoints(self, companions: Companions) -> Checkpoints {
        let Self { folder, checkpoint_every, found, now } = self;
        Checkpoints::new(folder, Files, (checkpoint_every, now), &found, companions, messages::warn)
    }

    /// The log of such a node, which a drain gives up if it cannot be written.
    pub(super) fn log(self, log: Log, companions: Companions, drain: Drain) -> InputLog {
        let log = InputLog::new(log, self.checkpoints(companions), messages::warn);
        log.until(move || drain.is_asked())
    }
}

/// The companions of a server's checkpoints: the positions of its records.
pub(super) fn companions(recorder: &Recorder) -> Companions {
    let recorder = recorder.clone();
    Box::new(move || recorder.keep())
}

impl Training {
    /// The job of a run in one process.
    pub(crate) fn in_process(
        layers: &Layers,
        resolved: Resolved<ServerData>,
        output: Output,
    ) -> anyhow::Result<Self> {
        if matches!(&resolved.arithmetic, Arithmetic::Process(process) if process.is_absent()) {
            bail!(
                "process: a description computes no gradients, and the workers are in this \
                 process; give the command of the compute process"
            );
        }
        Self::of(layers, resolved, output)
    }

    /// A job before its run.
    pub(super) fn of(
        layers: &Layers,
        Resolved { job, data, arithmetic }: Resolved<ServerData>,
        output: Output,
    ) -> anyhow::Result<Self> {
        let (data, job_file, drain) = (Arc::new(data), layers.to_toml(), Drain::default());
        let (initial, guests, says_every) = (layers.initial(&job)?, false, None);
        let (energy, meter) = (layers.energy()?, None);
        let (state, command) = (None, String::from("pstrain run"));
        Ok(Self {
            job,
            data,
            arithmetic,
            initial,
            job_file,
            state,
            command,
            output,
            guests,
            says_every,
            drain,
            energy,
            meter,
        })
    }

    /// Ends the run in order when it is asked.
    pub(crate) fn drain(&self) -> Drain {
        self.drain.clone()
    }

    /// The server of a run in one process that keeps nothing.
    pub(super) fn alone(self) -> anyhow::Result<JobServer> {
        let machine = match self.meeting()? {
            Some(meeting) => meeting,
            None => Machine::Alone(Server::new(self.job.clone(), fresh_run())?),
        };
        let recorder = self.recorder()?;
        self.server(Life::new(machine), recorder, None)
    }

    /// The meeting point, if the workers of the job have no server.
    pub(super) fn meeting(&self) -> anyhow::Result<Option<Machine<Server>>> {
        if self.job.architecture.has_server() {
            return Ok(None);
        }
        let meeting = Meeting::new(self.job.clone(), fresh_run())?;
        Ok(Some(Machine::Meeting(Box::new(meeting), None)))
    }

    /// The records of a run before its first update.
    pub(super) fn recorder(&self) -> anyhow::Result<Recorder> {
        let Output { out, overwrite, .. } = &self.output;
        let folder = out.as_deref().map(|out| self.folder(out, *overwrite)).transpose()?;
        Ok(self.recorder_of(Summary::new(&self.job), folder))
    }

    /// The results folder of a run before its first update.
    pub(super) fn folder(&self, out: &Path, overwrite: bool) -> anyhow::Result<Folder> {
        Folder::create(out, overwrite, &self.job, &self.job_file, self.output.out_limit.0)
    }

    pub(super) fn recorder_of(&self, summary: Summary, folder: Option<Folder>) -> Recorder {
        let Self { job, output, guests, .. } = self;
        // The messages of a server with workers in other processes are a log, whatever form its
        // results have.
        let quiet = output.quiet || (output.form.json && !guests);
        let progress = Progress::new(job.budget.epochs, quiet, *guests);
        Recorder::new(summary, folder, progress)
    }

    pub(super) fn server(
        mut self,
        life: Life<Server>,
        recorder: Recorder,
        of: Option<StandbyOf>,
    ) -> anyhow::Result<JobServer> {
        if self.meter.is_none() {
            self.meter = self.energy.meter()?;
        }
        recorder.measure(self.meter.clone());
        let punctuality = Punctuality::default();
        Ok(JobServer { training: self, life, recorder, of, punctuality })
    }
}

impl JobServer {
    /// The last lines of the run, which has ended for `reason`.
    pub(crate) fn last_words(&self, reason: EndReason) -> Vec<String> {
        self.training.last_words(reason)
    }

    /// The results folder, if the run is recorded.
    pub(crate) fn out(&self) -> Option<&Path> {
        self.training.output.out.as_deref()
    }

    /// Recorder for the workers of this process, if the run is recorded.
    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.recorder.is_recording().then(|| self.recorder.clone())
    }
}

impl ShardServer {
    /// Its number, once it has one.
    pub(super) fn number(&self) -> Option<ServerId> {
        let holds = match &self.life.machine {
            Machine::Replica(replica) | Machine::Logged(replica, _) => replica.holds(),
            Machine::Alone(_) | Machine::Checkpointed(..) | Machine::Meeting(..) => None,
        };
        match self.follower.config.place {
            Place::First { server, .. } | Place::Given { server } => Some(server),
            Place::Wanted => holds.map(|(server, _)| server),
        }
    }
}

#[cfg(feature = "metrics")]
impl JobServer {
    /// Reports all later events and commits to `metrics`.
    pub(super) fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.life.metrics = Some(metrics.clone());
        self.recorder.set_metrics(metrics);
        self
    }
}

impl Follower {
    /// A shard that follows the coordinator.
    pub(super) fn shard(&self) -> Shard {
        Shard::new(self.config.clone()).follows(self.coordinator.to_string())
    }
}

/// A new primary, or a new standby `of` a server. `number` must differ from the number of any other
/// process.
pub(super) fn new_replica(
    number: u64,
    of: Option<&StandbyOf>,
    job: Job,
) -> anyhow::Result<Replica> {
    let config = replica_config(number, of);
    Ok(match of {
        Some(_) => Replica::standby(config, job)?,
        None => Replica::primary(config, Server::new(job, number)?),
    })
}

/// Configuration of a primary, or of a standby if it began as in `of`.
pub(super) fn replica_config(id: u64, of: Option<&StandbyOf>) -> ReplicaConfig {
    let (leader, address) = of.map_or_else(Default::default, |StandbyOf { primary, address }| {
        (primary.clone(), address.clone())
    });
    let replicate = Replicate::default();
    ReplicaConfig { id, address, leader, stream: Stream::new(id), replicate }
}

/// Configuration of a server that does not coordinate and that workers reach at `address`.
pub(crate) fn shard_config(place: Place, address: &Address, lease: Duration) -> ShardConfig {
    let (server, servers) = match place {
        Place::First { server, servers } => (server.0, servers),
        Place::Given { server } => (server.0, 0),
        Place::Wanted => (0, 0),
    };
    ShardConfig {
        place,
        address: address.to_string(),
        lease,
        // The same after a restart: the server is a function of its inputs.
        stream: Stream::new(u64::from(servers)).fork("server", u64::from(server)),
    }
}
