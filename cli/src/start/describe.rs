//! Before there is a job: the first worker describes the model of its compute process, for a server
//! that has neither the process nor a file (`--process worker`).

use std::time::Duration;

use anyhow::bail;
use pstrain_compute::examples::Shape;
use pstrain_compute::id::PeerId;
use pstrain_compute::model::Model;
use pstrain_compute::time::Time;
use pstrain_policy::job::start_patience;
use pstrain_transports::process::protocol::Description;
use pstrain_transports::{SocketTransport, Transport, TransportEvent};
use pstrain_wire::worker::Heartbeat;
use pstrain_wire::{Limits, Message, Refusal};

use crate::exit::Stopped;
use crate::job::Layers;
use crate::messages;
use crate::signals::Drain;

/// The word for a process that the first worker describes.
const WORKER: &str = "worker";
/// How often the wait for a worker looks for a signal.
const GLANCE: Duration = Duration::from_millis(100);
/// How long the answer to the worker may take to leave.
const FLUSH: Duration = Duration::from_secs(1);

/// Completes the settings with the description by the first worker, if they ask for it. The
/// connections of the transport are closed then, and workers dial again.
pub(super) fn described(
    mut transport: SocketTransport,
    mut layers: Layers,
    drain: &Drain,
) -> anyhow::Result<(SocketTransport, Layers)> {
    if layers.text("process") != WORKER {
        return Ok((transport, layers));
    }
    let patience = start_patience(layers.lease()?);
    messages::say(&format!(
        "waiting for a worker that describes its model, for {} at most",
        humantime::format_duration(patience)
    ));
    let until = transport.now() + patience;
    let text = first_description(&mut transport, until, drain)?;
    transport.flush(transport.now() + FLUSH)?;
    layers.set("process", text);
    Ok((transport.without_connections()?, layers))
}

/// Waits for the first description that makes sense.
fn first_description(
    transport: &mut SocketTransport,
    until: Time,
    drain: &Drain,
) -> anyhow::Result<String> {
    let mut events = Vec::new();
    while transport.now() < until {
        transport.wait(Some(until.min(transport.now() + GLANCE)), &mut events)?;
        if drain.is_asked() {
            return Err(Stopped.into());
        }
        for event in events.drain(..) {
            match event {
                TransportEvent::Connected(peer, _) => {
                    transport.limit(peer, Limits::DESCRIBER);
                }
                TransportEvent::Message(peer, message) => match message {
                    Message::Description(text) => match check(&text) {
                        Ok(()) => {
                            transport.send(peer, heartbeat());
                            return Ok(text);
                        }
                        Err(what) => refuse(transport, peer, Refusal::Description { what }),
                    },
                    Message::Heartbeat(_) => transport.send(peer, heartbeat()),
                    _ => refuse(transport, peer, Refusal::DescriptionWanted),
                },
                TransportEvent::Garbage(peer, error) => refuse(transport, peer, error.into()),
                _ => {}
            }
        }
    }
    bail!(
        "no worker described its model in time: start one with --process, or give this server a \
         description (`pstrain compute describe`)"
    )
}

/// Asks for a description, and confirms it.
const fn heartbeat() -> Message {
    Message::Heartbeat(Heartbeat::of(None))
}

fn refuse(transport: &mut SocketTransport, peer: PeerId, why: Refusal) {
    transport.send(peer, Message::Refused(why));
    transport.close(peer);
}

/// Checks that the text describes a model.
fn check(text: &str) -> Result<(), String> {
    let found: Result<Description, _> = serde_json::from_str(text);
    let found = found.map_err(|error| format!("the description of its model: {error}"))?;
    let model = Model::new(&found.model(), Shape::default());
    model.map(|_valid| ()).map_err(|error| format!("the model that it describes: {error}"))
}
