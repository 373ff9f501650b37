//! The loop of a server: it drives the node to the end of the run, through any number of lives.

use std::mem;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use pstrain_compute::id::{CheckpointId, PartId, WorkerId};

use pstrain_compute::time::Time;
use pstrain_roles::node::{Durable, Event, Input, NodeError, Trained};
use pstrain_transports::scenario::{Scenario, ServerLink};
use pstrain_transports::simulation::Origin;
use pstrain_transports::{
    Begin, Evaluator, Mailbox, Punctuality, ServerServices, Services, Shaped, ShardServices,
    SocketTransport, Transport, WallClock, drive, drive_from,
};
use pstrain_wire::range::RangePart;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Status};

use super::host::{Host, JobServer, Life, Machine, ShardServer, Training};
use super::open::Opened;
use crate::durable::{DurableFolder, Resumed};
#[cfg(feature = "metrics")]
use crate::metrics::{Metrics, TimedJournal};
use crate::record::Recorder;
use crate::signals::{self, Drain};
use crate::simulate::{Virtual, VirtualReport};
use crate::{messages, progress};

/// How a node ended.
pub(super) type Ended = Result<EndReason, NodeError>;

/// A server whose node has finished.
pub(crate) struct Served {
    pub(super) server: Host,
    pub(super) ended: Ended,
    /// Open until the results are written, since `pstrain control stop` waits until it is gone.
    pub(super) transport: SocketTransport,
}

/// A run that has ended: the source of its results, for runs with and without a server.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(super) training: Training,
    pub(super) recorder: Recorder,
    pub(super) trained: Trained,
    /// How well links and computing times that are modelled were kept.
    pub(super) punctuality: Punctuality,
    /// The worker that failed and without which the run could not go on.
    pub(super) failed: Option<WorkerId>,
    /// The results that only virtual time has.
    pub(super) virtual_time: Option<VirtualReport>,
}

/// Serves until the run has ended.
pub(crate) fn serve(
    Opened { transport, server }: Opened,
    clock: WallClock,
) -> anyhow::Result<Served> {
    Ok(match server {
        Host::Job(server) => {
            let (server, ended, transport) = server.live(transport, clock)?;
            Served { server: Host::Job(Box::new(server)), ended, transport }
        }
        Host::Shard(server) => {
            let (server, ended, transport) = server.live(transport, clock)?;
            Served { server: Host::Shard(Box::new(server)), ended, transport }
        }
    })
}

/// A server with lives that follow each other: one that goes back to a checkpoint is replaced by
/// one of the disk.
pub(crate) trait Lives: Sized {
    /// Time of the run at which its life begins.
    fn begins(&self) -> Time;

    /// Drives its node to the end of its life.
    fn drive(&mut self, transport: &mut dyn Transport) -> anyhow::Result<Ended>;

    /// The server that continues from checkpoint `to` in place of this one, as after a restart of
    /// the process.
    fn again(self, to: CheckpointId) -> anyhow::Result<Self>;

    /// Serves until the run has ended. A later life is at the same address, as if the process had
    /// been restarted.
    fn live(
        mut self,
        mut transport: SocketTransport,
        mut clock: WallClock,
    ) -> anyhow::Result<(Self, Ended, SocketTransport)> {
        loop {
            // The time of the run continues from the state that the node begins with.
            transport = transport.with_clock(clock.going_on(self.begins()));
            let ended = self.drive(&mut transport)?;
            let Err(NodeError::GoesBack(to)) = ended else { return Ok((self, ended, transport)) };
            messages::say(&NodeError::GoesBack(to).to_string());
            transport = transport.without_connections()?;
            self = self.again(to)?;
            clock = WallClock::start();
        }
    }
}

impl Lives for JobServer {
    fn begins(&self) -> Time {
        self.life.now
    }

    /// Drives the node over `transport`, or over the link that the job models for it.
    fn drive(&mut self, transport: &mut dyn Transport) -> anyhow::Result<Ended> {
        let link = Scenario::from_text(&self.training.job.scenario)?.links.server();
        if link == ServerLink::default() {
            return self.drive_over(transport);
        }
        let lease = self.training.job.membership.lease;
        let mut shaped = Shaped::server(transport, link, lease);
        let ended = self.drive_over(&mut shaped);
        self.punctuality.messages.merge(&shaped.lateness());
        ended
    }

    /// The address and the metrics stay.
    fn again(self, _: CheckpointId) -> anyhow::Result<Self> {
        let Self { training, life, recorder, .. } = self;
        let Machine::Checkpointed(server, journal) = life.machine else {
            bail!("nothing is kept of the run");
        };
        // Frees the memory before the next server is read.
        drop(server);
        // The path alone, without the lock of the folder, which `open` takes again.
        let path = journal.into_folder().0.path().to_owned();
        #[cfg(feature = "metrics")]
        let metrics = recorder.metrics().cloned();
        drop(recorder);
        // The state that it goes back to may be from before the budget was raised.
        let epochs = Some(training.job.budget.epochs);
        let (folder, _) = DurableFolder::open(&Resumed { folder: path, epochs })?;
        let server = training.kept(folder)?;
        #[cfg(feature = "metrics")]
        let server = match metrics {
            Some(metrics) => server.with_metrics(metrics),
            None => server,
        };
        Ok(server)
    }
}

impl Lives for ShardServer {
    fn begins(&self) -> Time {
        self.life.now
    }

    fn drive(&mut self, transport: &mut dyn Transport) -> anyhow::Result<Ended> {
        let report = progress::teller(self.follower.says.quiet, user_message);
        let mut services = ShardServices::new(report);
        self.life.drive(transport, &mut services, &self.follower.drain, [])
    }

    fn again(self, to: CheckpointId) -> anyhow::Result<Self> {
        let Self { follower, life } = self;
        let Machine::Checkpointed(shard, journal) = life.machine else {
            bail!("nothing is kept of the server");
        };
        let mut on_disk = shard.on_disk().cloned().unwrap_or_default();
        on_disk.at = Some(to).filter(|it| it.number > 0);
        let (folder, every) = journal.into_folder();
        let life = follower.at_checkpoint(folder, every, on_disk)?;
        Ok(Self { follower, life })
    }
}

impl Training {
    /// Runs in virtual time until the run has ended.
    pub(crate) fn simulate(self, run: &Virtual) -> anyhow::Result<(Finished, Option<EndReason>)> {
        let recorder = self.recorder()?;
        let stop = signals::flag_on_signal(
            "draining: letting outstanding gradients come back (again to abort)",
        )?;
        let outcome = run.run(&stop, |now, from, event| match from {
            Origin::Server => recorder.note(now, &event),
            Origin::Worker(worker) => recorder.note_worker(now, worker, &event),
        })?;
        let virtual_time = Some(VirtualReport::of(&outcome, run));
        let (training, trained, punctuality) = (self, outcome.trained, Punctuality::default());
        let finished =
            Finished { training, recorder, trained, punctuality, failed: None, virtual_time };
        Ok((finished, outcome.reason))
    }
}

impl JobServer {
    /// Serves a run in one process to its end.
    pub(crate) fn serve(&mut self, mut transport: impl Transport) -> anyhow::Result<EndReason> {
        self.drive(&mut transport)?.context("the server ended")
    }

    fn drive_over(&mut self, transport: &mut dyn Transport) -> anyhow::Result<Ended> {
        let Training { job, arithmetic, .. } = &self.training;
        let data = Arc::clone(&self.training.data);
        let evaluator = Evaluator::new(arithmetic.evaluation(job, &data.outline.evaluation)?);
        let partition = move |part: PartId| data.partition(part);
        let recorder = self.recorder.clone();
        let report = move |now, event| recorder.note(now, &event);
        let mut services = ServerServices::new(evaluator, partition, report);
        if let Some(every) = self.training.says_every {
            let recorder = self.recorder.clone();
            let look = move |status: Option<Status>| recorder.say(status.as_ref());
            services = services.watched(transport.now(), every, look);
        }
        // A standby has the parameters of its primary.
        let initial = self.training.initial.as_ref().filter(|_| self.of.is_none());
        let parts = initial.iter().flat_map(|values| RangePart::all(values));
        let given = parts.map(|part| Input::Initial(Message::RangePart(part)));
        self.life.drive(transport, &mut services, &self.training.drain, given)
    }
}

impl<S: Durable> Life<S> {
    /// Drives the node, which begins with the inputs `given`, until it has finished.
    pub(super) fn drive(
        &mut self,
        transport: &mut dyn Transport,
        services: &mut dyn Services,
        drain: &Drain,
        given: impl IntoIterator<Item = Input>,
    ) -> anyhow::Result<Ended> {
        let mailbox = Mailbox::new(transport);
        drain.turn_to(mailbox.handle())?;
        given.into_iter().for_each(|input| mailbox.handle().post(input));
        let begin = mem::replace(&mut self.begin, Begin::start());
        Ok(match &mut self.machine {
            Machine::Alone(node) => drive(node, transport, services, &mailbox),
            Machine::Replica(node) => drive(node, transport, services, &mailbox),
            Machine::Meeting(node, None) => drive(&mut **node, transport, services, &mailbox),
            Machine::Meeting(node, Some(journal)) => {
                drive_from(&mut **node, transport, services, &mailbox, journal, begin)
            }
            Machine::Checkpointed(node, journal) => {
                drive_from(node, transport, services, &mailbox, journal, begin)
            }
            Machine::Logged(node, journal) => {
                #[cfg(feature = "metrics")]
                let journal =
                    &mut TimedJournal::new(journal, self.metrics.as_ref().map(Metrics::commits));
                drive_from(node, transport, services, &mailbox, journal, begin)
            }
        }?)
    }
}

/// The message of a server that does not coordinate about an event that the user should see at
/// once, if it is such an event.
fn user_message(event: &Event) -> Option<String> {
    Some(match event {
        Event::Enlisted { job, server, keys } => {
            let consistency = job.mode.consistency;
            format!("server {server}: keys {keys} of job {:?} ({consistency})", job.name)
        }
        Event::Holds { keys } => format!("keys {keys} from now on"),
        Event::Redialling { attempt, pause, why } => {
            format!("no connection: {why}; try {attempt} in {:.1} s", pause.as_secs_f64())
        }
        other => return progress::user_message(other),
    })
}
