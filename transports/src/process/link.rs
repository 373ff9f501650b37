//! The connection to a compute process. It never waits longer than it is told to, whatever the
//! process does in the middle of a message.

use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use pstrain_compute::params::are_finite;
use pstrain_compute::time::Time;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt::socket_type};

use super::address::ProcessAddress;
use super::group::Group;
use super::protocol::{
    MOST_LINE, ProtocolError, Reply, Request, read_line, read_values, write_message,
};
use super::{ProcessConfig, THREADS};
use crate::clock::WallClock;

/// The most bytes of one read.
const READ: usize = 64 * 1024;

/// Values that are taken at a time: they are looked at while the nearest cache has them.
const PIECE: usize = 4096;

/// The most bytes of one write to a pipe, which does not wait if the pipe takes any.
const PIPE: usize = 512;

/// How long a request may hold up its sender; the rest of it travels while the answer is awaited.
const SENDING: Duration = Duration::from_millis(10);

/// How long a process that says nothing is waited for before it is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a process may take to end after its goodbye, before it is killed.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection to a compute process.
#[derive(Debug)]
pub(super) struct Link {
    input: OwnedFd,
    output: OwnedFd,
    /// False for a pipe.
    sends_to_socket: bool,
    /// Bytes that have arrived, from the begin of a message.
    arrived: Vec<u8>,
    /// Bytes of requests that the process has not taken yet.
    unsent: Vec<u8>,
    clock: WallClock,
    /// When the last request was made, and how long its answer may take.
    asked: Time,
    timeout: Option<Duration>,
    /// The process, if pstrain started it.
    group: Option<Group>,
    /// The process is needed again: no goodbye.
    stays: bool,
}

impl Link {
    /// Starts the process, or connects to it.
    pub(super) fn open(config: &ProcessConfig) -> io::Result<Self> {
        let timeout = config.timeout;
        match &config.address {
            ProcessAddress::Command(command) => Self::start(command, config),
            ProcessAddress::Socket(path) => {
                let stream = OwnedFd::from(UnixStream::connect(path)?);
                Ok(Self::new(stream.try_clone()?, stream, timeout, None))
            }
            ProcessAddress::Description(_) | ProcessAddress::Described(_) => Err(io::Error::other(
                "this is a description, which cannot compute; give the process itself",
            )),
            ProcessAddress::Worker => Err(io::Error::other(
                "only a server that coordinates takes the description of a worker; give the \
                 process itself, or description:FILE",
            )),
            ProcessAddress::Parent => {
                // Not `Stdin` and `Stdout`, which have buffers of their own.
                let input = io::stdin().as_fd().try_clone_to_owned()?;
                let output = io::stdout().as_fd().try_clone_to_owned()?;
                Ok(Self::new(input, output, timeout, None))
            }
        }
    }

    fn start(command: &str, config: &ProcessConfig) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let output = theirs.try_clone()?;
        let threads = config.threads.filter(|_| std::env::var_os(THREADS).is_none());
        let group = Group::start(
            Command::new("sh")
                .args(["-c", command])
                .envs(threads.map(|threads| (THREADS, threads.to_string())))
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::from(OwnedFd::from(output))),
        )?;
        let ours = OwnedFd::from(ours);
        Ok(Self::new(ours.try_clone()?, ours, config.timeout, Some(group)))
    }

    fn new(
        input: OwnedFd,
        output: OwnedFd,
        timeout: Option<Duration>,
        group: Option<Group>,
    ) -> Self {
        Self {
            sends_to_socket: socket_type(&output).is_ok(),
            input,
            output,
            arrived: Vec::new(),
            unsent: Vec::new(),
            clock: WallClock::start(),
            asked: Time::ZERO,
            timeout,
            group,
            stays: false,
        }
    }

    /// Sends a request with parameters and row numbers after it, as much of it as the process takes
    /// within [`SENDING`]. [`Self::message`] sends the rest.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        values: &[f32],
        rows: &[u32],
    ) -> Result<(), ProtocolError> {
        self.asked = self.clock.now();
        write_message(self, request, values, rows)
    }

    /// The time that has passed since the last request.
    pub(super) fn waited(&self) -> Duration {
        self.clock.now().since(self.asked)
    }

    /// Waits until a whole message is here, for `most` at most if given: its line, and as many
    /// values as `check` announces for it. Returns the line; `None` if the message is not whole.
    /// The message stays for the next call, until [`Self::take`].
    pub(super) fn message<M: Reply>(
        &mut self,
        check: impl FnOnce(&M) -> Result<usize, ProtocolError>,
        most: Option<Duration>,
    ) -> Result<Option<M>, ProtocolError> {
        let until = most.map(|most| self.clock.now() + most);
        let mut seen = 0;
        let line = loop {
            if let Some(place) = self.arrived[seen..].iter().position(|&byte| byte == b'\n') {
                break seen + place + 1;
            }
            seen = self.arrived.len();
            if seen as u64 >= MOST_LINE {
                return Err(ProtocolError::Long);
            }
            if !self.wait(until)? {
                return Ok(None);
            }
        };
        let message = read_line::<M>(&mut &self.arrived[..line], M::WANTED)?;
        let message = message.ok_or(ProtocolError::Ended)?;
        let end = line + check(&message)? * size_of::<f32>();
        self.arrived.reserve(end.saturating_sub(self.arrived.len()));
        while self.arrived.len() < end {
            if !self.wait(until)? {
                return Ok(None);
            }
        }
        Ok(Some(message))
    }

    /// Takes the message that [`Self::message`] has returned, and its values. Returns true if all
    /// of them are finite.
    pub(super) fn take(&mut self, values: &mut [f32]) -> Result<bool, ProtocolError> {
        let line = self.arrived.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let (mut bytes, mut is_finite) = (&self.arrived[line..], true);
        for piece in values.chunks_mut(PIECE) {
            read_values(&mut bytes, piece)?;
            is_finite &= are_finite(piece, |bits| bits);
        }
        self.arrived.drain(..line + size_of_val(values));
        Ok(is_finite)
    }

    /// Waits until the process has written more, and sends it the rest of the request meanwhile.
    /// Returns false at `until`.
    fn wait(&mut self, until: Option<Time>) -> Result<bool, ProtocolError> {
        let due = self.timeout.map(|timeout| self.asked + timeout);
        loop {
            let now = self.clock.now();
            let left = until.into_iter().chain(due).min().map(|end| end.since(now));
            let most = left.unwrap_or(LOOK).min(LOOK);
            let (reads, sends) = self.poll((true, !self.unsent.is_empty()), most)?;
            if reads {
                return self.read();
            }
            if sends {
                let sent = self.put(&self.unsent)?.unwrap_or(0);
                self.unsent.drain(..sent);
            } else if self.group.as_ref().is_some_and(Group::has_ended) {
                // It may have written just before its end.
                let (reads, _) = self.poll((true, false), Duration::ZERO)?;
                return if reads { self.read() } else { Err(ProtocolError::Ended) };
            }
            if due.is_some_and(|due| now >= due) {
                return Err(ProtocolError::Late);
            }
            if until.is_some_and(|until| now >= until) {
                return Ok(false);
            }
        }
    }

    /// Reads what is here; true unless that is the end.
    fn read(&mut self) -> Result<bool, ProtocolError> {
        self.arrived.reserve(READ);
        let read = || rustix::io::read(&self.input, spare_capacity(&mut self.arrived));
        match rustix::io::retry_on_intr(read).map_err(io::Error::from)? {
            0 => Err(ProtocolError::Ended),
            _ => Ok(true),
        }
    }

    /// Waits for so long at most until the process has written, if `reads`, or takes more bytes, if
    /// `sends`. Its end counts as both: the read or write that follows finds it.
    fn poll(&self, (reads, sends): (bool, bool), most: Duration) -> io::Result<(bool, bool)> {
        let flags = if reads { PollFlags::IN } else { PollFlags::empty() };
        let input = PollFd::new(&self.input, flags);
        let mut ends = [input, PollFd::new(&self.output, PollFlags::OUT)];
        let most = Timespec::try_from(most).ok();
        match poll(&mut ends[..if sends { 2 } else { 1 }], most.as_ref()) {
            Ok(_) => {
                let [input, output] = ends.map(|end| !end.revents().is_empty());
                Ok((input, output))
            }
            Err(Errno::INTR) => Ok((false, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes as many bytes as the process takes at once; none if it takes none.
    fn put(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let sent = if self.sends_to_socket {
            send(&self.output, bytes, SendFlags::DONTWAIT)
        } else if self.poll((false, true), Duration::ZERO)?.1 {
            rustix::io::write(&self.output, &bytes[..bytes.len().min(PIPE)])
        } else {
            return Ok(None);
        };
        match sent {
            Ok(sent) => Ok(Some(sent)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves a process that pstrain did not start as it is, for another link to it.
    pub(super) fn leave(mut self) {
        self.stays = self.group.is_none();
    }

    /// How the process ended, in words, if pstrain started it and it has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        // Its output closes a little before it can be waited for.
        let group = self.group.as_ref()?;
        if !group.ends_within(Duration::from_millis(200)) {
            return None;
        }
        let status = self.group.take()?.end()?;
        Some(format!("it ended with {status}"))
    }
}

impl Write for Link {
    /// Takes all bytes: the ones left after [`SENDING`] are sent later.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let until = self.asked + SENDING;
        while self.unsent.is_empty() {
            if let Some(sent) = self.put(bytes)? {
                return Ok(sent);
            }
            let left = until.since(self.clock.now());
            if left.is_zero() {
                break;
            }
            self.poll((false, true), left)?;
        }
        self.unsent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.asked = self.clock.now();
        let said = write_message(self, &Request::Bye, &[], &[]);
        if let Some(group) = &self.group
            && said.is_ok()
            && self.unsent.is_empty()
        {
            group.ends_within(GOODBYE);
        }
    }
}

/// Waits until the process that started this program has closed its end of standard input, without
/// reading from it.
///
/// # Errors
/// The error of the system, or one if standard input is nothing that another process can close.
pub fn wait_for_parent() -> io::Result<()> {
    let input = io::stdin();
    // The end is always reported; answers of the process are for its link.
    let mut watched = [PollFd::new(&input, PollFlags::empty())];
    rustix::io::retry_on_intr(|| poll(&mut watched, None))?;
    match watched[0].revents().contains(PollFlags::HUP) {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}
