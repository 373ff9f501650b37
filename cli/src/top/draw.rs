//! The screen of `top`: the job, its curves, a row for each worker, and the findings.

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::curve::{self, Curve};
use super::{Top, rows};
use crate::figures::{count, counted, elapsed};
use crate::fold::prose;
use crate::why::verdict;
use crate::{figures, metric_text, table};

const HEADER_LINES: u16 = 3;
/// Fewest lines of the curves; where there are fewer, workers take them.
const CURVE_LINES: u16 = 5;
/// Height of a terminal below which there is no space for curves.
const LOW: u16 = 16;
/// The share of the height for findings, and their fewest lines.
const FINDINGS: (u16, u16) = (3, 4);

/// The parts of a worker's time: mark, name and colour.
pub(super) const PARTS: [(&str, &str, Color); 3] =
    [("#", "compute", Color::Green), ("~", "network", Color::Yellow), (".", "barrier", Color::Red)];

pub(super) fn draw(top: &mut Top, frame: &mut Frame<'_>) {
    let area = frame.area();
    let findings = findings(top, area);
    // The header of the table, and the line that counts its workers.
    let wanted = u16::try_from(top.status.members.len()).unwrap_or(u16::MAX).saturating_add(2);
    let fixed = HEADER_LINES + findings.len() as u16 + 1;
    let left = area.height.saturating_sub(fixed);
    let curves = match area.height {
        0..LOW => 0,
        // All lines that workers do not need, and two fifths of them in any case.
        _ => left.saturating_sub(wanted).max(left * 2 / 5).max(CURVE_LINES),
    };
    let [head, curves, workers, more, text, keys] = Layout::vertical([
        Constraint::Length(HEADER_LINES),
        Constraint::Length(curves),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(findings.len() as u16),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(header(top, area.width), head);
    draw_curves(top, frame, curves);
    draw_workers(top, frame, workers, more);
    frame.render_widget(Paragraph::new(findings), text);
    frame.render_widget(help(top, area.width), keys);
}

fn header(top: &Top, width: u16) -> Paragraph<'static> {
    let status = &top.status;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut legend = vec![Span::raw("a step is ")];
    for (mark, name, color) in PARTS {
        legend.push(Span::styled(format!("{mark} {name}  "), Style::new().fg(color)));
    }
    let rate = top.rate.map(|(updates, _)| match updates {
        many if many >= 100.0 => format!("{} a second", figures::rounded(many)),
        few => format!("{few:.1} a second"),
    });
    let done = [
        (0, counted(status.version.0, "update")),
        (1, rate.unwrap_or_else(|| "- a second".into())),
        (0, format!("epoch {:.2}", status.epoch)),
        (2, format!("{} of {} samples", count(status.samples), count(status.samples_wanted))),
    ];
    Paragraph::new(vec![
        Line::from(vec![
            Span::styled(format!("{} ", status.job), bold),
            Span::raw(format!(
                "({}) at {}: {}, up for {}",
                status.consistency,
                top.way.address(),
                status.phase,
                elapsed(Duration::from_secs(status.uptime.as_secs()))
            )),
        ]),
        Line::raw(table::line(&done, ", ", usize::from(width))),
        Line::from(legend),
    ])
}

fn draw_curves(top: &Top, frame: &mut Frame<'_>, place: Rect) {
    if place.height == 0 {
        return;
    }
    let [left, _, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)])
            .areas(place);
    let name = "loss of the last mini-batches".to_owned();
    let show = |loss: f64| format!("{loss:.4}");
    curve::draw(&Curve { name, points: &top.losses, show: &show }, frame, left);
    let main = metric_text::main_of(top.status.evaluated.as_ref());
    let main = main.map(|(name, _)| name);
    let show = |value| metric_text::shown(main.unwrap_or_default(), value);
    let name = main.map_or_else(
        || "evaluation".to_owned(),
        |name| format!("{} of the held-out rows", metric_text::title(name)),
    );
    curve::draw(&Curve { name, points: &top.metrics, show: &show }, frame, right);
}

/// Draws the workers that have space, and counts the others below.
fn draw_workers(top: &mut Top, frame: &mut Frame<'_>, place: Rect, below: Rect) {
    top.page = usize::from(place.height.saturating_sub(1)).max(1);
    let all = top.status.members.len();
    // After resizing, no line stays empty while a worker is out of view.
    top.first = top.first.min(all.saturating_sub(top.page));
    let members = rows::sorted(top);
    let shown: Vec<_> = members.into_iter().skip(top.first).take(top.page).collect();
    let after = all.saturating_sub(top.first + shown.len());
    frame.render_widget(rows::table(top, &shown, place.width), place);
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    for member in &top.status.members {
        *states.entry(member.state.to_string()).or_default() += 1;
    }
    let states = states.iter().map(|(state, workers)| format!("{} {state}", count(*workers)));
    let mut text = vec![
        (after > 0, format!("{} more", count(after as u64))),
        (top.first > 0, format!("{} above", count(top.first as u64))),
    ];
    text.push((
        true,
        format!("{}: {}", counted(all as u64, "worker"), states.collect::<Vec<_>>().join(", ")),
    ));
    let text = text.into_iter().filter_map(|(is_shown, text)| is_shown.then_some(text));
    let dim = Style::new().add_modifier(Modifier::DIM);
    let line = Line::styled(text.collect::<Vec<_>>().join("; "), dim);
    frame.render_widget(Paragraph::new(line), below);
}

/// The findings as lines of the screen, the first with its cure; `why` shows all.
fn findings(top: &Top, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let lines = |text: &str, style: Style| {
        let folded = prose(text, 0, width);
        folded.lines().map(|line| Line::styled(line.to_owned(), style)).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    if let Some(trouble) = &top.trouble {
        all.extend(lines(trouble, Style::new().fg(Color::Red)));
    } else {
        for (place, finding) in verdict(&top.status, &top.way).into_iter().enumerate() {
            all.extend(lines(&finding.says, Style::new()));
            if place == 0 {
                all.extend(lines(&finding.cure, Style::new().add_modifier(Modifier::DIM)));
            }
        }
    }
    let (share, least) = FINDINGS;
    let most = usize::from((area.height / share).max(least));
    if all.len() > most {
        let hidden = all.len() - (most - 1);
        all.truncate(most - 1);
        all.push(Line::raw(format!("{hidden} more lines: pstrain why {}", top.way.address())));
    }
    all
}

fn help(top: &Top, width: u16) -> Line<'static> {
    let keys = [
        (0, "q quits".to_owned()),
        (0, format!("s sorts: {}, {}", top.sort.name(), top.sort.order(top.is_reversed))),
        (1, "r reverses".to_owned()),
        (1, "arrows, PgUp, PgDn, Home, End scroll".to_owned()),
    ];
    let text = table::line(&keys, "  ", usize::from(width));
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}
