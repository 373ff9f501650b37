//! `pstrain server --shard` and `--join`: a server that does not coordinate.

use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::id::ServerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, NodeError, Replica, Shard, ShardConfig};
use pstrain_transports::journal::{
    CheckpointError, Checkpoints, Companion, Files, InputLog, Recovered, StateFolder, recover,
};
use pstrain_transports::{
    Address, Mailbox, ShardServices, SocketTransport, Transport, WallClock, drive, drive_from,
};
use pstrain_wire::group::Place;
use pstrain_wire::worker::EndReason;

use super::advertise::advertised;
use super::checkpointed_shard;
use super::resume::resumed;
use super::server::{fresh_run, listen};
use super::standby::{self, Role};
use crate::args::{Durability, ServerArgs};
use crate::durable::{DurableRun, ShardFolder, find};
use crate::exit::{self, Ending, Failed};
use crate::security::{in_words, security};
use crate::signals::Drain;
use crate::troubles::EventLimiter;
use crate::{messages, progress};

/// How long the coordinator may be silent, until the lease of the job is known.
const LEASE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ServerArgs, place: Place, clock: WallClock) -> anyhow::Result<Ending> {
    if let Some(flag) = args.job.flags.first() {
        bail!("--{flag}: the job of --shard and --join comes from server 1; leave it out");
    }
    #[cfg(feature = "metrics")]
    if args.metrics.is_some() {
        bail!(
            "--metrics: the run's numbers are with server 1, which coordinates; give it --metrics \
             there, and leave it out here"
        );
    }
    // Both directions must be secured: workers dial this server, and it dials the coordinator.
    security(&args.security, &args.coordinator)?;
    let transport = listen(args)?;
    let local = transport.local_address().unwrap_or_else(|| args.listen.clone());
    let address = advertised(args, &local, &args.coordinator)?;
    let node = || Shard::new(config(place, &address, LEASE)).follows(args.coordinator.to_string());
    let kept = folder(args, place)?;
    let says = || {
        let secured = in_words(&args.security, &local);
        messages::say(&format!("{}, listening on {local}{secured}", place));
    };
    let done = match kept {
        Some((state, kept)) if kept.durability == Durability::Checkpoint => {
            says();
            checkpointed_shard::run(args, (&state, &kept), (transport, clock), node)?
        }
        kept => {
            let (mut node, kept) = recovered(args, kept, node())?;
            let begins = kept.as_ref().map_or(Time::ZERO, |kept| kept.now);
            let transport = transport.with_target(args.coordinator.clone());
            let mut transport = transport.with_clock(clock.going_on(begins));
            says();
            serve(args, &mut node, kept, &mut transport)?
        }
    };
    match done {
        Ok(reason) => {
            if !args.output.quiet {
                messages::say(&format!("done: {reason}"));
            }
            exit::of_reason(reason)
        }
        Err(NodeError::Refused(why)) => {
            Err(Failed(format!("{}: it refused this server: {why}", args.coordinator)).into())
        }
        Err(error) => Err(Failed(format!("{}: {error}", args.coordinator)).into()),
    }
}

/// Services that the driver needs besides a transport.
pub(super) fn services(args: &ServerArgs) -> ShardServices {
    let (quiet, mut troubles) = (args.output.quiet, EventLimiter::new());
    ShardServices::new(move |now, event: Event| {
        if !quiet
            && let Some(words) = user_message(&event)
            && let Some(message) = troubles.say(now, &event, words)
        {
            messages::tell(progress::level(&event), &message, &event);
        }
    })
}

fn serve(
    args: &ServerArgs,
    node: &mut Replica,
    kept: Option<DurableRun>,
    transport: &mut SocketTransport,
) -> anyhow::Result<Result<EndReason, NodeError>> {
    let mut services = services(args);
    let mailbox = Mailbox::new(transport);
    let drain = Drain::default();
    drain.turn_to(mailbox.handle())?;
    Ok(match kept {
        Some(DurableRun { folder, checkpoint_every, found, log: Some(log), begin, now }) => {
            let (when, warn) = ((checkpoint_every, now), messages::warn);
            // Only the coordinator keeps records.
            let checkpoints =
                Checkpoints::new(folder, Files, when, &found, Companion::default, warn);
            let mut journal = InputLog::new(log, checkpoints, warn).until(move || drain.is_asked());
            drive_from(node, transport, &mut services, &mailbox, &mut journal, begin)?
        }
        _ => drive(node, transport, &mut services, &mailbox)?,
    })
}

/// State folder of this server, if its state is kept.
fn folder(args: &ServerArgs, place: Place) -> anyhow::Result<Option<(StateFolder, ShardFolder)>> {
    let (every, durability) = (args.checkpoint_every.into(), args.durability);
    match (&args.resume, &args.state, durability) {
        (Some(path), ..) => ShardFolder::open(path, place).map(Some),
        (None, _, Durability::Checkpoint) if place == Place::Wanted => bail!(
            "--durability checkpoint: no server can join a run whose servers take checkpoints; \
             leave it out, or use log"
        ),
        (None, Some(_), Durability::None) => {
            bail!("--state: nothing is kept there without --durability checkpoint or log")
        }
        (None, Some(path), _) => {
            ShardFolder::create(path, place, fresh_run(), (durability, every)).map(Some)
        }
        (None, None, _) => Ok(None),
    }
}

/// Restores a server that logs its inputs to its last state.
fn recovered(
    args: &ServerArgs,
    kept: Option<(StateFolder, ShardFolder)>,
    shard: Shard,
) -> anyhow::Result<(Replica, Option<DurableRun>)> {
    let Some((folder, ShardFolder { number, checkpoint_every, .. })) = kept else {
        return Ok((Role::primary_shard(shard, fresh_run()), None));
    };
    let found = find(&folder, true)?;
    let mut node = match &found.checkpoint {
        None => Role::primary_shard(shard, number),
        Some(checkpoint) => {
            let config = standby::config(number, None);
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
    Ok((node, Some(DurableRun { folder, checkpoint_every, found, log, begin, now })))
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
        // The same after a restart: the server is a function of its inputs.
        stream: Stream::new(u64::from(servers)).fork("server", u64::from(server)),
    }
}

/// The message for an event that the user should see at once, if it is such an event.
fn user_message(event: &Event) -> Option<String> {
    Some(match event {
        Event::Enlisted { job, server, keys } => {
            let consistency = job.mode.consistency;
            format!("server {server}: keys {keys} of job {:?} ({consistency})", job.name)
        }
        Event::Holds { keys } => format!("keys {keys} from now on"),
        Event::Redialling { attempt, pause, why } => {
            format!("no connection: {why}; try {attempt} in {:.1} s", pause.as_secs_f64())
        }
        other => return progress::user_message(other),
    })
}

/// Thread of a server that does not coordinate.
pub(crate) type Thread = std::thread::JoinHandle<anyhow::Result<Result<EndReason, NodeError>>>;

/// Starts a server that does not coordinate on its own thread. Workers reach it at `address`; its
/// events go to `report`.
pub(crate) fn spawn(
    place: Place,
    address: &Address,
    lease: Duration,
    mut transport: impl Transport + Send + 'static,
    mut report: impl FnMut(Event) + Send + 'static,
) -> Thread {
    let mut node = Shard::new(config(place, address, lease));
    std::thread::spawn(move || {
        let mailbox = Mailbox::new(&transport);
        let mut services = ShardServices::new(move |_, event| report(event));
        Ok(drive(&mut node, &mut transport, &mut services, &mailbox)?)
    })
}

/// Waits for the servers; returns the error of the first that failed.
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
