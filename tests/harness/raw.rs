//! A client without a transport: it writes the bytes it likes and reads what comes back.

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

/// A connection to a server, by hand.
#[derive(Debug)]
pub struct RawPeer {
    stream: File,
    decoder: Decoder,
}

/// What came from the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// A message.
    Message(Message),
    /// Nothing in the time given.
    Nothing,
    /// The server has closed the connection.
    End,
}

const ANY: Limits = Limits { control: 1 << 24, payload: 1 << 28 };
const PATIENCE: Duration = Duration::from_secs(10);

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl RawPeer {
    /// A connection to `address`, which gives up waiting for an answer after `silence`.
    ///
    /// # Panics
    /// If nobody listens there.
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

    /// A patient connection to `address`.
    ///
    /// # Panics
    /// If nobody listens there.
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

    /// What comes next.
    ///
    /// # Panics
    /// If what comes is no frame.
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

    /// Whether the other end is gone for good, so that what is written comes back as an error.
    pub fn is_reset(&mut self) -> bool {
        // The first write finds out, the second is told.
        (0..2).any(|_| {
            let refused = self.stream.write_all(&[0]).is_err();
            std::thread::sleep(Duration::from_millis(5));
            refused
        })
    }

    /// The next message.
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
