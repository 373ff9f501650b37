//! A client of a server: one request, one answer.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Target};
use pstrain_transports::{Address, SocketTransport, Transport, TransportEvent, WallClock};
use pstrain_wire::{Limits, Message, Refusal};

use crate::args::{SecurityArgs, in_folder};
use crate::security::security;
use crate::{messages, record};

/// Why a server gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// No server accepts connections at the address.
    #[error("{0}")]
    Unreachable(String),
    /// The connection was lost before the answer came.
    #[error("{0}")]
    Lost(String),
}

/// A server turned a client away.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {why}")]
pub(super) struct TurnedAway {
    address: Address,
    pub(super) why: Refusal,
}

/// Sends a request to the server at `address`, and waits for the first message that `answer`
/// accepts.
pub(super) fn ask<T>(
    (address, flags): (&Address, &SecurityArgs),
    timeout: humantime::Duration,
    question: &Message,
    answer: impl Fn(Message) -> Option<T>,
) -> anyhow::Result<T> {
    ask_slow((address, flags), timeout, question, answer, || None)
}

/// Repetitions of a request whose connection was closed without an answer, or damaged.
const MOST_REPEATS: u32 = 3;
/// How long an answer may take before the user is told the reason.
pub(super) const LONG: Duration = Duration::from_secs(2);

/// Like [`ask`], for requests that may take long. `explain` gives the reason for the delay, which
/// is shown to the user and, if the answer does not come in time, becomes part of the error. It
/// returns `None` if the server does not answer at all.
pub(super) fn ask_slow<T>(
    (address, flags): (&Address, &SecurityArgs),
    timeout: humantime::Duration,
    question: &Message,
    answer: impl Fn(Message) -> Option<T>,
    explain: impl Fn() -> Option<String>,
) -> anyhow::Result<T> {
    let hear = |message| Ok(answer(message).map_or(Reply::Nothing, Reply::Answer));
    request((address, flags), timeout, question, hear, explain)
}

/// Reaction of a client to a message.
pub(super) enum Reply<T> {
    /// The message is the answer.
    Answer(T),
    /// The server needs this message first.
    Send(Message),
    /// The message is unrelated to the request.
    Nothing,
}

/// Most standbys that may refer a request to another server: one is usual, two if servers change
/// roles meanwhile.
const MOST_STANDBYS: usize = 3;

/// Like [`ask_slow`], for a server that asks for more messages before it answers. A standby
/// refers the client to the server that leads.
pub(super) fn request<T>(
    (address, flags): (&Address, &SecurityArgs),
    timeout: humantime::Duration,
    question: &Message,
    hear: impl Fn(Message) -> anyhow::Result<Reply<T>>,
    explain: impl Fn() -> Option<String>,
) -> anyhow::Result<T> {
    let asking = Request { flags, timeout, question, clock: WallClock::start() };
    let mut here = address.clone();
    let mut standbys: Vec<Address> = Vec::new();
    loop {
        let sent_on = || {
            let standbys: Vec<String> = standbys.iter().map(Address::to_string).collect();
            format!("sent on by {}, which stands by", standbys.join(" and "))
        };
        let heard = asking.ask(&here, &hear, &explain);
        let heard = if standbys.is_empty() { heard } else { heard.with_context(sent_on) };
        let leader = match heard? {
            Outcome::Answer(answer) => return Ok(answer),
            Outcome::Leader(leader) => leader,
        };
        let next = leader.parse();
        let next = next.with_context(|| format!("{here} stands by for a server at {leader:?}"))?;
        standbys.push(std::mem::replace(&mut here, next));
        if standbys.contains(&here) || standbys.len() > MOST_STANDBYS {
            let all: Vec<String> = standbys.iter().map(Address::to_string).collect();
            bail!(
                "{}: each is a standby, and the last sends to {here}; ask the server that leads",
                all.join(", ")
            );
        }
    }
}

/// Outcome of a request at one address.
enum Outcome<T> {
    Answer(T),
    /// The server is a standby of the server at this address.
    Leader(String),
}

/// A request, and what stays the same at every address.
struct Request<'a> {
    flags: &'a SecurityArgs,
    timeout: humantime::Duration,
    question: &'a Message,
    clock: WallClock,
}

impl Request<'_> {
    fn ask<T>(
        &self,
        address: &Address,
        hear: impl Fn(Message) -> anyhow::Result<Reply<T>>,
        explain: impl Fn() -> Option<String>,
    ) -> anyhow::Result<Outcome<T>> {
        let Self { flags, timeout, question, clock } = *self;
        let security = security(flags, address)?;
        let transport = SocketTransport::dialer(address.clone())?.secured(security);
        let mut transport = transport.with_clock(clock);
        let until = Time::ZERO + Duration::from(timeout);
        let long = transport.now() + LONG;
        let (mut explained, mut again) = (false, MOST_REPEATS);
        transport.dial(&Target::Server);
        let (mut events, mut given_up) = (Vec::new(), None);
        while transport.now() < until {
            if transport.now() >= long
                && !std::mem::replace(&mut explained, true)
                && let Some(why) = explain()
            {
                messages::say(&why);
            }
            let next = if explained { until } else { until.min(long) };
            transport.wait(Some(next), &mut events)?;
            for event in events.drain(..) {
                // A connection that was given up may still have events.
                if given_up.is_some() && event.peer() == given_up {
                    continue;
                }
                if again > 0 && may_repeat(question, &event) {
                    again -= 1;
                    given_up = event.peer();
                    given_up.into_iter().for_each(|peer| transport.close(peer));
                    transport.dial(&Target::Server);
                    continue;
                }
                match event {
                    TransportEvent::Dialled(_, identity) if !identity.may_serve() => {
                        bail!("{address}: who answers there is {identity}, which is no server")
                    }
                    TransportEvent::Dialled(peer, _) => {
                        let limits = match question {
                            Message::PullRange(_) => Limits::PULLER,
                            _ => Limits::DIALER,
                        };
                        transport.limit(peer, limits);
                        transport.send(peer, question.clone());
                    }
                    TransportEvent::Message(_, Message::Refused(Refusal::Standby { leader })) => {
                        return Ok(Outcome::Leader(leader));
                    }
                    TransportEvent::Message(_, Message::Refused(why)) => {
                        return Err(TurnedAway { address: address.clone(), why }.into());
                    }
                    TransportEvent::Message(peer, message) => match hear(message)? {
                        Reply::Answer(answer) => return Ok(Outcome::Answer(answer)),
                        Reply::Send(message) => transport.send(peer, message),
                        Reply::Nothing => {}
                    },
                    TransportEvent::Receiving(_) | TransportEvent::Connected(..) => {}
                    TransportEvent::Garbage(_, error) => bail!("{address}: {error}"),
                    TransportEvent::DialFailed { why, fault } => {
                        // A server that refuses this client is running.
                        let why = match fault {
                            DialFault::Temporary => unreachable(address, &why),
                            DialFault::Permanent | DialFault::Mismatch => {
                                format!("{address}: {why}")
                            }
                        };
                        return Err(NoAnswer::Unreachable(why).into());
                    }
                    TransportEvent::Disconnected { why, .. } => {
                        return Err(NoAnswer::Lost(format!("{address}: {why}")).into());
                    }
                }
            }
        }
        if let Some(why) = explain() {
            bail!("{address} did not answer within {timeout}: {why}")
        }
        bail!(
            "{address} did not answer within {timeout}; its process is stopped, or this is another \
             program's port"
        )
    }
}

/// That no server accepts connections: a run with its results in a folder may be gone.
fn unreachable(address: &Address, why: &str) -> String {
    let folder = match address {
        Address::Unix(socket) => socket.parent().filter(|folder| in_folder(folder) == *address),
        Address::Tcp(_) => None,
    };
    let has = |folder: &Path, file: &str| folder.join(file).exists();
    match folder.filter(|it| has(it, record::JOB) && !has(it, record::SUMMARY)) {
        Some(folder) => format!(
            "{}: the run is gone: it was killed, and its folder has no result; if it kept a state, \
             `pstrain run --resume DIR` with its --state folder goes on",
            folder.display()
        ),
        None => format!(
            "cannot reach {address}: {why}; is a server running there? If it listens elsewhere, \
             name its address: HOST:PORT or unix:PATH"
        ),
    }
}

/// True if a request may be made again after this event.
const fn may_repeat(question: &Message, event: &TransportEvent) -> bool {
    match event {
        // The request was damaged on the way: the server has not taken it.
        TransportEvent::Message(_, Message::Refused(Refusal::Frame { .. }))
        // The other end does not fit, or a byte was changed on the way.
        | TransportEvent::DialFailed { fault: DialFault::Mismatch, .. } => true,
        // The answer was damaged on the way, or a busy server has closed the connection before it
        // read the request. A repeated query changes nothing; a repeated command might.
        TransportEvent::Garbage(..) | TransportEvent::Disconnected { .. } => {
            matches!(question, Message::PullStatus(_) | Message::PullRange(_))
        }
        _ => false,
    }
}
