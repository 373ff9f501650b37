//! `pstrain server --resume`: a server and its records brought to where they were.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use pstrain_core::job::Job;
use pstrain_core::node::Server;
use pstrain_data::Prepared;
use pstrain_transports::journal::{CheckpointError, Found, Recovered, recover};

use super::server::{Host, fresh_run};
use super::standby::Role;
use crate::args::{Durability, Output};
use crate::durable::{DurableFolder, Keeping};
use crate::messages;
use crate::record::{Folder, Kept, Summary};

impl Host {
    /// A host for the server that is kept in `folder`, brought to where it was.
    pub(super) fn resume(
        mut folder: DurableFolder,
        (job, data): (Job, Arc<Prepared>),
        job_file: &str,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let found = folder.find()?;
        let mut server = restore(&folder, &found, job)?;
        let records = records(&mut folder, &found, &server, job_file, output)?;
        let durability = folder.identity().durability;
        if durability == Durability::Checkpoint && found.checkpoint.is_some() {
            server.begin_lineage(fresh_run());
        }
        let mut host = Self::with_records(server, data, records, output, true);
        let recorder = host.recorder.clone();
        let report = |now, event| recorder.note(now, &event);
        let Role::Server(server) = &mut host.role else { return Ok(host) };
        let recovered = recover(&folder.state(), &found, server, report)?;
        say(durability, &found, &recovered, server);
        let Recovered { log, begin, now, .. } = recovered;
        let (checkpoint_every, folder) = (folder.identity().checkpoint_every, folder.state());
        host.keeping = Some(Keeping { folder, checkpoint_every, found, log, begin, now });
        Ok(host)
    }
}

/// The server as the checkpoint has it, or as it was in the beginning.
fn restore(folder: &DurableFolder, found: &Found, job: Job) -> anyhow::Result<Server> {
    let Some(checkpoint) = &found.checkpoint else {
        return Ok(Server::new(job, folder.identity().run)?);
    };
    let path = folder.state().checkpoint(checkpoint.number);
    Server::restore(job, &checkpoint.saved)
        .map_err(|error| CheckpointError::of_server(&path, error).into())
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
    let before = folder.identity().out.clone();
    let Some(out) = output.out.as_deref().or(before.as_deref()) else {
        if let Some(checkpoint) = &found.checkpoint {
            Kept::of_bytes(&checkpoint.beside)?.go_on(&mut summary, None)?;
        }
        return Ok((summary, None));
    };
    let records = match &found.checkpoint {
        None => {
            // All that was written is reported once more.
            let own = before.as_deref().is_some_and(|before| is_same(before, out));
            Some(Folder::create(out, own || output.overwrite, job_file, server)?)
        }
        Some(checkpoint) => {
            let kept = Kept::of_bytes(&checkpoint.beside)?;
            if before.is_none() {
                bail!("--out: the run that is resumed keeps no records; leave it out");
            }
            if !kept.has_folder() {
                messages::warn(
                    "the records of this run broke off before; they are not gone on with",
                );
            }
            kept.go_on(&mut summary, Some(out))?
        }
    };
    folder.set_out(out)?;
    Ok((summary, records))
}

/// Whether two paths are the same folder.
fn is_same(one: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| path.canonicalize().context("no folder");
    matches!((canonical(one), canonical(other)), (Ok(one), Ok(other)) if one == other)
}

fn say(durability: Durability, found: &Found, recovered: &Recovered, server: &Server) {
    let Recovered { inputs, torn, .. } = recovered;
    let from = match (&found.checkpoint, durability) {
        (None, Durability::Checkpoint) => {
            "there is no checkpoint yet, the run begins anew".to_owned()
        }
        (None, _) => format!("resumed after {inputs} inputs"),
        (Some(checkpoint), Durability::Checkpoint) => {
            format!("resumed from checkpoint {}, all since is lost", checkpoint.number)
        }
        (Some(checkpoint), _) => {
            format!("resumed from checkpoint {} and {inputs} inputs since", checkpoint.number)
        }
    };
    let cut = match torn {
        0 => String::new(),
        torn => format!(", without {torn} bytes that were never acknowledged"),
    };
    let point = server.point();
    let point = format!("{} updates, epoch {:.2}", point.version, point.epoch);
    messages::say(&format!("{from}{cut}: {point}"));
}
