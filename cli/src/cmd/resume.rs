//! `pstrain server --resume`: restores a server and its records.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use pstrain_policy::job::Job;
use pstrain_roles::node::{Replica, Server};
use pstrain_transports::journal::{CheckpointError, Found, Recovered, recover};

use super::server::{Host, fresh_run};
use super::standby::{self, Role};
use crate::args::{Durability, Output, ServerArgs};
use crate::durable::{DurableFolder, DurableRun, Identity};
use crate::messages;
use crate::record::{Folder, Kept, Summary};
use crate::served::ServerData;

impl Host {
    /// A host for the server that is kept in `folder`, restored to its last state.
    pub(super) fn resume(
        mut folder: DurableFolder,
        (job, data): (Job, Arc<ServerData>),
        job_file: &str,
        output: &Output,
    ) -> anyhow::Result<Self> {
        folder.check(&job, &data)?;
        let found = folder.find()?;
        let role = restore(&folder, &found, job.clone())?;
        let blank = Server::new(job.clone(), 0)?;
        let server = role.server().unwrap_or(&blank);
        let records = records(&mut folder, &found, server, job_file, output)?;
        let mut host = Self::with_records(role, (job, data), records, output, true);
        let recorder = host.recorder.clone();
        let report = |now, event| recorder.replay_event(now, &event);
        let recovered = match &mut host.role {
            Role::Server(server) => recover(folder.state(), &found, server, report)?,
            Role::Replica(replica) => recover(folder.state(), &found, replica, report)?,
        };
        say(folder.identity().durability, &found, &recovered, host.role.server());
        let Recovered { log, begin, now, .. } = recovered;
        let (checkpoint_every, folder) =
            (folder.identity().checkpoint_every, folder.state().clone());
        host.keeping = Some(DurableRun { folder, checkpoint_every, found, log, begin, now });
        Ok(host)
    }

    /// A host that continues from the last checkpoint in place of this one, as after a restart of
    /// the process. The address and the metrics stay.
    pub(super) fn anew(
        self,
        args: &ServerArgs,
        (job, data): (Job, Arc<ServerData>),
        job_file: &str,
    ) -> anyhow::Result<Self> {
        let (drain, says_every) = (self.drain.clone(), self.says_every);
        #[cfg(feature = "metrics")]
        let metrics = self.recorder.metrics().cloned();
        // Unlocks the state folder, which `open` locks again.
        drop(self);
        let path = args.resume.as_deref().or(args.state.as_deref());
        let (folder, _) = DurableFolder::open(path.context("nothing is kept of the run")?)?;
        let mut host = Self::resume(folder, (job, data), job_file, &args.output)?;
        (host.drain, host.says_every) = (drain, says_every);
        #[cfg(feature = "metrics")]
        if let Some(metrics) = metrics {
            host.recorder.set_metrics(metrics);
        }
        Ok(host)
    }
}

/// The server of the checkpoint, or a new one if there is no checkpoint.
fn restore(folder: &DurableFolder, found: &Found, job: Job) -> anyhow::Result<Role> {
    let Identity { run, durability, standby: of, .. } = folder.identity();
    let damaged = |number, error| {
        anyhow::Error::from(CheckpointError::of_server(&folder.state().checkpoint(number), error))
    };
    match (&found.checkpoint, durability) {
        (Some(checkpoint), Durability::Log) => {
            let config = standby::config(*run, of.as_ref());
            let replica = Replica::restore(config, job, &checkpoint.saved);
            Ok(Role::Replica(replica.map_err(|error| damaged(checkpoint.number, error))?))
        }
        (None, Durability::Log) => match of {
            Some(of) => Role::standby(of, *run, job),
            None => Ok(Role::primary(Server::new(job, *run)?, *run)),
        },
        (Some(checkpoint), _) => {
            let server = Server::restore(job, &checkpoint.saved);
            let mut server = server.map_err(|error| damaged(checkpoint.number, error))?;
            server.begin_lineage(fresh_run(), *run, checkpoint.number);
            Ok(Role::Server(server))
        }
        (None, _) => {
            let mut server = Server::new(job, *run)?;
            server.begin_lineage(fresh_run(), *run, 0);
            Ok(Role::Server(server))
        }
    }
}

/// The totals and the results folder as they were at the checkpoint.
fn records(
    folder: &mut DurableFolder,
    found: &Found,
    server: &Server,
    job_file: &str,
    output: &Output,
) -> anyhow::Result<(Summary, Option<Folder>)> {
    let mut summary = Summary::new(server.job());
    let (before, most) = (folder.identity().out.clone(), output.out_limit.0);
    let Some(out) = output.out.as_deref().or(before.as_deref()) else {
        if let Some(checkpoint) = &found.checkpoint {
            Kept::of_bytes(&checkpoint.beside)?.go_on(&mut summary, None, None)?;
        }
        return Ok((summary, None));
    };
    let records = match &found.checkpoint {
        None => {
            // The server reports everything since the start of the run again.
            let own = before.as_deref().is_some_and(|before| is_same(before, out));
            Some(Folder::create(out, own || output.overwrite, job_file, server, most)?)
        }
        Some(checkpoint) => {
            let kept = Kept::of_bytes(&checkpoint.beside)?;
            let Some(before) = &before else {
                bail!("--out: the run that is resumed keeps no records; leave it out");
            };
            // Continuing records truncates them to the checkpoint: never do that to another run's.
            if before.exists() && !is_same(before, out) {
                bail!(
                    "--out {}: the records of the run that is resumed are in {}; leave it out, or \
                     move that folder first",
                    out.display(),
                    before.display()
                );
            }
            if !kept.has_folder() {
                messages::warn(
                    "the records of this run broke off before; they are not gone on with",
                );
            }
            kept.go_on(&mut summary, Some(out), most)?
        }
    };
    folder.set_out(out)?;
    Ok((summary, records))
}

/// True if both paths lead to the same folder.
fn is_same(one: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| path.canonicalize().context("no folder");
    matches!((canonical(one), canonical(other)), (Ok(one), Ok(other)) if one == other)
}

fn say(durability: Durability, found: &Found, recovered: &Recovered, server: Option<&Server>) {
    let Recovered { inputs, torn, .. } = recovered;
    let from = match (&found.checkpoint, durability) {
        (None, Durability::Checkpoint) => {
            "there is no checkpoint yet, the run begins anew".to_owned()
        }
        (Some(checkpoint), Durability::Checkpoint) => {
            format!("resumed from checkpoint {}, all since is lost", checkpoint.number)
        }
        _ => resumed(found, *inputs, *torn),
    };
    let point = server.map(Server::point);
    let point = point.map(|it| format!(": {} updates, epoch {:.2}", it.version, it.epoch));
    messages::say(&format!("{from}{}", point.unwrap_or_default()));
}

/// Describes the state from which a server with a log continues.
pub(super) fn resumed(found: &Found, inputs: u64, torn: u64) -> String {
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
