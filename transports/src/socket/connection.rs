//! One connection: incoming and outgoing frames, and flow control when either side is slow.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::event::Source;
use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_wire::identity::Identity;
use pstrain_wire::{BufferPool, Decoder, Limits, LinkFigures, Message, Outgoing};

use super::pending::Origin;
use super::secure::{Broken, Layer, UNPROVED};
use super::stream::Stream;
use super::traffic::Traffic;
use crate::transport::{HIGH_WATER_BYTES, MAX_BACKLOG_BYTES, TransportEvent};

/// Maximum bytes read from one connection before the others have their turn.
const TURN_BYTES: usize = 4 * 1024 * 1024;
/// Maximum messages from one connection before the others have their turn.
const TURN_MESSAGES: usize = 64;
/// Maximum bytes read and discarded from a peer that was closed.
const LINGER_BYTES: usize = 16 * 1024 * 1024;
/// If at least this many bytes of a payload are missing, they are read directly to their
/// destination.
const DIRECT_BYTES: usize = 64 * 1024;
/// Maximum size of a direct read: the bytes are processed while they are in the cache.
const PIECE_BYTES: usize = 256 * 1024;

/// State that all connections of a transport share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Read buffer.
    pub(super) buffer: Vec<u8>,
    /// Buffer pool for the values of messages.
    pub(super) spares: BufferPool,
    /// Events since the last wait.
    pub(super) events: Vec<TransportEvent>,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    layer: Layer,
    state: State,
    decoder: Decoder,
    /// Frames that were not sent completely.
    queue: VecDeque<Outgoing>,
    queued_bytes: usize,
    /// Bytes received and sent on this connection.
    received: u64,
    sent: u64,
    /// Byte counters of all connections.
    traffic: Arc<Traffic>,
    /// Reused buffer for the next frame's header.
    head: Vec<u8>,
    /// The peer dialled. Only such a peer is slowed down by not reading from it: if both sides of a
    /// connection did that, each could wait for the other to read.
    accepted: bool,
    /// Origin of a peer that dialled. Kept here, since the system forgets it when the connection
    /// breaks.
    origin: Option<Origin>,
    /// Reading has stopped because the peer does not take its answers.
    paused: bool,
    /// The peer is known to have closed: no further event will report it.
    hung_up: bool,
    /// The stream contained an invalid frame and cannot be decoded further.
    failed: bool,
    thrown_away: usize,
    /// When the connection is dropped in any case, while it is being made or closed.
    pub(super) ends_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    /// Both sides prove their identity, or that they know the key.
    Securing,
    Connected,
    /// Closed from here: the last messages are sent, and input is discarded.
    Lingering,
}

/// Result of a read: all available bytes were read, or more may be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Drained,
    More,
}

impl Connection {
    /// Returns a connection that was accepted, or one that is being dialled.
    pub(super) fn new(stream: Stream, layer: Layer, accepted: bool, traffic: Arc<Traffic>) -> Self {
        let state = match accepted {
            false => State::Connecting,
            true if layer.is_open() => State::Connected,
            true => State::Securing,
        };
        let origin = accepted.then(|| stream.origin());
        Self {
            stream,
            layer,
            state,
            accepted,
            origin,
            decoder: Decoder::new(Limits::UNAUTHENTICATED),
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
        matches!(self.state, State::Connected | State::Lingering)
    }

    /// True if the peer dialled.
    pub(super) const fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Returns the origin of a peer that dialled.
    pub(super) const fn origin(&self) -> Option<Origin> {
        self.origin
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.state == State::Connecting
    }

    pub(super) const fn identity(&self) -> Identity {
        self.layer.identity()
    }

    /// Checks that the peer is on this machine; the error says why not.
    pub(super) fn check_here(&self) -> Result<(), String> {
        self.stream.check_here()
    }

    pub(super) fn is_lingering(&self) -> bool {
        self.state == State::Lingering
    }

    /// True if bytes are still to be sent.
    pub(super) fn is_unflushed(&self) -> bool {
        self.is_connected() && (!self.queue.is_empty() || self.layer.has_output())
    }

    /// True if reading was paused and may continue.
    pub(super) fn wants_more(&self) -> bool {
        self.paused && !self.owes_reading()
    }

    /// True if the handshake has begun and none of the peer's bytes were read.
    pub(super) fn awaits_hello(&self) -> bool {
        self.state == State::Securing && self.received == 0
    }

    /// True if the peer has closed, and everything it sent was read.
    pub(super) fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }

    /// Records that the peer has closed, at least for sending.
    pub(super) fn hang_up(&mut self) {
        self.hung_up = true;
    }

    /// True if the peer is known to have closed.
    pub(super) const fn has_hung_up(&self) -> bool {
        self.hung_up
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        self.decoder.set_limits(limits);
    }

    fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the measurements of this connection.
    pub(super) fn figures(&self) -> LinkFigures {
        LinkFigures {
            received: self.received,
            sent: self.sent,
            queued: self.queued_bytes as u64,
            tcp: self.stream.tcp_figures(),
            is_local: self.check_here().is_ok(),
        }
    }

    pub(super) fn finish_connect(&mut self) -> io::Result<bool> {
        let connected = self.stream.is_connected()?;
        if connected {
            self.state = if self.layer.is_open() { State::Connected } else { State::Securing };
            if let Stream::Tcp(stream) = &self.stream {
                stream.set_nodelay(true).unwrap_or_default();
            }
        }
        Ok(connected)
    }

    /// Sends a message, and queues the part that the system does not take at once.
    pub(super) fn send(&mut self, message: Message) -> io::Result<()> {
        if self.state == State::Lingering {
            return Ok(());
        }
        // The message being sent does not count: it may be of any size.
        let first = self.queue.front().map_or(0, Outgoing::remaining);
        if self.queued_bytes - first > MAX_BACKLOG_BYTES {
            return Err(io::Error::other("it does not take its messages"));
        }
        let mut frame = Outgoing::new(message, std::mem::take(&mut self.head));
        if self.queue.is_empty() && self.state == State::Connected {
            let written = write_frame((&mut self.stream, &mut self.layer), &mut frame)?;
            self.count_sent(written);
        }
        if frame.remaining() == 0 {
            self.head = frame.into_head();
        } else {
            self.queued_bytes += frame.remaining();
            self.queue.push_back(frame);
        }
        Ok(())
    }

    /// Writes queued frames, as far as the system takes them.
    pub(super) fn write(&mut self) -> io::Result<()> {
        self.layer.flush(&mut self.stream)?;
        if !self.is_connected() {
            return Ok(());
        }
        while let Some(frame) = self.queue.front_mut() {
            let written = write_frame((&mut self.stream, &mut self.layer), frame)?;
            let is_out = frame.remaining() == 0;
            self.queued_bytes -= written;
            self.count_sent(written);
            if !is_out {
                return Ok(());
            }
            self.queue.pop_front();
        }
        if self.state == State::Lingering {
            self.finish();
        }
        Ok(())
    }

    /// Reads and decodes the available bytes. Reports `Receiving` if they contain only part of a
    /// message.
    ///
    /// # Errors
    /// The reason, if the connection has ended.
    pub(super) fn read(&mut self, id: PeerId, shared: &mut Shared) -> Result<Progress, Broken> {
        let (before, mut turn) = (shared.events.len(), 0);
        let progress = self.read_on(id, shared, &mut turn)?;
        let events = &mut shared.events;
        if turn > 0 && events.len() == before && self.state == State::Connected && !self.failed {
            events.push(TransportEvent::Receiving(id));
        }
        Ok(progress)
    }

    fn read_on(
        &mut self,
        id: PeerId,
        shared: &mut Shared,
        turn: &mut usize,
    ) -> Result<Progress, Broken> {
        let most = shared.events.len() + TURN_MESSAGES;
        loop {
            if self.owes_reading() {
                self.paused = true;
                return Ok(Progress::Drained);
            }
            self.paused = false;
            // Earlier reads may have left complete messages.
            if self.decode(id, shared, most) == Progress::More || *turn > TURN_BYTES {
                return Ok(Progress::More);
            }
            let (is_plain, is_heard) = (self.layer.is_plain(), self.is_heard());
            // Encrypted bytes must pass through the layer first.
            let direct = Some(&mut self.decoder)
                .filter(|_| is_plain && is_heard)
                .and_then(|decoder| decoder.room(DIRECT_BYTES, PIECE_BYTES));
            let is_direct = direct.is_some();
            let room = direct.unwrap_or(&mut shared.buffer);
            let asked = room.len();
            let read = match self.stream.read(room) {
                Ok(0) => return Err(self.end_of_stream().into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Progress::Drained);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(error)),
            };
            *turn += read;
            self.received += read as u64;
            self.traffic.received.fetch_add(read as u64, Ordering::Relaxed);
            if is_direct {
                self.decoder.fed(read);
            } else if is_heard {
                self.receive(read, id, shared)?;
            } else {
                self.thrown_away += read;
                if self.thrown_away > LINGER_BYTES {
                    return Err(String::from("it sends on after it was refused").into());
                }
            }
            if read < asked && !self.hung_up {
                // All available bytes were read; later bytes raise a new event. The end of the
                // stream does not, if the event for these bytes already included it.
                return Ok(self.decode(id, shared, most));
            }
        }
    }

    /// True if incoming bytes are processed.
    fn is_heard(&self) -> bool {
        self.state != State::Lingering && !self.failed
    }

    /// True if the peer must take its answers before more is read from it.
    fn owes_reading(&self) -> bool {
        self.accepted && self.state == State::Connected && self.queued_bytes > HIGH_WATER_BYTES
    }

    /// Processes the first `read` bytes of the shared buffer.
    fn receive(&mut self, read: usize, id: PeerId, shared: &mut Shared) -> Result<(), Broken> {
        let Self { layer, decoder, stream, .. } = self;
        let Shared { buffer, spares, events } = shared;
        let received = layer.receive(&buffer[..read], &mut |plain| decoder.feed_in(plain, spares));
        // Send the answer, even if it is only the last message of a failed handshake.
        let flushed = layer.flush(stream);
        received?;
        // A peer that is gone may have sent its last messages before: they are read first.
        if self.state == State::Securing {
            flushed?;
        }
        if self.state == State::Securing && self.layer.is_open() {
            self.state = State::Connected;
            let identity = self.layer.identity();
            events.push(if self.accepted {
                TransportEvent::Connected(id, identity)
            } else {
                TransportEvent::Dialled(id, identity)
            });
        }
        Ok(())
    }

    /// Decodes messages from the received bytes, until there are `most` events.
    fn decode(&mut self, id: PeerId, shared: &mut Shared, most: usize) -> Progress {
        if self.state != State::Connected || self.failed {
            return Progress::Drained;
        }
        let Shared { events, spares, .. } = shared;
        while events.len() < most {
            match self.decoder.next_in(spares) {
                Ok(Some(message)) => events.push(TransportEvent::Message(id, message)),
                Ok(None) => return Progress::Drained,
                Err(error) => {
                    self.failed = true;
                    events.push(TransportEvent::Garbage(id, error));
                    return Progress::Drained;
                }
            }
        }
        Progress::More
    }

    /// Returns why this connection cannot continue after `error`.
    pub(super) fn broken(&self, error: io::Error) -> Broken {
        use io::ErrorKind as E;
        match error.kind() {
            // The peer has closed while bytes of this side were unread.
            E::BrokenPipe | E::ConnectionAborted | E::ConnectionReset if self.is_unanswered() => {
                self.end_of_stream().into()
            }
            _ => error.into(),
        }
    }

    /// True if the peer was dialled and has sent nothing at all.
    const fn is_unanswered(&self) -> bool {
        !self.accepted && self.received == 0
    }

    /// Returns the likely reason why the stream has ended.
    fn end_of_stream(&self) -> String {
        String::from(if self.is_unanswered() {
            self.layer.unanswered(&self.stream)
        } else if self.state == State::Securing {
            UNPROVED
        } else if self.decoder.is_mid_frame() {
            "closed by the peer in the middle of a message"
        } else {
            "closed by the peer"
        })
    }

    /// Closes the connection once the queue is sent.
    pub(super) fn linger(&mut self) {
        self.state = State::Lingering;
        self.paused = false;
        if self.queue.is_empty() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.layer.close(&mut self.stream);
        if !self.layer.has_output() {
            self.stream.finish();
        }
    }
}

/// Writes the rest of a frame, as far as the system takes it. Returns the bytes written.
fn write_frame(
    (stream, layer): (&mut Stream, &mut Layer),
    frame: &mut Outgoing,
) -> io::Result<usize> {
    let mut written = 0;
    while frame.remaining() > 0 {
        match layer.write(stream, &frame.parts().map(IoSlice::new)) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(more) => {
                frame.wrote(more);
                written += more;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}
