//! `pstrain status`: the state of a running job.

use std::time::Duration;

use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_transports::Address;
use pstrain_wire::client::PullStatus;
use pstrain_wire::{
    Endpoint, MemberState, Message, PROTOCOL_VERSION, RefusedStatus, ServerStatus, Status,
    Unreached, Wait,
};
use serde::Serialize;

use super::client;
use crate::args::{SecurityArgs, StatusArgs};
use crate::exit::Ending;
use crate::figures::{count, counted, elapsed};
use crate::table::{self, Column};
use crate::wait_text::waiting;
use crate::{messages, metric_text};

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Ending> {
    let status = ask(args.server.way(), args.timeout)?;
    args.form.print(&View::of(&status), || show(&status, messages::width()))?;
    Ok(Ending::Done)
}

/// Asks the server at `address` for the status of its job.
pub(crate) fn ask(
    address: (&Address, &SecurityArgs),
    timeout: humantime::Duration,
) -> anyhow::Result<Status> {
    let question = Message::PullStatus(PullStatus { protocol_max: PROTOCOL_VERSION });
    client::ask(address, timeout, &question, |message| match message {
        Message::Status(status) => Some(*status),
        _ => None,
    })
}

/// Like [`ask`], but from the server that leads. A standby answers for a server that is gone.
pub(crate) fn of_leader(
    (address, flags): (&Address, &SecurityArgs),
    timeout: humantime::Duration,
) -> anyhow::Result<Status> {
    let status = ask((address, flags), timeout)?;
    let leader = status.leader.as_ref().and_then(|leader| leader.parse().ok());
    let leads = |leader: Address| ask((&leader, flags), timeout).ok();
    Ok(leader.and_then(leads).unwrap_or(status))
}

/// Time that a server has to explain why another request takes long.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Like [`of_leader`], but `None` if there is no answer.
pub(super) fn at_once(address: (&Address, &SecurityArgs)) -> Option<Status> {
    of_leader(address, AT_ONCE.into()).ok()
}

/// A status as `--json` prints it: the words of the table, and times in seconds.
#[derive(Serialize)]
struct View<'a> {
    job: &'a str,
    consistency: &'a str,
    /// The mode that was ordered and has not begun.
    ordered: Option<&'a str>,
    phase: String,
    uptime_s: f64,
    updates: u64,
    samples: u64,
    samples_wanted: u64,
    epoch: f64,
    wait: Option<WaitView>,
    /// Address of the server's standby.
    standby: Option<&'a str>,
    /// True if a standby answered.
    stands_by: bool,
    /// Address of the server that leads, if a standby answered.
    leader: Option<&'a str>,
    /// The servers, if there are several: the coordinator first.
    servers: Vec<ServerView<'a>>,
    workers: Vec<MemberView<'a>>,
    /// Workers and servers that were refused recently.
    refused: Vec<RefusedView<'a>>,
}

#[derive(Serialize)]
struct RefusedView<'a> {
    who: &'a str,
    from: Option<&'a str>,
    why: &'a str,
    times: u64,
    ago_s: f64,
}

#[derive(Serialize)]
pub(super) struct WaitView {
    reason: String,
    workers: Vec<WorkerId>,
    waited_s: f64,
    left_s: Option<f64>,
}

#[derive(Serialize)]
struct ServerView<'a> {
    id: ServerId,
    /// Address at which workers reach it; none for the coordinator and for a server that never
    /// came.
    address: Option<&'a str>,
    /// Its first key, and the one after its last.
    keys: Option<[u64; 2]>,
    away_s: Option<f64>,
    /// Address of its standby.
    standby: Option<&'a str>,
}

#[derive(Serialize)]
struct MemberView<'a> {
    id: WorkerId,
    name: &'a str,
    state: String,
    since_s: f64,
    /// Time since its last message; none if it never connected.
    silent_s: Option<f64>,
    clock: u64,
    mini_batch: u64,
    updates: u64,
    /// Mini-batches of its partition that were assigned to other workers.
    reassigned: u64,
    /// Why it left, in its words, if it left because of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_left: Option<&'a str>,
    /// The node that it cannot reach, and why.
    unreached: Option<UnreachedView<'a>>,
    /// The workers that exchange messages with it by way of the meeting point.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    relayed: &'a [WorkerId],
}

#[derive(Serialize)]
struct UnreachedView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerId>,
    address: &'a str,
    why: &'a str,
}

impl<'a> UnreachedView<'a> {
    fn of((unreached, _): &'a (Unreached, Duration)) -> Self {
        let (server, worker) = match unreached.node {
            Endpoint::Server(server) => (Some(server), None),
            Endpoint::Worker(worker) => (None, Some(worker)),
        };
        Self { server, worker, address: &unreached.address, why: &unreached.why }
    }
}

impl<'a> View<'a> {
    fn of(status: &'a Status) -> Self {
        let workers = status.members.iter().map(|member| MemberView {
            id: member.worker,
            name: &member.name,
            state: member.state.to_string(),
            since_s: member.since.as_secs_f64(),
            silent_s: (member.state != MemberState::Awaited).then_some(member.silent.as_secs_f64()),
            clock: member.clock.0,
            mini_batch: member.batch.0,
            updates: member.updates,
            reassigned: member.reassigned,
            why_left: member.why_left.as_deref(),
            unreached: member.unreached.as_ref().map(UnreachedView::of),
            relayed: &member.relayed,
        });
        Self {
            job: &status.job,
            consistency: &status.consistency,
            ordered: status.ordered.as_deref(),
            phase: status.phase.to_string(),
            uptime_s: status.uptime.as_secs_f64(),
            updates: status.version.0,
            samples: status.samples,
            samples_wanted: status.samples_wanted,
            epoch: status.epoch,
            wait: status.wait.as_ref().map(WaitView::of),
            standby: status.standby.as_deref(),
            stands_by: status.leader.is_some(),
            leader: status.leader.as_deref(),
            servers: status.servers.iter().map(ServerView::of).collect(),
            workers: workers.collect(),
            refused: status.refused.iter().map(RefusedView::of).collect(),
        }
    }
}

impl<'a> RefusedView<'a> {
    fn of(refused: &'a RefusedStatus) -> Self {
        Self {
            who: &refused.who,
            from: refused.from.as_deref(),
            why: &refused.why,
            times: refused.times,
            ago_s: refused.ago.as_secs_f64(),
        }
    }
}

impl<'a> ServerView<'a> {
    fn of(server: &'a ServerStatus) -> Self {
        Self {
            id: server.server,
            address: Some(server.address.as_str()).filter(|address| !address.is_empty()),
            keys: server.keys.map(|keys| [keys.begin(), keys.end()]),
            away_s: server.away.map(|away| away.as_secs_f64()),
            standby: server.standby.as_deref(),
        }
    }
}

impl WaitView {
    pub(super) fn of(wait: &Wait) -> Self {
        Self {
            reason: wait.reason.to_string(),
            workers: wait.workers.clone(),
            waited_s: wait.waited.as_secs_f64(),
            left_s: wait.left.map(|left| left.as_secs_f64()),
        }
    }
}

fn show(status: &Status, width: usize) -> String {
    let mut facts = vec![
        (
            "job",
            format!(
                "{} ({}), {}, up for {}",
                status.job,
                status.consistency,
                status.phase,
                elapsed(status.uptime)
            ),
        ),
        (
            "progress",
            format!(
                "{}, {} of {} samples, epoch {:.2}",
                counted(status.version.0, "update"),
                count(status.samples),
                count(status.samples_wanted),
                status.epoch,
            ),
        ),
    ];
    facts.extend(metric_text::standing(status).map(|standing| ("model", standing)));
    facts.extend(status.ordered.iter().map(|ordered| ("ordered", ordered.clone())));
    facts.extend(status.standby.iter().map(|standby| ("standby", standby.clone())));
    facts.extend(status.leader.iter().map(|leader| {
        ("standby", format!("this one, for the server at {leader}; what it knows of that:"))
    }));
    let waits = status.wait.as_ref().map_or_else(|| "for no worker".to_owned(), waiting);
    facts.push(("waiting", waits));
    facts.extend(relayed(status).map(|relayed| ("relayed", relayed)));
    let tables = [
        Some(table::facts(&facts, width)),
        servers(&status.servers, width),
        Some(workers(status, width)),
        refused(&status.refused, width),
    ];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

/// The pairs of workers that exchange messages by way of the meeting point.
fn relayed(status: &Status) -> Option<String> {
    let pairs = status.members.iter().flat_map(|member| {
        let others = member.relayed.iter().filter(|other| member.worker < **other);
        others.map(|other| format!("{} and {other}", member.worker))
    });
    let pairs: Vec<String> = pairs.collect();
    (!pairs.is_empty()).then(|| format!("messages between workers {}", pairs.join(", ")))
}

fn workers(status: &Status, width: usize) -> String {
    const COLUMNS: [Column<'_>; 8] = [
        Column::text("worker"),
        Column::name("name"),
        Column::text("state"),
        Column::number("for").spare(1),
        Column::number("heard"),
        Column::number("clock").spare(3),
        Column::number("mini-batch").spare(2),
        Column::number("updates"),
    ];
    let changes_hands = status.members.iter().any(|member| member.reassigned > 0);
    let rows = status.members.iter().map(|member| {
        let heard = if member.state == MemberState::Awaited {
            "never".to_owned()
        } else {
            format!("{} ago", elapsed(member.silent))
        };
        let mut row = vec![
            member.worker.to_string(),
            member.name.clone(),
            member.state.to_string(),
            elapsed(member.since),
            heard,
            count(member.clock.0),
            count(member.batch.0),
            count(member.updates),
        ];
        row.extend(changes_hands.then(|| count(member.reassigned)));
        row
    });
    let mut columns = COLUMNS.to_vec();
    columns.extend(changes_hands.then_some(Column::number("reassigned")));
    table::fitting(&columns, rows.collect(), width)
}

/// Table of the recent refusals, if there are any, and their reasons below it.
fn refused(refused: &[RefusedStatus], width: usize) -> Option<String> {
    const COLUMNS: [Column<'_>; 4] = [
        Column::text("refused"),
        Column::text("from"),
        Column::number("times"),
        Column::number("last"),
    ];
    let rows = refused.iter().map(|it| {
        let from = it.from.clone().unwrap_or_else(|| "-".to_owned());
        vec![it.who.clone(), from, count(it.times), format!("{} ago", elapsed(it.ago))]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let why = refused.iter().map(|it| table::sentence(&format!("{}: {}", it.who, it.why), 2));
    let why = why.collect::<Vec<_>>().join("\n");
    Some(format!("{}\n{why}", table::fitting(&COLUMNS, rows, width)))
}

/// Table of the servers, if there are several.
fn servers(servers: &[ServerStatus], width: usize) -> Option<String> {
    const COLUMNS: [Column<'_>; 5] = [
        Column::text("server"),
        Column::text("address"),
        Column::text("state"),
        Column::text("keys"),
        Column::text("standby").spare(1),
    ];
    let rows = servers.iter().map(|server| {
        let address = match server.address.as_str() {
            "" if server.server == ServerId::COORDINATOR => "coordinates",
            "" => "never came",
            address => address,
        };
        let is_there = || "there".to_owned();
        vec![
            server.server.to_string(),
            address.to_owned(),
            server.away.map_or_else(is_there, |away| format!("away for {}", elapsed(away))),
            server.keys.map_or_else(|| "none".to_owned(), |keys| keys.to_string()),
            server.standby.clone().unwrap_or_else(|| "none".to_owned()),
        ]
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| table::fitting(&COLUMNS, rows, width))
}

/// Why a client's request has no effect yet, if the server answers.
pub(super) fn waits(way: (&Address, &SecurityArgs)) -> Option<String> {
    let status = at_once(way)?;
    Some(match &status.wait {
        Some(wait) => format!("it waits {}", waiting(wait)),
        None => "it runs, and waits for no worker: it has much to do, or its link is slow".into(),
    })
}

#[cfg(test)]
mod tests {
    use crate::why::tests::large;

    #[test]
    fn the_state_of_a_large_run_fits_a_narrow_terminal() {
        let text = super::show(&large(24), 80);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{text}");
        }
        for words in [
            "10,000,000 updates, 640,000,000 of 1,280,000,000 samples",
            "accuracy 91.20 %, loss 0.4000 at update 9,999,999",
            "left out at this width: clock, mini-batch",
            "1h 06m ago",
        ] {
            assert!(text.contains(words), "nothing of {words:?} in\n{text}");
        }
        let wide = super::show(&large(24), 250);
        assert!(wide.contains("greenhouse-north-24.example.org:41234"), "{wide}");
        assert!(wide.contains("mini-batch") && !wide.contains("left out"), "{wide}");
    }
}
