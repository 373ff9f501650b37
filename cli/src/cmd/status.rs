//! `pstrain status`: one question, one answer.

use std::time::Duration;

use anyhow::bail;
use pstrain_core::protocol::message::PullStatus;
use pstrain_core::protocol::{Limits, Message, PROTOCOL_VERSION, Status, Wait};
use pstrain_transports::{SocketTransport, Transport, TransportEvent};

use crate::args::StatusArgs;
use crate::exit::Ending;
use crate::{messages, table};

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Ending> {
    let status = ask(args)?;
    if args.json {
        messages::result(&serde_json::to_string(&status)?)?;
    } else {
        messages::result(&show(&status))?;
    }
    Ok(Ending::Done)
}

fn ask(args: &StatusArgs) -> anyhow::Result<Status> {
    let address = &args.address;
    let mut transport = SocketTransport::dialer(address.clone())?;
    let until = transport.now() + Duration::from(args.timeout);
    transport.dial();
    let mut events = Vec::new();
    while transport.now() < until {
        transport.wait(Some(until), &mut events)?;
        for event in events.drain(..) {
            match event {
                TransportEvent::Connected(peer) => {
                    transport.limit(peer, Limits::DIALER);
                    let question = PullStatus { protocol_max: PROTOCOL_VERSION };
                    transport.send(peer, Message::PullStatus(question));
                }
                TransportEvent::Message(_, Message::Status(status)) => return Ok(*status),
                TransportEvent::Message(_, Message::Refused(why)) => bail!("{address}: {why}"),
                TransportEvent::Message(_, _) => {}
                TransportEvent::Garbage(_, error) => bail!("{address}: {error}"),
                TransportEvent::DialFailed { why, .. } => bail!("cannot reach {address}: {why}"),
                TransportEvent::Disconnected { why, .. } => bail!("{address}: {why}"),
            }
        }
    }
    bail!("{address} did not answer within {}", args.timeout)
}

fn show(status: &Status) -> String {
    let mut text = format!(
        "job       {} ({}), {} for {}\nprogress  {} updates, {} of {} samples, epoch {:.2}\n",
        status.job,
        status.consistency,
        status.phase,
        short(status.uptime),
        status.version,
        status.samples,
        status.samples_wanted,
        status.epoch,
    );
    match &status.wait {
        None => text += "waiting   for nobody\n",
        Some(wait) => text += &format!("waiting   {}\n", waiting(wait)),
    }
    text += "\n";
    let rows = status.members.iter().map(|member| {
        vec![
            member.worker.to_string(),
            member.name.clone(),
            member.state.to_string(),
            short(member.since),
            short(member.silent),
            member.clock.to_string(),
            member.batch.to_string(),
            member.updates.to_string(),
        ]
    });
    let header =
        ["worker", "name", "state", "since", "heard before", "clock", "mini-batch", "updates"];
    text += &table::table(&header, 3, rows.collect());
    text
}

fn waiting(wait: &Wait) -> String {
    let workers: Vec<String> = wait.workers.iter().map(ToString::to_string).collect();
    let left = wait.left.map_or_else(String::new, |left| format!(", {} left", short(left)));
    let whom = if workers.is_empty() { "-".to_owned() } else { workers.join(", ") };
    format!("for {} of worker {whom}, since {}{left}", wait.reason, short(wait.waited))
}

/// A duration in milliseconds at the finest.
fn short(span: Duration) -> String {
    humantime::format_duration(Duration::from_millis(span.as_millis() as u64)).to_string()
}
