//! One connection: frames in, frames out, and what happens when either side is slow.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::event::Source;
use pstrain_core::id::PeerId;
use pstrain_core::protocol::{Decoder, Limits, LinkFigures, Message, encode, payload};
use pstrain_core::time::Time;

use super::stream::Stream;
use super::traffic::Traffic;
use crate::transport::{HIGH_WATER_BYTES, MAX_BACKLOG_BYTES, TransportEvent};

/// The most that is read from one connection before the others have their turn.
const TURN_BYTES: usize = 4 * 1024 * 1024;
/// The most that is read and thrown away from a peer that was closed.
const LINGER_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    state: State,
    decoder: Decoder,
    /// Frames that are not out yet.
    queue: VecDeque<Outgoing>,
    queued_bytes: usize,
    /// Bytes that came and went.
    received: u64,
    sent: u64,
    /// Where those of all connections are counted.
    traffic: Arc<Traffic>,
    /// Memory for the next frame's head.
    head: Vec<u8>,
    /// Whether the peer dialled. Only such a peer is slowed down by not reading from it: if both
    /// sides of a connection did that, each could wait for the other to read.
    accepted: bool,
    /// Whether reading stopped because the peer does not take its answers.
    paused: bool,
    /// Whether the peer is known to have closed: then no event will say so again.
    hung_up: bool,
    /// Whether the stream has lost its step.
    failed: bool,
    thrown_away: usize,
    /// When it is let go of whatever happens, if it is being made or being closed.
    pub(super) ends_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Connected,
    /// Closed from here: last words go out, nothing comes in.
    Lingering,
}

#[derive(Debug)]
struct Outgoing {
    head: Vec<u8>,
    message: Message,
    written: usize,
}

/// Whether a connection was read until nothing was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Drained,
    More,
}

impl Connection {
    /// A connection that was accepted, or one that is being made.
    pub(super) fn new(stream: Stream, accepted: bool, traffic: Arc<Traffic>) -> Self {
        Self {
            stream,
            state: if accepted { State::Connected } else { State::Connecting },
            accepted,
            decoder: Decoder::new(Limits::STRANGER),
            queue: VecDeque::new(),
            queued_bytes: 0,
            received: 0,
            sent: 0,
            traffic,
            head: Vec::new(),
            paused: false,
            hung_up: false,
            failed: false,
            thrown_away: 0,
            ends_at: None,
        }
    }

    pub(super) fn stream(&mut self) -> &mut dyn Source {
        self.stream.source()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state != State::Connecting
    }

    pub(super) fn is_lingering(&self) -> bool {
        self.state == State::Lingering
    }

    /// Whether something is still to go out.
    pub(super) fn is_unflushed(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether reading was put off and may go on.
    pub(super) fn wants_more(&self) -> bool {
        self.paused && !self.owes_reading()
    }

    /// Takes note that the peer has closed, or half of it.
    pub(super) fn hang_up(&mut self) {
        self.hung_up = true;
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        self.decoder.set_limits(limits);
    }

    fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What is known of this connection.
    pub(super) fn figures(&self) -> LinkFigures {
        LinkFigures {
            received: self.received,
            sent: self.sent,
            queued: self.queued_bytes as u64,
            tcp: self.stream.tcp_figures(),
        }
    }

    pub(super) fn finish_connect(&mut self) -> io::Result<bool> {
        let connected = self.stream.is_connected()?;
        if connected {
            self.state = State::Connected;
            if let Stream::Tcp(stream) = &self.stream {
                stream.set_nodelay(true).unwrap_or_default();
            }
        }
        Ok(connected)
    }

    /// Sends a message, or queues what of it does not go out at once.
    pub(super) fn send(&mut self, message: Message) -> io::Result<()> {
        if self.state == State::Lingering {
            return Ok(());
        }
        if self.queued_bytes > MAX_BACKLOG_BYTES {
            return Err(io::Error::other("it does not take its messages"));
        }
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        let length = encode(&message, &mut head).len() + head.len();
        let written = if self.queue.is_empty() && self.state == State::Connected {
            write_frame(&mut self.stream, &head, &message, 0)?
        } else {
            0
        };
        self.count_sent(written);
        if written == length {
            self.head = head;
        } else {
            self.queued_bytes += length - written;
            self.queue.push_back(Outgoing { head, message, written });
        }
        Ok(())
    }

    /// Writes what is queued, as far as the system takes it.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while let Some(frame) = self.queue.front_mut() {
            let length = frame.head.len() + payload(&frame.message).len();
            let written =
                write_frame(&mut self.stream, &frame.head, &frame.message, frame.written)?;
            let more = written - frame.written;
            frame.written = written;
            self.queued_bytes -= more;
            self.count_sent(more);
            if written < length {
                return Ok(());
            }
            self.queue.pop_front();
        }
        if self.state == State::Lingering {
            self.stream.finish();
        }
        Ok(())
    }

    /// Reads what is there and finds the messages in it. If there is only part of one, says so.
    ///
    /// # Errors
    /// Why the connection is gone, in words.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        id: PeerId,
        events: &mut Vec<TransportEvent>,
    ) -> Result<Progress, String> {
        let (before, mut turn) = (events.len(), 0);
        let progress = self.read_on(buffer, id, events, &mut turn)?;
        if turn > 0 && events.len() == before && self.decoder.is_mid_frame() && !self.failed {
            events.push(TransportEvent::Receiving(id));
        }
        Ok(progress)
    }

    fn read_on(
        &mut self,
        buffer: &mut [u8],
        id: PeerId,
        events: &mut Vec<TransportEvent>,
        turn: &mut usize,
    ) -> Result<Progress, String> {
        loop {
            if self.owes_reading() {
                self.paused = true;
                return Ok(Progress::Drained);
            }
            self.paused = false;
            if *turn > TURN_BYTES {
                return Ok(Progress::More);
            }
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(self.end_of_stream()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Progress::Drained);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            *turn += read;
            self.received += read as u64;
            self.traffic.received.fetch_add(read as u64, Ordering::Relaxed);
            if self.state == State::Lingering || self.failed {
                self.thrown_away += read;
                if self.thrown_away > LINGER_BYTES {
                    return Err(String::from("it sends on after it was refused"));
                }
            } else {
                self.decode(&buffer[..read], id, events);
            }
            if read < buffer.len() && !self.hung_up {
                // All there was: what comes next raises a new event. Only the end of the stream
                // does not, if the event for these bytes already spoke of it.
                return Ok(Progress::Drained);
            }
        }
    }

    /// Whether the peer must take answers before more is read from it.
    fn owes_reading(&self) -> bool {
        self.accepted && self.state == State::Connected && self.queued_bytes > HIGH_WATER_BYTES
    }

    fn decode(&mut self, bytes: &[u8], id: PeerId, events: &mut Vec<TransportEvent>) {
        self.decoder.feed(bytes);
        loop {
            match self.decoder.next() {
                Ok(Some(message)) => events.push(TransportEvent::Message(id, message)),
                Ok(None) => return,
                Err(error) => {
                    self.failed = true;
                    return events.push(TransportEvent::Garbage(id, error));
                }
            }
        }
    }

    fn end_of_stream(&self) -> String {
        String::from(if self.decoder.is_mid_frame() {
            "closed by the peer in the middle of a message"
        } else {
            "closed by the peer"
        })
    }

    /// Closes from here once the queue is out.
    pub(super) fn linger(&mut self) {
        self.state = State::Lingering;
        self.paused = false;
        if self.queue.is_empty() {
            self.stream.finish();
        }
    }
}

/// Writes a frame from byte `written` on, straight from the message's own memory, and returns how
/// far it is out.
fn write_frame(
    stream: &mut Stream,
    head: &[u8],
    message: &Message,
    mut written: usize,
) -> io::Result<usize> {
    let payload = payload(message);
    let body = payload.as_slice();
    while written < head.len() + body.len() {
        let parts = [
            IoSlice::new(head.get(written..).unwrap_or_default()),
            IoSlice::new(&body[written.saturating_sub(head.len())..]),
        ];
        match stream.write(&parts) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}
