//! The screen of `top`: the job, its curves, a row for each worker, and the findings.

use std::collections::VecDeque;
use std::time::Duration;

use pstrain_wire::MemberStatus;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};

use super::Top;
use crate::metric_text;
use crate::why::{Usual, WaitsFor, span, verdict};

const CURVE_LINES: u16 = 5;
const VERDICT_LINES: u16 = 5;
const MOST_VERDICT_LINES: u16 = 8;
/// Characters of a bar.
const BAR: usize = 20;

/// The parts of a worker's time: mark, name and colour.
const PARTS: [(&str, &str, Color); 3] =
    [("#", "compute", Color::Green), ("~", "network", Color::Yellow), (".", "barrier", Color::Red)];

pub(super) fn draw(top: &Top, frame: &mut Frame<'_>) {
    let (footer, more) = footer(top);
    let lines = VERDICT_LINES.saturating_add(more).min(MOST_VERDICT_LINES);
    let [head, curves, workers, verdict] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(CURVE_LINES),
        Constraint::Fill(1),
        Constraint::Length(lines),
    ])
    .areas(frame.area());
    frame.render_widget(header(top), head);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(curves);
    curve(frame, left, "loss", &top.losses, |loss| format!("{loss:.4}"));
    let main = metric_text::main_of(top.status.evaluated.as_ref());
    let name = main.map_or("evaluation", |(name, _)| name);
    let show = |value| metric_text::shown(name, value);
    curve(frame, right, metric_text::title(name), &top.metrics, show);
    frame.render_widget(table(top), workers);
    frame.render_widget(footer, verdict);
}

fn header(top: &Top) -> Paragraph<'_> {
    let status = &top.status;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rate = top.rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}"));
    let mut legend = vec![Span::raw("a step is ")];
    for (mark, name, color) in PARTS {
        legend.push(Span::styled(format!("{mark} {name}  "), Style::new().fg(color)));
    }
    Paragraph::new(vec![
        Line::from(vec![
            Span::styled(format!("{} ", status.job), bold),
            Span::raw(format!(
                "({}) at {}: {}, up for {}",
                status.consistency,
                top.way.address(),
                status.phase,
                uptime(status.uptime)
            )),
        ]),
        Line::raw(format!(
            "{} updates, {rate} a second; {} of {} samples, epoch {:.2}",
            status.version, status.samples, status.samples_wanted, status.epoch
        )),
        Line::from(legend),
    ])
}

/// Draws a curve with its last value in its title, scaled from its lowest to its highest value.
fn curve(
    frame: &mut Frame<'_>,
    place: Rect,
    name: &str,
    points: &VecDeque<f64>,
    show: impl Fn(f64) -> String,
) {
    const STEPS: f64 = 1000.0;
    /// Height of the lowest point, so that it stays visible.
    const LOWEST: f64 = 125.0;
    let last = points.back().map_or_else(|| "-".into(), |&point| show(point));
    let width = usize::from(place.width.saturating_sub(2));
    let shown = points.iter().skip(points.len().saturating_sub(width));
    let low = shown.clone().copied().fold(f64::INFINITY, f64::min);
    let high = shown.clone().copied().fold(f64::NEG_INFINITY, f64::max);
    let height = |point: f64| {
        let share = if high > low { (point - low) / (high - low) } else { 0.5 };
        (LOWEST + share * (STEPS - LOWEST)) as u64
    };
    let heights: Vec<u64> = shown.map(|&point| height(point)).collect();
    let line = Sparkline::default()
        .block(Block::bordered().title(format!(" {name} {last} ")))
        .max(STEPS as u64)
        .data(heights);
    frame.render_widget(line, place);
}

fn table(top: &Top) -> Table<'_> {
    let header = [
        "worker",
        "name",
        "state",
        "waits for",
        "since",
        "clock",
        "stale",
        "time of a step",
        "step",
        "rtt",
        "again",
    ];
    let widths = [6, 12, 10, 26, 8, 8, 5, BAR as u16, 8, 8, 5].map(Constraint::Length);
    let rows = top.status.members.iter().map(|member| row(top, member));
    Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
}

fn row<'a>(top: &Top, member: &'a MemberStatus) -> Row<'a> {
    let usual = Usual::of(member);
    let tcp = member.link.and_then(|link| link.tcp);
    let dash = || Line::raw("-");
    Row::new([
        Line::raw(member.worker.to_string()),
        Line::raw(member.name.as_str()),
        Line::raw(member.state.to_string()),
        Line::raw(WaitsFor::of(&top.status, member).in_words()),
        Line::raw(span(member.since)),
        Line::raw(member.clock.to_string()),
        Line::raw(member.staleness.to_string()),
        usual.as_ref().map_or_else(dash, |usual| bar(usual.shares())),
        usual.as_ref().map_or_else(dash, |usual| Line::raw(span(usual.step()))),
        tcp.map_or_else(dash, |tcp| Line::raw(span(tcp.rtt))),
        tcp.map_or_else(dash, |tcp| Line::raw(tcp.retransmits.to_string())),
    ])
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

/// Returns the findings, and how many there are beyond the first.
fn footer(top: &Top) -> (Paragraph<'_>, u16) {
    let (mut lines, mut more) = (Vec::new(), 0);
    if let Some(trouble) = &top.trouble {
        lines.push(Line::styled(trouble.as_str(), Style::new().fg(Color::Red)));
    } else {
        // Only the most urgent finding shows its cure here; `why` shows all.
        let mut findings = verdict(&top.status, &top.way).into_iter();
        if let Some(first) = findings.next() {
            lines.push(Line::raw(first.says));
            lines.push(Line::styled(first.cure, Style::new().add_modifier(Modifier::DIM)));
        }
        more = u16::try_from(findings.len()).unwrap_or(u16::MAX);
        lines.extend(findings.map(|finding| Line::raw(finding.says)));
    }
    let text = Paragraph::new(lines).wrap(Wrap { trim: true });
    (text.block(Block::new().title("q quits")), more)
}

/// Formats a duration in whole seconds.
fn uptime(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}
