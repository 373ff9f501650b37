//! A client without a transport: it writes arbitrary bytes and reads the answers. Use it to violate
//! the protocol.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_transports::Address;
use pstrain_wire::worker::Hello;
use pstrain_wire::{Decoder, Limits, Message};

use crate::messages::frame;

/// A raw connection to a server.
#[derive(Debug)]
pub struct RawPeer {
    stream: File,
    decoder: Decoder,
}

/// Result of waiting for the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// A message.
    Message(Message),
    /// Nothing within the timeout.
    Nothing,
    /// The server has closed the connection.
    End,
}

const ANY: Limits = Limits { control: 1 << 24, payload: 1 << 28 };
const PATIENCE: Duration = Duration::from_secs(10);

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl RawPeer {
    /// Connects to `address`, with a timeout of `silence` for each answer.
    ///
    /// # Panics
    /// If nothing listens there.
    #[must_use]
    pub fn connect_with(address: &Address, silence: Duration) -> Self {
        let stream: OwnedFd = match address {
            Address::Tcp(host) => {
                let stream = TcpStream::connect(host.as_str()).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(silence)).unwrap();
                stream.into()
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(silence)).unwrap();
                stream.into()
            }
        };
        Self { stream: File::from(stream), decoder: Decoder::new(ANY) }
    }

    /// Connects to `address`, with a timeout of ten seconds.
    ///
    /// # Panics
    /// If nothing listens there.
    #[must_use]
    pub fn connect(address: &Address) -> Self {
        Self::connect_with(address, PATIENCE)
    }

    /// Writes bytes.
    ///
    /// # Panics
    /// If the connection is gone.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Writes a message.
    ///
    /// # Panics
    /// If the connection is gone.
    pub fn send(&mut self, message: &Message) {
        self.write(&frame(message));
    }

    /// Waits for what the server sends next.
    ///
    /// # Panics
    /// If it is not a valid frame.
    pub fn receive(&mut self) -> Received {
        let mut buffer = [0; 64 * 1024];
        loop {
            if let Some(message) = self.decoder.next().unwrap() {
                return Received::Message(message);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::End,
                Ok(read) => self.decoder.feed(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Received::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_reset) => return Received::End,
            }
        }
    }

    /// True if the other end is gone for good, so that writes fail.
    pub fn is_reset(&mut self) -> bool {
        // The first write provokes the reset, the second one reports it.
        (0..2).any(|_| {
            let refused = self.stream.write_all(&[0]).is_err();
            std::thread::sleep(Duration::from_millis(5));
            refused
        })
    }

    /// Returns the next message.
    ///
    /// # Panics
    /// If none comes.
    pub fn message(&mut self) -> Message {
        match self.receive() {
            Received::Message(message) => message,
            other => panic!("{other:?} instead of a message"),
        }
    }
}

/// The first message of a worker of this build.
#[must_use]
pub fn hello(name: &str, worker: Option<WorkerId>) -> Hello {
    Hello::new(name, worker)
}
