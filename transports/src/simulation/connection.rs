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

/// A connection between a machine and the server.
#[derive(Debug)]
pub(super) struct Connection {
    /// The machine that dialled.
    pub(super) machine: usize,
    /// Which of its processes did.
    pub(super) life: u32,
    ends: [Knowledge; 2],
    /// Whether what is under way is lost.
    broken: bool,
}

impl Connection {
    pub(super) const fn new(machine: usize, life: u32) -> Self {
        Self { machine, life, ends: [Knowledge::Unheard; 2], broken: false }
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
