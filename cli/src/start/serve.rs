//! The loop of a server: it drives the node to the end of the run, through any number of lives.

use std::sync::Arc;

use anyhow::Context as _;
use pstrain_compute::id::{CheckpointId, PartId};
use pstrain_compute::model::Model;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, NodeError};
use pstrain_transports::scenario::{Scenario, ServerLink};
use pstrain_transports::simulation::Origin;
use pstrain_transports::{
    Address, Evaluator, ServerServices, Shaped, ShardServices, SocketTransport, Transport,
    WallClock,
};
use pstrain_wire::Status;
use pstrain_wire::worker::EndReason;

use super::journal::{Life, Machine};
use super::open::{JobServer, Opened, Opening, ShardServer, Training};
use crate::signals;
use crate::simulate::{Virtual, VirtualReport};
use crate::troubles::EventLimiter;
use crate::{messages, progress};

/// A server whose node has finished.
pub(crate) struct Served {
    pub(super) server: Opening,
    pub(super) ended: Result<EndReason, NodeError>,
    pub(super) listened: Option<Address>,
}

/// Serves until the run has ended. A node that goes back to a checkpoint is replaced by one of the
/// disk at the same address, as if the process had been restarted.
pub(crate) fn serve(
    Opened { mut transport, mut server }: Opened,
    mut clock: WallClock,
) -> anyhow::Result<Served> {
    loop {
        // The time of the run continues from the state that the node begins with.
        transport = transport.with_clock(clock.going_on(server.begins()));
        let ended = server.drive(&mut transport)?;
        let Err(NodeError::GoesBack(to)) = ended else {
            return Ok(Served { server, ended, listened: transport.local_address() });
        };
        messages::say(&NodeError::GoesBack(to).to_string());
        transport = transport.without_connections()?;
        server = server.again(to)?;
        clock = WallClock::start();
    }
}

impl Opening {
    const fn begins(&self) -> Time {
        match self {
            Self::Job(server) => server.life.begins(),
            Self::Shard(server) => server.life.begins(),
        }
    }

    fn drive(
        &mut self,
        transport: &mut SocketTransport,
    ) -> anyhow::Result<Result<EndReason, NodeError>> {
        match self {
            Self::Job(server) => server.drive(transport),
            Self::Shard(server) => server.drive(transport),
        }
    }

    fn again(self, to: CheckpointId) -> anyhow::Result<Self> {
        Ok(match self {
            Self::Job(server) => Self::Job(Box::new(server.again()?)),
            Self::Shard(server) => Self::Shard(Box::new(server.again(to)?)),
        })
    }
}

impl Training {
    /// Runs in virtual time until the run has ended.
    pub(crate) fn simulate(self, run: &Virtual) -> anyhow::Result<(JobServer, Option<EndReason>)> {
        let server = run.server()?;
        let recorder = self.recorder(&server)?;
        let stop = signals::flag_on_signal(
            "draining: letting outstanding gradients come back (again to abort)",
        )?;
        let outcome = run.run(server, &stop, |now, from, event| match from {
            Origin::Server => recorder.note(now, &event),
            Origin::Worker(worker) => recorder.note_worker(now, worker, &event),
        })?;
        let virtual_time = Some(VirtualReport::of(&outcome, run));
        let server = self.server(Life::new(Machine::Alone(outcome.server)), recorder, None);
        Ok((JobServer { virtual_time, ..server }, outcome.reason))
    }
}

impl JobServer {
    /// Serves a run in one process to its end.
    pub(crate) fn serve(&mut self, transport: impl Transport) -> anyhow::Result<EndReason> {
        self.drive(transport)?.context("the server ended")
    }

    /// Drives the node over `transport`, or over the link that the job models for it.
    fn drive(
        &mut self,
        mut transport: impl Transport,
    ) -> anyhow::Result<Result<EndReason, NodeError>> {
        let link = Scenario::from_text(&self.training.job.scenario)?.links.server();
        if link == ServerLink::default() {
            return self.drive_over(&mut transport);
        }
        let lease = self.training.job.membership.lease;
        let mut shaped = Shaped::server(transport, link, lease);
        let ended = self.drive_over(&mut shaped);
        self.punctuality.messages.merge(&shaped.lateness());
        ended
    }

    fn drive_over(
        &mut self,
        transport: &mut impl Transport,
    ) -> anyhow::Result<Result<EndReason, NodeError>> {
        let job = &self.training.job;
        let model = Model::new(&job.model, job.data.shape)?;
        let data = Arc::clone(&self.training.data);
        let evaluator = Evaluator::new(model, data.outline.evaluation.clone());
        let partition = move |part: PartId| data.partition(part);
        let recorder = self.recorder.clone();
        let report = move |now, event| recorder.note(now, &event);
        let mut services = ServerServices::new(evaluator, partition, report);
        if let Some(every) = self.training.says_every {
            let recorder = self.recorder.clone();
            let look = move |status: Option<Status>| recorder.say(status.as_ref());
            services = services.watched(transport.now(), every, look);
        }
        self.life.drive(transport, &mut services, &self.training.drain)
    }
}

impl ShardServer {
    fn drive(
        &mut self,
        transport: &mut SocketTransport,
    ) -> anyhow::Result<Result<EndReason, NodeError>> {
        let (quiet, mut troubles) = (self.follower.quiet, EventLimiter::new());
        let mut services = ShardServices::new(move |now, event: Event| {
            if !quiet
                && let Some(words) = user_message(&event)
                && let Some(message) = troubles.say(now, &event, words)
            {
                messages::tell(progress::level(&event), &message, &event);
            }
        });
        self.life.drive(transport, &mut services, &self.follower.drain)
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
