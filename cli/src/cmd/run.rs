//! `pstrain run`: a whole cluster in one process.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_roles::node::{
    Event, Input, Node, NodeError, Peer, PeerConfig, Prepare, Shard, Worker, WorkerConfig,
};
use pstrain_transports::{
    Address, Handle, Lateness, Mailbox, MemoryHub, Punctuality, Shaped, ShardServices,
    SocketTransport, WallClock, WorkerServices, drive,
};
use pstrain_wire::worker::EndReason;

use crate::args::{GroupPosition, RunArgs, Transport, in_folder, share_of_cores};
use crate::exit::{self, Ending, Failed};
use crate::job::Resolved;
use crate::messages;
use crate::process::Arithmetic;
use crate::record::Recorder;
use crate::security::{in_words, of_server};
use crate::signals::Drain;
use crate::start::{
    Begins, Door, InProcess, JobServer, Keeps, KeptShard, Lives, Training, begins_with,
    shard_config,
};

/// Threads that an ordinary system gives one process by default.
const MOST_WORKERS: u32 = 4096;

type Thread = JoinHandle<anyhow::Result<Worked>>;

/// How a worker ended, and how well it kept the modelled times.
type Worked = (Result<EndReason, NodeError>, Punctuality);

/// Thread of a server that does not coordinate.
type ShardThread = JoinHandle<anyhow::Result<Result<EndReason, NodeError>>>;

pub(crate) fn run(args: &RunArgs, clock: WallClock) -> anyhow::Result<Ending> {
    let begins = begins_with(&args.job, &args.state, args.output.form)?;
    let Some(begins) = begins else { return Ok(Ending::Done) };
    let (layers, begins) = InProcess::open(begins)?;
    let is_shaped = !layers.real_time()?.links.is_none();
    let Resolved { job, data, arithmetic } = layers.resolve()?;
    let data = Arc::new(data);
    let workers = job.membership.workers;
    if workers > MOST_WORKERS {
        bail!(
            "workers = {workers}: run has a thread for each, {MOST_WORKERS} at most; start the \
             others with `pstrain server` and `pstrain worker`"
        );
    }
    let (servers, lease) = (job.servers, job.membership.lease);
    let has_server = job.architecture.has_server();
    let threads = args.threads.of(workers);
    // A compute process has as many threads as there are cores, unless it is told otherwise.
    let of_process = threads.or_else(|| Some(share_of_cores(workers)));
    let arithmetic = arithmetic.with_threads(of_process);
    let served = Resolved { job, data: Arc::clone(&data).into(), arithmetic: arithmetic.clone() };
    let training = Training::in_process(&layers, served, args.output.clone())?;
    let drain = training.drain();
    let others = servers.saturating_sub(1);
    let kept = (others > 0 && begins.is_durable()).then(|| {
        let begins = |server| (begins.of_shard(ServerId(server)), Drain::without_signals());
        (1..servers).map(begins).collect::<Vec<_>>()
    });
    let transport = transport(args.transport, kept.is_some())?;
    let server = training.in_one_process(begins)?;
    let clients = clients(args, server.out())?;
    let clock = clock.going_on(server.begins());
    let recorder = server.recorder();
    // Servers with a state are not waited for: workers dial again until all are there.
    let gate = Gate::new(if kept.is_some() { 0 } else { others });
    let nodes = Nodes::default();
    let running = Arc::new(AtomicU32::new(workers));
    let local = |worker: u32| Local {
        worker: WorkerId(worker),
        running: Arc::clone(&running),
        lease,
        clock,
        gate: gate.clone(),
        nodes: nodes.clone(),
        data: Arc::clone(&data),
        arithmetic: arithmetic.clone(),
        threads: threads.unwrap_or(1),
        drain: drain.clone(),
        recorder: recorder.clone(),
        is_shaped,
    };
    let cluster = Cluster {
        servers,
        has_server,
        lease,
        clock,
        gate: gate.clone(),
        nodes: nodes.clone(),
        kept,
    };
    let ended = match transport {
        Transport::Memory => over_memory((server, clients), workers, &cluster, local)?,
        Transport::Unix => over_unix((server, clients), workers, &cluster, local)?,
        Transport::Tcp => over_tcp((server, clients), workers, &cluster, local)?,
    };
    cluster.end(ended)
}

/// Listens for clients: where the user says, else in the results folder.
fn clients(args: &RunArgs, out: Option<&Path>) -> anyhow::Result<Option<SocketTransport>> {
    if let Some(address) = &args.listen {
        let security = of_server(&args.security, address)?;
        let clients = SocketTransport::listen(address)?.secured(security);
        let address = clients.local_address().unwrap_or_else(|| address.clone());
        messages::say(&format!("listening on {address}{}", in_words(&args.security, &address)));
        return Ok(Some(clients));
    }
    let Some(out) = out else { return Ok(None) };
    match SocketTransport::listen(&in_folder(out)) {
        Ok(clients) => Ok(Some(clients)),
        Err(why) => {
            messages::warn(&format!("{why}; without it, or --listen, the run cannot be watched"));
            Ok(None)
        }
    }
}

/// A run whose server has ended.
struct Ended {
    /// The name of the transport.
    name: &'static str,
    server: JobServer,
    reason: EndReason,
    workers: Vec<Thread>,
    others: Vec<ShardThread>,
    /// Open until the results are written.
    door: Option<Door>,
}

fn over_memory(
    (mut server, clients): (JobServer, Option<SocketTransport>),
    workers: u32,
    cluster: &Cluster,
    local: impl Fn(u32) -> Local,
) -> anyhow::Result<Ended> {
    let (hub, clock) = (MemoryHub::new(), cluster.clock);
    let transport = hub.server().with_clock(clock);
    let others = cluster.others(|place| {
        let address = Address::Unix(format!("memory-{}", place.server).into());
        let transport = hub.other_server(&address.to_string()).with_clock(clock);
        Ok(cluster.spawn(place, &address, transport))
    })?;
    let spawn = |worker| {
        let local = local(worker);
        if cluster.has_server {
            return Ok(local.spawn(hub.worker().with_clock(clock), None));
        }
        let address = format!("memory-worker-{worker}");
        let transport = hub.other_server(&address).with_clock(clock);
        Ok(local.spawn(transport, Some(address)))
    };
    let workers = start(workers, spawn)?;
    let way = hub.clone();
    let door = clients.map(|clients| Door::open(clients, move || Some(way.worker())));
    let reason = server.serve(transport)?;
    Ok(Ended { name: "memory", server, reason, workers, others, door })
}

fn over_unix(
    server: (JobServer, Option<SocketTransport>),
    workers: u32,
    cluster: &Cluster,
    local: impl Fn(u32) -> Local,
) -> anyhow::Result<Ended> {
    let folder = tempfile::tempdir().context("cannot make a folder for the socket")?;
    let address = |node: &str| Address::Unix(folder.path().join(format!("pstrain-{node}.socket")));
    over_sockets("unix", (server, workers), cluster, local, address)
}

fn over_tcp(
    server: (JobServer, Option<SocketTransport>),
    workers: u32,
    cluster: &Cluster,
    local: impl Fn(u32) -> Local,
) -> anyhow::Result<Ended> {
    let any = |_: &str| Address::Tcp("127.0.0.1:0".into());
    over_sockets("tcp", (server, workers), cluster, local, any)
}

/// Each server listens at its `address`.
fn over_sockets(
    name: &'static str,
    ((server, clients), workers): ((JobServer, Option<SocketTransport>), u32),
    cluster: &Cluster,
    local: impl Fn(u32) -> Local,
    address: impl Fn(&str) -> Address,
) -> anyhow::Result<Ended> {
    let transport = SocketTransport::listen(&address("server"))?;
    let transport = transport.with_clock(cluster.clock);
    let coordinator = transport.local_address().context("the server listens nowhere")?;
    let others = cluster.others(|place| {
        let own = address(&format!("server-{}", place.server));
        cluster.listen(place, &own, &coordinator)
    })?;
    let workers = start(workers, |worker| {
        let local = local(worker);
        if cluster.has_server {
            return local.dial(&coordinator);
        }
        local.listen(&address(&format!("worker-{worker}")), &coordinator)
    })?;
    let door = clients.map(|clients| {
        Door::open(clients, move || SocketTransport::dialer(coordinator.clone()).ok())
    });
    let (server, reason) = server.serve_sockets(transport, cluster.clock)?;
    Ok(Ended { name, server, reason, workers, others, door })
}

/// The transport: the one that was asked for, or the one that suits the servers. Several servers
/// with a state may go back to a checkpoint, for which they close their connections.
fn transport(asked: Option<Transport>, several_kept: bool) -> anyhow::Result<Transport> {
    match asked {
        Some(Transport::Memory) if several_kept => {
            bail!("--transport memory: several servers that keep a state need sockets; use unix")
        }
        Some(asked) => Ok(asked),
        None if several_kept => Ok(Transport::Unix),
        None => Ok(Transport::Memory),
    }
}

/// Opens once all servers of the run have enlisted: a worker that comes earlier is refused.
#[derive(Clone, Debug)]
struct Gate(Arc<(Mutex<u32>, Condvar)>);

/// A server that the gate waits for, until this value is dropped.
#[derive(Debug)]
struct Awaited(Gate);

impl Gate {
    fn new(awaited: u32) -> Self {
        Self(Arc::new((Mutex::new(awaited), Condvar::new())))
    }

    fn wait_until_open(&self) {
        let (awaited, changed) = &*self.0;
        let awaited = awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let open = changed.wait_while(awaited, |awaited| *awaited > 0);
        drop(open.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let (awaited, changed) = &*self.0.0;
        *awaited.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        changed.notify_all();
    }
}

/// The nodes of this process other than its server. One that is about to dial when the run ends, or
/// whose connection broke just then, would dial the server for many leases.
#[derive(Clone, Debug)]
struct Nodes(Arc<Mutex<Phase>>);

#[derive(Debug)]
enum Phase {
    Running(Vec<Handle>),
    Ended,
}

impl Default for Nodes {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Phase::Running(Vec::new()))))
    }
}

impl Nodes {
    /// Drains the node behind `handle` once the run has ended.
    fn add(&self, handle: Handle) {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Phase::Running(handles) => handles.push(handle),
            Phase::Ended => drain(&handle),
        }
    }

    /// The run has ended: drains all nodes.
    fn drain(&self) {
        let mut phase = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Phase::Running(handles) = std::mem::replace(&mut *phase, Phase::Ended) {
            handles.iter().for_each(drain);
        }
    }
}

/// Ends a node whose server is gone. A server that does not coordinate asks at first to leave, and
/// ends when it is told again.
fn drain(handle: &Handle) {
    handle.post(Input::Drain);
    handle.post(Input::Drain);
}

/// Number of servers, and what all of them share.
struct Cluster {
    servers: u32,
    /// False if the workers reduce their gradients among themselves.
    has_server: bool,
    lease: Duration,
    clock: WallClock,
    gate: Gate,
    nodes: Nodes,
    /// How the servers that do not coordinate begin, and what ends them, if they keep a state.
    kept: Option<Vec<(Begins<Keeps>, Drain)>>,
}

impl Cluster {
    /// Ends the other nodes, writes and prints the results.
    fn end(&self, ended: Ended) -> anyhow::Result<Ending> {
        let Ended { name, mut server, reason, workers, others, door } = ended;
        self.nodes.drain();
        self.kept.iter().flatten().for_each(|(_, drain)| drain.end());
        let all = workers.len();
        let mut workers = Joined::of(workers);
        server.note_punctuality(&workers.punctuality);
        // A job that comes to its end does so without the workers that failed.
        let cause = workers.cause(all).filter(|_| reason == EndReason::Stopped);
        let (failed, cause) = cause.unzip();
        let last_words = server.last_words(reason);
        server.finish(name, failed)?;
        drop(door);
        workers.warn();
        if reason.is_success() {
            workers.broken.take().map_or(Ok(()), Err)?;
            join_shards(others)?;
        }
        last_words.iter().for_each(|line| messages::say(line));
        cause.map_or_else(|| exit::of_reason(reason), |cause| Err(cause.into()))
    }

    /// Starts the servers that do not coordinate.
    fn others(
        &self,
        spawn: impl Fn(GroupPosition) -> anyhow::Result<ShardThread>,
    ) -> anyhow::Result<Vec<ShardThread>> {
        let servers = self.servers;
        (1..servers)
            .map(|server| spawn(GroupPosition { server: ServerId(server), servers }))
            .collect()
    }

    /// Starts a server that does not coordinate and listens at a socket.
    fn listen(
        &self,
        place: GroupPosition,
        address: &Address,
        coordinator: &Address,
    ) -> anyhow::Result<ShardThread> {
        let transport = SocketTransport::listen(address)?;
        let address = transport.local_address().context("a server listens nowhere")?;
        let transport = transport.with_target(coordinator.clone()).with_clock(self.clock);
        let kept = self.kept.as_ref().and_then(|kept| kept.get(place.server.0 as usize - 1));
        let Some((begins, drain)) = kept else {
            return Ok(self.spawn(place, &address, transport));
        };
        let (place, lease, clock) = (place.into(), self.lease, self.clock);
        let server =
            KeptShard::open((place, begins), (&address, coordinator), lease, drain.clone())?;
        Ok(std::thread::spawn(move || server.serve(transport, clock)))
    }

    /// Starts a server that does not coordinate and that workers reach at `address`.
    fn spawn(
        &self,
        place: GroupPosition,
        address: &Address,
        mut transport: impl pstrain_transports::Transport + 'static,
    ) -> ShardThread {
        let mut node = Shard::new(shard_config(place.into(), address, self.lease));
        let mut awaited = Some(Awaited(self.gate.clone()));
        let mut services = ShardServices::new(move |_, event| {
            if let Event::Enlisted { .. } = event {
                drop(awaited.take());
            }
        });
        let nodes = self.nodes.clone();
        std::thread::spawn(move || {
            let mailbox = Mailbox::new(&transport);
            nodes.add(mailbox.handle());
            Ok(drive(&mut node, &mut transport, &mut services, &mailbox)?)
        })
    }
}

fn start(
    workers: u32,
    spawn: impl Fn(u32) -> anyhow::Result<Thread>,
) -> anyhow::Result<Vec<Thread>> {
    (0..workers).map(spawn).collect()
}

/// A worker in this process.
struct Local {
    worker: WorkerId,
    /// The workers that have not ended.
    running: Arc<AtomicU32>,
    lease: Duration,
    clock: WallClock,
    gate: Gate,
    nodes: Nodes,
    data: Arc<pstrain_data::Prepared>,
    arithmetic: Arithmetic,
    /// Threads that compute a gradient.
    threads: usize,
    /// Ends the run if the worker has no data, or is the last and cannot continue: the run would
    /// wait for workers.
    drain: Drain,
    /// Recorder of the worker's events, if the run is recorded.
    recorder: Option<Recorder>,
    /// True if links are modelled.
    is_shaped: bool,
}

impl Local {
    fn dial(self, address: &Address) -> anyhow::Result<Thread> {
        let transport = SocketTransport::dialer(address.clone())?.with_clock(self.clock);
        Ok(self.spawn(transport, None))
    }

    /// Starts a worker that others dial at `address`.
    fn listen(self, address: &Address, meeting: &Address) -> anyhow::Result<Thread> {
        let transport = SocketTransport::listen(address)?;
        let address = transport.local_address().context("a worker listens nowhere")?;
        let transport = transport.with_target(meeting.clone()).with_clock(self.clock);
        Ok(self.spawn(transport, Some(address.to_string())))
    }

    /// Starts the worker, which takes its partition from the data in memory. Others dial it at
    /// `address`, if it has no server.
    fn spawn(
        self,
        transport: impl pstrain_transports::Transport + 'static,
        address: Option<String>,
    ) -> Thread {
        let Self { worker, lease, gate, nodes, data, arithmetic, threads, drain, .. } = self;
        let (recorder, is_shaped, running) = (self.recorder, self.is_shaped, self.running);
        let (name, stream) = (format!("local-{worker}"), Stream::new(u64::from(worker.0)));
        let load = move |order: &Prepare| {
            let parts = data.partitions(&order.parts());
            arithmetic.load(order, (parts, data.fingerprint.clone()))
        };
        let report = move |now, event| {
            if let Some(recorder) = &recorder {
                recorder.note_worker(now, worker, &event);
            }
        };
        let services = WorkerServices::new(load, report).with_threads(threads);
        std::thread::spawn(move || {
            gate.wait_until_open();
            let worker = Some(worker);
            let worked = match address {
                Some(address) => {
                    let node = Peer::new(PeerConfig { name, worker, address, lease, stream });
                    shaped(node, transport, services, &nodes, is_shaped)
                }
                None => {
                    let wants_examples = false;
                    let config = WorkerConfig { name, worker, wants_examples, lease, stream };
                    shaped(Worker::new(config), transport, services, &nodes, is_shaped)
                }
            };
            let is_last = running.fetch_sub(1, Ordering::Relaxed) == 1;
            match &worked {
                Ok((Err(NodeError::Data(_)), _)) => drain.ask(),
                Ok((Err(_), _)) | Err(_) if is_last => drain.ask(),
                Ok(_) | Err(_) => {}
            }
            worked
        })
    }
}

/// Works until the run has ended, over a link that is modelled or not.
fn shaped<N: Node, T: pstrain_transports::Transport>(
    node: N,
    transport: T,
    services: WorkerServices,
    nodes: &Nodes,
    is_shaped: bool,
) -> anyhow::Result<Worked> {
    if is_shaped {
        work(node, Shaped::worker(transport), services, (nodes, Shaped::lateness))
    } else {
        work(node, transport, services, (nodes, |_| Lateness::default()))
    }
}

/// Works until the run has ended; `lateness` asks the transport how well it kept its link.
fn work<N: Node, T: pstrain_transports::Transport>(
    mut node: N,
    mut transport: T,
    mut services: WorkerServices,
    (nodes, lateness): (&Nodes, impl FnOnce(&T) -> Lateness),
) -> anyhow::Result<Worked> {
    let mailbox = Mailbox::new(&transport);
    nodes.add(mailbox.handle());
    let ended = drive(&mut node, &mut transport, &mut services, &mailbox)?;
    Ok((ended, Punctuality { messages: lateness(&transport), ..services.punctuality() }))
}

/// How the workers ended.
#[derive(Default)]
struct Joined {
    /// How well they kept the modelled times together.
    punctuality: Punctuality,
    /// The workers that could not continue.
    failed: Vec<(WorkerId, NodeError)>,
    /// The first defect of this process.
    broken: Option<anyhow::Error>,
}

impl Joined {
    /// Waits for the workers.
    fn of(threads: Vec<Thread>) -> Self {
        let mut joined = Self::default();
        for (worker, thread) in (0..).map(WorkerId).zip(threads) {
            let broken = match thread.join() {
                Ok(Ok((ended, kept))) => {
                    joined.punctuality.merge(&kept);
                    joined.failed.extend(ended.err().map(|error| (worker, error)));
                    continue;
                }
                Ok(Err(error)) => error.context(format!("worker {worker}")),
                Err(_) => Failed(format!("worker {worker} broke down")).into(),
            };
            joined.broken.get_or_insert(broken);
        }
        joined
    }

    /// Warns of workers whose failure the server does not know, and so has not reported.
    fn warn(&self) {
        for (worker, error) in &self.failed {
            // The server refuses a worker that comes after the end, as with `min-workers`.
            let is_told =
                matches!(error, NodeError::Data(_) | NodeError::Compute(_) | NodeError::Refused(_));
            if !is_told {
                messages::warn(&format!("worker {worker}: {error}"));
            }
        }
    }

    /// The failure that has ended the run: of a worker that had no data, or the first if all
    /// workers failed.
    fn cause(&self, workers: usize) -> Option<(WorkerId, Failed)> {
        let have_all_failed = self.failed.len() == workers;
        let is_it = |(_, error): &&(WorkerId, NodeError)| {
            have_all_failed || matches!(error, NodeError::Data(_))
        };
        let (worker, error) = self.failed.iter().find(is_it)?;
        Some((*worker, Failed(format!("worker {worker}: {error}"))))
    }
}

/// Waits for the servers; returns the error of the first that failed.
fn join_shards(threads: Vec<ShardThread>) -> anyhow::Result<()> {
    for (server, thread) in (1..).map(ServerId).zip(threads) {
        let what = || format!("server {server}");
        match thread.join() {
            Ok(ended) => {
                let ended = ended.with_context(what)?;
                ended.map_err(|error| Failed(format!("{}: {error}", what())))?;
            }
            Err(_) => return Err(Failed(format!("{} broke down", what())).into()),
        }
    }
    Ok(())
}
