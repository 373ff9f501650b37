//! One HTTP connection, from its first request to its close.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use mio::net::TcpStream;
use pstrain_compute::time::Time;

use super::answer::{Answer, Then, answer};

/// The limit of time for a request, from its first byte (for the first request, from the accept) to
/// the last byte of its answer; and for a connection after its shutdown.
const PATIENCE: Duration = Duration::from_secs(5);
/// The limit of time between two requests: longer than Prometheus' default scrape interval of one
/// minute.
const IDLE: Duration = Duration::from_secs(120);
/// Reads and writes in one turn, before other connections have theirs.
const MOST_STEPS: usize = 32;

#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    /// Bytes received and not answered yet.
    unanswered: Vec<u8>,
    state: State,
    /// When the state, or the request in it, began.
    since: Time,
}

#[derive(Debug)]
enum State {
    /// A request is expected or partly received.
    Asking,
    /// The last request was answered completely.
    Idle,
    /// This many bytes of the answer are written.
    Answering(Answer, usize),
    /// All answers are written and the write side is shut down. Received bytes are read and
    /// discarded: a close with unread bytes would reset the connection and destroy the answer under
    /// way.
    Leaving,
}

/// When to serve a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// After an event for it.
    Wait,
    /// In the next turn, after the other connections.
    Again,
    Drop,
}

impl Client {
    pub(super) fn new(stream: TcpStream, now: Time) -> Self {
        Self { stream, unanswered: Vec::new(), state: State::Asking, since: now }
    }

    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// Returns the time at which the connection times out.
    pub(super) fn until(&self) -> Time {
        self.since + if matches!(self.state, State::Idle) { IDLE } else { PATIENCE }
    }

    /// Reads and writes until the system would block, or for [`MOST_STEPS`] steps.
    pub(super) fn go_on(&mut self, now: Time, text: &impl Fn() -> String) -> Next {
        for _ in 0..MOST_STEPS {
            match self.step(now, text) {
                Ok(None) => {}
                Ok(Some(next)) => return next,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Wait,
                Err(_) => return Next::Drop,
            }
        }
        Next::Again
    }

    fn step(&mut self, now: Time, text: &impl Fn() -> String) -> io::Result<Option<Next>> {
        match &mut self.state {
            State::Answering(answer, written) => {
                match self.stream.write(&answer.bytes[*written..])? {
                    0 => return Ok(Some(Next::Drop)),
                    more => *written += more,
                }
                if *written == answer.bytes.len() {
                    let then = answer.then;
                    self.answered(then, now);
                }
                Ok(None)
            }
            State::Asking | State::Idle => {
                if let Some(answer) = answer(&self.unanswered, text) {
                    self.state = State::Answering(answer, 0);
                    return Ok(None);
                }
                let mut buffer = [0; 1024];
                let read = self.stream.read(&mut buffer)?;
                self.unanswered.extend_from_slice(&buffer[..read]);
                if matches!(self.state, State::Idle) {
                    (self.state, self.since) = (State::Asking, now);
                }
                Ok((read == 0).then_some(Next::Drop))
            }
            State::Leaving => {
                let read = self.stream.read(&mut [0; 1024])?;
                Ok((read == 0).then_some(Next::Drop))
            }
        }
    }

    /// Enters the next state after an answer was written completely.
    fn answered(&mut self, then: Then, now: Time) {
        self.since = now;
        self.state = match then {
            Then::Next(length) => {
                self.unanswered.drain(..length);
                if self.unanswered.is_empty() { State::Idle } else { State::Asking }
            }
            Then::Close => {
                // Only once: each shutdown raises an event, which would lead back here. It fails if
                // the peer has gone already, which does not matter.
                self.stream.shutdown(Shutdown::Write).unwrap_or_default();
                State::Leaving
            }
        };
    }
}
