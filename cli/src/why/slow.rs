//! Slow workers, and where the time of a run that makes progress is spent.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_transports::scenario::Scenario;
use pstrain_wire::{MemberStatus, Status, TimeSpent};

use super::process::has_processes;
use super::verdict::{Cause, Finding};
use super::{Usual, architecture, named, pace};
use crate::figures::{count, span};

/// Waiting for one worker is reported from this share of all workers' time on.
const MIN_HELD_SHARE: f64 = 0.1;
/// A worker is far slower than the others from this multiple of the median time on.
const FAR_SLOWER: f64 = 2.0;
/// Minimal difference from the median for a worker to be far slower: on a busy machine some steps
/// take longer.
const NOTICEABLE: Duration = Duration::from_millis(1);

const CURE_OF_MACHINE: &str =
    "give it less to do (work = speed), or let no other wait for it (backup:1, ssp:3, asp)";
const CURE_OF_LINK: &str = "let no other wait for it (ssp:3, asp, auto)";
/// The cures if no other worker waits for it.
const CURE_OF_SLOW_MACHINE: &str =
    "give it less to do (work = speed), or look at what else its machine does";
/// The cure without a server, where each worker computes on its own rows.
const CURE_OF_MACHINE_ALONE: &str = "look at what else its machine does";
/// Processes wait for a processor from this share of the time on.
pub(crate) const CROWDED: f64 = 0.2;
const CURE_OF_PROCESSOR: &str = "no link is to blame: this machine has too few processors for what \
     it runs; have fewer workers on it, or some on others";
const FEWER_ROUND_TRIPS: &str = "larger mini-batches (batch-size) need fewer round trips";

/// True if the mode of the run lets a worker have several mini-batches under way.
fn pipelines(status: &Status) -> bool {
    let word = status.consistency.split([',', ' ']).next().unwrap_or_default();
    word.parse().is_ok_and(ConsistencySpec::pipelines)
}

/// The cures of a slow link under the mode of the run, after `first`.
fn cures_of_link(status: &Status, first: Option<&str>) -> String {
    let more = pipelines(status).then_some("have more under way (in-flight)");
    let overlap = architecture::could_overlap(status)
        .then_some("in the next run, compute during the sum of the last gradients (in-flight = 2)");
    let cures = first.into_iter().chain(more).chain(overlap).chain([FEWER_ROUND_TRIPS]);
    cures.collect::<Vec<_>>().join("; ")
}

/// Returns the share of the time in which processes wait for a processor, in words, if it is
/// considerable, and the messages of these workers stay on the machine where that is so.
fn crowding<'a>(
    status: &Status,
    mut members: impl Iterator<Item = &'a MemberStatus>,
) -> Option<String> {
    let share = status.processor_wait.filter(|share| *share >= CROWDED)?;
    let scenario = Scenario::from_text(&status.scenario).ok()?;
    let is_local = |member: &MemberStatus| member.link.is_none_or(|link| link.is_local);
    (scenario.links.is_none() && members.all(is_local)).then(|| {
        format!(", and processes here wait for a processor {:.0} % of the time", 100.0 * share)
    })
}

/// Returns the worker that the others wait for most, then workers that are far slower, the slowest
/// first.
pub(super) fn findings(status: &Status) -> Vec<Finding> {
    let holder = holder(status);
    let held_by = holder.as_ref().and_then(|finding| finding.worker);
    let mut slower: Vec<_> = status
        .members
        .iter()
        .filter(|member| Some(member.worker) != held_by && pace::is_there(member))
        .filter_map(|member| {
            let usual = Usual::of(member)?;
            Some((times_slower(status, &usual)?, member, usual))
        })
        .collect();
    slower.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    let slower =
        slower.iter().map(|(times, member, usual)| far_slower(status, member, usual, *times));
    let mut findings: Vec<Finding> = holder.into_iter().chain(slower).collect();
    // Too few processors are one cause, however many workers it slows.
    let mut is_told = false;
    findings.retain(|finding| {
        finding.cause != Cause::Processor || !std::mem::replace(&mut is_told, true)
    });
    findings
}

/// Returns the multiple of the median time that a worker takes, if it is far slower.
fn times_slower(status: &Status, usual: &Usual) -> Option<f64> {
    let median = pace::median(status, Usual::own)?;
    let times = usual.own().as_secs_f64() / median.as_secs_f64().max(f64::MIN_POSITIVE);
    (times >= FAR_SLOWER && usual.own() >= median + NOTICEABLE).then_some(times)
}

fn total(status: &Status) -> TimeSpent {
    let mut total = TimeSpent::default();
    status.members.iter().for_each(|member| total += member.recent.spent);
    total
}

/// Returns the worker that the others wait for most, if the wait is a considerable share of their
/// time.
fn holder(status: &Status) -> Option<Finding> {
    let there = || status.members.iter().filter(|member| pace::is_there(member));
    let mut held = BTreeMap::<WorkerId, Duration>::new();
    for member in there() {
        for one in member.recent.held_by.iter().flatten().filter(|one| one.by != member.worker) {
            *held.entry(one.by).or_default() += one.waited;
        }
    }
    let of = |worker: WorkerId| there().find(|member| member.worker == worker);
    held.retain(|&worker, _| of(worker).is_some());
    let (&worker, &waited) =
        held.iter().max_by_key(|(worker, waited)| (**waited, Reverse(**worker)))?;
    let all: Duration = there().map(|member| member.recent.spent.total()).sum();
    let theirs: Duration = there()
        .filter(|member| member.worker != worker)
        .map(|member| member.recent.spent.total())
        .sum();
    let of_all = waited.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    if of_all < MIN_HELD_SHARE {
        return None;
    }
    let percent = 100.0 * waited.as_secs_f64() / theirs.as_secs_f64().max(f64::MIN_POSITIVE);
    let (member, usual) = (of(worker)?, Usual::of(of(worker)?)?);
    Some(of_holder(status, member, &usual, percent))
}

/// Returns the larger of compute and network time as the finding, if no worker delays the others.
pub(super) fn bound(status: &Status) -> Finding {
    let total = total(status);
    let all = total.total().as_secs_f64();
    if all == 0.0 {
        let says = "no worker has made a step yet".to_owned();
        return Finding::new(Cause::TooEarly, None, says, "ask again in a moment");
    }
    let percent = |part: Duration| 100.0 * part.as_secs_f64() / all;
    let (network, compute) = (percent(total.network), percent(total.compute));
    let there = status.members.iter().filter(|member| pace::is_there(member));
    if let Some(crowding) = crowding(status, there) {
        let says = format!(
            "no worker holds the others back; {compute:.0} % of the time goes to computing, \
             {network:.0} % to messages, which stay on this machine{crowding}"
        );
        return Finding::new(Cause::Processor, None, says, CURE_OF_PROCESSOR);
    }
    if network >= compute {
        let says = format!(
            "no worker holds the others back; {network:.0} % of the time goes to the network, \
             {compute:.0} % to computing"
        );
        return Finding::new(Cause::NetworkBound, None, says, cures_of_link(status, None));
    }
    let says = format!(
        "no worker holds the others back; {compute:.0} % of the time goes to computing, \
         {network:.0} % to the network"
    );
    Finding::new(Cause::ComputeBound, None, says, "all is well; more workers would make it faster")
}

/// Describes a worker's link by the kernel's figures.
fn link_in_words(member: &MemberStatus) -> String {
    let Some(tcp) = member.link.and_then(|link| link.tcp) else { return "its link".to_owned() };
    let again = match tcp.retransmits {
        0 => "nothing sent again".to_owned(),
        times => format!("{} segments sent again", count(u64::from(times))),
    };
    format!("its link (round trip {}, {again})", span(tcp.rtt))
}

/// Describes the part of the worker's own time that is to blame.
fn blame(status: &Status, cause: Cause, member: &MemberStatus, usual: &Usual) -> String {
    let (what, part) = match cause {
        Cause::Machine if has_processes(status) => {
            ("its compute process takes".to_owned(), usual.compute)
        }
        Cause::Machine => ("its machine computes".to_owned(), usual.compute),
        Cause::Processor => {
            ("to pass messages on within this machine takes".to_owned(), usual.network)
        }
        _ => (format!("{} takes", link_in_words(member)), usual.network),
    };
    let own = usual.own();
    let percent = 100.0 * part.as_secs_f64() / own.as_secs_f64().max(f64::MIN_POSITIVE);
    format!(
        "{what} {} of the {} from parameters to gradient ({percent:.0} %)",
        span(part),
        span(own)
    )
}

/// The finding about the worker for which the others wait `percent` of their time.
fn of_holder(status: &Status, member: &MemberStatus, usual: &Usual, percent: f64) -> Finding {
    let next = architecture::for_next_run(status);
    let crowding = crowding(status, std::iter::once(member));
    let (cause, cure) = if usual.network < usual.compute {
        let cure = next.map(|next| format!("{CURE_OF_MACHINE_ALONE}; {next}"));
        (Cause::Machine, cure.unwrap_or_else(|| CURE_OF_MACHINE.to_owned()))
    } else if crowding.is_some() {
        (Cause::Processor, CURE_OF_PROCESSOR.to_owned())
    } else {
        (Cause::Link, cures_of_link(status, Some(next.unwrap_or(CURE_OF_LINK))))
    };
    let times = times_slower(status, usual)
        .map_or_else(String::new, |times| format!(", {times:.1} times the median"));
    let says = format!(
        "worker {} holds the others back, who wait {percent:.0} % of their time for it: {}{times}{}",
        named(member),
        blame(status, cause, member, usual),
        crowding.unwrap_or_default()
    );
    Finding::new(cause, Some(member.worker), says, cure)
}

/// The finding about a worker that is `times` slower than the median, and that the others do not
/// wait for.
fn far_slower(status: &Status, member: &MemberStatus, usual: &Usual, times: f64) -> Finding {
    let crowding = crowding(status, std::iter::once(member));
    let median = |of| pace::median(status, of).unwrap_or_default();
    let more = |of: fn(&Usual) -> Duration| of(usual).saturating_sub(median(of));
    let (cause, cure) = if more(|usual| usual.compute) >= more(|usual| usual.network) {
        let has_server = architecture::has_server(status);
        let cure = if has_server { CURE_OF_SLOW_MACHINE } else { CURE_OF_MACHINE_ALONE };
        (Cause::Machine, cure.to_owned())
    } else if crowding.is_some() {
        (Cause::Processor, CURE_OF_PROCESSOR.to_owned())
    } else {
        (Cause::Link, cures_of_link(status, None))
    };
    let says = format!(
        "worker {} is {times:.1} times slower than the median of {}, and brings {:.1} % of the \
         gradients: {}{}",
        named(member),
        span(median(Usual::own)),
        100.0 * pace::share(status, member),
        blame(status, cause, member, usual),
        crowding.unwrap_or_default()
    );
    Finding::new(cause, Some(member.worker), says, cure)
}
