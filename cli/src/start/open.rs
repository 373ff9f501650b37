//! What a plan opens: the listener, the data, the state folder, the records and the node.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use pstrain_compute::rng::Stream;
use pstrain_policy::job::Job;
use pstrain_roles::node::{Replica, ReplicaConfig, Replicate, Server, Shard, ShardConfig};
use pstrain_transports::journal::{Log, Snapshots};
use pstrain_transports::{Address, Punctuality, SocketTransport, allow_more_files};
use pstrain_wire::group::Place;

use super::fresh_run;
use super::journal::{Companions, Life, Machine};
use super::plan::{Begins, JobPlan, Keeps, NewServer, NewState, Plan, Reached, Role};
use crate::args::{Durability, Output};
use crate::durable::{DurableFolder, Identity, ShardFolder, StandbyOf, State};
use crate::job::{Layers, Resolved};
use crate::messages;
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::record::{Folder, Recorder, Summary};
use crate::security::{in_words, of_server, security};
use crate::served::ServerData;
use crate::signals::Drain;
use crate::simulate::VirtualReport;

/// The state of a new server, and its log if it keeps one.
type Kept = (State, Option<Log>);

/// How long the coordinator may be silent, until the lease of the job is known.
const LEASE: Duration = Duration::from_secs(5);

/// A server that is ready to serve.
pub(crate) struct Opened {
    pub(super) transport: SocketTransport,
    pub(super) server: Opening,
}

/// The node of a server with what surrounds it.
pub(crate) enum Opening {
    Job(Box<JobServer>),
    Shard(Box<ShardServer>),
}

/// A job with its data and its output: the same in all lives of its server.
#[derive(Debug)]
pub(crate) struct Training {
    pub(super) job: Job,
    pub(super) data: Arc<ServerData>,
    /// The text of its job file.
    pub(super) job_file: String,
    pub(super) output: Output,
    /// The workers are other processes.
    pub(super) guests: bool,
    /// Period of the progress messages, if there are any.
    pub(super) says_every: Option<Duration>,
    pub(super) drain: Drain,
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
    /// The results that only virtual time has.
    pub(super) virtual_time: Option<VirtualReport>,
}

/// A server that does not coordinate.
pub(crate) struct ShardServer {
    pub(super) follower: Follower,
    pub(super) life: Life<Shard>,
}

/// A server that does not coordinate: the same in all its lives.
#[derive(Debug)]
pub(super) struct Follower {
    config: ShardConfig,
    pub(super) coordinator: Address,
    /// Without messages about events.
    pub(super) quiet: bool,
    pub(super) drain: Drain,
}

/// Opens what the plan names.
pub(crate) fn open(Plan { role, reached }: Plan) -> anyhow::Result<Opened> {
    match role {
        Role::Job(plan) => open_job(*plan, &reached),
        Role::Shard { place, coordinator, begins, quiet } => {
            open_shard((place, begins), (coordinator, quiet), &reached)
        }
    }
}

/// Opens a server with the job. Listening comes before reading: workers may dial while the data are
/// read, and an address that is taken is reported at once.
fn open_job(plan: JobPlan, reached: &Reached) -> anyhow::Result<Opened> {
    let read = |layers: &Layers| Training::read(layers, plan.output, plan.says_every);
    let (transport, mut server) = match plan.begins {
        Begins::New(NewServer::Coordinator { job, keeps }) => {
            let (transport, _) = listen_aloud(reached)?;
            (transport, read(&job)?.begin(&keeps)?)
        }
        Begins::New(NewServer::Standby { job, primary, log }) => {
            let (transport, local) = listen_aloud(reached)?;
            let training = read(&job)?;
            let address = advertised(reached, &local, &primary)?.to_string();
            let of = StandbyOf { primary: primary.to_string(), address };
            (transport, training.stand_by(of, log.as_ref())?)
        }
        Begins::Resumed(folder) => {
            let (folder, layers) = DurableFolder::open(&folder)?;
            layers.real_time()?;
            let (transport, _) = listen_aloud(reached)?;
            (transport, read(&layers)?.resume(folder)?)
        }
    };
    let transport = match &server.of {
        Some(of) => transport.with_target(of.primary.parse()?),
        None => transport,
    };
    if let Machine::Replica(replica) | Machine::Logged(replica, _) = &mut server.life.machine {
        replica.set_replicate(plan.replicate);
    }
    #[cfg(feature = "metrics")]
    if let Some(address) = &plan.metrics {
        server.publish(address, &transport)?;
    }
    Ok(Opened { transport, server: Opening::Job(Box::new(server)) })
}

/// Opens a server that does not coordinate.
fn open_shard(
    (place, begins): (Place, Begins<Keeps>),
    (coordinator, quiet): (Address, bool),
    reached: &Reached,
) -> anyhow::Result<Opened> {
    // Both directions must be secured: workers dial this server, and it dials the coordinator.
    security(&reached.security, &coordinator)?;
    let (transport, local) = listen(reached)?;
    let transport = transport.with_target(coordinator.clone());
    let address = advertised(reached, &local, &coordinator)?;
    let is_resumed = matches!(begins, Begins::Resumed(_));
    let kept = match &begins {
        Begins::Resumed(path) => Some(ShardFolder::open(path, place)?),
        Begins::New(keeps) => {
            let create = |(durability, state): (Durability, &NewState)| {
                let kept = (durability, state.checkpoint_every);
                ShardFolder::create(&state.folder, place, fresh_run(), kept)
            };
            keeps.parts().map(create).transpose()?
        }
    };
    let says = || {
        let secured = in_words(&reached.security, &local);
        messages::say(&format!("{place}, listening on {local}{secured}"));
    };
    let config = shard_config(place, &address, LEASE);
    let follower = Follower { config, coordinator, quiet, drain: Drain::default() };
    let life = match kept {
        None => {
            says();
            let config = replica_config(fresh_run(), None);
            Life::new(Machine::Replica(Replica::primary_shard(config, follower.shard())))
        }
        Some((folder, kept)) if kept.durability == Durability::Checkpoint => {
            says();
            follower.at_rest(folder, kept.checkpoint_every)?
        }
        Some((folder, kept)) => {
            let life = follower.at_log_end(folder, &kept, is_resumed)?;
            says();
            life
        }
    };
    Ok(Opened { transport, server: Opening::Shard(Box::new(ShardServer { follower, life })) })
}

/// Listens, secured as planned. Returns the address, too.
fn listen(reached: &Reached) -> anyhow::Result<(SocketTransport, Address)> {
    let security = of_server(&reached.security, &reached.listen)?;
    // Raised first, since the limit of unauthenticated connections follows from it.
    let _files = allow_more_files();
    let transport = SocketTransport::listen(&reached.listen)?;
    let transport = transport.secured(security).telling(messages::warn);
    let local = transport.local_address().unwrap_or_else(|| reached.listen.clone());
    Ok((transport, local))
}

/// Listens, and reports the address. Warns if only this machine can reach it, although the name
/// that was given does not show that.
fn listen_aloud(reached: &Reached) -> anyhow::Result<(SocketTransport, Address)> {
    let (transport, local) = listen(reached)?;
    let Reached { listen, security, .. } = reached;
    messages::say(&format!("listening on {local}{}", in_words(security, &local)));
    if local.is_local() && !is_loopback_by_name(listen) {
        messages::warn(&format!(
            "{listen} is {local} here, which only this machine can reach; for others listen on \
             0.0.0.0 or on an address of the network"
        ));
    }
    Ok((transport, local))
}

/// True if the address, as it was typed, shows that only this machine can reach it. Many systems
/// give their own host name an address of the loopback network.
fn is_loopback_by_name(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(host) => {
            ["127.", "localhost:", "[::1]:"].iter().any(|known| host.starts_with(known))
        }
    }
}

/// The address that the server at `teller` announces to workers for this server, which listens at
/// `local`.
fn advertised(reached: &Reached, local: &Address, teller: &Address) -> anyhow::Result<Address> {
    let Some(address) = &reached.advertise else {
        if local.is_unspecified() {
            bail!(
                "--listen {local}: say with --advertise HOST:PORT where workers reach this server"
            );
        }
        return Ok(local.clone());
    };
    if address.is_unspecified() {
        bail!(
            "--advertise {address}: nobody can dial that; give a name or an address of this machine"
        );
    }
    match address.is_same(teller) {
        Ok(true) => bail!(
            "--advertise {address}: there is the other server already; give the address of this \
             one, or leave it out: it listens at {local}"
        ),
        Ok(false) => {}
        Err(error) => bail!("--advertise {address}: workers will not find it: {error}"),
    }
    // Only a warning: in some networks a host cannot reach its own public address.
    if let Err(error) = address.try_dial() {
        messages::warn(&format!(
            "--advertise {address}: it cannot be reached from here ({error}); if workers cannot \
             either, the run stands still once it needs this server"
        ));
    }
    Ok(address.clone())
}

impl Training {
    /// Reads the data of a job.
    fn read(layers: &Layers, output: Output, says_every: Option<Duration>) -> anyhow::Result<Self> {
        let Resolved { job, data } = layers.resolve_served()?;
        let (data, job_file) = (Arc::new(data), layers.to_toml());
        Ok(Self { job, data, job_file, output, guests: true, says_every, drain: Drain::default() })
    }

    /// The job of a run in one process.
    pub(crate) fn in_process(layers: &Layers, job: Job, data: ServerData, output: &Output) -> Self {
        let (data, job_file, output) = (Arc::new(data), layers.to_toml(), output.clone());
        Self {
            job,
            data,
            job_file,
            output,
            guests: false,
            says_every: None,
            drain: Drain::default(),
        }
    }

    /// The server of a run in one process.
    pub(crate) fn alone(self) -> anyhow::Result<JobServer> {
        let server = Server::new(self.job.clone(), fresh_run())?;
        let recorder = self.recorder(&server)?;
        Ok(self.server(Life::new(Machine::Alone(server)), recorder, None))
    }

    /// The coordinator of a new run.
    fn begin(self, keeps: &Keeps) -> anyhow::Result<JobServer> {
        let run = fresh_run();
        let mut server = Server::new(self.job.clone(), run)?;
        if let Keeps::Checkpoints(_) = keeps {
            server = server.with_checkpoints();
        }
        let membership = server.job().membership;
        if !self.output.quiet {
            messages::say(&format!(
                "waiting for {} workers, for {} at most",
                membership.needed_to_start(),
                humantime::format_duration(membership.start_patience())
            ));
        }
        let (recorder, kept) = self.keep(run, keeps.parts(), &server, None)?;
        let primary = |server| Replica::primary(replica_config(run, None), server);
        let beside = companions(&recorder);
        let machine = match kept {
            None => Machine::Replica(primary(server)),
            Some((state, None)) => {
                Machine::Checkpointed(server, Snapshots::new(state.checkpoints(beside)))
            }
            Some((state, Some(log))) => {
                Machine::Logged(primary(server), state.log(log, beside, self.drain.clone()))
            }
        };
        Ok(self.server(Life::new(machine), recorder, None))
    }

    /// A new standby.
    fn stand_by(self, of: StandbyOf, log: Option<&NewState>) -> anyhow::Result<JobServer> {
        let number = fresh_run();
        let standby = Replica::standby(replica_config(number, Some(&of)), self.job.clone())?;
        let blank = Server::new(self.job.clone(), 0)?;
        let kept = log.map(|state| (Durability::Log, state));
        let (recorder, kept) = self.keep(number, kept, &blank, Some(&of))?;
        let machine = match kept {
            Some((state, Some(log))) => {
                let log = state.log(log, companions(&recorder), self.drain.clone());
                Machine::Logged(standby, log)
            }
            _ => Machine::Replica(standby),
        };
        Ok(self.server(Life::new(machine), recorder, Some(of)))
    }

    /// Makes the records of a new server, and its state folder if it keeps its state.
    fn keep(
        &self,
        number: u64,
        kept: Option<(Durability, &NewState)>,
        server: &Server,
        of: Option<&StandbyOf>,
    ) -> anyhow::Result<(Recorder, Option<Kept>)> {
        // Locked before earlier results are replaced: the folder may belong to a run in progress.
        let claimed = kept.map(|(_, state)| DurableFolder::claim(&state.folder)).transpose()?;
        let recorder = self.recorder(server)?;
        let Some((claimed, (durability, state))) = claimed.zip(kept) else {
            return Ok((recorder, None));
        };
        let (label, out) = ((&self.job, &*self.data), self.output.out.as_deref());
        let mut identity = Identity::new(number, label, durability, state.checkpoint_every, out)?;
        identity.standby = of.cloned();
        Ok((recorder, Some(DurableFolder::create(claimed, &identity, &self.job_file)?)))
    }

    /// The records of a server that begins.
    pub(super) fn recorder(&self, server: &Server) -> anyhow::Result<Recorder> {
        let Output { out, overwrite, out_limit, .. } = &self.output;
        let create = |path| Folder::create(path, *overwrite, &self.job_file, server, out_limit.0);
        let folder = out.as_deref().map(create).transpose()?;
        Ok(self.recorder_of(Summary::new(server.job()), folder))
    }

    pub(super) fn recorder_of(&self, summary: Summary, folder: Option<Folder>) -> Recorder {
        let Self { job, output, guests, .. } = self;
        // The messages of a server with workers in other processes are a log, whatever form its
        // results have.
        let quiet = output.quiet || (output.json && !guests);
        let progress = Progress::new(job.budget.epochs, job.data.train.rows, quiet, *guests);
        Recorder::new(summary, folder, progress)
    }

    pub(super) fn server(
        self,
        life: Life<Server>,
        recorder: Recorder,
        of: Option<StandbyOf>,
    ) -> JobServer {
        let (training, punctuality) = (self, Punctuality::default());
        JobServer { training, life, recorder, of, punctuality, virtual_time: None }
    }
}

impl JobServer {
    /// Recorder for the workers of this process, if the run is recorded.
    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.recorder.is_recording().then(|| self.recorder.clone())
    }

    /// Serves the metrics of the run at `address`.
    #[cfg(feature = "metrics")]
    fn publish(&mut self, address: &str, transport: &SocketTransport) -> anyhow::Result<()> {
        let metrics = Metrics::new(matches!(self.life.machine, Machine::Logged(..)));
        metrics.count(transport.traffic());
        let place = metrics.serve(address)?;
        let open = if place.ip().is_loopback() { "" } else { " to everybody who can reach it" };
        messages::say(&format!("metrics at http://{place}/metrics{open}"));
        self.life.set_metrics(metrics.clone());
        self.recorder.set_metrics(metrics);
        Ok(())
    }
}

impl Follower {
    /// A shard that follows the coordinator.
    pub(super) fn shard(&self) -> Shard {
        Shard::new(self.config.clone()).follows(self.coordinator.to_string())
    }
}

/// What the checkpoints of a server with records have next to its state.
pub(super) fn companions(recorder: &Recorder) -> Companions {
    let recorder = recorder.clone();
    Box::new(move || recorder.keep())
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
