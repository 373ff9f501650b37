//! Nodes and records of a state folder: of a new one, with `--resume`, and when the servers of a
//! run go back to a checkpoint.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::id::CheckpointId;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::{Effect, Input, Meeting, Point, Replica, Server, Shard};
use pstrain_transports::Begin;
use pstrain_transports::journal::{
    CheckpointError, CheckpointsOnly, Companion, Found, GroupCheckpoints, Recovered, StateFolder,
    goes_on, recover,
};
use pstrain_wire::checkpoint::OnDisk;
use pstrain_wire::worker::EndReason;

use super::fresh_run;
use super::host::{
    Follower, JobServer, Life, Machine, Training, companions, new_replica, replica_config,
};
use crate::args::{Durability, Output};
use crate::durable::{DurableFolder, Identity, ShardFolder, State, find, nothing_but};
use crate::figures::counted;
use crate::messages;
use crate::record::{Kept, Recorder, Summary};

/// The error of a folder whose logs are gone.
const NO_LOG: &str = "the state folder has no log";

/// A node as a state folder has it.
#[expect(clippy::large_enum_variant, reason = "there is one of them in a process")]
enum Restored {
    /// Of a folder of checkpoints.
    Server(Server),
    /// Of a folder with a log.
    Replica(Replica),
    /// Of a folder of checkpoints, where the workers have no server.
    Meeting(Box<Meeting>),
}

impl Restored {
    /// The budget, and why the run has ended, if it has; none for a standby without a state.
    fn budget(&self) -> Option<(u32, Option<EndReason>)> {
        let of = |server: &Server| (server.job().budget.epochs, server.ended());
        match self {
            Self::Server(server) => Some(of(server)),
            Self::Replica(replica) => replica.server().map(of),
            Self::Meeting(meeting) => Some((meeting.job().budget.epochs, meeting.ended())),
        }
    }

    /// Checks that a run with this budget can make `epochs` passes over the data. Returns true if
    /// that is more than it has.
    fn may_extend(&self, epochs: u32) -> anyhow::Result<bool> {
        let Some((had, ended)) = self.budget() else { return Ok(false) };
        if epochs < had {
            bail!("--epochs {epochs}: the run has {had} already; give more, or leave it out");
        }
        let is_over = ended == Some(EndReason::BudgetReached);
        let servers = match self {
            Self::Server(server) => server.job().servers,
            Self::Replica(replica) => replica.server().map_or(1, |server| server.job().servers),
            Self::Meeting(_) => 1,
        };
        let obstacle = match self {
            _ if epochs == had || ended.is_none() => None,
            _ if !is_over => ended.map(|reason| reason.to_string()),
            Self::Meeting(meeting) if !meeting.has_states() => {
                Some("it ended before its workers' states were kept".into())
            }
            _ if servers > 1 => Some("it has ended, and its other servers with it".into()),
            _ => None,
        };
        match obstacle {
            Some(why) => bail!("--epochs {epochs}: the run cannot go on: {why}"),
            None => Ok(epochs > had),
        }
    }

    /// The position that it continues from; none for a standby without a state.
    fn point(&self) -> Option<Point> {
        match self {
            Self::Server(server) => Some(server.point()),
            Self::Replica(replica) => replica.server().map(Server::point),
            Self::Meeting(meeting) => Some(meeting.point()),
        }
    }
}

impl Training {
    /// The server that `folder` keeps, restored to its last state, or a new one that it will keep.
    pub(super) fn kept(mut self, mut folder: DurableFolder) -> anyhow::Result<JobServer> {
        let is_new = folder.is_new();
        let mut found = if is_new {
            nothing_but(0)
        } else {
            folder.check(&self.job, &self.data)?;
            folder.find()?
        };
        let mut node = restore(&folder, &found, self.job.clone())?;
        let recorder = self.records(&mut folder, &found)?;
        if is_new {
            folder.begin(&self.job_file)?;
            found = folder.find()?;
        }
        let report = |now, event| recorder.replay_event(now, &event);
        let recovered = match &mut node {
            Restored::Server(server) => recover(folder.state(), &found, server, report)?,
            Restored::Replica(replica) => recover(folder.state(), &found, replica, report)?,
            Restored::Meeting(meeting) => recover(folder.state(), &found, &mut **meeting, report)?,
        };
        if !is_new {
            say(folder.identity().durability, &found, &recovered, &node);
        }
        let Recovered { log, mut begin, now, .. } = recovered;
        let wanted = folder.epochs();
        if let Some(epochs) = wanted
            && node.may_extend(epochs)?
        {
            // First: the run goes on, whatever it had still to do at its end.
            begin.effects.retain(|effect| !matches!(effect, Effect::Done(_)));
            begin.inputs.insert(0, Input::Extend(epochs));
        }
        if !is_new {
            begin.inputs.push(Input::WorkersDown);
        }
        if let Some((had, _)) = node.budget() {
            self.job.budget.epochs = had.max(wanted.unwrap_or(had));
            recorder.lengthen(self.job.budget.epochs);
        }
        self.state = Some(folder.state().path().to_owned());
        self.drain.goes_on(self.after_abort());
        self.output.out = self.output.out.take().or_else(|| folder.identity().out.clone());
        let (state, of) = folder.into_parts(found, now);
        let beside = companions(&recorder);
        let machine = match node {
            Restored::Server(server) => {
                Machine::Checkpointed(server, CheckpointsOnly::new(state.checkpoints(beside)))
            }
            Restored::Meeting(meeting) => {
                Machine::Meeting(meeting, Some(CheckpointsOnly::new(state.checkpoints(beside))))
            }
            Restored::Replica(replica) => Machine::Logged(
                replica,
                state.log(log.context(NO_LOG)?, beside, self.drain.clone()),
            ),
        };
        self.server(Life { begin, now, ..Life::new(machine) }, recorder, of)
    }

    /// The totals and the results folder as they were at the checkpoint.
    fn records(&self, folder: &mut DurableFolder, found: &Found) -> anyhow::Result<Recorder> {
        let Output { out, overwrite, out_limit, .. } = &self.output;
        let (mut summary, most) = (Summary::new(&self.job), out_limit.0);
        let before = folder.identity().out.clone();
        let Some(out) = out.as_deref().or(before.as_deref()) else {
            if let Some(checkpoint) = &found.checkpoint {
                Kept::of_bytes(&checkpoint.beside)?.go_on(&mut summary, None, None)?;
            }
            return Ok(self.recorder_of(summary, None));
        };
        let records = match &found.checkpoint {
            None => {
                // A resumed server reports everything since the start of the run again.
                let own = before.as_deref().filter(|_| !folder.is_new());
                let own = own.is_some_and(|before| is_same(before, out));
                Some(self.folder(out, own || *overwrite)?)
            }
            Some(checkpoint) => {
                let kept = Kept::of_bytes(&checkpoint.beside)?;
                let Some(before) = &before else {
                    bail!("--out: the run that is resumed keeps no records; leave it out");
                };
                // Continuing records truncates them to the checkpoint: never do that to another
                // run's.
                if before.exists() && !is_same(before, out) {
                    bail!(
                        "--out {}: the records of the run that is resumed are in {}; leave it \
                         out, or move that folder first",
                        out.display(),
                        before.display()
                    );
                }
                if !kept.has_folder() {
                    messages::warn("the records of this run ended early, and are not continued");
                }
                kept.go_on(&mut summary, Some(out), most)?
            }
        };
        folder.set_out(out)?;
        Ok(self.recorder_of(summary, records))
    }
}

impl Follower {
    /// The server of a folder with a log, restored to its last state.
    pub(super) fn at_log_end(
        &self,
        folder: StateFolder,
        kept: &ShardFolder,
        is_resumed: bool,
    ) -> anyhow::Result<Life<Shard>> {
        let found = find(&folder, true)?;
        let config = replica_config(kept.number, None);
        let mut node = match &found.checkpoint {
            None => Replica::primary_shard(config, self.shard()),
            Some(checkpoint) => {
                let node = Replica::restore_shard(config, self.shard(), &checkpoint.saved);
                let place = folder.checkpoint(found.number());
                node.map_err(|why| CheckpointError::of_server(&place, why))?
            }
        };
        let Recovered { log, begin, now, inputs, torn } =
            recover(&folder, &found, &mut node, |_, _| ())?;
        if is_resumed {
            messages::say(&resumed(&found, inputs, torn));
            if let Some((server, keys)) = node.holds() {
                messages::say(&format!("server {server}: keys {keys}"));
            }
        }
        let state = State { folder, checkpoint_every: kept.checkpoint_every, found, now };
        // Only the coordinator keeps records.
        let beside = Box::new(Companion::default);
        let journal = state.log(log.context(NO_LOG)?, beside, self.drain.clone());
        Ok(Life { begin, now, ..Life::new(Machine::Logged(node, journal)) })
    }

    /// The server of a folder of checkpoints. It begins with none: the coordinator says which.
    pub(super) fn at_rest(
        &self,
        folder: StateFolder,
        checkpoint_every: Duration,
    ) -> anyhow::Result<Life<Shard>> {
        let GroupCheckpoints { on_disk, damaged } = folder.shelf()?;
        for damaged in damaged {
            messages::warn(&format!("{damaged}; it cannot be gone back to"));
        }
        self.at_checkpoint(folder, checkpoint_every, on_disk)
    }

    /// The server at the checkpoint `on_disk.at`; without one, at the beginning of the run.
    pub(super) fn at_checkpoint(
        &self,
        folder: StateFolder,
        checkpoint_every: Duration,
        on_disk: OnDisk,
    ) -> anyhow::Result<Life<Shard>> {
        let newest = on_disk.checkpoints.iter().map(|it| it.number).max().unwrap_or(0);
        let at = on_disk.at;
        let shard = self.shard().with_checkpoints(on_disk);
        let (shard, begin, found, now) = match at {
            None => (shard, Begin::start(), nothing_but(newest), Time::ZERO),
            Some(CheckpointId { number, .. }) => {
                let found = folder.find_checkpoint(number)?;
                let checkpoint = found.checkpoint.as_ref().context("there is no checkpoint")?;
                let place = folder.checkpoint(number);
                let damaged = |why| CheckpointError::of_server(&place, why);
                let shard = shard.restored(&checkpoint.saved).map_err(|why| damaged(why.into()))?;
                let (begin, now) = (goes_on(&shard, None), checkpoint.now);
                (shard, begin, found, now)
            }
        };
        let state = State { folder, checkpoint_every, found, now };
        let checkpoints = state.checkpoints(Box::new(Companion::default));
        let machine = Machine::Checkpointed(shard, CheckpointsOnly::following(checkpoints));
        Ok(Life { begin, now, ..Life::new(machine) })
    }
}

/// The server of the checkpoint, or a new one if there is no checkpoint.
fn restore(folder: &DurableFolder, found: &Found, job: Job) -> anyhow::Result<Restored> {
    let Identity { run, durability, standby: of, .. } = folder.identity();
    let damaged = |number, error| {
        anyhow::Error::from(CheckpointError::of_server(&folder.state().checkpoint(number), error))
    };
    if !job.architecture.has_server() {
        let mut meeting = match &found.checkpoint {
            None => Meeting::new(job, *run)?.with_checkpoints(),
            Some(checkpoint) => Meeting::restore(job, &checkpoint.saved)
                .map_err(|error| damaged(checkpoint.number, error))?,
        };
        if !folder.is_new() {
            meeting.begin_lineage(fresh_run(), *run, found.number());
        }
        return Ok(Restored::Meeting(Box::new(meeting)));
    }
    match (&found.checkpoint, durability) {
        (Some(checkpoint), Durability::Log) => {
            let config = replica_config(*run, of.as_ref());
            let replica = Replica::restore(config, job, &checkpoint.saved);
            Ok(Restored::Replica(replica.map_err(|error| damaged(checkpoint.number, error))?))
        }
        (None, Durability::Log) => Ok(Restored::Replica(new_replica(*run, of.as_ref(), job)?)),
        (Some(checkpoint), _) => {
            let server = Server::restore(job, &checkpoint.saved);
            let mut server = server.map_err(|error| damaged(checkpoint.number, error))?;
            server.begin_lineage(fresh_run(), *run, checkpoint.number);
            Ok(Restored::Server(server))
        }
        (None, _) if folder.is_new() => {
            Ok(Restored::Server(Server::new(job, *run)?.with_checkpoints()))
        }
        (None, _) => {
            let mut server = Server::new(job, *run)?;
            server.begin_lineage(fresh_run(), *run, 0);
            Ok(Restored::Server(server))
        }
    }
}

/// True if both paths lead to the same folder.
fn is_same(one: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| path.canonicalize().context("no folder");
    matches!((canonical(one), canonical(other)), (Ok(one), Ok(other)) if one == other)
}

fn say(durability: Durability, found: &Found, recovered: &Recovered, node: &Restored) {
    let Recovered { inputs, torn, .. } = recovered;
    let point = node.point().map(|Point { version, epoch, .. }| {
        format!("{}, epoch {epoch:.2}", counted(version.0, "update"))
    });
    let (after, so_far) = match point {
        Some(point) => (format!(" after {point}"), format!(": {point}")),
        None => (String::new(), String::new()),
    };
    messages::say(&match (&found.checkpoint, durability) {
        (None, Durability::Checkpoint) => {
            format!("there is no checkpoint yet: the run starts from the beginning{so_far}")
        }
        (Some(checkpoint), Durability::Checkpoint) => {
            // No client changes a run without a server.
            let but = match node {
                Restored::Meeting(_) => "",
                _ => ", except what clients pushed or changed, which is lost",
            };
            // Nothing came after a stop on request.
            format!(
                "resumed from checkpoint {}{after}; if anything came after it, it is computed \
                 again{but}",
                checkpoint.number
            )
        }
        _ => resumed(found, *inputs, *torn) + &so_far,
    });
}

/// Describes the state from which a server with a log continues.
fn resumed(found: &Found, inputs: u64, torn: u64) -> String {
    let from = match &found.checkpoint {
        None => format!("resumed after {inputs} inputs"),
        Some(checkpoint) => {
            format!("resumed from checkpoint {} and {inputs} inputs since", checkpoint.number)
        }
    };
    match torn {
        0 => from,
        torn => format!(
            "{from}, without the last {torn} bytes of the log, which are no whole record: \
             half-written when the server died, or damaged since; if workers were answered by \
             then, they show it when they come back"
        ),
    }
}
