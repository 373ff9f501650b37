//! Jobs without a server in virtual time, and as threads over any transport.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{PartId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::source::Local;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Ledger, Meeting, NodeError, Peer, PeerConfig, Prepare};
use pstrain_transports::simulation::{
    Origin, PeerSetup, SiteTraffic, TrainingHost, simulate_peers,
};
use pstrain_transports::{
    Address, Evaluator, Mailbox, MemoryHub, Security, ServerServices, SocketTransport, Transport,
    WorkerServices, drive,
};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;

use crate::certificates::Certificates;
use crate::cluster::Kind;
use crate::simulated::VirtualRun;
use crate::toy::{Toy, partition_of, parts_of};

/// Result of a run without a server.
#[derive(Debug)]
pub struct PeersEnded {
    /// Why it ended.
    pub reason: EndReason,
    /// The final version.
    pub version: u64,
    /// Training time.
    pub time: Duration,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The updates, as the meeting point learned of them.
    pub updates: Vec<Time>,
    /// The mini-batches in these updates, each with its number of examples, in virtual time.
    pub mini_batches: Vec<(Task, u32)>,
    /// Examples in these updates.
    pub samples: u64,
    /// The final ledger of mini-batches.
    pub ledger: Ledger,
    /// Bytes of values that workers sent in updates in virtual time, and what they stand for
    /// without filters.
    pub sent: (u64, u64),
    /// Gradients that were applied in virtual time, and that were left out.
    pub gradients: (u64, u64),
    /// How each worker ended.
    pub workers: Vec<Result<EndReason, NodeError>>,
    /// Bytes over the links of sites, in virtual time.
    pub sites: Vec<SiteTraffic>,
}

/// Runs a job in virtual time.
///
/// # Panics
/// If the scenario lacks something, or the run gets stuck.
#[must_use]
pub fn simulate_toy_peers(run: &VirtualRun) -> PeersEnded {
    let model = run.job.build_model().expect("a valid model");
    let part = |part: PartId| run.partitions[part.0 as usize].clone();
    let load = |order: &Prepare| {
        let parts: Vec<_> = order.parts().into_iter().map(part).collect();
        Ok((parts, run.job.data.train.clone()))
    };
    let (mut updates, mut mini_batches, mut sent) = (Vec::new(), Vec::new(), (0, 0));
    let (mut samples_applied, mut gradients) = (0, (0, 0));
    let report = |now: Time, _: Origin, event: Event| match event {
        Event::Updated { point, .. } => {
            updates.push(now);
            samples_applied = point.samples;
        }
        Event::Applied { part, batch, examples, samples, .. } => {
            mini_batches.push((Task { part, batch, examples }, samples));
            gradients.0 += 1;
        }
        Event::Pushed { bytes, unfiltered, .. } => sent = (sent.0 + bytes, sent.1 + unfiltered),
        Event::Dropped { reason: DropReason::NotFinite, .. } => gradients.1 += 1,
        _ => {}
    };
    let evaluation = Box::new(Local::new(model, [run.evaluation.clone()]));
    let mut host = TrainingHost::new(load, evaluation, part, report);
    let stop = AtomicBool::new(false);
    let setup = PeerSetup {
        meeting: Meeting::new(run.job.clone(), run.job.seed).expect("a valid job"),
        scenario: &run.scenario,
        stream: run.stream,
        measured: run.measured,
        initial: None,
        stop: &stop,
    };
    let outcome = simulate_peers(setup, &mut host).expect("a run that ends");
    drop(host);
    let workers = outcome.workers.into_iter().map(|end| end.expect("it has ended"));
    PeersEnded {
        reason: outcome.reason.expect("a reason"),
        version: outcome.trained.point.version.0,
        time: outcome.trained.point.time,
        parameters: outcome.trained.parameters.expect("parameters").to_vec(),
        updates,
        mini_batches,
        samples: samples_applied,
        ledger: outcome.trained.ledger,
        sent,
        gradients,
        workers: workers.collect(),
        sites: outcome.sites,
    }
}

/// Runs a job as threads over a transport that moves messages itself.
///
/// # Panics
/// If anything but a node fails.
#[must_use]
pub fn run_peer_cluster(kind: Kind, toy: &Toy) -> PeersEnded {
    match kind {
        Kind::Memory | Kind::ShapedMemory => {
            let hub = MemoryHub::new();
            run(toy, hub.server(), |worker| {
                let address = format!("memory-{worker}");
                (hub.other_server(&address), address)
            })
        }
        Kind::Unix => {
            let folder = tempfile::tempdir().expect("a folder");
            let own = |name: String| -> PathBuf { folder.path().join(name) };
            over_sockets(toy, |name| Address::Unix(own(name)), |_| Security::local())
        }
        Kind::Tcp | Kind::ShapedTcp => over_sockets(toy, any_port, |_| Security::local()),
        Kind::Tls => {
            let certificates = Certificates::new();
            over_sockets(toy, any_port, |identity| certificates.security(identity))
        }
    }
}

fn any_port(_: String) -> Address {
    Address::Tcp("127.0.0.1:0".into())
}

fn over_sockets(
    toy: &Toy,
    address: impl Fn(String) -> Address,
    security: impl Fn(Identity) -> Security,
) -> PeersEnded {
    let meeting = SocketTransport::listen(&address("meeting".into())).expect("a socket");
    let target = meeting.local_address().expect("it listens");
    run(toy, meeting.secured(security(Identity::Server)), |worker| {
        let own = SocketTransport::listen(&address(format!("worker-{worker}"))).expect("a socket");
        let address = own.local_address().expect("it listens").to_string();
        let own = own.secured(security(Identity::Worker(Some(WorkerId(worker)))));
        (own.with_target(target.clone()), address)
    })
}

fn run<S: Transport, W: Transport + 'static>(
    toy: &Toy,
    mut transport: S,
    worker: impl Fn(u32) -> (W, String),
) -> PeersEnded {
    let spawn = |worker: u32, (mut transport, address): (W, String)| {
        let config = PeerConfig {
            name: format!("test-{worker}"),
            worker: Some(WorkerId(worker)),
            address,
            lease: toy.job.membership.lease,
            stream: Stream::new(u64::from(worker)),
        };
        let (train, parts) = (toy.train.clone(), toy.job.parts());
        let fingerprint = toy.job.data.train.clone();
        let load = move |order: &Prepare| {
            Ok::<_, String>((parts_of(&train, parts, order), fingerprint.clone()))
        };
        std::thread::spawn(move || {
            let mut services = WorkerServices::new(load, |_, _| {});
            let mailbox = Mailbox::new(&transport);
            drive(&mut Peer::new(config), &mut transport, &mut services, &mailbox)
        })
    };
    let workers: Vec<_> = (0..toy.job.membership.workers).map(|it| spawn(it, worker(it))).collect();
    let mut meeting = Meeting::new(toy.job.clone(), 1).expect("a valid job");
    let model = toy.job.build_model().expect("a valid model");
    let evaluator = Evaluator::new(Box::new(Local::new(model, [toy.train.clone()])));
    let (train, parts) = (toy.train.clone(), toy.job.parts());
    let partition = move |part: PartId| Some(partition_of(&train, parts, part));
    let mut services = ServerServices::new(evaluator, partition, |_, _| {});
    let mailbox = Mailbox::new(&transport);
    let ended = drive(&mut meeting, &mut transport, &mut services, &mailbox);
    let reason = ended.expect("a transport that works").expect("a reason");
    drop(transport);
    let workers = workers.into_iter().map(|it| it.join().expect("no panic").expect("a transport"));
    let workers = workers.collect();
    let trained = meeting.trained();
    PeersEnded {
        reason,
        version: trained.point.version.0,
        time: trained.point.time,
        parameters: trained.parameters.expect("parameters").to_vec(),
        updates: Vec::new(),
        mini_batches: Vec::new(),
        samples: trained.point.samples,
        ledger: trained.ledger,
        sent: (0, 0),
        gradients: (0, 0),
        workers,
        sites: Vec::new(),
    }
}

/// The times between successive updates.
#[must_use]
pub fn intervals(updates: &[Time]) -> Vec<Duration> {
    updates.windows(2).map(|two| two[1].since(two[0])).collect()
}
