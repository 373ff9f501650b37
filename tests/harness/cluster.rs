//! A whole cluster as threads of one process, over any transport. Use it to compare results across
//! transports, or where a test needs real connections and only the outcome.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{PartId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::source::Local;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Ledger, NodeError, Prepare, Server, Worker, WorkerConfig};
use pstrain_transports::{
    Address, Evaluator, Mailbox, MemoryHub, ServerServices, Shaped, SocketTransport, Transport,
    WorkerServices, drive,
};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;

use crate::certificates::Certificates;
use crate::toy::{Toy, partition_of, parts_of};

/// Transport of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Threads of one process.
    Memory,
    /// A Unix socket.
    Unix,
    /// TCP over loopback.
    Tcp,
    /// TLS over TCP, with certificates on both sides.
    Tls,
    /// As `Memory`; workers shape their links.
    ShapedMemory,
    /// As `Tcp`; workers shape their links.
    ShapedTcp,
}

impl Kind {
    /// The transports that move messages themselves.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Unix, Self::Tcp, Self::Tls];
}

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Why it ended.
    pub reason: EndReason,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The final version.
    pub version: u64,
    /// The server's final ledger of mini-batches.
    pub ledger: Ledger,
    /// Everything the server reported.
    pub events: Vec<Event>,
    /// How each worker ended, in the order they were started.
    pub workers: Vec<Result<EndReason, NodeError>>,
}

/// Runs `toy` over `kind`; all workers start at once.
///
/// # Panics
/// If anything but a node fails.
#[must_use]
pub fn run_cluster(kind: Kind, toy: &Toy) -> Outcome {
    let order: Vec<u32> = (0..toy.job.membership.workers).collect();
    run_cluster_staggered(kind, toy, &order, Duration::ZERO)
}

/// Runs `toy` over `kind`, starting the workers with the given ids in that order, `pause` apart.
///
/// # Panics
/// If anything but a node fails.
#[must_use]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure here fails the test")]
pub fn run_cluster_staggered(kind: Kind, toy: &Toy, order: &[u32], pause: Duration) -> Outcome {
    match kind {
        Kind::Memory => {
            let hub = MemoryHub::new();
            let server = hub.server();
            run(toy, order, pause, server, move || hub.worker())
        }
        Kind::ShapedMemory => {
            let hub = MemoryHub::new();
            let server = hub.server();
            run(toy, order, pause, server, move || Shaped::worker(hub.worker()))
        }
        Kind::Unix => {
            let folder = tempfile::tempdir().unwrap();
            let address = Address::Unix(folder.path().join("socket"));
            let server = SocketTransport::listen(&address).unwrap();
            run(toy, order, pause, server, move || {
                SocketTransport::dialer(address.clone()).unwrap()
            })
        }
        Kind::Tcp => {
            let any = "127.0.0.1:0".parse().unwrap();
            let server = SocketTransport::listen(&any).unwrap();
            let address = server.local_address().expect("it listens");
            run(toy, order, pause, server, move || {
                SocketTransport::dialer(address.clone()).unwrap()
            })
        }
        Kind::Tls => {
            let certificates = Certificates::new();
            let any = "127.0.0.1:0".parse().unwrap();
            let server = SocketTransport::listen(&any).unwrap();
            let address = server.local_address().expect("it listens");
            let server = server.secured(certificates.security(Identity::Server));
            run(toy, order, pause, server, move || {
                let worker = SocketTransport::dialer(address.clone()).unwrap();
                worker.secured(certificates.security(Identity::Worker(None)))
            })
        }
        Kind::ShapedTcp => {
            let any = "127.0.0.1:0".parse().unwrap();
            let server = SocketTransport::listen(&any).unwrap();
            let address = server.local_address().expect("it listens");
            run(toy, order, pause, server, move || {
                Shaped::worker(SocketTransport::dialer(address.clone()).unwrap())
            })
        }
    }
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
fn run<S: Transport, W: Transport + 'static>(
    toy: &Toy,
    order: &[u32],
    pause: Duration,
    mut transport: S,
    dial: impl Fn() -> W,
) -> Outcome {
    let workers: Vec<_> = order
        .iter()
        .enumerate()
        .map(|(turn, &worker)| spawn_worker(toy, WorkerId(worker), dial(), pause * turn as u32))
        .collect();
    let events = Arc::new(Mutex::new(Vec::new()));
    let report = {
        let events = Arc::clone(&events);
        move |_: Time, event: Event| events.lock().unwrap().push(event)
    };
    let mut server = Server::new(toy.job.clone(), 1).unwrap();
    let model = toy.job.build_model().unwrap();
    let evaluator = Evaluator::new(Box::new(Local::new(model, [toy.train.clone()])));
    let (train, count) = (toy.train.clone(), toy.job.parts());
    let partition = move |part: PartId| Some(partition_of(&train, count, part));
    let mut services = ServerServices::new(evaluator, partition, report);
    let mailbox = Mailbox::new(&transport);
    let reason = drive(&mut server, &mut transport, &mut services, &mailbox).unwrap().unwrap();
    drop(transport);
    let workers = workers.into_iter().map(|thread| thread.join().unwrap()).collect();
    let events = std::mem::take(&mut *events.lock().unwrap());
    Outcome {
        reason,
        parameters: server.parameters().to_vec(),
        version: server.version().0,
        ledger: server.ledger(),
        events,
        workers,
    }
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
fn spawn_worker<T: Transport + 'static>(
    toy: &Toy,
    worker: WorkerId,
    mut transport: T,
    pause: Duration,
) -> JoinHandle<Result<EndReason, NodeError>> {
    let config = WorkerConfig {
        name: format!("test-{worker}"),
        worker: Some(worker),
        wants_examples: false,
        lease: toy.job.membership.lease,
        stream: Stream::new(u64::from(worker.0)),
    };
    let (train, count) = (toy.train.clone(), toy.job.parts());
    let load = move |order: &Prepare| -> Result<(Vec<Examples>, Fingerprint), String> {
        Ok((parts_of(&train, count, order), Fingerprint::of(&train)))
    };
    std::thread::spawn(move || {
        std::thread::sleep(pause);
        let mut node = Worker::new(config);
        let mut services = WorkerServices::new(load, |_, _| {});
        let mailbox = Mailbox::new(&transport);
        drive(&mut node, &mut transport, &mut services, &mailbox).unwrap()
    })
}
