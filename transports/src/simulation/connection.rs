//! A connection in virtual time: what each end knows of it.

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Server,
    Worker,
}

impl End {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Server => Self::Worker,
            Self::Worker => Self::Server,
        }
    }
}

/// What an end knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// It has not heard of the connection yet.
    Unheard,
    Open,
    Closed,
}

/// Who dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A process of a machine: the machine, and which of its processes.
    Machine(usize, u32),
    /// A server that does not coordinate.
    Follower(usize),
    /// The server, or its standby: which of the two.
    Replica(usize),
}

/// A connection to a server. The end that dialled is the worker's, also where a server did.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) caller: Caller,
    /// The server that was dialled; 0 is the coordinator.
    pub(super) callee: usize,
    ends: [Knowledge; 2],
    /// Whether what is under way is lost.
    broken: bool,
}

impl Connection {
    pub(super) const fn new(caller: Caller, callee: usize) -> Self {
        Self { caller, callee, ends: [Knowledge::Unheard; 2], broken: false }
    }

    /// The machine that dialled, if one did.
    pub(super) const fn machine(&self) -> Option<usize> {
        match self.caller {
            Caller::Machine(machine, _) => Some(machine),
            Caller::Follower(_) | Caller::Replica(_) => None,
        }
    }

    /// The server at an end, if there is one.
    pub(super) const fn server_at(&self, end: End) -> Option<usize> {
        match (end, self.caller) {
            (End::Server, _) => Some(self.callee),
            (End::Worker, Caller::Follower(place)) => Some(1 + place),
            (End::Worker, Caller::Replica(seat)) => Some(seat),
            (End::Worker, Caller::Machine(..)) => None,
        }
    }

    /// The end hears of the connection; false if it does not want it any more.
    pub(super) fn open(&mut self, end: End) -> bool {
        let knowledge = &mut self.ends[end as usize];
        let wanted = *knowledge == Knowledge::Unheard;
        if wanted {
            *knowledge = Knowledge::Open;
        }
        wanted
    }

    /// The end closes the connection, or learns that it is gone; false if that is nothing new.
    pub(super) fn close(&mut self, end: End) -> bool {
        let knowledge = &mut self.ends[end as usize];
        let news = *knowledge != Knowledge::Closed;
        *knowledge = Knowledge::Closed;
        news
    }

    /// Whether the end has closed it, or knows that it is gone.
    pub(super) fn is_closed(&self, end: End) -> bool {
        self.ends[end as usize] == Knowledge::Closed
    }

    pub(super) fn is_open(&self, end: End) -> bool {
        self.ends[end as usize] == Knowledge::Open
    }

    /// Whether the end has not heard of the connection and has not given it up.
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
