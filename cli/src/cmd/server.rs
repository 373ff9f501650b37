//! `pstrain server`, and the server's part of `pstrain run`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::id::PartId;
use pstrain_compute::model::Model;
use pstrain_compute::source::Local;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::{NodeError, Server};
use pstrain_transports::journal::{Checkpoints, Files, InputLog, Snapshots, StateFolder};
use pstrain_transports::scenario::{Scenario, ServerLink};
use pstrain_transports::simulation::Origin;
use pstrain_transports::{
    Address, Evaluator, Mailbox, Punctuality, ServerServices, Shaped, SocketTransport, Transport,
    WallClock, allow_more_files, drive, drive_from,
};
use pstrain_wire::Status;
use pstrain_wire::group::Place;
use pstrain_wire::worker::EndReason;

use super::advertise::advertised;
use super::standby::{self, Role};
use crate::args::{Durability, Every, JobArgs, Output, ServerArgs};
use crate::durable::{DurableFolder, DurableRun, Identity, StandbyOf};
use crate::exit::{self, Ending};
use crate::job::{Layers, Resolved};
use crate::messages::LogForm;
#[cfg(feature = "metrics")]
use crate::metrics::{Metrics, TimedJournal};
use crate::progress::Progress;
use crate::record::{
    Folder, ModelFile, Recorder, Report, Shaping, Summary, VersionRange, write_model,
};
use crate::security::{in_words, of_server};
use crate::served::ServerData;
use crate::signals::Drain;
use crate::simulate::{Virtual, VirtualReport};
use crate::{messages, signals, table};

/// Default period of the progress messages, where no progress is shown on a terminal.
const SAYS_EVERY: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &ServerArgs, clock: WallClock) -> anyhow::Result<Ending> {
    messages::log_as(args.log.form);
    let joins = args.join.then_some(Place::Wanted);
    if let Some(place) = args.shard.map(Place::from).or(joins) {
        return super::shard::run(args, place, clock);
    }
    if args.durability == Durability::None && args.state.is_some() {
        bail!("--state: nothing is kept there without --durability checkpoint or log");
    }
    let resumed = args.resume.as_deref().map(DurableFolder::open).transpose()?;
    if let (Some(_), Some(flag)) = (&resumed, args.job.flags.first()) {
        bail!("--{flag}: a run that is resumed goes on with the job it had; leave it out");
    }
    let layers = match &resumed {
        Some((.., layers)) => layers.clone(),
        None => match gather(&args.job)? {
            // The run may be resumed in another working directory.
            Some(layers) if args.state.is_some() => layers.with_absolute_data()?,
            Some(layers) => layers,
            None => return Ok(Ending::Done),
        },
    };
    layers.real_time()?;
    // Listening comes first: workers may dial while the data are read, and an address that is taken
    // is reported at once.
    let transport = listen(args)?;
    let place = transport.local_address().unwrap_or_else(|| args.listen.clone());
    say_where(args, &place);
    let Resolved { job, data } = layers.resolve_served()?;
    let (data, job_file) = (Arc::new(data), layers.to_toml());
    let mut of = resumed.as_ref().and_then(|(folder, _)| folder.identity().standby.clone());
    let primary = of.as_ref().map(|standby| standby.primary.parse()).transpose()?;
    let transport = match primary.or_else(|| args.standby_of.clone()) {
        Some(primary) => transport.with_target(primary),
        None => transport,
    };
    let mut host = match (resumed, &args.standby_of) {
        (Some((folder, _)), _) => {
            Host::resume(folder, (job.clone(), Arc::clone(&data)), &job_file, &args.output)?
        }
        (None, Some(primary)) => {
            let address = advertised(args, &place, primary)?.to_string();
            let stands = StandbyOf { primary: primary.to_string(), address };
            of = Some(stands.clone());
            Host::standby(args, stands, (job.clone(), Arc::clone(&data)), &job_file)?
        }
        (None, None) => Host::begin(args, (job.clone(), Arc::clone(&data)), &job_file)?,
    };
    host.of = of;
    host.role.set_replicate(args.replicate.into());
    host.says_every = says_every(args);
    #[cfg(feature = "metrics")]
    if let Some(address) = &args.metrics {
        let has_log = host.keeping.as_ref().is_some_and(|keeping| keeping.log.is_some());
        host.publish(address, &transport, has_log)?;
    }
    let (mut transport, mut clock) = (transport, clock);
    let reason = loop {
        let begins = host.keeping.as_ref().map_or(Time::ZERO, |keeping| keeping.now);
        transport = transport.with_clock(clock.going_on(begins));
        let served = host.serve(&mut transport);
        match served.as_ref().err().and_then(|error| error.downcast_ref::<NodeError>()) {
            Some(back @ NodeError::GoesBack(_)) => messages::say(&back.to_string()),
            _ => break served?,
        }
        transport = transport.without_connections()?;
        host = host.anew(args, (job.clone(), Arc::clone(&data)), &job_file)?;
        // The time of the run continues from the checkpoint.
        clock = WallClock::start();
    };
    let name = if matches!(place, Address::Tcp(_)) { "tcp" } else { "unix" };
    let may_go_back = host.role.server().is_some_and(Server::takes_checkpoints);
    host.finish(name, &args.output)?;
    if let (EndReason::ServerLost(server), true) = (reason, may_go_back) {
        messages::say(&format!(
            "all servers go on from the last checkpoint with --resume, server {server} with them"
        ));
    }
    exit::of_reason(reason)
}

/// Reports the listening address. Warns if only this machine can reach it, although the name that
/// was given does not show that.
fn say_where(args: &ServerArgs, place: &Address) {
    messages::say(&format!("listening on {place}{}", in_words(&args.security, place)));
    if place.is_local() && !is_loopback_by_name(&args.listen) {
        messages::warn(&format!(
            "{} is {place} here, which only this machine can reach; for others listen on 0.0.0.0 \
             or on an address of the network",
            args.listen
        ));
    }
}

/// Period of the progress messages, if there are any.
fn says_every(args: &ServerArgs) -> Option<Duration> {
    let is_shown = std::io::stderr().is_terminal() && args.log.form == LogForm::Text;
    match args.log_every {
        Some(Every(every)) => every,
        None => (!args.output.quiet && !is_shown).then_some(SAYS_EVERY),
    }
}

/// Listens, secured as the flags say.
pub(super) fn listen(args: &ServerArgs) -> anyhow::Result<SocketTransport> {
    let security = of_server(&args.security, &args.listen)?;
    // Raised first, since the limit of unauthenticated connections follows from it.
    let _files = allow_more_files();
    Ok(SocketTransport::listen(&args.listen)?.secured(security).telling(messages::warn))
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

/// Gathers the settings; `None` if they were only printed.
pub(crate) fn gather(args: &JobArgs) -> anyhow::Result<Option<Layers>> {
    let layers = Layers::gather(args.job.as_deref(), &args.flags)?;
    if args.print_job {
        messages::result(&layers.to_toml())?;
        return Ok(None);
    }
    Ok(Some(layers))
}

/// A server with its surroundings: evaluation, records, progress.
#[derive(Debug)]
pub(crate) struct Host {
    pub(super) role: Role,
    job: Job,
    data: Arc<ServerData>,
    pub(super) recorder: Recorder,
    virtual_time: Option<VirtualReport>,
    punctuality: Punctuality,
    /// The primary, if this server began as a standby.
    of: Option<StandbyOf>,
    /// Drains the current server at a signal.
    pub(super) drain: Drain,
    /// Period of the progress messages, if there are any.
    pub(super) says_every: Option<Duration>,
    /// Durable state of the run, if it is kept.
    pub(super) keeping: Option<DurableRun>,
    /// Keeps the state folder locked until the results are written: a process that resumes the run
    /// writes them, too.
    in_use: Option<StateFolder>,
}

/// A random number that tells a run from an earlier one at the same address: the one number that no
/// seed may decide.
pub(crate) fn fresh_run() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Host {
    /// A host for `server`. With `guests` the workers are separate processes.
    pub(crate) fn new(
        server: Server,
        data: Arc<ServerData>,
        job_file: &str,
        output: &Output,
        guests: bool,
    ) -> anyhow::Result<Self> {
        let folder = match &output.out {
            Some(path) => {
                let (overwrite, most) = (output.overwrite, output.out_limit.0);
                Some(Folder::create(path, overwrite, job_file, &server, most)?)
            }
            None => None,
        };
        let (job, summary) = (server.job().clone(), Summary::new(server.job()));
        let role = Role::Server(server);
        Ok(Self::with_records(role, (job, data), (summary, folder), output, guests))
    }

    pub(super) fn with_records(
        role: Role,
        (job, data): (Job, Arc<ServerData>),
        (summary, folder): (Summary, Option<Folder>),
        output: &Output,
        guests: bool,
    ) -> Self {
        // The messages of a server with workers in other processes are a log, whatever form its
        // results have.
        let quiet = output.quiet || (output.json && !guests);
        let progress = Progress::new(job.budget.epochs, job.data.train.rows, quiet, guests);
        let recorder = Recorder::new(summary, folder, progress);
        Self {
            role,
            job,
            data,
            recorder,
            virtual_time: None,
            punctuality: Punctuality::default(),
            of: None,
            drain: Drain::default(),
            says_every: None,
            keeping: None,
            in_use: None,
        }
    }

    /// A host for the server of a new run.
    fn begin(
        args: &ServerArgs,
        (job, data): (Job, Arc<ServerData>),
        job_file: &str,
    ) -> anyhow::Result<Self> {
        let run = fresh_run();
        let mut server = Server::new(job.clone(), run)?;
        if args.durability == Durability::Checkpoint {
            server = server.with_checkpoints();
        }
        let membership = server.job().membership;
        if !args.output.quiet {
            messages::say(&format!(
                "waiting for {} workers, for {} at most",
                membership.needed_to_start(),
                humantime::format_duration(membership.start_patience())
            ));
        }
        // Locked before earlier results are replaced: the folder may belong to a run in progress.
        let state = args.state.as_deref().map(DurableFolder::claim).transpose()?;
        let mut host = Self::new(server, Arc::clone(&data), job_file, &args.output, true)?;
        let Some(state) = state else {
            return Ok(host.with_replicas(run));
        };
        let (every, out) = (args.checkpoint_every.into(), args.output.out.as_deref());
        let identity = Identity::new(run, (&job, &data), args.durability, every, out)?;
        host.keeping = Some(DurableFolder::create(state, identity, job_file)?);
        Ok(if args.durability == Durability::Log { host.with_replicas(run) } else { host })
    }

    /// A host for a standby.
    fn standby(
        args: &ServerArgs,
        of: StandbyOf,
        (job, data): (Job, Arc<ServerData>),
        job_file: &str,
    ) -> anyhow::Result<Self> {
        if args.durability == Durability::Checkpoint {
            bail!(
                "--durability checkpoint: what a standby has may not get lost; use log, or none \
                 where two servers are safe enough"
            );
        }
        let (number, output) = (fresh_run(), &args.output);
        let role = Role::standby(&of, number, job.clone())?;
        let state = args.state.as_deref().map(DurableFolder::claim).transpose()?;
        let served = Arc::clone(&data);
        let mut host = Self::new(Server::new(job.clone(), 0)?, served, job_file, output, true)?;
        if let Some(state) = state {
            let every = args.checkpoint_every.into();
            let out = output.out.as_deref();
            let mut identity = Identity::new(number, (&job, &data), args.durability, every, out)?;
            identity.standby = Some(of);
            host.keeping = Some(DurableFolder::create(state, identity, job_file)?);
        }
        Ok(Self { role, ..host })
    }

    /// Lets standbys follow. `number` must differ from the number of any other process.
    fn with_replicas(mut self, number: u64) -> Self {
        if let Role::Server(server) = self.role {
            self.role = Role::primary(server, number);
        }
        self
    }

    /// Serves the metrics of the run at `address`.
    #[cfg(feature = "metrics")]
    fn publish(
        &mut self,
        address: &str,
        transport: &SocketTransport,
        durable: bool,
    ) -> anyhow::Result<()> {
        let metrics = Metrics::new(durable);
        metrics.count(transport.traffic());
        let place = metrics.serve(address)?;
        let open = if place.ip().is_loopback() { "" } else { " to everybody who can reach it" };
        messages::say(&format!("metrics at http://{place}/metrics{open}"));
        self.recorder.set_metrics(metrics);
        Ok(())
    }

    /// Runs in virtual time until the run has ended.
    pub(crate) fn simulate(mut self, run: &Virtual) -> anyhow::Result<(Self, Option<EndReason>)> {
        let recorder = self.recorder.clone();
        let stop = signals::flag_on_signal(
            "draining: letting outstanding gradients come back (again to abort)",
        )?;
        let Role::Server(server) = self.role else { bail!("it runs over sockets") };
        let outcome = run.run(server, &stop, |now, from, event| match from {
            Origin::Server => recorder.note(now, &event),
            Origin::Worker(worker) => recorder.note_worker(now, worker, &event),
        })?;
        self.virtual_time = Some(VirtualReport::of(&outcome, run));
        self.role = Role::Server(outcome.server);
        Ok((self, outcome.reason))
    }

    /// Number of servers of the job.
    pub(crate) fn servers(&self) -> u32 {
        self.job.servers
    }

    /// Recorder for the workers of this process, if the run is recorded.
    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.recorder.is_recording().then(|| self.recorder.clone())
    }

    /// Adds measurements of how well the run kept the modelled times.
    pub(crate) fn note_punctuality(&mut self, punctuality: &Punctuality) {
        self.punctuality.merge(punctuality);
    }

    /// Serves until the run has ended.
    pub(crate) fn serve(&mut self, mut transport: impl Transport) -> anyhow::Result<EndReason> {
        let link = Scenario::from_text(&self.job.scenario)?.links.server();
        if link == ServerLink::default() {
            return self.drive(&mut transport);
        }
        let lease = self.job.membership.lease;
        let mut shaped = Shaped::server(transport, link, lease);
        let reason = self.drive(&mut shaped);
        self.punctuality.messages.merge(&shaped.lateness());
        reason
    }

    fn drive(&mut self, transport: &mut impl Transport) -> anyhow::Result<EndReason> {
        let model = Model::new(&self.job.model, self.job.data.shape)?;
        let evaluator = Evaluator::new(Local::new(model, [self.data.outline.evaluation.clone()]));
        let data = Arc::clone(&self.data);
        let partition = move |part: PartId| data.partition(part);
        let recorder = self.recorder.clone();
        let report = move |now, event| recorder.note(now, &event);
        let mut services = ServerServices::new(evaluator, partition, report);
        if let Some(every) = self.says_every {
            let recorder = self.recorder.clone();
            let look = move |status: Option<Status>| recorder.say(status.as_ref());
            services = services.watched(transport.now(), every, look);
        }
        let mailbox = Mailbox::new(transport);
        self.drain.turn_to(mailbox.handle())?;
        let Some(keeping) = self.keeping.take() else {
            return match &mut self.role {
                Role::Server(server) => {
                    drive(server, transport, &mut services, &mailbox)?.context("the server ended")
                }
                Role::Replica(replica) => {
                    let failed = |error| standby::failed(error, self.of.as_ref());
                    drive(replica, transport, &mut services, &mailbox)?.map_err(failed)
                }
            };
        };
        let DurableRun { folder, checkpoint_every, found, log, begin, now } = keeping;
        self.in_use = Some(folder.clone());
        let recorder = self.recorder.clone();
        let (beside, warn) = (move || recorder.keep(), messages::warn);
        let when = (checkpoint_every, now);
        let checkpoints = Checkpoints::new(folder, Files, when, &found, beside, warn);
        match (&mut self.role, log) {
            (Role::Server(server), _) => {
                let mut journal = Snapshots::new(checkpoints);
                drive_from(server, transport, &mut services, &mailbox, &mut journal, begin)?
                    .context("the server ended")
            }
            (Role::Replica(replica), Some(log)) => {
                let drain = self.drain.clone();
                let journal = InputLog::new(log, checkpoints, warn).until(move || drain.is_asked());
                #[cfg(feature = "metrics")]
                let journal =
                    TimedJournal::new(journal, self.recorder.metrics().map(Metrics::commits));
                let mut journal = journal;
                drive_from(replica, transport, &mut services, &mailbox, &mut journal, begin)?
                    .map_err(|error| standby::failed(error, self.of.as_ref()))
            }
            (Role::Replica(_), None) => bail!("a server with a standby keeps its log, or nothing"),
        }
    }

    /// Writes the results, then prints them: a closed stdout must not cost the files.
    pub(crate) fn finish(self, transport: &str, output: &Output) -> anyhow::Result<()> {
        let Self { role, recorder, virtual_time, punctuality, data, in_use: _in_use, .. } = self;
        let classes = data.outline.spec.classes();
        let (summary, folder) = recorder.finish();
        // A standby that never reached its primary has no results.
        let Some(server) = role.into_server() else { return Ok(()) };
        let job = server.job();
        let params = server.parameters();
        let mut report = summary.report(&server, &data.outline, transport);
        if let Some(virtual_time) = virtual_time {
            report.was_virtual(virtual_time);
        }
        report.shaping = Shaping::of(&punctuality);
        tell_missing(&report);
        if let Some(folder) = folder {
            report.full_files = folder.full_files();
            let about = ModelFile {
                model: job.model.clone(),
                shape: job.data.shape,
                classes: classes.iter().map(|&class| class.to_owned()).collect(),
                recipe: job.data.recipe.clone(),
                training: serde_json::from_value(serde_json::to_value(&report)?)?,
            };
            let written = if report.params_sha256.is_some() {
                write_model(&folder.model(), &about, params)
            } else {
                messages::warn("no model is written: part of its parameters is lost");
                Ok(())
            };
            // All are tried, whichever of them fails.
            let finished = folder.finish(&report);
            let printed = print_report(&report, output);
            finished.and(written).and(printed)
        } else {
            print_report(&report, output)
        }
    }
}

/// Warns of updates that the records lack.
fn tell_missing(report: &Report) {
    let stretches: Vec<String> =
        report.missing_updates.iter().map(VersionRange::to_string).collect();
    if !stretches.is_empty() {
        messages::warn(&format!(
            "the totals of workers and the records here are without updates {}, which this server \
             did not see: the records of the one that led then have them",
            stretches.join(", ")
        ));
    }
}

fn print_report(report: &Report, output: &Output) -> anyhow::Result<()> {
    if output.json {
        messages::result(&serde_json::to_string(report)?)
    } else if output.quiet {
        Ok(())
    } else {
        messages::result(&table::report(report))
    }
}
