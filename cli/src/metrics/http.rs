//! Just enough of HTTP/1.1 to be asked for a text: one thread, bounded in connections, bytes and
//! time, so that whoever asks slowly, or never to the end, is nobody's trouble.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use pstrain_core::time::Time;
use pstrain_transports::WallClock;

const LISTEN: Token = Token(0);
/// Connections that may be open. One more, and the oldest is closed.
const MOST_CLIENTS: usize = 64;
/// How long a connection may take from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait after the system had no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest request.
const MOST_REQUEST_BYTES: usize = 4 * 1024;
const MOST_HEADERS: usize = 32;
/// What Prometheus calls the format.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers `GET /metrics` at `address` with `text` from now on, on a thread of its own.
pub(super) fn serve(
    address: &str,
    text: impl Fn() -> String + Send + 'static,
) -> anyhow::Result<SocketAddr> {
    let cannot = || {
        format!("--metrics {address}: cannot listen there; use HOST:PORT with a port that is free")
    };
    let listener = std::net::TcpListener::bind(address).with_context(cannot)?;
    listener.set_nonblocking(true).with_context(cannot)?;
    let place = listener.local_addr().with_context(cannot)?;
    let mut listener = TcpListener::from_std(listener);
    let poll = Poll::new().with_context(cannot)?;
    poll.registry().register(&mut listener, LISTEN, Interest::READABLE).with_context(cannot)?;
    let endpoint = Endpoint {
        poll,
        listener,
        clients: BTreeMap::new(),
        next: LISTEN.0 + 1,
        is_full: false,
        clock: WallClock::start(),
        text,
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || endpoint.run())
        .with_context(cannot)?;
    Ok(place)
}

struct Endpoint<F> {
    poll: Poll,
    listener: TcpListener,
    /// In the order in which they came.
    clients: BTreeMap<usize, Client>,
    next: usize,
    /// Whether the system had no room for the last connection.
    is_full: bool,
    clock: WallClock,
    text: F,
}

struct Client {
    stream: TcpStream,
    until: Time,
    request: Vec<u8>,
    /// The answer, and how much of it is out.
    answer: Option<(Vec<u8>, usize)>,
}

/// Whether a connection is of further use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Wait,
    Drop,
}

impl<F: Fn() -> String> Endpoint<F> {
    fn run(mut self) {
        let mut events = Events::with_capacity(MOST_CLIENTS);
        loop {
            let now = self.clock.now();
            // They came in the order in which their time is over.
            let first = self.clients.values().next().map(|client| client.until - now);
            let pause = self.is_full.then_some(ACCEPT_PAUSE);
            let timeout = [first, pause].into_iter().flatten().min();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                return; // no poll, no endpoint; the run goes on without
            }
            let mut accepts = self.is_full;
            for event in &events {
                match event.token() {
                    LISTEN => accepts = true,
                    Token(token) => self.serve(token),
                }
            }
            if accepts {
                self.accept();
            }
            let now = self.clock.now();
            self.clients.retain(|_, client| client.until > now);
        }
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
                    self.clients.pop_first();
                    self.is_full = true;
                    return;
                }
            };
            let both = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(self.next), both).is_err() {
                continue; // dropped, which closes it
            }
            if self.clients.len() >= MOST_CLIENTS {
                self.clients.pop_first();
            }
            let until = self.clock.now() + PATIENCE;
            let client = Client { stream, until, request: Vec::new(), answer: None };
            self.clients.insert(self.next, client);
            let token = self.next;
            self.next += 1;
            self.serve(token); // what it asks may be there already
        }
    }

    fn serve(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        if client.go_on(&self.text).unwrap_or(Next::Drop) == Next::Drop {
            self.clients.remove(&token);
        }
    }
}

impl Client {
    fn go_on(&mut self, text: &impl Fn() -> String) -> io::Result<Next> {
        loop {
            if self.answer.is_some() && !self.write()? {
                return Ok(Next::Wait);
            }
            let mut buffer = [0; 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(Next::Drop),
                // What follows the request is read and thrown away: closing with unread bytes
                // would destroy the answer under way.
                Ok(_) if self.answer.is_some() => {}
                Ok(read) => {
                    self.request.extend_from_slice(&buffer[..read]);
                    self.answer = answer(&self.request, text).map(|answer| (answer, 0));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what the system takes of the answer; says whether that is all.
    fn write(&mut self) -> io::Result<bool> {
        let Some((answer, written)) = &mut self.answer else { return Ok(true) };
        while *written < answer.len() {
            match self.stream.write(&answer[*written..]) {
                Ok(more) => *written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        // The peer may have gone already, and then nobody misses this.
        self.stream.shutdown(Shutdown::Write).unwrap_or_default();
        Ok(true)
    }
}

/// The answer to a request, once it is whole or beyond help.
pub(super) fn answer(request: &[u8], text: &impl Fn() -> String) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let too_long = || Some(response("431 Request Header Fields Too Large", "too long\n", true));
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() > MOST_REQUEST_BYTES => return too_long(),
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return too_long(),
        Err(_) => return Some(response("400 Bad Request", "this is no HTTP request\n", true)),
    }
    let path = parsed.path.unwrap_or_default().split('?').next();
    Some(match (parsed.method.unwrap_or_default(), path) {
        (method @ ("GET" | "HEAD"), Some("/metrics")) => {
            response("200 OK", &text(), method == "GET")
        }
        (method @ ("GET" | "HEAD"), _) => {
            response("404 Not Found", "there is only /metrics here\n", method == "GET")
        }
        _ => response("405 Method Not Allowed", "only GET and HEAD\n", true),
    })
}

fn response(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let kind = if status.starts_with('2') { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: \
         close\r\n\r\n",
        body.len()
    );
    (head + if with_body { body } else { "" }).into_bytes()
}
