//! Noise with a shared key: `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`.
//!
//! # On the wire
//! The length of each Noise message precedes it: two bytes, big-endian. First the dialler sends
//! `psk, e`, then the server `e, ee`, 48 bytes each. Then the dialler sends an empty message: only
//! this proves that it created its key now and does not replay an old first message. Everything
//! after that is a stream of bytes, cut into messages of at most 65,535 bytes.

use std::fmt;
use std::io::{self, IoSlice, Write};
use std::path::Path;

use snow::{Builder, HandshakeState, TransportState};

use super::super::stream::Stream;
use super::{Broken, KeyAccess, SecurityError, files};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Ensures that both sides mean the same protocol.
const PROLOGUE: &[u8] = b"pstrain 1";
const KEY_BYTES: usize = 32;
const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;
/// Size of a handshake message: a key and a tag.
const HANDSHAKE_BYTES: usize = 32 + TAG_BYTES;
/// Maximum plain bytes per message.
const MOST_PLAIN_BYTES: usize = u16::MAX as usize - TAG_BYTES;
/// Limit of encrypted bytes that wait to be sent.
const AHEAD_BYTES: usize = 256 * 1024;
/// Answer of a server to a dialler that does not hold the key: a length that no message has, and a
/// mark for a dialler in plain text ([`FrameError::Magic`](pstrain_wire::FrameError::Magic)).
const REFUSED: &[u8] = b"\0\0psk";

/// The shared key.
#[derive(Clone)]
pub(super) struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    pub(super) fn load(file: &Path, access: KeyAccess) -> Result<Self, SecurityError> {
        let text = files::read_secret(file, access)?;
        Self::parse(text.trim()).ok_or_else(|| {
            SecurityError(format!(
                "{}: a shared key is 64 hexadecimal digits; make one with `pstrain cert psk FILE`",
                file.display()
            ))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (digits, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let mut key = [0; KEY_BYTES];
        if digits.len() != KEY_BYTES || !rest.is_empty() {
            return None;
        }
        for (byte, &[high, low]) in key.iter_mut().zip(digits) {
            *byte = (digit(high)? * 16 + digit(low)?) as u8;
        }
        Some(Self(key))
    }

    /// Returns the layer of a connection; the layer of a dialler starts the handshake.
    pub(super) fn layer(&self, dials: bool) -> Result<NoiseLayer, Broken> {
        let params = PATTERN.parse().map_err(broken)?;
        let builder = Builder::new(params).prologue(PROLOGUE).and_then(|it| it.psk(0, &self.0));
        let builder = builder.map_err(broken)?;
        let state = if dials { builder.build_initiator() } else { builder.build_responder() };
        let state = Stage::Handshaking(Box::new(state.map_err(broken)?));
        let [inbox, plain, outbox] = [const { Vec::new() }; 3];
        let mut layer = NoiseLayer { state, inbox, plain, outbox, sent: 0, accepts: !dials };
        if dials {
            layer.write_handshake()?;
        }
        Ok(layer)
    }
}

#[derive(Debug)]
pub(in super::super) struct NoiseLayer {
    state: Stage,
    /// An incomplete message.
    inbox: Vec<u8>,
    /// Reused buffer for decrypted bytes.
    plain: Vec<u8>,
    /// Encrypted messages to be sent, and how many of these bytes were sent.
    outbox: Vec<u8>,
    sent: usize,
    /// The other side has dialled.
    accepts: bool,
}

#[derive(Debug)]
enum Stage {
    Handshaking(Box<HandshakeState>),
    /// The dialler has not yet proved that it does not replay an earlier dialler.
    Unconfirmed(Box<TransportState>),
    Open(Box<TransportState>),
    /// During a transition, or after a failure.
    Closed,
}

fn broken(error: snow::Error) -> Broken {
    Broken::permanent(format!("Noise cannot be set up: {error}"))
}

fn other_key() -> Broken {
    let why = "it does not hold the shared key; give both sides the same file with --psk";
    Broken::mismatch(why.into())
}

impl NoiseLayer {
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, Stage::Open(_))
    }

    /// Refuses a dialler whose handshake is not over.
    pub(super) fn close(&mut self) {
        if self.accepts && !self.is_open() {
            self.outbox.extend_from_slice(REFUSED);
        }
    }

    /// Appends the next handshake message to the output.
    fn write_handshake(&mut self) -> Result<(), Broken> {
        let Stage::Handshaking(state) = &mut self.state else {
            unreachable!("the handshake is in progress")
        };
        let mut message = [0; HANDSHAKE_BYTES];
        let length = state.write_message(&[], &mut message).map_err(broken)?;
        self.outbox.extend_from_slice(&(length as u16).to_be_bytes());
        self.outbox.extend_from_slice(&message[..length]);
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Broken> {
        while !bytes.is_empty() {
            if self.inbox.is_empty() {
                // Decrypt a complete message in place, without a copy to the inbox.
                let length = self.length(bytes)?;
                if let Some((message, rest)) = length.and_then(|all| bytes.split_at_checked(all)) {
                    self.open(&message[LENGTH_BYTES..], take)?;
                    bytes = rest;
                    continue;
                }
            }
            let wanted = self.length(&self.inbox)?.unwrap_or(LENGTH_BYTES);
            let (part, rest) = bytes.split_at(bytes.len().min(wanted - self.inbox.len()));
            self.inbox.extend_from_slice(part);
            bytes = rest;
            if self.length(&self.inbox)?.is_some_and(|all| all == self.inbox.len()) {
                let message = std::mem::take(&mut self.inbox);
                self.open(&message[LENGTH_BYTES..], take)?;
            }
        }
        Ok(())
    }

    /// Returns the size of the message at the start of `bytes`, if its length is known.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        let Some((length, _)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 {
            let why = "it has another shared key, or a byte was changed on the way; give both \
                       sides the same file with --psk";
            return Err(Broken::mismatch(why.into()));
        }
        let is_possible = match self.state {
            Stage::Handshaking(_) => length == HANDSHAKE_BYTES,
            Stage::Unconfirmed(_) => length == TAG_BYTES,
            Stage::Open(_) | Stage::Closed => length >= TAG_BYTES,
        };
        if is_possible {
            return Ok(Some(LENGTH_BYTES + length));
        }
        let why = "it does not speak Noise with a shared key; is it run with --psk?";
        Err(Broken::mismatch(why.into()))
    }

    /// Decrypts a message.
    fn open(&mut self, message: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<(), Broken> {
        self.plain.resize(self.plain.len().max(message.len()), 0);
        match std::mem::replace(&mut self.state, Stage::Closed) {
            Stage::Handshaking(mut state) => {
                state.read_message(message, &mut self.plain).map_err(|_| other_key())?;
                self.state = Stage::Handshaking(state);
                self.after_handshake_message()
            }
            Stage::Unconfirmed(mut state) => {
                state.read_message(message, &mut self.plain).map_err(|_| other_key())?;
                self.state = Stage::Open(state);
                Ok(())
            }
            Stage::Open(mut state) => {
                let length = state
                    .read_message(message, &mut self.plain)
                    .map_err(|_| Broken::from(String::from("its bytes were changed on the way")))?;
                take(&self.plain[..length]);
                self.state = Stage::Open(state);
                Ok(())
            }
            Stage::Closed => Err(other_key()),
        }
    }

    /// Continues after a handshake message was received.
    fn after_handshake_message(&mut self) -> Result<(), Broken> {
        self.shake_if_its_turn()?;
        let Stage::Handshaking(state) = std::mem::replace(&mut self.state, Stage::Closed) else {
            unreachable!("the handshake is in progress")
        };
        if !state.is_handshake_finished() {
            self.state = Stage::Handshaking(state);
            return Ok(());
        }
        let dialled = state.is_initiator();
        let transport = Box::new(state.into_transport_mode().map_err(broken)?);
        if dialled {
            self.state = Stage::Open(transport);
            self.seal(&[])?;
        } else {
            self.state = Stage::Unconfirmed(transport);
        }
        Ok(())
    }

    fn shake_if_its_turn(&mut self) -> Result<(), Broken> {
        match &self.state {
            Stage::Handshaking(state) if state.is_my_turn() && !state.is_handshake_finished() => {
                self.write_handshake()
            }
            _ => Ok(()),
        }
    }

    /// Appends a message with these bytes to the output.
    fn seal(&mut self, plain: &[u8]) -> Result<(), Broken> {
        let Stage::Open(state) = &mut self.state else { return Err(other_key()) };
        let length = plain.len() + TAG_BYTES;
        self.outbox.extend_from_slice(&(length as u16).to_be_bytes());
        let begin = self.outbox.len();
        self.outbox.resize(begin + length, 0);
        state.write_message(plain, &mut self.outbox[begin..]).map_err(broken)?;
        Ok(())
    }

    pub(super) fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for plain in parts.iter().flat_map(|part| part.chunks(MOST_PLAIN_BYTES)) {
            if self.outbox.len() >= AHEAD_BYTES {
                break;
            }
            self.seal(plain).map_err(|broken| io::Error::other(broken.why))?;
            taken += plain.len();
        }
        Ok(taken)
    }

    pub(super) fn has_output(&self) -> bool {
        self.sent < self.outbox.len()
    }

    pub(super) fn write_to(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let written = stream.write(&self.outbox[self.sent..])?;
        self.sent += written;
        if self.sent == self.outbox.len() {
            // Free the buffer, so that an idle connection holds no memory.
            self.outbox = Vec::new();
            self.sent = 0;
        }
        Ok(written)
    }
}
