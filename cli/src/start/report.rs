//! The report of a run: its results as files and on stdout, and the exit code of the process.

use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_roles::node::NodeError;
use pstrain_transports::{Address, Punctuality};
use pstrain_wire::worker::EndReason;
use serde::Serialize;

use super::host::{Host, JobServer, Machine, ShardServer};
use super::plan::Says;
use super::serve::{self, Finished, Served};
use crate::args::Output;
use crate::durable::StandbyOf;
use crate::energy::Meter;
use crate::exit::{self, Ending, Failed};
use crate::record::{Ended, ModelFile, Report, Shaping, VersionRange, write_model};
use crate::{messages, results};

/// Writes the results of a server, and tells how it ended.
pub(crate) fn report(served: Served) -> anyhow::Result<Ending> {
    let Served { server, ended, transport } = served;
    match server {
        Host::Shard(server) => report_shard(&server, ended),
        Host::Job(server) => {
            let reason = ended.map_err(|error| failed(error, server.of.as_ref()))?;
            let may_go_back = matches!(server.life.machine, Machine::Checkpointed(..));
            let may_go_on = matches!(server.life.machine, Machine::Meeting(_, Some(_)));
            let is_unix = matches!(transport.local_address(), Some(Address::Unix(_)));
            let last_words = server.last_words(reason);
            server.finish(if is_unix { "unix" } else { "tcp" }, None)?;
            last_words.iter().for_each(|line| messages::say(line));
            if let (EndReason::ServerLost(lost), true) = (reason, may_go_back) {
                messages::say(&format!(
                    "all servers continue from the last checkpoint with --resume, server {lost} \
                     with them"
                ));
            }
            if reason.is_loss() && may_go_on {
                messages::say(
                    "the run can go on from its last checkpoint, with these workers or others: \
                     start this server again with --resume",
                );
            }
            exit::of_reason(reason)
        }
    }
}

/// The end of a server that does not coordinate, as `--json` prints it.
#[derive(Serialize)]
struct ShardDone {
    server: Option<ServerId>,
    ended: String,
}

fn report_shard(server: &ShardServer, ended: serve::Ended) -> anyhow::Result<Ending> {
    let ShardServer { follower, life } = server;
    let coordinator = &follower.coordinator;
    let reason = ended.map_err(|error| match error {
        NodeError::Refused(why) => Failed(format!("{coordinator}: it refused this server: {why}")),
        error => Failed(format!("{coordinator}: {error}")),
    })?;
    let may_go_back = matches!(life.machine, Machine::Checkpointed(..));
    if may_go_back && follower.drain.is_asked() && reason == EndReason::Stopped {
        messages::say(
            "the run waits for this server for 12 leases, unless it is over: continue with it with \
             --resume",
        );
    }
    let Says { form, quiet } = follower.says;
    if form.json || !quiet {
        let done = ShardDone { server: server.number(), ended: reason.to_string() };
        form.report(&done, || format!("done: {}", done.ended))?;
    }
    exit::of_reason(reason)
}

/// The error of a server with the job that failed; `of` is set if it began as a standby.
fn failed(error: NodeError, of: Option<&StandbyOf>) -> Failed {
    Failed(match error {
        NodeError::Refused(why) => format!("the server refused this standby: {why}"),
        NodeError::Unreachable { why, .. } => {
            let (there, here) =
                of.map_or_else(Default::default, |StandbyOf { primary, address }| {
                    (format!(", at {primary}"), format!(" at {address}"))
                });
            format!(
                "cannot reach the server that it stands by for{there}: {why}; see that it runs and \
                 can be reached from here. If it is gone for good, this one leads once half of the \
                 workers have come to it{here}: see that they run and can reach it there \
                 (--advertise)"
            )
        }
        other => other.to_string(),
    })
}

impl JobServer {
    /// Adds measurements of how well the run kept the modelled times.
    pub(crate) fn note_punctuality(&mut self, punctuality: &Punctuality) {
        self.punctuality.merge(punctuality);
    }

    /// Writes and prints the results of the run, which this process stopped if a worker `failed`.
    pub(crate) fn finish(self, transport: &str, failed: Option<WorkerId>) -> anyhow::Result<()> {
        // `life` stays until the end, and the state folder locked: a process that resumes the run
        // writes the results, too.
        let Self { training, life, recorder, punctuality, .. } = self;
        let Some(trained) = life.machine.trained() else {
            recorder.finish();
            return Ok(());
        };
        let virtual_time = None;
        Finished { training, recorder, trained, punctuality, failed, virtual_time }
            .finish(transport)
    }
}

impl Finished {
    /// Writes the results, then prints them: a closed stdout must not cost the files.
    pub(crate) fn finish(self, transport: &str) -> anyhow::Result<()> {
        let Self { training, recorder, trained, virtual_time, punctuality, failed } = self;
        let (summary, folder) = recorder.finish();
        let (job, outline) = (&training.job, &training.data.outline);
        let mut report = summary.report(job, &trained, outline, transport);
        if let Some(virtual_time) = virtual_time {
            report.was_virtual(virtual_time);
        }
        if let Some(worker) = failed {
            report.ended = Ended::Without(worker);
        }
        report.shaping = Shaping::of(&punctuality);
        let measured = training.meter.as_ref().map(Meter::measured).transpose();
        let measured = measured.unwrap_or_else(|why| {
            messages::warn(&format!("no energy is measured: {why}"));
            None
        });
        report.energy = summary.energy(&training.energy, job, &report, measured);
        tell_missing(&report);
        let Some(folder) = folder else { return print(&report, &training.output) };
        report.full_files = folder.full_files();
        let written = if let Some(parameters) = &trained.parameters {
            let about = ModelFile::new(job, outline.spec.classes(), &report)?;
            write_model(&folder.model(), &about, parameters)
        } else {
            messages::warn("no model is written: part of its parameters is lost");
            Ok(())
        };
        // Each is tried, although another fails.
        let finished = folder.finish(&report);
        let printed = print(&report, &training.output);
        finished.and(written).and(printed)
    }
}

/// Warns of updates that the records lack.
fn tell_missing(report: &Report) {
    let stretches: Vec<String> =
        report.missing_updates.iter().map(VersionRange::to_string).collect();
    if !stretches.is_empty() {
        messages::warn(&format!(
            "the totals of workers and the records here are without updates {}, which this server \
             did not see: the records of the one that led then have them",
            stretches.join(", ")
        ));
    }
}

fn print(report: &Report, output: &Output) -> anyhow::Result<()> {
    if output.quiet && !output.form.json {
        return Ok(());
    }
    let height = messages::on_terminal().then(messages::height);
    output.form.print(report, || results::report(report, messages::width(), height))
}
