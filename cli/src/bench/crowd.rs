//! Many workers played by one thread: all shake hands, and some of them push.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{Incarnation, PartId, PeerId, Sequence, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_data::Prepared;
use pstrain_policy::job::Job;
use pstrain_roles::node::Target;
use pstrain_transports::{SocketTransport, Transport as _, TransportEvent};
use pstrain_wire::worker::{Bye, Hello, Parameters, Pull, Push, PushHeader, Ready, Welcome};
use pstrain_wire::{Limits, Message};

/// Connections that shake hands at the same time: a server limits connections before their Hello.
const CONCURRENT_HANDSHAKES: u32 = 32;
/// Time allowed for sending the last messages.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Workers of one job, over one transport.
pub(super) struct Crowd {
    transport: SocketTransport,
    /// Number of workers that push: those with the lowest ids.
    busy: u32,
    /// Rows of each worker.
    rows: Vec<u64>,
    train: Fingerprint,
    gradient: Arc<Vec<f32>>,
    keys: KeyRange,
    dialled: u32,
    /// Incarnations of the welcomed workers.
    members: BTreeMap<PeerId, Incarnation>,
    left: usize,
}

impl Crowd {
    /// The workers of a job; the first `busy` of them push.
    ///
    /// # Errors
    /// If the job has no parameters.
    pub(super) fn new(
        job: &Job,
        data: &Prepared,
        busy: u32,
        transport: SocketTransport,
    ) -> anyhow::Result<Self> {
        let parameters = job.build_model()?.parameters();
        let parts: Vec<PartId> = (0..job.membership.workers).map(PartId).collect();
        let rows = data.partitions(&parts).iter().map(|part| part.len() as u64).collect();
        Ok(Self {
            transport,
            busy,
            rows,
            train: data.fingerprint.clone(),
            gradient: Arc::new(vec![0.0; parameters]),
            keys: KeyRange::new(0, parameters as u64)?,
            dialled: 0,
            members: BTreeMap::new(),
            left: 0,
        })
    }

    /// Takes part until the server ends the job for all workers.
    ///
    /// # Errors
    /// If the server refuses or loses a worker.
    pub(super) fn play(mut self) -> anyhow::Result<()> {
        for _ in 0..CONCURRENT_HANDSHAKES.min(self.rows.len() as u32) {
            self.dial();
        }
        let mut events = Vec::new();
        while self.left < self.rows.len() {
            self.transport.wait(None, &mut events)?;
            for event in events.drain(..) {
                self.on_event(event)?;
            }
        }
        let soon = self.transport.now() + FLUSH_LIMIT;
        Ok(self.transport.flush(soon)?)
    }

    fn dial(&mut self) {
        self.transport.dial(&Target::Server);
    }

    fn on_event(&mut self, event: TransportEvent) -> anyhow::Result<()> {
        match event {
            TransportEvent::Dialled(peer, _) => {
                let worker = WorkerId(self.dialled);
                self.dialled += 1;
                self.transport.limit(peer, Limits::DIALER);
                self.transport.send(peer, Message::Hello(hello(worker)));
            }
            TransportEvent::Message(peer, message) => self.on_message(peer, message)?,
            TransportEvent::DialFailed { why, .. } => bail!("a worker cannot connect: {why}"),
            TransportEvent::Disconnected { why, .. } => bail!("a worker is cut off: {why}"),
            TransportEvent::Garbage(_, error) => bail!("the server sends nonsense: {error}"),
            TransportEvent::Connected(..) | TransportEvent::Receiving(_) => {}
        }
        Ok(())
    }

    fn on_message(&mut self, peer: PeerId, message: Message) -> anyhow::Result<()> {
        match message {
            Message::Welcome(welcome) => {
                let Welcome { worker, incarnation, .. } = *welcome;
                self.members.insert(peer, incarnation);
                self.transport.limit(peer, Limits::of_server(self.gradient.len()));
                let rows = self.rows.get(worker.0 as usize).copied().unwrap_or_default();
                let rows = BTreeMap::from([(PartId::from(worker), rows)]);
                let train = Some(self.train.clone());
                self.transport.send(peer, Message::Ready(Ready { rows, train }));
                if worker.0 < self.busy {
                    let (keys, allowed) = (self.keys, Sequence(0));
                    self.transport.send(peer, Message::Pull(Pull { incarnation, keys, allowed }));
                }
                if self.members.len() + (CONCURRENT_HANDSHAKES as usize) <= self.rows.len() {
                    self.dial();
                }
            }
            Message::Parameters(parameters) => self.push(peer, &parameters),
            Message::End(_) => {
                if let Some(incarnation) = self.members.remove(&peer) {
                    self.transport.send(peer, Message::Bye(Bye { incarnation, why: None }));
                    self.transport.close(peer);
                    self.left += 1;
                }
            }
            Message::Refused(why) => bail!("a worker is refused: {why}"),
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, peer: PeerId, given: &Parameters) {
        let (given, Some(&incarnation)) = (given.header, self.members.get(&peer)) else { return };
        let header = PushHeader::answering(&given, incarnation);
        let gradient = Arc::clone(&self.gradient);
        self.transport.send(peer, Message::Push(Push::new(header, gradient)));
    }
}

fn hello(worker: WorkerId) -> Hello {
    Hello::new(format!("bench-{worker}"), Some(worker))
}
