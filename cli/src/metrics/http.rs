//! A minimal HTTP/1.1 server for one text: a single thread with bounds on connections, bytes and
//! time, so that a slow peer, or one that never completes its request, delays no other.

mod answer;
mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use pstrain_transports::WallClock;

use client::{Client, Next};

#[cfg(test)]
pub(super) use answer::{Then, answer};

const LISTEN: Token = Token(0);
/// Connections that may be open. If one more arrives, the one that has waited longest is closed.
const MOST_CLIENTS: usize = 64;
/// Pause after the system had no resources to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers `GET /metrics` at `address` with `text`, on a thread of its own. Returns the bound
/// address.
pub(super) fn serve(
    address: &str,
    text: impl Fn() -> String + Send + 'static,
) -> anyhow::Result<SocketAddr> {
    let cannot = || {
        format!("--metrics {address}: cannot listen there; use HOST:PORT with a port that is free")
    };
    let (mut endpoint, place) = Endpoint::listen(address, text).with_context(cannot)?;
    std::thread::Builder::new()
        .name("metrics".into())
        // If `poll` fails, the endpoint ends; the run continues without it.
        .spawn(move || while endpoint.turn(None).is_ok() {})
        .with_context(cannot)?;
    Ok(place)
}

pub(super) struct Endpoint<F> {
    poll: Poll,
    events: Events,
    listener: TcpListener,
    clients: BTreeMap<usize, Client>,
    /// Connections that reached the limit of steps in their last turn.
    unfinished: BTreeSet<usize>,
    next: usize,
    /// True if the system had no resources for the last connection.
    is_full: bool,
    clock: WallClock,
    text: F,
}

impl<F: Fn() -> String> Endpoint<F> {
    /// Listens at `address`; returns the bound address, too.
    pub(super) fn listen(address: &str, text: F) -> io::Result<(Self, SocketAddr)> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let place = listener.local_addr()?;
        let mut listener = TcpListener::from_std(listener);
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTEN, Interest::READABLE)?;
        let endpoint = Self {
            poll,
            events: Events::with_capacity(MOST_CLIENTS),
            listener,
            clients: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            next: LISTEN.0 + 1,
            is_full: false,
            clock: WallClock::start(),
            text,
        };
        Ok((endpoint, place))
    }

    /// Waits for events, at most for `most`, and serves all ready connections; returns the number
    /// of events.
    pub(super) fn turn(&mut self, most: Option<Duration>) -> io::Result<usize> {
        let now = self.clock.now();
        let first = self.clients.values().map(Client::until).min().map(|until| until - now);
        let pause = self.is_full.then_some(ACCEPT_PAUSE);
        let at_once = (!self.unfinished.is_empty()).then_some(Duration::ZERO);
        let timeout = [first, pause, at_once, most].into_iter().flatten().min();
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            polled => polled?,
        }
        let woken: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
        for token in std::mem::take(&mut self.unfinished) {
            self.serve(token);
        }
        for token in woken.iter().filter(|token| **token != LISTEN) {
            self.serve(token.0);
        }
        if self.is_full || woken.contains(&LISTEN) {
            self.accept();
        }
        let now = self.clock.now();
        self.clients.retain(|_, client| client.until() > now);
        Ok(woken.len())
    }

    fn accept(&mut self) {
        self.is_full = false;
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_no_room) => {
                    self.make_room();
                    self.is_full = true;
                    return;
                }
            };
            let both = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(self.next), both).is_err() {
                continue; // dropped, which closes it
            }
            if self.clients.len() >= MOST_CLIENTS {
                self.make_room();
            }
            let token = self.next;
            self.clients.insert(token, Client::new(stream, self.clock.now()));
            self.next += 1;
            self.serve(token); // its request may have arrived already
        }
    }

    /// Closes the connection that has waited longest.
    fn make_room(&mut self) {
        let oldest = self.clients.iter().min_by_key(|(_, client)| client.since());
        if let Some((&token, _)) = oldest {
            self.clients.remove(&token);
        }
    }

    fn serve(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        match client.go_on(self.clock.now(), &self.text) {
            Next::Wait => {}
            Next::Again => {
                self.unfinished.insert(token);
            }
            Next::Drop => {
                self.clients.remove(&token);
            }
        }
    }
}
