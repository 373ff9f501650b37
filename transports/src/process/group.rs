//! A process that pstrain started, with the children that it has started in turn.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::clock::WallClock;

/// A process and its group. Dropped, it ends both.
#[derive(Debug)]
pub(super) struct Group {
    leader: Child,
}

impl Group {
    /// Starts the process in a group of its own: a signal for pstrain, such as Ctrl-C, must not end
    /// it before its worker, which may still need one gradient.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let leader = command.process_group(0).spawn()?;
        groups().insert(leader.id());
        Ok(Self { leader })
    }

    /// True if the process has ended; a child of it may still run, and hold its output open.
    pub(super) fn has_ended(&self) -> bool {
        // It is not reaped, so that no other process takes the number of its group.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = pid(self.leader.id()).map(|pid| waitid(WaitId::Pid(pid), options));
        !matches!(found, Some(Ok(None)))
    }

    /// Waits until the process has ended, for so long at most; returns whether it has.
    pub(super) fn ends_within(&self, most: Duration) -> bool {
        let clock = WallClock::start();
        let end = clock.now() + most;
        while !self.has_ended() {
            if clock.now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Ends the process and its children at once. Returns how the process ended.
    pub(super) fn end(&mut self) -> Option<ExitStatus> {
        if groups().remove(&self.leader.id()) {
            kill(self.leader.id());
        }
        self.leader.wait().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _status = self.end();
    }
}

/// The groups of the processes that pstrain started and has not ended.
fn groups() -> MutexGuard<'static, BTreeSet<u32>> {
    static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(number.cast_signed())
}

fn kill(group: u32) {
    if let Some(group) = pid(group) {
        let _gone = kill_process_group(group, Signal::KILL);
    }
}

/// Ends all compute processes with their children, before this program ends: the thread that waits
/// for a process that hangs says no goodbye.
pub fn kill_all() {
    std::mem::take(&mut *groups()).into_iter().for_each(kill);
}
