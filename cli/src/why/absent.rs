//! Findings about workers that are lost, cut off, silent or late.

use std::cmp::Reverse;

use pstrain_wire::{MemberState, MemberStatus, Phase, Status, WaitReason};

use super::process::{has_processes, is_first_awaited};
use super::verdict::{Cause, Finding};
use super::{ConnectionFlags, architecture, named, pace, run_waits};
use crate::figures::span;

/// Returns one finding for each such worker: first the workers that others wait for, then by
/// severity and length of the silence.
pub(super) fn findings(status: &Status, way: &ConnectionFlags) -> Vec<Finding> {
    if matches!(status.phase, Phase::Gathering | Phase::Ending) {
        return Vec::new(); // the wait of the whole run names them already
    }
    let mut found: Vec<_> = status
        .members
        .iter()
        .filter_map(|member| {
            let (severity, finding) = trouble(status, member, way)?;
            let rank = (Reverse(is_awaited(status, member)), severity, Reverse(member.silent));
            Some((rank, finding))
        })
        .collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// The most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Lost,
    CutOff,
    Silent,
    Overdue,
    /// The worker has left, was refused or never joined, which may be intended.
    Absent,
}

/// True if others wait for this worker.
fn is_awaited(status: &Status, member: &MemberStatus) -> bool {
    status.wait.as_ref().is_some_and(|wait| wait.workers.contains(&member.worker))
}

fn trouble(
    status: &Status,
    member: &MemberStatus,
    way: &ConnectionFlags,
) -> Option<(Severity, Finding)> {
    // While a server is away, workers lose and restore connections because of it.
    let stands = run_waits::is_stalled(status);
    match member.state {
        MemberState::Lost => Some((Severity::Lost, lost(status, member, way))),
        MemberState::CutOff if !stands => Some((Severity::CutOff, cut_off(status, member, way))),
        MemberState::Preparing | MemberState::Computing | MemberState::Waiting
            if pace::is_silent(status, member) =>
        {
            Some((Severity::Silent, silent(status, member)))
        }
        MemberState::Computing if !stands => {
            let usual = match pace::overdue(status, member) {
                Some(usual) => {
                    let times =
                        member.since.as_secs_f64() / usual.as_secs_f64().max(f64::MIN_POSITIVE);
                    format!(", where it usually takes {} ({times:.0} times as long)", span(usual))
                }
                None if is_first_awaited(status, member) => String::new(),
                None => return None,
            };
            let worker = named(member);
            let says = format!(
                "worker {worker} {}: its gradient is not there after {}{usual}; it was last heard \
                 {} ago",
                if is_awaited(status, member) { "holds the others back" } else { "is late" },
                span(member.since),
                span(member.silent),
            );
            let cure = if has_processes(status) {
                "the worker answers, its compute process does not: look whether that computes, was \
                 stopped, or waits for something; --process-timeout has the worker start it again"
                    .to_owned()
            } else {
                let next = architecture::for_next_run(status)
                    .unwrap_or("consistency = backup:B lets a run do without the slowest");
                format!(
                    "look at its machine: stopped, swapping or busy with something else; {next}"
                )
            };
            Some((Severity::Overdue, Finding::new(Cause::Overdue, Some(member.worker), says, cure)))
        }
        // If the run is paused for too few workers, that finding names them.
        MemberState::Left | MemberState::Refused | MemberState::Awaited
            if !is_named(status, member) =>
        {
            Some((Severity::Absent, absent(status, member, way)))
        }
        _ => None,
    }
}

/// True if the wait of the whole run names this worker.
fn is_named(status: &Status, member: &MemberStatus) -> bool {
    let wait = status.wait.as_ref().filter(|wait| wait.reason == WaitReason::Workers);
    wait.is_some_and(|wait| wait.workers.contains(&member.worker))
}

/// Describes how the run continues without this worker.
fn consequence(status: &Status, member: &MemberStatus) -> String {
    if is_named(status, member) {
        return String::new();
    }
    if is_awaited(status, member) {
        let left = status.wait.as_ref().map_or_else(String::new, run_waits::ends_without);
        return format!(", and on-worker-loss = wait keeps its place{left}");
    }
    let all: u64 = status.members.iter().map(|member| member.pushes).sum();
    let share = 100.0 * member.pushes as f64 / all.max(1) as f64;
    match member.pushes {
        0 => "; the others continue without it".to_owned(),
        pushes => format!(
            "; the others continue without it ({pushes} of {all} gradients were its own, \
             {share:.0} %)"
        ),
    }
}

fn lost(status: &Status, member: &MemberStatus, way: &ConnectionFlags) -> Finding {
    let worker = named(member);
    let cause = if is_awaited(status, member) { Cause::Missing } else { Cause::Lost };
    let says = format!(
        "worker {worker} is lost: it has not been heard for {}, and its lease is {}{}",
        span(member.silent),
        span(status.lease),
        consequence(status, member)
    );
    let cure = format!(
        "if its process lives, it joins again by itself once it runs and its link is up; if not, \
         start it with {}",
        way.worker(status, &[member.worker])
    );
    Finding::new(cause, Some(member.worker), says, cure)
}

fn absent(status: &Status, member: &MemberStatus, way: &ConnectionFlags) -> Finding {
    let worker = named(member);
    let (ago, without) = (span(member.since), consequence(status, member));
    let why = member.why_left.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let command = way.worker(status, &[member.worker]);
    let (cause, says, cure) = match member.state {
        MemberState::Left => (
            Cause::Missing,
            format!("worker {worker} has left, {ago} ago{why}{without}"),
            format!("start it with {command}"),
        ),
        MemberState::Refused => (
            Cause::Refused,
            format!("worker {worker} was refused, {ago} ago{why}{without}"),
            format!("the reason says what to change there; then start it with {command}"),
        ),
        _ => (
            Cause::Missing,
            format!("worker {worker} was never there{without}"),
            format!("start it with {command}"),
        ),
    };
    Finding::new(cause, Some(member.worker), says, cure)
}

fn cut_off(status: &Status, member: &MemberStatus, way: &ConnectionFlags) -> Finding {
    let says = format!(
        "worker {} is cut off: its connection is closed, and it has not been heard for {}; its \
         lease is over in {}",
        named(member),
        span(member.silent),
        span(status.lease.saturating_sub(member.silent))
    );
    // The connection of a process that ends is closed by its system; one that lives dials again.
    let cure = format!(
        "if its process lives, it dials again within moments; if not, start it with {}, which \
         takes its place at once",
        way.worker(status, &[member.worker])
    );
    Finding::new(Cause::CutOff, Some(member.worker), says, cure)
}

fn silent(status: &Status, member: &MemberStatus) -> Finding {
    let worker = named(member);
    let (how, cure) = if is_awaited(status, member) {
        (
            "holds the others back",
            "; in the next run a shorter lease lets the others continue sooner",
        )
    } else {
        ("is silent", ", and its link")
    };
    let says = format!(
        "worker {worker} {how}: it has not been heard for {}, and a living worker is heard every \
         {}; its process is stopped, or its machine or link is down; its lease is over in {}",
        span(member.silent),
        span(status.lease / 5),
        span(status.lease.saturating_sub(member.silent))
    );
    let cure = format!("look at the process and its machine{cure}");
    Finding::new(Cause::Silent, Some(member.worker), says, cure)
}
