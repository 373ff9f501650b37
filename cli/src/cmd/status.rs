//! `pstrain status`: the state of a running job.

use std::time::Duration;

use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_transports::Address;
use pstrain_wire::client::PullStatus;
use pstrain_wire::holders::Unreached;
use pstrain_wire::{
    MemberState, Message, PROTOCOL_VERSION, RefusedStatus, ServerStatus, Status, Wait,
};
use serde::Serialize;

use super::client;
use crate::args::{SecurityArgs, StatusArgs};
use crate::exit::Ending;
use crate::wait_text::{short, waiting};
use crate::{messages, table};

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Ending> {
    let status = ask((&args.address, &args.security), args.timeout)?;
    if args.json {
        messages::result(&serde_json::to_string(&View::of(&status))?)?;
    } else {
        messages::result(&show(&status))?;
    }
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
    /// The server that it cannot reach, and why.
    unreached: Option<&'a Unreached>,
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
            unreached: member.unreached.as_ref().map(|(unreached, _)| unreached),
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

fn show(status: &Status) -> String {
    let mut text = format!(
        "job       {} ({}), {}, up for {}\nprogress  {} updates, {} of {} samples, epoch {:.2}\n",
        status.job,
        status.consistency,
        status.phase,
        short(status.uptime),
        status.version,
        status.samples,
        status.samples_wanted,
        status.epoch,
    );
    if let Some(ordered) = &status.ordered {
        text += &format!("ordered   {ordered}\n");
    }
    if let Some(standby) = &status.standby {
        text += &format!("standby   {standby}\n");
    }
    if let Some(leader) = &status.leader {
        text +=
            &format!("standby   this one, for the server at {leader}; what it knows of that:\n");
    }
    match &status.wait {
        None => text += "waiting   for no worker\n",
        Some(wait) => text += &format!("waiting   {}\n", waiting(wait)),
    }
    text += "\n";
    text += &servers(&status.servers);
    let changes_hands = status.members.iter().any(|member| member.reassigned > 0);
    let rows = status.members.iter().map(|member| {
        let heard = if member.state == MemberState::Awaited {
            "never".to_owned()
        } else {
            format!("{} ago", short(member.silent))
        };
        let mut row = vec![
            member.worker.to_string(),
            member.name.clone(),
            member.state.to_string(),
            short(member.since),
            heard,
            member.clock.to_string(),
            member.batch.to_string(),
            member.updates.to_string(),
        ];
        row.extend(changes_hands.then(|| member.reassigned.to_string()));
        row
    });
    let mut header =
        vec!["worker", "name", "state", "for", "heard", "clock", "mini-batch", "updates"];
    header.extend(changes_hands.then_some("reassigned"));
    text += &table::table(&header, 3, rows.collect());
    text + &refused(&status.refused)
}

/// Table of the recent refusals, if there are any.
fn refused(refused: &[RefusedStatus]) -> String {
    if refused.is_empty() {
        return String::new();
    }
    let rows = refused.iter().map(|it| {
        let (who, why) = (it.who.clone(), it.why.clone());
        let from = it.from.clone().unwrap_or_else(|| "-".to_owned());
        vec![who, from, it.times.to_string(), format!("{} ago", short(it.ago)), why]
    });
    format!("\n\n{}", table::table(&["refused", "from", "times", "last", "why"], 5, rows.collect()))
}

/// Table of the servers, if there are several.
fn servers(servers: &[ServerStatus]) -> String {
    if servers.is_empty() {
        return String::new();
    }
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
            server.away.map_or_else(is_there, |away| format!("away for {}", short(away))),
            server.keys.map_or_else(|| "none".to_owned(), |keys| keys.to_string()),
            server.standby.clone().unwrap_or_else(|| "none".to_owned()),
        ]
    });
    table::table(&["server", "address", "state", "keys", "standby"], 5, rows.collect()) + "\n\n"
}

/// Why a client's request has no effect yet, if the server answers.
pub(super) fn waits(way: (&Address, &SecurityArgs)) -> Option<String> {
    let status = at_once(way)?;
    Some(match &status.wait {
        Some(wait) => format!("it waits {}", waiting(wait)),
        None => "it runs, and waits for no worker: it has much to do, or its link is slow".into(),
    })
}
