//! `pstrain server --shard`: a server that does not coordinate.

use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_core::id::ServerId;
use pstrain_core::node::{Event, Shard, ShardConfig, WorkerError};
use pstrain_core::protocol::message::EndReason;
use pstrain_core::rng::Stream;
use pstrain_transports::{
    Address, Mailbox, ShardServices, SocketTransport, Transport, WallClock, drive,
};

use crate::args::{ServerArgs, ShardPlace};
use crate::exit::{self, Ending, Failed};
use crate::{messages, signals};

/// How long the coordinator may be silent, until the job says another time.
const LEASE: Duration = Duration::from_secs(5);

pub(crate) fn run(
    args: &ServerArgs,
    place: ShardPlace,
    clock: WallClock,
) -> anyhow::Result<Ending> {
    if let Some(flag) = args.job.flags.first() {
        bail!("--{flag}: the job of --shard comes from server 1; leave it out");
    }
    let transport = SocketTransport::listen(&args.listen)?;
    let local = transport.local_address().unwrap_or_else(|| args.listen.clone());
    let address = args.advertise.clone().unwrap_or_else(|| local.clone());
    if address.is_unspecified() {
        bail!("--listen {local}: say with --advertise HOST:PORT where workers reach this server");
    }
    let mut transport = transport.with_target(args.coordinator.clone()).with_clock(clock);
    messages::say(&format!("server {} of {}, listening on {local}", place.server, place.servers));
    let mut node = Shard::new(config(place, &address, LEASE));
    let quiet = args.output.quiet;
    let mut services = ShardServices::new(move |_, event: Event| {
        if !quiet && let Some(message) = worth_saying(&event) {
            messages::say(&message);
        }
    });
    let mailbox = Mailbox::new(&transport);
    signals::drain_on_signal(mailbox.handle())?;
    match drive(&mut node, &mut transport, &mut services, &mailbox)? {
        Ok(reason) => {
            if !quiet {
                messages::say(&format!("done: {reason}"));
            }
            exit::of_reason(reason)
        }
        Err(error) => Err(Failed(format!("{}: {error}", args.coordinator)).into()),
    }
}

fn config(place: ShardPlace, address: &Address, lease: Duration) -> ShardConfig {
    let ShardPlace { server, servers } = place;
    ShardConfig {
        server,
        servers,
        address: address.to_string(),
        lease,
        stream: Stream::new(u64::from(std::process::id())).fork("server", u64::from(server.0)),
    }
}

/// What of the events a person wants to read as it happens.
fn worth_saying(event: &Event) -> Option<String> {
    Some(match event {
        Event::Enlisted { job, keys } => {
            format!("keys {keys} of job {:?} ({})", job.name, job.mode.consistency)
        }
        Event::Redialling { attempt, pause, why } => {
            format!("no connection: {why}; try {attempt} in {:.1} s", pause.as_secs_f64())
        }
        _ => return None,
    })
}

/// A server of this process that does not coordinate.
pub(crate) type Thread = std::thread::JoinHandle<anyhow::Result<Result<EndReason, WorkerError>>>;

/// Starts one on a thread of its own, which workers reach at `address`.
pub(crate) fn spawn(
    place: ShardPlace,
    address: &Address,
    lease: Duration,
    mut transport: impl Transport + Send + 'static,
) -> Thread {
    let mut node = Shard::new(config(place, address, lease));
    std::thread::spawn(move || {
        let mailbox = Mailbox::new(&transport);
        let mut services = ShardServices::new(|_, _| ());
        Ok(drive(&mut node, &mut transport, &mut services, &mailbox)?)
    })
}

/// Waits for them; the first that could not go on is the error.
pub(crate) fn join(threads: Vec<Thread>) -> anyhow::Result<()> {
    for (server, thread) in (1..).map(ServerId).zip(threads) {
        let what = || format!("server {server}");
        match thread.join() {
            Ok(ended) => {
                let ended = ended.with_context(what)?;
                ended.map_err(|error| Failed(format!("{}: {error}", what())))?;
            }
            Err(_) => return Err(Failed(format!("{} broke down", what())).into()),
        }
    }
    Ok(())
}
