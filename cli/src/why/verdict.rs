//! What is wrong, in plain words, and what to do about it.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_core::id::WorkerId;
use pstrain_core::protocol::{MemberState, MemberStatus, Phase, Status, WaitReason};
use serde::Serialize;

use super::{STUTTER, Usual, is_overdue, span, workers_in_words};

/// Waiting for others is worth a word from this share of everybody's time on.
const WORTH_A_WORD: f64 = 0.1;

/// One cause, with its cure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Its stable name.
    pub(crate) cause: Cause,
    /// The worker that it is about, if it is about one.
    pub(crate) worker: Option<WorkerId>,
    pub(crate) says: String,
    pub(crate) cure: &'static str,
}

/// What can be the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    Missing,
    Unreached,
    Silent,
    CutOff,
    Overdue,
    Link,
    Machine,
    Ending,
    NetworkBound,
    ComputeBound,
    TooEarly,
}

/// What a status says is the matter; the most urgent first, and never nothing.
pub(crate) fn verdict(status: &Status) -> Vec<Finding> {
    let mut findings = acute(status);
    if findings.is_empty() {
        findings.push(chronic(status));
    }
    findings
}

fn finding(cause: Cause, worker: Option<WorkerId>, says: String, cure: &'static str) -> Finding {
    Finding { cause, worker, says, cure }
}

/// What stops the run just now.
fn acute(status: &Status) -> Vec<Finding> {
    let Some(wait) = &status.wait else { return Vec::new() };
    if let WaitReason::Server(server) = wait.reason {
        let says = format!("server {server} is not there, since {}", span(wait.waited));
        let cure = "start it with `pstrain server --shard K/M`, or look at its machine and its link; no \
                    gradient counts until every server has its part of it";
        return vec![finding(Cause::Missing, None, says, cure)];
    }
    if wait.reason == WaitReason::Standby {
        let says = format!("the standby is gone, since {}", span(wait.waited));
        let cure = "nothing to do if most of the workers that it had are there still: they promise to \
                    follow the server alone (those that have begun anew do not count); nor if the standby \
                    leads in its place: it is asked, and this one ends then";
        return vec![finding(Cause::Missing, None, says, cure)];
    }
    if wait.reason == WaitReason::Primary {
        let says = format!(
            "the server that this one stands by for is gone, since {}, and most of the workers have \
             not promised to follow this one",
            span(wait.waited)
        );
        let cure = "start it again, or see that the workers run and can reach this one where it says it \
                    is (--advertise)";
        return vec![finding(Cause::Missing, None, says, cure)];
    }
    if let WaitReason::Unreached(_) = wait.reason {
        return status.members.iter().filter_map(|member| unreached(status, member)).collect();
    }
    if let WaitReason::Part(server) = wait.reason
        && wait.waited > STUTTER
    {
        let waited = span(wait.waited);
        let says = format!("server {server} is asked for its part of a norm, since {waited}");
        let cure = "look at its machine and its link to server 1; clip-norm and krum cost a turn between \
                    the servers for each update";
        return vec![finding(Cause::Overdue, None, says, cure)];
    }
    if status.phase == Phase::Ending {
        let whose = workers_in_words(&wait.workers);
        let says = format!("the run is over, and {whose} did not say goodbye yet");
        let cure = "nothing to do: the server waits one lease at most";
        return vec![finding(Cause::Ending, None, says, cure)];
    }
    if wait.reason == WaitReason::Workers {
        let whom = if wait.workers.is_empty() {
            "more workers".to_owned()
        } else {
            workers_in_words(&wait.workers)
        };
        let says = format!("the run waits for {whom} to come, since {}", span(wait.waited));
        let cure = "start them with `pstrain worker --server ADDRESS`, or let the run do with fewer \
                    (workers, min-workers)";
        return vec![finding(Cause::Missing, None, says, cure)];
    }
    let awaited = |member: &&MemberStatus| wait.workers.contains(&member.worker);
    status.members.iter().filter(awaited).filter_map(|member| stuck(status, member)).collect()
}

/// What keeps a worker from one of the other servers, which is there.
fn unreached(status: &Status, member: &MemberStatus) -> Option<Finding> {
    let (unreached, since) = member.unreached.as_ref()?;
    let server = status.servers.iter().find(|server| server.server == unreached.server);
    let address = server.map_or("", |server| &server.address);
    let says = format!(
        "worker {} cannot be with server {} at {address}, since {}: {}",
        member.worker,
        unreached.server,
        span(*since),
        unreached.why
    );
    let cure = "start that server with --advertise HOST:PORT where workers reach it, and with --tls a \
                certificate for that HOST; see that nothing between the two blocks it";
    Some(finding(Cause::Unreached, Some(member.worker), says, cure))
}

/// What is the matter with a worker that others wait for, if it is more than its usual pace.
fn stuck(status: &Status, member: &MemberStatus) -> Option<Finding> {
    let (worker, silent) = (member.worker, span(member.silent));
    let left = span(status.lease.saturating_sub(member.silent));
    // A living worker is heard at least every fifth of its lease.
    let is_silent = member.silent > status.lease * 2 / 5;
    let usual = Usual::of(member);
    let (cause, says, cure) = match member.state {
        MemberState::CutOff => (
            Cause::CutOff,
            format!(
                "worker {worker} is cut off and has not been heard for {silent}; its lease is \
                     over in {left}"
            ),
            "it comes back by itself once its network does; on-worker-loss says whether the others go \
             on without it then",
        ),
        MemberState::Lost | MemberState::Left | MemberState::Awaited => (
            Cause::Missing,
            format!("worker {worker} is gone, and on-worker-loss = wait keeps its place"),
            "start it again with --id, or use on-worker-loss = continue",
        ),
        MemberState::Computing if is_silent => (
            Cause::Silent,
            format!(
                "worker {worker} holds the others back: it has not been heard for {silent}, and a \
                     living worker is heard every {}; its process is stopped, or its machine or link \
                     is down; its lease is over in {left}",
                span(status.lease / 5)
            ),
            "look at the process and its machine; a shorter lease would let the others go on sooner",
        ),
        MemberState::Computing if usual.is_some_and(|usual| is_overdue(member, &usual)) => (
            Cause::Overdue,
            format!(
                "worker {worker} holds the others back: its gradient is not there after {}, where \
                     it usually takes {}; it was last heard {silent} ago",
                span(member.since),
                usual.map_or_else(String::new, |usual| span(usual.compute + usual.network))
            ),
            "look at its machine: stopped, swapping or busy with something else; backup:B or \
             redundancy let a run do without the slowest",
        ),
        _ => return None,
    };
    Some(finding(cause, Some(worker), says, cure))
}

/// What takes the time of a run that goes on.
fn chronic(status: &Status) -> Finding {
    let mut total = pstrain_core::protocol::TimeSpent::default();
    let mut held = BTreeMap::<WorkerId, Duration>::new();
    for member in &status.members {
        total += member.recent.spent;
        for one in member.recent.held_by.iter().flatten().filter(|one| one.by != member.worker) {
            *held.entry(one.by).or_default() += one.waited;
        }
    }
    let all = total.total().as_secs_f64();
    if all == 0.0 {
        let says = "no worker has made a step yet".to_owned();
        return finding(Cause::TooEarly, None, says, "ask again in a moment");
    }
    let share = |part: Duration| part.as_secs_f64() / all;
    let worst = held.iter().max_by_key(|(worker, waited)| (**waited, std::cmp::Reverse(**worker)));
    if let Some((&worker, &waited)) = worst
        && share(waited) >= WORTH_A_WORD
        && let Some(member) = status.members.iter().find(|member| member.worker == worker)
        && let Some(usual) = Usual::of(member)
    {
        let others = status.members.iter().filter(|member| member.worker != worker);
        let theirs: Duration = others.map(|member| member.recent.spent.total()).sum();
        let percent = 100.0 * waited.as_secs_f64() / theirs.as_secs_f64().max(f64::MIN_POSITIVE);
        return of_holder(member, &usual, percent);
    }
    let (network, compute) = (share(total.network), share(total.compute));
    if network >= compute {
        let says = format!(
            "nobody holds the others back; {:.0} % of the time goes to the network, {:.0} % to computing",
            100.0 * network,
            100.0 * compute
        );
        let cure = "larger mini-batches (batch-size) or more of them under way (in-flight) make less of \
                    it";
        return finding(Cause::NetworkBound, None, says, cure);
    }
    let says = format!(
        "nobody holds the others back; {:.0} % of the time goes to computing, {:.0} % to the network",
        100.0 * compute,
        100.0 * network
    );
    finding(Cause::ComputeBound, None, says, "all is well; more workers would make it faster")
}

/// The worker for whom the others wait `percent` of their time.
fn of_holder(member: &MemberStatus, usual: &Usual, percent: f64) -> Finding {
    let worker = member.worker;
    let own = usual.compute + usual.network;
    let part = |of: Duration| 100.0 * of.as_secs_f64() / own.as_secs_f64().max(f64::MIN_POSITIVE);
    if usual.network < usual.compute {
        let says = format!(
            "worker {worker} holds the others back, who wait {percent:.0} % of their time for it: its \
             machine computes {} of the {} from parameters to gradient ({:.0} %)",
            span(usual.compute),
            span(own),
            part(usual.compute)
        );
        let cure = "give it less to do (work = speed), let nobody wait for it (backup:1, ssp:3, asp), or \
                    have its part done twice (redundancy)";
        return finding(Cause::Machine, Some(worker), says, cure);
    }
    let tcp = member.link.and_then(|link| link.tcp);
    let link = tcp.map_or_else(
        || "its link".to_owned(),
        |tcp| {
            let again = match tcp.retransmits {
                0 => "nothing sent again".to_owned(),
                times => format!("{times} segments sent again"),
            };
            format!("its link (round trip {}, {again})", span(tcp.rtt))
        },
    );
    let says = format!(
        "worker {worker} holds the others back, who wait {percent:.0} % of their time for it: {link} takes \
         {} of the {} from parameters to gradient ({:.0} %)",
        span(usual.network),
        span(own),
        part(usual.network)
    );
    let cure = "let nobody wait for it (ssp:3, asp, auto), or have more under way (in-flight); larger \
                mini-batches need fewer round trips";
    finding(Cause::Link, Some(worker), says, cure)
}
