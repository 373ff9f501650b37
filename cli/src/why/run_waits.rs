//! Waits of the whole run: for a server, a standby, or workers that it needs.

use std::time::Duration;

use pstrain_compute::id::ServerId;
use pstrain_wire::{
    Endpoint, MemberStatus, Phase, ServerStatus, Status, Successor, Unreached, Wait, WaitReason,
};

use super::pace::STUTTER;
use super::verdict::{Cause, Finding};
use super::{ConnectionFlags, named, workers_in_words};
use crate::figures::span;

/// True if no worker can make progress, whatever it does itself.
pub(super) fn is_stalled(status: &Status) -> bool {
    let reason = status.wait.as_ref().map(|wait| wait.reason);
    matches!(status.phase, Phase::Gathering | Phase::Ending)
        || matches!(
            reason,
            Some(
                WaitReason::Server(_)
                    | WaitReason::Standby
                    | WaitReason::StandbySilent
                    | WaitReason::Primary
                    | WaitReason::Unreached(_)
                    | WaitReason::Workers
            )
        )
}

pub(super) fn findings(status: &Status, way: &ConnectionFlags) -> Vec<Finding> {
    let Some(wait) = &status.wait else { return Vec::new() };
    let finding = |cause, says, cure: &str| vec![Finding::new(cause, None, says, cure)];
    let waited = span(wait.waited);
    match wait.reason {
        WaitReason::Server(server) => vec![missing_server(status, wait, server, way)],
        WaitReason::Standby => finding(
            Cause::Missing,
            format!("the standby is gone, since {waited}"),
            "nothing to do if most of the workers that it had are there still: they promise to \
             follow the server alone (not if they were started again meanwhile); nor if the \
             standby leads in its place: it is asked, and this one ends then",
        ),
        WaitReason::StandbySilent => finding(
            Cause::Silent,
            silent_standby(status, wait),
            "look at the standby: its process, its machine and its link",
        ),
        WaitReason::Primary => finding(
            Cause::Missing,
            format!(
                "the server that this one stands by for is gone, since {waited}, and most of the \
                 workers have not promised to follow this one"
            ),
            "it continues if the process of that server lives and this one can reach it again, or \
             if the processes of most workers live and reach this one where it says it is \
             (--advertise); a server that is started without its --state folder begins another \
             run, and workers that are started now know nothing of this one",
        ),
        WaitReason::Unreached(_) => {
            status.members.iter().filter_map(|member| unreached(wait, member)).collect()
        }
        WaitReason::Part(server) if status.phase == Phase::Ending => finding(
            Cause::Ending,
            format!("the run is over, and server {server} has not sent its part of the parameters"),
            "nothing to do, or look at its machine and its link to server 1 if it takes long",
        ),
        WaitReason::Part(server) if wait.waited > STUTTER => finding(
            Cause::Overdue,
            format!("server {server} is asked for its part of a norm, since {waited}"),
            "look at its machine and its link to server 1; clip-norm and krum cost a turn between \
             the servers for each update",
        ),
        _ if status.phase == Phase::Ending => finding(
            Cause::Ending,
            format!(
                "the run is over, and {} did not say goodbye yet",
                workers_in_words(&wait.workers)
            ),
            "nothing to do: the server waits one lease at most",
        ),
        WaitReason::Workers => vec![missing_workers(status, wait, way)],
        WaitReason::Initial => finding(
            Cause::Missing,
            format!(
                "training has not begun, since {waited}: {} has not sent the initial parameters",
                workers_in_words(&wait.workers)
            ),
            "look at its compute process, which has them",
        ),
        _ => Vec::new(),
    }
}

/// True if the server has to wait until its standby confirms, or until it may continue without the
/// standby.
pub(super) fn needs_standby(status: &Status) -> bool {
    let reason = status.wait.as_ref().map(|wait| wait.reason);
    matches!(reason, Some(WaitReason::Standby | WaitReason::StandbySilent))
}

fn silent_standby(status: &Status, wait: &Wait) -> String {
    let at = status.standby.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
    let left = wait.left.map_or_else(String::new, |left| {
        format!(
            "; in {} the server asks the workers to continue without it, if it stays silent",
            span(left)
        )
    });
    format!("the run waits for the standby{at}: it has been silent for {}{left}", span(wait.waited))
}

fn missing_workers(status: &Status, wait: &Wait, way: &ConnectionFlags) -> Finding {
    let whom = match wait.workers.as_slice() {
        [] => "more workers".to_owned(),
        workers => workers_in_words(workers),
    };
    let says =
        format!("the run waits for {whom} to come, since {}{}", span(wait.waited), end(wait));
    let cure = format!(
        "start them with {}; the next run can do with fewer (workers, min-workers)",
        way.worker(status, &wait.workers)
    );
    Finding::new(Cause::Missing, None, says, cure)
}

/// Describes when the run ends if the awaited workers do not come.
fn end(wait: &Wait) -> String {
    wait.left.map_or_else(String::new, |left| format!("; without them it ends in {}", span(left)))
}

/// Describes when the run ends without the one worker or server that it waits for.
pub(super) fn ends_without(wait: &Wait) -> String {
    wait.left
        .map_or_else(String::new, |left| format!("; the run ends in {} without it", span(left)))
}

/// The finding about a server that is away, with the process that can replace it.
fn missing_server(
    status: &Status,
    wait: &Wait,
    server: ServerId,
    way: &ConnectionFlags,
) -> Finding {
    let left = ends_without(wait);
    let (waited, known) =
        (span(wait.waited), status.servers.iter().find(|known| known.server == server));
    let says = match known {
        Some(ServerStatus { address: own, keys: Some(keys), .. }) if !own.is_empty() => format!(
            "server {server} at {own} is not there, since {waited}, and it alone has keys \
             {keys}{left}"
        ),
        _ => format!("server {server} is not there, since {waited}{left}"),
    };
    let place = known
        .and_then(|known| known.of)
        .map_or_else(|| "--join".to_owned(), |of| format!("--shard {server}/{of}"));
    let command = format!("pstrain server {place} --coordinator {}", way.in_flags());
    let cure = match known.map_or(Successor::Heir, |known| known.successor) {
        Successor::Any => format!(
            "start it with `{command}` and the flags of server 1 for security and durability, or \
             look at its machine and its link"
        ),
        Successor::Checkpoint => format!(
            "it comes back by itself if its process lives; if not, `{command} --resume DIR` with \
             its --state folder: all servers go back to the last checkpoint"
        ),
        _ => format!(
            "it comes back by itself if its process lives: look at that, its machine and its \
             link. If not, only `{command} --resume DIR` with its --state folder (--durability \
             log), or its standby, has its keys; any other process is refused"
        ),
    };
    Finding::new(Cause::Missing, None, says, cure)
}

/// The finding about a worker that cannot reach another server, although it is present.
fn unreached(wait: &Wait, member: &MemberStatus) -> Option<Finding> {
    let (unreached, since) = member.unreached.as_ref()?;
    let left = wait.left;
    let left = left.map_or_else(String::new, |left| format!("; the run ends in {}", span(left)));
    Some(unreached_node(member, unreached, *since, &left))
}

/// Findings about workers without a server that do not reach another one. They exchange messages
/// all the same.
pub(super) fn detours(status: &Status) -> Vec<Finding> {
    let members = status.members.iter();
    let detours = members.filter_map(|member| {
        let (unreached, since) = member.unreached.as_ref()?;
        let Endpoint::Worker(other) = unreached.node else { return None };
        let instead = match member.relayed.contains(&other) {
            true => "; their messages go by way of the meeting point".to_owned(),
            false => format!("; worker {other} dials it"),
        };
        Some(unreached_node(member, unreached, *since, &instead))
    });
    detours.collect()
}

fn unreached_node(
    member: &MemberStatus,
    Unreached { node, address, why }: &Unreached,
    since: Duration,
    rest: &str,
) -> Finding {
    let says = format!(
        "worker {} does not reach {node} at {address}, since {}: {why}{rest}",
        named(member),
        span(since)
    );
    let where_reached = match node {
        Endpoint::Server(_) => "workers reach it, and with --tls a certificate for that HOST",
        // The certificate of a worker has no host name.
        Endpoint::Worker(_) => "the others reach it",
    };
    let cure = format!(
        "start {node} with --advertise HOST:PORT where {where_reached}; see that nothing between \
         the two blocks it"
    );
    Finding::new(Cause::Unreached, Some(member.worker), says, cure)
}

/// A refused worker that still tries does so within this many leases.
const STILL_TRIES: u32 = 3;

/// Returns findings about workers and servers that were refused, without the workers that are
/// `told` of already.
pub(super) fn refused(status: &Status, told: &[Finding]) -> Vec<Finding> {
    if status.phase == Phase::Ending {
        return Vec::new();
    }
    // The run may still wait for one that has given up, so keep refusals from the whole wait.
    let of_wait = status.wait.as_ref().filter(|wait| wait.reason == WaitReason::Workers);
    let waited = of_wait.map_or(Duration::ZERO, |wait| wait.waited);
    let told: Vec<String> = told
        .iter()
        .filter(|finding| finding.cause == Cause::Refused)
        .filter_map(|finding| Some(workers_in_words(&[finding.worker?])))
        .collect();
    let recent =
        status.refused.iter().filter(|it| it.ago <= waited.max(STILL_TRIES * status.lease));
    recent
        .filter(|it| !told.contains(&it.who))
        .map(|it| {
            let from = it.from.as_deref().map_or_else(String::new, |from| format!(" at {from}"));
            let times = match it.times {
                1 => String::new(),
                times => format!(" {times} times"),
            };
            let says =
                format!("{}{from} was refused{times}, {} ago: {}", it.who, span(it.ago), it.why);
            let cure = "the reason says what to change there; a place that is taken is free once \
                        the lease of its worker is over";
            Finding::new(Cause::Refused, None, says, cure)
        })
        .collect()
}
