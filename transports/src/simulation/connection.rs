//! A connection in virtual time, with the knowledge of each end.

use super::ProcessId;
use super::network::Path;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Listener,
    Dialler,
}

impl End {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Listener => Self::Dialler,
            Self::Dialler => Self::Listener,
        }
    }
}

/// The knowledge of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// The end does not know the connection yet.
    Unheard,
    Open,
    Closed,
}

/// A connection between two processes.
#[derive(Debug)]
pub(super) struct Connection {
    dialler: ProcessId,
    listener: ProcessId,
    /// None if the processes reach each other without delay.
    pub(super) path: Option<Path>,
    ends: [Knowledge; 2],
    /// Everything that is under way is lost.
    broken: bool,
}

impl Connection {
    pub(super) const fn new(dialler: ProcessId, listener: ProcessId, path: Option<Path>) -> Self {
        Self { dialler, listener, path, ends: [Knowledge::Unheard; 2], broken: false }
    }

    /// The process at an end.
    pub(super) const fn at(&self, end: End) -> ProcessId {
        match end {
            End::Dialler => self.dialler,
            End::Listener => self.listener,
        }
    }

    /// The end of a process.
    pub(super) fn end_of(&self, process: ProcessId) -> End {
        if process == self.dialler { End::Dialler } else { End::Listener }
    }

    /// The end learns of the connection; false if the end has given it up.
    pub(super) fn open(&mut self, end: End) -> bool {
        let knowledge = &mut self.ends[end as usize];
        let wanted = *knowledge == Knowledge::Unheard;
        if wanted {
            *knowledge = Knowledge::Open;
        }
        wanted
    }

    /// The end closes the connection, or learns that it is gone; false if the end knew already.
    pub(super) fn close(&mut self, end: End) -> bool {
        let knowledge = &mut self.ends[end as usize];
        let news = *knowledge != Knowledge::Closed;
        *knowledge = Knowledge::Closed;
        news
    }

    pub(super) fn is_open(&self, end: End) -> bool {
        self.ends[end as usize] == Knowledge::Open
    }

    /// True if the end does not know the connection yet and has not given it up.
    pub(super) fn is_awaited(&self, end: End) -> bool {
        self.ends[end as usize] == Knowledge::Unheard
    }

    /// Loses everything that is under way.
    pub(super) const fn break_down(&mut self) {
        self.broken = true;
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }
}
