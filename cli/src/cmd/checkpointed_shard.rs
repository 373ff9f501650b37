//! A server that does not coordinate and keeps nothing but checkpoints: whenever the coordinator
//! sends it back to one, it restarts from there.

use anyhow::Context as _;
use pstrain_compute::id::CheckpointId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{NodeError, Shard};
use pstrain_transports::journal::{
    CheckpointError, Checkpoints, Companion, Files, Found, GroupCheckpoints, Snapshots,
    StateFolder, goes_on,
};
use pstrain_transports::{Begin, Mailbox, SocketTransport, Transport as _, WallClock, drive_from};
use pstrain_wire::checkpoint::OnDisk;
use pstrain_wire::worker::EndReason;

use super::shard::services;
use crate::args::ServerArgs;
use crate::durable::ShardFolder;
use crate::messages;
use crate::signals::Drain;

/// Serves until the run has ended, through any number of restarts.
pub(super) fn run(
    args: &ServerArgs,
    (folder, kept): (&StateFolder, &ShardFolder),
    (transport, clock): (SocketTransport, WallClock),
    new: impl Fn() -> Shard,
) -> anyhow::Result<Result<EndReason, NodeError>> {
    let GroupCheckpoints { mut on_disk, damaged } = folder.shelf()?;
    for damaged in damaged {
        messages::warn(&format!("{damaged}; it cannot be gone back to"));
    }
    let (mut transport, mut clock) = (transport.with_target(args.coordinator.clone()), clock);
    let drain = Drain::default();
    loop {
        let (mut node, begin, found) = life(folder, &on_disk, new())?;
        // The time of the run continues from the checkpoint.
        let begins = found.checkpoint.as_ref().map_or(Time::ZERO, |checkpoint| checkpoint.now);
        transport = transport.with_clock(clock.going_on(begins));
        let mailbox = Mailbox::new(&transport);
        drain.turn_to(mailbox.handle())?;
        let when = (kept.checkpoint_every, transport.now());
        let warn = messages::warn;
        let checkpoints =
            Checkpoints::new(folder.clone(), Files, when, &found, Companion::default, warn);
        let mut journal = Snapshots::following(checkpoints);
        let mut services = services(args);
        let done =
            drive_from(&mut node, &mut transport, &mut services, &mailbox, &mut journal, begin)?;
        let Err(NodeError::GoesBack(checkpoint)) = done else {
            if drain.is_asked() && matches!(done, Ok(EndReason::Stopped)) {
                messages::say(
                    "the run waits for this server for 12 leases, unless it is over: go on with it \
                     with --resume",
                );
            }
            return Ok(done);
        };
        messages::say(&NodeError::GoesBack(checkpoint).to_string());
        on_disk = node.on_disk().cloned().unwrap_or_default();
        on_disk.at = Some(checkpoint).filter(|it| it.number > 0);
        transport = transport.without_connections()?;
        clock = WallClock::start();
    }
}

/// Restores the server from the checkpoint that it goes back to; without one, `new` starts from the
/// beginning.
fn life(
    folder: &StateFolder,
    on_disk: &OnDisk,
    new: Shard,
) -> anyhow::Result<(Shard, Begin, Found)> {
    let shard = new.with_checkpoints(on_disk.clone());
    let Some(CheckpointId { number, .. }) = on_disk.at else {
        let newest = on_disk.checkpoints.iter().map(|it| it.number).max().unwrap_or(0);
        let found = Found { checkpoint: None, logs: Vec::new(), newest, damaged: Vec::new() };
        return Ok((shard, Begin::start(), found));
    };
    let found = folder.find_checkpoint(number)?;
    let checkpoint = found.checkpoint.as_ref().context("there is no checkpoint")?;
    let damaged = |why| CheckpointError::of_server(&folder.checkpoint(number), why);
    let shard = shard.restored(&checkpoint.saved).map_err(|why| damaged(why.into()))?;
    let begin = goes_on(&shard, None);
    Ok((shard, begin, found))
}
