//! The connection to a compute process, and the process itself if pstrain started it.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::protocol::{Request, write_message};
use super::{ProcessConfig, THREADS};
use crate::clock::WallClock;

/// Size of the buffer for answers, so that one read receives most of them.
const BUFFER: usize = 64 * 1024;

/// How long a process may take to end after its goodbye, before it is killed.
const GOODBYE: Duration = Duration::from_secs(1);

/// Where the compute process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessAddress {
    /// A shell command, which pstrain runs: it speaks on its standard input and output.
    Command(String),
    /// A process that listens at this Unix socket. pstrain neither starts nor ends it.
    Socket(PathBuf),
    /// The process that started pstrain: it speaks on pstrain's standard input and output.
    Parent,
    /// No process, but the description of one in this file: for a server on a machine that cannot
    /// run it.
    Description(PathBuf),
    /// No process, but the description of one, in JSON.
    Described(String),
    /// No process: the first worker describes its own, for a server.
    Worker,
}

impl FromStr for ProcessAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (prefix, path) = text.split_once(':').unwrap_or((text, ""));
        match (text.trim(), prefix) {
            ("", _) => Err("give a command, unix:PATH, or - for the parent process".into()),
            ("-", _) => Ok(Self::Parent),
            ("worker", _) => Ok(Self::Worker),
            (json, _) if json.starts_with('{') => Ok(Self::Described(json.into())),
            (_, "unix" | "description") if path.is_empty() => {
                Err(format!("{prefix}: needs a path after it"))
            }
            (_, "unix") => Ok(Self::Socket(path.into())),
            (_, "description") => Ok(Self::Description(path.into())),
            _ => Ok(Self::Command(text.into())),
        }
    }
}

impl fmt::Display for ProcessAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.write_str(command),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Parent => f.write_str("-"),
            Self::Description(path) => write!(f, "description:{}", path.display()),
            Self::Described(json) => f.write_str(json),
            Self::Worker => f.write_str("worker"),
        }
    }
}

/// A connection to a compute process.
pub(super) struct Link {
    pub(super) from: BufReader<Box<dyn Read + Send>>,
    pub(super) to: Box<dyn Write + Send>,
    /// The socket, if it is one, and how long an answer may take.
    socket: Option<(UnixStream, Option<Duration>)>,
    /// The process, if pstrain started it.
    child: Option<Child>,
    /// The process is needed again: no goodbye.
    stays: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("child", &self.child).finish_non_exhaustive()
    }
}

impl Link {
    /// Starts the process, or connects to it.
    pub(super) fn open(config: &ProcessConfig) -> io::Result<Self> {
        match &config.address {
            ProcessAddress::Command(command) => Self::start(command, config),
            ProcessAddress::Socket(path) => {
                Self::of(UnixStream::connect(path)?, config.timeout, None)
            }
            ProcessAddress::Description(_) | ProcessAddress::Described(_) => Err(io::Error::other(
                "this is a description, which cannot compute; give the process itself",
            )),
            ProcessAddress::Worker => Err(io::Error::other(
                "only a server that coordinates takes the description of a worker; give the \
                 process itself, or description:FILE",
            )),
            ProcessAddress::Parent => Self::parent(),
        }
    }

    fn parent() -> io::Result<Self> {
        // Not `Stdin` and `Stdout`: their buffers are shorter than most messages, and a line buffer
        // splits values at each byte that equals a newline, which wakes the process up twice.
        let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let to = Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?));
        let from = BufReader::with_capacity(BUFFER, Box::new(from) as Box<dyn Read + Send>);
        Ok(Self { from, to, socket: None, child: None, stays: false })
    }

    fn start(command: &str, config: &ProcessConfig) -> io::Result<Self> {
        // A socket, since reading from it can time out.
        let (ours, theirs) = UnixStream::pair()?;
        let output = theirs.try_clone()?;
        let threads = config.threads.filter(|_| std::env::var_os(THREADS).is_none());
        let child = Command::new("sh")
            .args(["-c", command])
            .envs(threads.map(|threads| (THREADS, threads.to_string())))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(output)))
            // A signal for pstrain, such as Ctrl-C, must not end the process before its worker,
            // which may still need one gradient.
            .process_group(0)
            .spawn()?;
        groups().insert(child.id());
        Self::of(ours, config.timeout, Some(child))
    }

    fn of(stream: UnixStream, timeout: Option<Duration>, child: Option<Child>) -> io::Result<Self> {
        stream.set_read_timeout(timeout)?;
        stream.set_write_timeout(timeout)?;
        let from: Box<dyn Read + Send> = Box::new(stream.try_clone()?);
        let from = BufReader::with_capacity(BUFFER, from);
        let socket = Some((stream.try_clone()?, timeout));
        Ok(Self { from, to: Box::new(stream), socket, child, stays: false })
    }

    /// True if a part of an answer is here, or comes within this time.
    pub(super) fn has_answer(&mut self, within: Duration) -> bool {
        let Some((socket, timeout)) =
            self.socket.as_ref().filter(|_| self.from.buffer().is_empty())
        else {
            return true;
        };
        let is_set = socket.set_read_timeout(Some(within.max(Duration::from_millis(1)))).is_ok();
        let is_here = self.from.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        is_set && socket.set_read_timeout(*timeout).is_ok() && is_here
    }

    /// Leaves a process that pstrain did not start as it is, for another link to it.
    pub(super) fn leave(mut self) {
        self.stays = self.child.is_none();
    }

    /// How the process ended, in words, if pstrain started it and it has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        let child = self.child.as_mut()?;
        // Its output closes a little before it can be waited for.
        let status = wait_for(child, Duration::from_millis(200))?;
        Some(format!("it ended with {status}"))
    }

    /// Ends the process at once, with its children, if pstrain started it.
    fn kill(child: &mut Child) {
        kill_group(child.id());
        let _reaped = child.wait();
    }
}

/// The groups of the processes that pstrain started and that have not ended.
fn groups() -> MutexGuard<'static, BTreeSet<u32>> {
    static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill_group(group: u32) {
    if let Some(group) = rustix::process::Pid::from_raw(group.cast_signed()) {
        let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// Kills the compute processes that have not ended, before this program does: the thread that waits
/// for a process that hangs says no goodbye.
pub fn kill_all() {
    std::mem::take(&mut *groups()).into_iter().for_each(kill_group);
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

/// Waits until the process has ended, for so long at most; returns its exit status if it has.
fn wait_for(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    let clock = WallClock::start();
    let end = clock.now() + most;
    loop {
        match child.try_wait() {
            Ok(None) if clock.now() < end => std::thread::sleep(Duration::from_millis(2)),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let said = write_message(&mut self.to, &Request::Bye, &[], &[]);
        let Some(child) = &mut self.child else {
            return; // it was there before this program, and stays
        };
        if said.is_err() || wait_for(child, GOODBYE).is_none() {
            Self::kill(child);
        }
        groups().remove(&child.id());
    }
}
