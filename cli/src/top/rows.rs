//! The table of workers: its columns, their order of importance, and the order of the workers.

use std::cmp::Ordering;
use std::time::Duration;

use pstrain_wire::{MemberState, MemberStatus, Status};
use ratatui::layout::Constraint;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table};

use super::Top;
use super::draw::PARTS;
use crate::figures::{count, shortened, span};
use crate::table;
use crate::why::{Usual, WaitsFor};

/// Characters of a bar.
const BAR: usize = 20;
/// Characters of a name that always have space.
const NAME: u16 = 14;

/// The quantity that workers are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Worker,
    Name,
    State,
    Since,
    Step,
    Compute,
    Network,
    Barrier,
    Updates,
    Stale,
    Rtt,
    Again,
}

impl Sort {
    const ALL: [(Self, &'static str); 12] = [
        (Self::Worker, "worker"),
        (Self::Name, "name"),
        (Self::State, "state"),
        (Self::Since, "since"),
        (Self::Step, "step"),
        (Self::Compute, "compute"),
        (Self::Network, "network"),
        (Self::Barrier, "barrier"),
        (Self::Updates, "updates"),
        (Self::Stale, "stale"),
        (Self::Rtt, "rtt"),
        (Self::Again, "again"),
    ];

    fn place(self) -> usize {
        Self::ALL.iter().position(|(sort, _)| *sort == self).unwrap_or(0)
    }

    pub(super) fn next(self) -> Self {
        Self::ALL[(self.place() + 1) % Self::ALL.len()].0
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL[self.place()].1
    }

    /// The order in words.
    pub(super) const fn order(self, is_reversed: bool) -> &'static str {
        match (self, is_reversed) {
            (Self::Worker | Self::Name, false) => "first to last",
            (Self::Worker | Self::Name, true) => "last to first",
            (Self::State, false) => "most urgent first",
            (Self::State, true) => "least urgent first",
            // The highest is the one that is looked for.
            (_, false) => "highest first",
            (_, true) => "lowest first",
        }
    }

    fn compare(self, a: &MemberStatus, b: &MemberStatus) -> Ordering {
        let usual = |of: fn(&Usual) -> Duration| {
            let of = |member| Usual::of(member).map(|usual| of(&usual));
            of(a).cmp(&of(b))
        };
        let tcp = |member: &MemberStatus| member.link.and_then(|link| link.tcp);
        let by = match self {
            Self::Worker => Ordering::Equal,
            Self::Name => by_name(&a.name, &b.name),
            Self::State => urgency(a.state).cmp(&urgency(b.state)),
            Self::Since => a.since.cmp(&b.since),
            Self::Step => usual(Usual::step),
            Self::Compute => usual(|usual| usual.compute),
            Self::Network => usual(|usual| usual.network),
            Self::Barrier => usual(|usual| usual.barrier),
            Self::Updates => a.updates.cmp(&b.updates),
            Self::Stale => a.staleness.cmp(&b.staleness),
            Self::Rtt => tcp(a).map(|tcp| tcp.rtt).cmp(&tcp(b).map(|tcp| tcp.rtt)),
            Self::Again => {
                tcp(a).map(|tcp| tcp.retransmits).cmp(&tcp(b).map(|tcp| tcp.retransmits))
            }
        };
        let is_quantity = !matches!(self, Self::Worker | Self::Name | Self::State);
        let by = if is_quantity { by.reverse() } else { by };
        by.then(a.worker.cmp(&b.worker))
    }
}

/// The order of names: the numbers in them count as numbers, so that `edge-2` is before `edge-10`.
fn by_name(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| -> Vec<(String, Option<u128>)> {
        let digits = |a: &char, b: &char| a.is_ascii_digit() == b.is_ascii_digit();
        let letters: Vec<char> = name.chars().collect();
        let parts = letters.chunk_by(digits).map(|part| part.iter().collect::<String>());
        // A longer number is no number: its digits are compared as text.
        parts.map(|part| (part.clone(), part.parse().ok())).collect()
    };
    let (one, other) = (parts(a), parts(b));
    let apart = one.iter().zip(&other).map(|((a, x), (b, y))| match (x, y) {
        (Some(x), Some(y)) => x.cmp(y),
        _ => a.cmp(b),
    });
    let apart = apart.fold(Ordering::Equal, Ordering::then);
    apart.then(one.len().cmp(&other.len())).then(a.cmp(b))
}

/// The order of states: workers that a person should look at come first.
const fn urgency(state: MemberState) -> u8 {
    match state {
        MemberState::Lost => 0,
        MemberState::CutOff => 1,
        MemberState::Awaited => 2,
        MemberState::Preparing => 3,
        MemberState::Waiting => 4,
        MemberState::Computing => 5,
        _ => 6,
    }
}

/// Returns the workers in the order of the display.
pub(super) fn sorted(top: &Top) -> Vec<&MemberStatus> {
    let mut members: Vec<&MemberStatus> = top.status.members.iter().collect();
    members.sort_by(|a, b| top.sort.compare(a, b));
    if top.is_reversed {
        members.reverse();
    }
    members
}

/// A column: its title, its width, and what it shows.
struct Column {
    title: &'static str,
    width: u16,
    cell: fn(&Status, &MemberStatus, usize) -> Line<'static>,
}

/// All columns. Where the width does not suffice, those with the highest numbers are left out.
const COLUMNS: [(u8, Column); 12] = [
    (0, column("worker", 6, |_, it, _| text(it.worker))),
    (0, column("name", NAME, |_, it, width| text(shortened(&it.name, width)))),
    (4, column("state", 9, |_, it, _| text(it.state))),
    (
        1,
        column("waits for", 25, |status, it, width| {
            text(shortened(&WaitsFor::of(status, it).in_words(), width))
        }),
    ),
    (6, column("since", 7, |_, it, _| text(span(it.since)))),
    (2, column("time of a step", BAR as u16, |_, it, _| usual(it, |usual| bar(usual.shares())))),
    (3, column("step", 7, |_, it, _| usual(it, |usual| text(span(usual.step()))))),
    (
        5,
        column("rtt", 7, |_, it, _| match it.link.and_then(|link| link.tcp) {
            Some(tcp) => text(span(tcp.rtt)),
            None => text("-"),
        }),
    ),
    (7, column("updates", 11, |_, it, _| text(count(it.updates)))),
    (8, column("stale", 6, |_, it, _| text(count(it.staleness)))),
    (
        9,
        column("again", 7, |_, it, _| match it.link.and_then(|link| link.tcp) {
            Some(tcp) => text(count(u64::from(tcp.retransmits))),
            None => text("-"),
        }),
    ),
    (10, column("clock", 11, |_, it, _| text(count(it.clock.0)))),
];

const fn column(
    title: &'static str,
    width: u16,
    cell: fn(&Status, &MemberStatus, usize) -> Line<'static>,
) -> Column {
    Column { title, width, cell }
}

fn text(shown: impl ToString) -> Line<'static> {
    Line::raw(shown.to_string())
}

fn usual(member: &MemberStatus, show: impl FnOnce(&Usual) -> Line<'static>) -> Line<'static> {
    Usual::of(member).map_or_else(|| text("-"), |usual| show(&usual))
}

/// Returns the columns that fit, with their widths; names take the space that is left.
fn fitting(width: u16, names: u16) -> Vec<(&'static Column, u16)> {
    let taken = |kept: &[usize]| {
        kept.iter().map(|number| COLUMNS[*number].1.width + 1).sum::<u16>().saturating_sub(1)
    };
    let spares = COLUMNS.map(|(spare, _)| spare);
    let kept = table::kept(&spares, usize::from(width), |kept| usize::from(taken(kept)));
    let left = width.saturating_sub(taken(&kept));
    let columns = kept.into_iter().map(|number| &COLUMNS[number].1);
    let widths = columns.map(|column| match column.title {
        "name" => (column, NAME + left.min(names.saturating_sub(NAME))),
        _ => (column, column.width),
    });
    widths.collect()
}

/// The table of these workers.
pub(super) fn table(top: &Top, members: &[&MemberStatus], width: u16) -> Table<'static> {
    let names = members.iter().map(|member| member.name.chars().count()).max().unwrap_or(0);
    let columns = fitting(width, u16::try_from(names).unwrap_or(u16::MAX));
    let header = columns.iter().map(|(column, _)| {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match column.title == top.sort.name() {
            true => Line::styled(column.title, style.add_modifier(Modifier::REVERSED)),
            false => Line::styled(column.title, style),
        }
    });
    let header = Row::new(header.collect::<Vec<_>>());
    let rows = members.iter().map(|member| {
        let cells = columns
            .iter()
            .map(|(column, width)| (column.cell)(&top.status, member, usize::from(*width)));
        Row::new(cells.collect::<Vec<_>>())
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    Table::new(rows.collect::<Vec<_>>(), widths).header(header)
}

/// Returns a bar of three parts, whose shares are in percent.
fn bar(shares: [f64; 3]) -> Line<'static> {
    let (mut drawn, mut up_to) = (0, 0.0);
    let parts = PARTS.into_iter().zip(shares).map(|((mark, _, color), share)| {
        up_to += share;
        let end = (up_to / 100.0 * BAR as f64).round() as usize;
        let text = mark.repeat(end.saturating_sub(drawn));
        drawn = end.max(drawn);
        Span::styled(text, Style::new().fg(color))
    });
    Line::from(parts.collect::<Vec<_>>())
}
