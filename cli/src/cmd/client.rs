//! A client of a server: one question, one answer.

use std::time::Duration;

use anyhow::bail;
use pstrain_core::protocol::{Limits, Message};
use pstrain_transports::{Address, SocketTransport, Transport, TransportEvent};

/// Asks the server at `address`, and waits for the first message that is an `answer`.
pub(super) fn ask<T>(
    address: &Address,
    timeout: humantime::Duration,
    question: &Message,
    answer: impl Fn(Message) -> Option<T>,
) -> anyhow::Result<T> {
    let mut transport = SocketTransport::dialer(address.clone())?;
    let until = transport.now() + Duration::from(timeout);
    transport.dial();
    let mut events = Vec::new();
    while transport.now() < until {
        transport.wait(Some(until), &mut events)?;
        for event in events.drain(..) {
            match event {
                TransportEvent::Connected(peer) => {
                    transport.limit(peer, Limits::DIALER);
                    transport.send(peer, question.clone());
                }
                TransportEvent::Message(_, Message::Refused(why)) => bail!("{address}: {why}"),
                TransportEvent::Message(_, message) => {
                    if let Some(answer) = answer(message) {
                        return Ok(answer);
                    }
                }
                TransportEvent::Receiving(_) => {}
                TransportEvent::Garbage(_, error) => bail!("{address}: {error}"),
                TransportEvent::DialFailed { why, .. } => {
                    bail!("cannot reach {address}: {why}; is a server running there?")
                }
                TransportEvent::Disconnected { why, .. } => bail!("{address}: {why}"),
            }
        }
    }
    bail!("{address} did not answer within {timeout}")
}
