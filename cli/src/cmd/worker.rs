//! `pstrain worker`: computes gradients for a server.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use anyhow::{Context, bail};
use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;
use pstrain_data::{DataSpec, Dataset};
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::{DataFrom, LONGEST_LEASE, SHORTEST_LEASE};
use pstrain_roles::node::{
    Event, Node, NodeError, Peer, PeerConfig, Prepare, Worker, WorkerConfig,
};
use pstrain_transports::{
    Address, Mailbox, Punctuality, Shaped, SocketTransport, WorkerServices, drive,
};
use pstrain_wire::name::{MOST_NAME_BYTES, is_presentable};
use pstrain_wire::worker::{EndReason, Heartbeat};
use pstrain_wire::{Message, Refusal};
use serde::Serialize;

use super::client::{NoAnswer, Reply, TurnedAway, request};
use crate::args::{Form, ListenFor, ProcessArgs, SecurityArgs, WorkerArgs};
use crate::energy::{Measured, Meter};
use crate::exit::{self, Ending, Failed};
use crate::job::{source_of, warn_of};
use crate::messages;
use crate::parent::Parent;
use crate::process::{Arithmetic, ComputeProcess};
use crate::progress::teller;
use crate::rank::Rank;
use crate::record::{ProcessUsage, Shaping, peak_rss_mib};
use crate::security::security;
use crate::signals::Drain;

/// How a worker ended, which one it was, how well it kept the modelled times, and the energy of its
/// machine.
type Worked = (Result<EndReason, NodeError>, Option<WorkerId>, Punctuality, Option<Measured>);

/// The end of a worker, as `--json` prints it.
#[derive(Serialize)]
struct Done {
    worker: Option<WorkerId>,
    ended: String,
    peak_rss_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ProcessUsage>,
    shaping: Option<Shaping>,
    /// Energy that the machine of this worker has measured, if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<Measured>,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "done: {}", self.ended)?;
        if let Some(mib) = self.peak_rss_mib {
            write!(f, " (peak memory {mib:.1} MiB)")?;
        }
        let shaping = self.shaping.as_ref().map(Shaping::in_words);
        let energy = self.energy.as_ref().map(Measured::in_words);
        shaping.into_iter().chain(energy).try_for_each(|words| write!(f, "; {words}"))
    }
}

/// The checked arguments of a worker.
struct Plan {
    server: Address,
    security: SecurityArgs,
    /// Its own copy of the data, if it has one.
    source: Option<Arc<dyn Dataset>>,
    arithmetic: Arithmetic,
    /// Threads that compute a gradient.
    threads: usize,
    config: WorkerConfig,
    /// Where it listens for other workers, and where they reach it, if it has no server.
    listens: Option<(ListenFor, Option<Address>)>,
    rank: Option<Rank>,
    form: Form,
    quiet: bool,
}

pub(crate) fn run(args: &WorkerArgs) -> anyhow::Result<Ending> {
    messages::log_as(args.log.form);
    let plan = Plan::of(args)?;
    let drain = if plan.rank.is_some() { Drain::together() } else { Drain::default() };
    let parent = Parent::default();
    if let Arithmetic::Process(process) = &plan.arithmetic
        && process.is_parent()
    {
        parent.watch(drain.clone());
    }
    loop {
        match (plan.serve(&drain, &parent)?, &plan.arithmetic) {
            (
                (Err(NodeError::Refused(Refusal::DescriptionWanted)), ..),
                Arithmetic::Process(process),
            ) if !drain.is_asked() => {
                plan.describe(process)?;
            }
            (worked, _) => return plan.report(worked, &parent),
        }
    }
}

/// The address at which other workers reach this one.
fn reached_at(transport: &SocketTransport, advertise: Option<&Address>) -> anyhow::Result<Address> {
    let local = transport.local_address().context("--listen: the worker listens nowhere")?;
    let address = advertise.unwrap_or(&local);
    if address.is_unspecified() {
        bail!(
            "--listen {local}: say with --advertise HOST:PORT where workers reach this one, or \
             --listen none if they cannot"
        );
    }
    Ok(address.clone())
}

impl Plan {
    fn of(args: &WorkerArgs) -> anyhow::Result<Self> {
        let source = match args.data.as_deref() {
            // The number of synthetic rows comes with the job.
            None | Some("server" | "synthetic") => None,
            Some(text) => {
                Some(source_of(text).map_err(|why| anyhow::anyhow!("--data {text}: {why}"))?)
            }
        };
        let files = source.as_ref().map_or_else(Vec::new, |source| source.files());
        if let Some(path) = files.iter().find(|path| !path.exists()) {
            bail!("--data {}: there is no such file or folder", path.display());
        }
        let name = args.name.clone().unwrap_or_else(default_name);
        if !is_presentable(&name) {
            bail!("--name: use at most {MOST_NAME_BYTES} bytes, without control characters");
        }
        let lease: std::time::Duration = args.lease.into();
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
            bail!("--lease {}: must be {SHORTEST_LEASE:?} to {LONGEST_LEASE:?}", args.lease);
        }
        let rank = rank(args)?;
        let config = WorkerConfig {
            stream: Stream::new(u64::from(std::process::id())).fork(&name, 0),
            name,
            worker: rank.as_ref().map(Rank::worker).or(args.id),
            wants_examples: args.data.as_deref() == Some("server"),
            lease,
        };
        let (server, security) = (args.server.clone(), args.security.clone());
        let ProcessArgs { process, process_restarts, process_timeout } = args.process.clone();
        let arithmetic = process.map_or(Arithmetic::Program, |address| {
            let timeout = process_timeout.map(Into::into);
            Arithmetic::Process(ComputeProcess::new(address, process_restarts, timeout))
        });
        let threads = args.threads.of(1);
        let arithmetic = arithmetic.with_threads(threads);
        let (form, quiet) = (args.form, args.quiet);
        let listens = args.listen.clone().map(|listen| (listen, args.advertise.clone()));
        if let Some((ListenFor::Nowhere, Some(address))) = &listens {
            bail!(
                "--advertise {address}: with --listen none no worker reaches this one; leave it out"
            );
        }
        Ok(Self {
            server,
            security,
            source,
            arithmetic,
            threads: threads.unwrap_or(1),
            config,
            listens,
            rank,
            form,
            quiet,
        })
    }

    /// Works until the run has ended. Returns how well the modelled times were kept, too.
    fn serve(&self, drain: &Drain, parent: &Parent) -> anyhow::Result<Worked> {
        let security = security(&self.security, &self.server)?;
        let Some((listen, advertise)) = &self.listens else {
            let transport = SocketTransport::dialer(self.server.clone())?.secured(security);
            let mut node = Worker::new(self.config.clone());
            if let Some(size) = self.rank.as_ref().and_then(Rank::size) {
                node = node.one_of(size);
            }
            return self.drive((node, Worker::id), transport, drain, parent);
        };
        let (transport, address) = match listen {
            ListenFor::Nowhere => {
                (SocketTransport::dialer(self.server.clone())?.secured(security), String::new())
            }
            ListenFor::At(address) => {
                let transport = SocketTransport::listen(address)?.secured(security);
                let transport = match self.quiet {
                    true => transport,
                    // Connections of strangers and of revoked workers do not reach the node.
                    false => transport.telling(messages::warn),
                };
                let address = reached_at(&transport, advertise.as_ref())?.to_string();
                (transport.with_target(self.server.clone()), address)
            }
        };
        let WorkerConfig { name, worker, lease, stream, .. } = self.config.clone();
        let node = Peer::new(PeerConfig { name, worker, address, lease, stream });
        self.drive((node, Peer::id), transport, drain, parent)
    }

    fn drive<N: Node>(
        &self,
        (mut node, id): (N, impl Fn(&N) -> Option<WorkerId>),
        transport: SocketTransport,
        drain: &Drain,
        parent: &Parent,
    ) -> anyhow::Result<Worked> {
        let mut transport = Shaped::worker(transport);
        let source = self.source.clone();
        let arithmetic = self.arithmetic.clone();
        let load = move |order: &Prepare| arithmetic.load(order, load(order, source.as_deref())?);
        let mut tell = teller(self.quiet, user_message);
        let parent = parent.clone();
        let tell = move |now, event| {
            parent.hear(&event);
            tell(now, event);
        };
        let mut services = WorkerServices::new(load, tell).with_threads(self.threads);
        let mailbox = Mailbox::new(&transport);
        drain.turn_to(mailbox.handle())?;
        // Most machines do not let their counters be read.
        let meter = Meter::here().ok();
        let ended = drive(&mut node, &mut transport, &mut services, &mailbox)?;
        let energy = meter.and_then(|meter| meter.measured().ok());
        let kept = Punctuality { messages: transport.lateness(), ..services.punctuality() };
        Ok((ended, id(&node), kept, energy))
    }

    /// Describes the model of the worker's process to a server that has no job yet.
    fn describe(&self, process: &ComputeProcess) -> anyhow::Result<()> {
        let text = serde_json::to_string(&process.describe()?)?;
        let question = Message::Heartbeat(Heartbeat::default());
        let patience = self.config.lease.into();
        // Only a server without a job takes a long first message, so it is asked before.
        let asked = Cell::new(false);
        let hear = |message| {
            Ok(match message {
                Message::Heartbeat(_) if asked.replace(true) => Reply::Answer(()),
                Message::Heartbeat(_) => Reply::Send(Message::Description(text.clone())),
                _ => Reply::Nothing,
            })
        };
        match request((&self.server, &self.security), patience, &question, hear, || None) {
            // Another worker was earlier: the server has closed all connections, or has its job.
            Err(error) if error.is::<NoAnswer>() => Ok(()),
            Err(error) => match error.downcast_ref() {
                Some(TurnedAway { why: Refusal::Unexpected { .. }, .. }) => Ok(()),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }

    /// Tells how the worker ended.
    fn report(
        &self,
        (ended, worker, kept, energy): Worked,
        parent: &Parent,
    ) -> anyhow::Result<Ending> {
        if parent.has_ended() {
            let why = "the compute process (-), which started this worker, has ended while the \
                       worker had no server";
            return Err(Failed(why.into()).into());
        }
        let reason = match ended {
            Ok(reason) => reason,
            Err(NodeError::Data(what) | NodeError::Compute(what)) => bail!("{what}"),
            Err(error) => match (&self.rank, workers_of(&error)) {
                (Some(rank), Some(workers)) => bail!("{}", rank.misfit(workers)),
                _ => {
                    let hint = match error {
                        NodeError::Unreachable { .. } => {
                            "; see that a server runs there, or name its address with --server"
                        }
                        _ => "",
                    };
                    return Err(Failed(format!("{}: {error}{hint}", self.server)).into());
                }
            },
        };
        if self.form.json || !self.quiet {
            let (ended, shaping) = (reason.to_string(), Shaping::of(&kept));
            let (peak_rss_mib, usage) = (peak_rss_mib(), ProcessUsage::so_far());
            let done = Done { worker, ended, peak_rss_mib, usage, shaping, energy };
            self.form.report(&done, || done.to_string())?;
        }
        exit::of_reason(reason)
    }
}

/// The rank that the launching engine gave this process, if `--rank` asks for it.
fn rank(args: &WorkerArgs) -> anyhow::Result<Option<Rank>> {
    let Some(of) = args.rank else { return Ok(None) };
    let variable = |name: &str| std::env::var_os(name).map(|it| it.to_string_lossy().into_owned());
    let rank = Rank::find(of, variable).map_err(anyhow::Error::msg)?;
    if !args.quiet {
        messages::say(&rank.to_string());
    }
    Ok(Some(rank))
}

/// The number of workers of the job, if the error is about that number.
const fn workers_of(error: &NodeError) -> Option<u32> {
    match error {
        NodeError::Workers { workers, .. }
        | NodeError::Refused(Refusal::UnknownWorker { workers, .. }) => Some(*workers),
        _ => None,
    }
}

fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "worker" } else { host.trim() };
    format!("{host}:{}", std::process::id())
}

/// Loads the worker's parts from its own copy of the data.
fn load(
    order: &Prepare,
    source: Option<&dyn Dataset>,
) -> Result<(Vec<Examples>, Fingerprint), String> {
    let spec: DataSpec = serde_json::from_str(&order.job.data.recipe)
        .map_err(|error| format!("the job's recipe does not read: {error}"))?;
    let generated = spec.generated().map_err(|error| error.to_string())?;
    if source.is_none() && order.job.data.is_local() {
        return Err("each worker has rows of its own: give this worker's here with --data \
                    PATH|FORMAT"
            .into());
    }
    let Some(source) = source.or(generated.as_deref()) else {
        let sent = match order.job.data.from {
            DataFrom::Own => "",
            DataFrom::Worker | DataFrom::Server => ", or have it sent with --data server",
        };
        let of = spec.source;
        return Err(format!(
            "the job is trained on {of}: give its copy here with --data PATH{sent}"
        ));
    };
    let loaded = spec.prepare_parts(source, &order.parts());
    warn_of(source, Some(&spec).filter(|_| order.job.data.is_local()));
    loaded.map_err(|error| error.to_string())
}

/// The message for an event that the user should see at once, if it is such an event.
fn user_message(event: &Event) -> Option<String> {
    Some(match event {
        Event::Welcomed { worker, resumed: false, job } => {
            let how = match job.architecture {
                Architecture::Server => job.mode.consistency.to_string(),
                without_server => without_server.to_string(),
            };
            let workers = job.membership.workers;
            format!("worker {worker} of {workers} in job {:?} ({how})", job.name)
        }
        Event::Welcomed { worker, .. } => format!("worker {worker} is connected again"),
        Event::Forgot { carried } => format!(
            "the residual of the filters is lost with the earlier membership: its L2 norm was \
             {carried:.3e}"
        ),
        Event::Redialling { attempt, pause, why } => {
            format!("no connection: {why}; try {attempt} in {:.1} s", pause.as_secs_f64())
        }
        _ => return None,
    })
}
