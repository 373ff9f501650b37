//! `pstrain server --shard` and `--join`: a server that does not coordinate.

use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_core::id::ServerId;
use pstrain_core::node::{Event, Replica, Shard, ShardConfig, WorkerError};
use pstrain_core::protocol::group::Place;
use pstrain_core::protocol::message::EndReason;
use pstrain_core::rng::Stream;
use pstrain_core::time::Time;
use pstrain_transports::journal::{
    Beside, CheckpointError, Checkpoints, Files, InputLog, Recovered, recover,
};
use pstrain_transports::{
    Address, Mailbox, ShardServices, SocketTransport, Transport, WallClock, drive, drive_from,
};

use super::advertise::advertised;
use super::resume::resumed;
use super::server::fresh_run;
use super::standby::{self, Role};
use crate::args::{Durability, ServerArgs};
use crate::durable::{Keeping, ShardFolder, find};
use crate::exit::{self, Ending, Failed};
use crate::security::{in_words, of_server, security};
use crate::{messages, progress, signals};

/// How long the coordinator may be silent, until the job says another time.
const LEASE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ServerArgs, place: Place, clock: WallClock) -> anyhow::Result<Ending> {
    if let Some(flag) = args.job.flags.first() {
        bail!("--{flag}: the job of --shard and --join comes from server 1; leave it out");
    }
    #[cfg(feature = "metrics")]
    if args.metrics.is_some() {
        bail!(
            "--metrics: the run's numbers are with server 1, which coordinates; give it --metrics there, \
             and leave it out here"
        );
    }
    // Both ways: workers come to it, and it goes to the coordinator.
    security(&args.security, &args.coordinator)?;
    let secured = of_server(&args.security, &args.listen)?;
    let transport = SocketTransport::listen(&args.listen)?.secured(secured).telling(messages::warn);
    let local = transport.local_address().unwrap_or_else(|| args.listen.clone());
    let address = advertised(args, &local, &args.coordinator)?;
    let node = Shard::new(config(place, &address, LEASE)).follows(args.coordinator.to_string());
    let (mut node, kept) = keep(args, place, node)?;
    let begins = kept.as_ref().map_or(Time::ZERO, |kept| kept.now);
    let transport = transport.with_target(args.coordinator.clone());
    let mut transport = transport.with_clock(clock.going_on(begins));
    messages::say(&format!(
        "{}, listening on {local}{}",
        called(place),
        in_words(&args.security, &local)
    ));
    let quiet = args.output.quiet;
    let mut services = ShardServices::new(move |_, event: Event| {
        if !quiet && let Some(message) = worth_saying(&event) {
            messages::say(&message);
        }
    });
    let mailbox = Mailbox::new(&transport);
    signals::drain_on_signal(mailbox.handle())?;
    let done = match kept {
        Some(Keeping { folder, checkpoint_every, found, log: Some(log), begin, now }) => {
            let (when, warn) = ((checkpoint_every, now), messages::warn);
            // Records are the coordinator's.
            let checkpoints = Checkpoints::new(folder, Files, when, &found, Beside::default, warn);
            let mut journal = InputLog::new(log, checkpoints, warn);
            drive_from(&mut node, &mut transport, &mut services, &mailbox, &mut journal, begin)?
        }
        _ => drive(&mut node, &mut transport, &mut services, &mailbox)?,
    };
    match done {
        Ok(reason) => {
            if !quiet {
                messages::say(&format!("done: {reason}"));
            }
            exit::of_reason(reason)
        }
        Err(error) => Err(Failed(format!("{}: {error}", args.coordinator)).into()),
    }
}

/// Where this server is kept, if it is; brings it to where the last one was.
fn keep(
    args: &ServerArgs,
    place: Place,
    shard: Shard,
) -> anyhow::Result<(Replica, Option<Keeping>)> {
    let fresh = fresh_run();
    let (folder, kept) = match (&args.resume, &args.state, args.durability) {
        (Some(path), ..) => ShardFolder::open(path, place)?,
        (None, Some(path), Durability::Log) => {
            ShardFolder::create(path, place, fresh, args.checkpoint_every.into())?
        }
        (None, _, Durability::Checkpoint) => bail!(
            "--durability checkpoint: with several servers all must be of one moment; use log, \
             which takes checkpoints, too"
        ),
        (None, Some(_), Durability::None) => {
            bail!("--state: nothing is kept there without --durability log")
        }
        (None, None, _) => return Ok((Role::primary_shard(shard, fresh), None)),
    };
    let ShardFolder { number, checkpoint_every, .. } = kept;
    let found = find(&folder, true)?;
    let mut node = match &found.checkpoint {
        None => Role::primary_shard(shard, number),
        Some(checkpoint) => {
            let config = standby::config(number, String::new());
            let node = Replica::restore_shard(config, shard, &checkpoint.saved);
            let damaged = |why| CheckpointError::of_server(&folder.checkpoint(found.number()), why);
            node.map_err(damaged)?
        }
    };
    let Recovered { log, begin, now, inputs, torn } =
        recover(&folder, &found, &mut node, |_, _| ())?;
    if args.resume.is_some() {
        messages::say(&resumed(&found, inputs, torn));
        if let Some((server, keys)) = node.holds() {
            messages::say(&format!("server {server}: keys {keys}"));
        }
    }
    Ok((node, Some(Keeping { folder, checkpoint_every, found, log, begin, now })))
}

fn config(place: Place, address: &Address, lease: Duration) -> ShardConfig {
    let (server, servers) = match place {
        Place::First { server, servers } => (server.0, servers),
        Place::Given { server } => (server.0, 0),
        Place::Wanted => (0, 0),
    };
    ShardConfig {
        place,
        address: address.to_string(),
        lease,
        // The same when it begins anew: a server is a function of its inputs.
        stream: Stream::new(u64::from(servers)).fork("server", u64::from(server)),
    }
}

/// Which server it is, for people.
pub(crate) fn called(place: Place) -> String {
    match place {
        Place::First { server, servers } => format!("server {server} of {servers}"),
        Place::Given { server } => format!("server {server}"),
        Place::Wanted => "one more server".into(),
    }
}

/// What of the events a person wants to read as it happens.
fn worth_saying(event: &Event) -> Option<String> {
    Some(match event {
        Event::Enlisted { job, server, keys } => {
            let consistency = job.mode.consistency;
            format!("server {server}: keys {keys} of job {:?} ({consistency})", job.name)
        }
        Event::Holds { keys } => format!("keys {keys} from now on"),
        Event::Redialling { attempt, pause, why } => {
            format!("no connection: {why}; try {attempt} in {:.1} s", pause.as_secs_f64())
        }
        other => return progress::worth_saying(other),
    })
}

/// A server of this process that does not coordinate.
pub(crate) type Thread = std::thread::JoinHandle<anyhow::Result<Result<EndReason, WorkerError>>>;

/// Starts one on a thread of its own, which workers reach at `address`.
pub(crate) fn spawn(
    place: Place,
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
