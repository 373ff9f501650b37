//! The modelled network: links between processes, and the access link of a process.

use std::collections::BTreeMap;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_wire::{Message, frame_len};

use super::ProcessId;
use super::access::{AccessLink, LinkUsage};
use super::connection::End;
use super::traffic::Item;
use crate::scenario::{LinkModel, LinkSpec, Loss, Rate, WorkerLink};

/// Size of an opening or closing segment: TCP without data.
const EMPTY_SEGMENT_BYTES: u64 = 60;

/// Most links between two processes: one of each, and one of the site of each.
const MOST_LEGS: usize = 4;

/// A link of a network, by the order in which links were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId(usize);

/// Links between processes.
///
/// Two processes without a link between them reach each other without delay. Connections over one
/// link share its rate; all connections of a process share its access link.
#[derive(Debug, Default)]
pub struct Network {
    links: Vec<Link>,
    paths: BTreeMap<(ProcessId, ProcessId), Path>,
    access: BTreeMap<ProcessId, Access>,
    /// Bytes of a gradient or of parameters, instead of their own size.
    weight: Option<u64>,
    scratch: Vec<u8>,
}

/// A link, with both its directions.
#[derive(Debug)]
struct Link {
    up: Direction,
    down: Direction,
}

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    model: LinkModel,
    /// The time on the link depends on the size.
    weighs: bool,
    /// Bytes that were sent over it, if they are counted.
    bytes: Option<u64>,
}

impl Direction {
    /// When so many bytes that are sent at a time have come out; counts them.
    fn send(&mut self, at: Time, bytes: u64) -> Time {
        self.bytes.iter_mut().for_each(|sum| *sum += bytes);
        self.model.send(at, bytes)
    }
}

/// The routes of a connection, towards its listener and towards its dialler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    to_listener: Route,
    to_dialler: Route,
}

/// The legs that items go over, in order.
#[derive(Clone, Copy, Debug)]
struct Route([Option<Leg>; MOST_LEGS]);

/// A link, in the direction in which items go over it.
#[derive(Clone, Copy, Debug)]
struct Leg {
    link: LinkId,
    is_up: bool,
}

impl Route {
    /// Up some links, and down others.
    fn over(up: &[LinkId], down: &[LinkId]) -> Self {
        let up = up.iter().map(|link| Leg { link: *link, is_up: true });
        let down = down.iter().rev().map(|link| Leg { link: *link, is_up: false });
        let (mut route, mut legs) = (Self([None; MOST_LEGS]), up.chain(down));
        route.0.iter_mut().for_each(|leg| *leg = legs.next());
        assert!(legs.next().is_none(), "a route over more than {MOST_LEGS} links");
        route
    }

    fn legs(self) -> impl Iterator<Item = Leg> {
        self.0.into_iter().flatten()
    }
}

impl Path {
    /// True if a path towards an end has more legs than have been passed.
    pub(super) fn has(self, end: End, passed: usize) -> bool {
        self.to(end).legs().count() > passed
    }

    const fn to(self, end: End) -> Route {
        match end {
            End::Listener => self.to_listener,
            End::Dialler => self.to_dialler,
        }
    }
}

/// The link that all connections of a process share, in each direction.
#[derive(Debug)]
struct Access {
    into: Option<AccessLink>,
    out: Option<AccessLink>,
}

/// When an item is where.
#[derive(Debug)]
pub(super) struct Departure {
    /// When its first bytes come out of the link.
    pub(super) begin: Time,
    /// When it has come out of the link.
    pub(super) end: Time,
    /// Its size, where the time depends on it; 0 elsewhere.
    pub(super) bytes: u64,
    /// It comes in parts if it is under way for long.
    pub(super) in_parts: bool,
}

impl Network {
    /// A network without links, in which a gradient or parameters have `weight` bytes if given.
    #[must_use]
    pub fn new(weight: Option<u64>) -> Self {
        Self { weight, ..Self::default() }
    }

    /// Adds a link; `number` tells its random stream from the other links'.
    pub fn add(&mut self, spec: WorkerLink, number: u32, stream: Stream) -> LinkId {
        let weighs = |link: &LinkSpec| {
            link.rate.is_some() || link.slow_start || link.loss != Loss::default()
        };
        let [up_weighs, down_weighs] = [&spec.up, &spec.down].map(weighs);
        let (up, down) = spec.pipes(WorkerId(number), stream);
        let up = Direction { model: up, weighs: up_weighs, bytes: None };
        let down = Direction { model: down, weighs: down_weighs, bytes: None };
        self.links.push(Link { up, down });
        LinkId(self.links.len() - 1)
    }

    /// Counts the bytes that go over a link.
    pub fn count(&mut self, link: LinkId) {
        let Link { up, down } = &mut self.links[link.0];
        (up.bytes, down.bytes) = (Some(0), Some(0));
    }

    /// The bytes that went over a link whose bytes are counted: up, down.
    #[must_use]
    pub fn counted(&self, link: LinkId) -> [u64; 2] {
        let Link { up, down } = &self.links[link.0];
        [up, down].map(|direction| direction.bytes.unwrap_or_default())
    }

    /// Joins two processes by a link that leads up from `below` to `above`.
    pub fn join(&mut self, below: ProcessId, above: ProcessId, link: LinkId) {
        self.join_over((below, &[link]), (above, &[]));
    }

    /// Joins two processes that each have links, in order, up to a common switch: items go up the
    /// links of the one and down the links of the other, and over none that both have.
    ///
    /// # Panics
    /// If items have to go over more than four links, or over none.
    pub fn join_over(&mut self, one: (ProcessId, &[LinkId]), other: (ProcessId, &[LinkId])) {
        let ((one, its), (other, theirs)) = (one, other);
        let common = its.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| a == b).count();
        let (its, theirs) = (&its[..its.len() - common], &theirs[..theirs.len() - common]);
        assert!(its.len() + theirs.len() > 0, "no link between two processes");
        let (there, back) = (Route::over(its, theirs), Route::over(theirs, its));
        self.paths.insert((one, other), Path { to_listener: there, to_dialler: back });
        self.paths.insert((other, one), Path { to_listener: back, to_dialler: there });
    }

    /// Gives a process an access link.
    pub fn give_access(&mut self, process: ProcessId, into: Option<Rate>, out: Option<Rate>) {
        let [into, out] = [into, out].map(|rate| rate.map(AccessLink::new));
        self.access.insert(process, Access { into, out });
    }

    /// The use of a process's access link: into it, out of it.
    #[must_use]
    pub fn usage(&self, process: ProcessId) -> [Option<LinkUsage>; 2] {
        let usage = |link: &Option<AccessLink>| link.as_ref().map(|link| link.usage().clone());
        let access = self.access.get(&process);
        access.map_or([None, None], |access| [usage(&access.into), usage(&access.out)])
    }

    /// The path of a connection that `dialler` opens to `listener`.
    pub(super) fn path(&self, dialler: ProcessId, listener: ProcessId) -> Option<Path> {
        self.paths.get(&(dialler, listener)).copied()
    }

    /// The first leg of a path towards an end.
    fn first(&mut self, path: Path, to: End) -> &mut Direction {
        let [first, ..] = path.to(to).0;
        self.leg(first.unwrap_or_else(|| unreachable!("a path has a link")))
    }

    fn leg(&mut self, Leg { link, is_up }: Leg) -> &mut Direction {
        let link = &mut self.links[link.0];
        if is_up { &mut link.up } else { &mut link.down }
    }

    /// A connection opens: the path towards an end begins with a new congestion window.
    pub(super) fn reconnect(&mut self, path: Option<Path>, to: End) {
        if let Some(path) = path {
            path.to(to).legs().for_each(|leg| self.leg(leg).model.reconnect());
        }
    }

    /// True if the first leg towards an end is open at a time, and not in an outage.
    pub(super) fn is_open(&mut self, path: Option<Path>, to: End, at: Time) -> bool {
        path.is_none_or(|path| self.first(path, to).model.is_open(at))
    }

    /// True if an item that has passed so many legs of a path passes another one, or the access
    /// link of the process at its end.
    pub(super) fn goes_on(
        &self,
        (path, end): (Option<Path>, End),
        passed: usize,
        process: ProcessId,
    ) -> bool {
        path.is_some_and(|path| path.has(end, passed))
            || self.access.get(&process).is_some_and(|access| access.into.is_some())
    }

    /// An item leaves `from`, over its access link and the first leg towards an end.
    pub(super) fn depart(
        &mut self,
        now: Time,
        (from, to): (ProcessId, ProcessId),
        (path, end): (Option<Path>, End),
        item: &Item,
    ) -> Departure {
        let weighs = path.is_some_and(|path| self.first(path, end).weighs);
        let counts = path.is_some_and(|path| self.first(path, end).bytes.is_some());
        let leaves = self.access.get(&from).is_some_and(|access| access.out.is_some());
        let in_parts = weighs || leaves || self.goes_on((path, end), 1, to);
        let bytes = if in_parts || counts { self.bytes(item) } else { 0 };
        let exit = self.access.get_mut(&from).and_then(|access| access.out.as_mut());
        let mut departure = Departure { begin: now, end: now, bytes, in_parts };
        if let Some(exit) = exit {
            departure.end = exit.pass(now, bytes);
        }
        if let Some(path) = path {
            let first = self.first(path, end);
            departure.end = first.send(departure.end, bytes);
            departure.begin = first.model.first_bytes(now);
        }
        departure
    }

    /// When an item that has passed so many legs of a path has passed the next one; after the last,
    /// the access link of the process.
    pub(super) fn pass(
        &mut self,
        now: Time,
        (path, end): (Option<Path>, End),
        passed: usize,
        (process, bytes): (ProcessId, u64),
    ) -> Time {
        let leg = path.and_then(|path| path.to(end).legs().nth(passed));
        if let Some(leg) = leg {
            return self.leg(leg).send(now, bytes);
        }
        let access = self.access.get_mut(&process);
        let entrance = access.and_then(|access| access.into.as_mut());
        entrance.map_or(now, |entrance| entrance.pass(now, bytes))
    }

    /// Bytes of an item on the wire.
    fn bytes(&mut self, item: &Item) -> u64 {
        let Item::Message(message) = item else { return EMPTY_SEGMENT_BYTES };
        let bytes = frame_len(message, &mut self.scratch);
        match (self.weight, message) {
            (Some(weight), Message::Push(_) | Message::Parameters(_)) => {
                bytes - message.payload().len() as u64 + weight
            }
            _ => bytes,
        }
    }
}
