//! One connection, from its first request to its end.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use mio::net::TcpStream;
use pstrain_compute::time::Time;

use super::answer::{Answer, Then, answer};

/// How long a request may take from its first byte to the last one of its answer, and how long a
/// connection that is shut down may stay.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may wait for its next request: longer than Prometheus' default of a minute
/// from one scrape to the next.
const IDLE: Duration = Duration::from_secs(120);
/// Reads and writes before the other connections have their turn.
const MOST_STEPS: usize = 32;

#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    /// Bytes that have no answer yet.
    unanswered: Vec<u8>,
    state: State,
    /// When the state, or the request in it, began.
    since: Time,
}

#[derive(Debug)]
enum State {
    /// A request is to come, or is under way.
    Asking,
    /// An earlier request has had its answer.
    Idle,
    /// So much of the answer is out.
    Answering(Answer, usize),
    /// All answers are out and the peer knows. Its bytes are read and thrown away: closing with
    /// unread bytes would destroy the answer under way.
    Leaving,
}

/// When a connection is looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Once there is an event for it.
    Wait,
    /// When the others have had their turn.
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

    /// When its time is over.
    pub(super) fn until(&self) -> Time {
        self.since + if matches!(self.state, State::Idle) { IDLE } else { PATIENCE }
    }

    /// Reads and writes as far as the system lets it.
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

    /// An answer is out as a whole.
    fn answered(&mut self, then: Then, now: Time) {
        self.since = now;
        self.state = match then {
            Then::Next(length) => {
                self.unanswered.drain(..length);
                if self.unanswered.is_empty() { State::Idle } else { State::Asking }
            }
            Then::Close => {
                // Once: each shutdown is an event, which would come back here. The peer may have
                // gone already, and then no one misses this.
                self.stream.shutdown(Shutdown::Write).unwrap_or_default();
                State::Leaving
            }
        };
    }
}
