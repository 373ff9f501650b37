//! `pstrain why`: which workers the run waits for, and where the time goes.

use std::collections::BTreeMap;

use pstrain_compute::id::WorkerId;
use pstrain_wire::{LinkFigures, MemberState, MemberStatus, Status};
use serde::Serialize;

use super::status;
use crate::args::StatusArgs;
use crate::exit::Ending;
use crate::figures::{bytes, count, counted, span};
use crate::fold::prose;
use crate::table::{self, Column};
use crate::wait_text::waiting;
use crate::why::{ConnectionFlags, Finding, Usual, WaitsFor, verdict, workers_in_words};
use crate::{messages, metric_text};

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Ending> {
    let status = status::of_leader(args.server.way(), args.timeout)?;
    let way = ConnectionFlags::new(args.server.address.to_string(), &args.server.security);
    args.form.print(&View::of(&status, &way), || {
        show(&status, &way, messages::width(), messages::height())
    })?;
    Ok(Ending::Done)
}

#[derive(Serialize)]
struct View<'a> {
    job: &'a str,
    consistency: &'a str,
    /// Which workers wait for which under the consistency.
    rule: &'a str,
    phase: String,
    updates: u64,
    loss: Option<f64>,
    /// The metrics of the last evaluation.
    #[serde(flatten)]
    metrics: BTreeMap<String, f64>,
    wait: Option<status::WaitView>,
    workers: Vec<MemberView<'a>>,
    verdict: Vec<Finding>,
}

#[derive(Serialize)]
struct MemberView<'a> {
    id: WorkerId,
    name: &'a str,
    state: String,
    waits_for: WaitsFor,
    since_s: f64,
    silent_s: Option<f64>,
    gradients: u64,
    dropped: u64,
    /// Gradients that were called off while it computed them.
    called_off: u64,
    staleness: u64,
    /// Number of steps that the times cover. A step is the time from one gradient to the next.
    steps: u32,
    compute_s: f64,
    /// The part of `compute_s` for gradients that were called off.
    called_off_s: f64,
    network_s: f64,
    barrier_s: f64,
    held_by: Vec<HeldView>,
    link: Option<LinkView>,
}

#[derive(Serialize)]
struct HeldView {
    worker: WorkerId,
    waited_s: f64,
}

#[derive(Serialize)]
struct LinkView {
    received_bytes: u64,
    sent_bytes: u64,
    /// Bytes that the operating system has not taken yet.
    queued_bytes: u64,
    /// From TCP, where the kernel reports it.
    rtt_s: Option<f64>,
    rtt_deviation_s: Option<f64>,
    retransmits: Option<u32>,
    unacknowledged_bytes: Option<u64>,
}

impl<'a> View<'a> {
    fn of(status: &'a Status, way: &ConnectionFlags) -> Self {
        Self {
            job: &status.job,
            consistency: &status.consistency,
            rule: &status.rule,
            phase: status.phase.to_string(),
            updates: status.version.0,
            loss: status.loss,
            metrics: metric_text::all_of(status.evaluated.as_ref()),
            wait: status.wait.as_ref().map(status::WaitView::of),
            workers: status.members.iter().map(|member| MemberView::of(status, member)).collect(),
            verdict: verdict(status, way),
        }
    }
}

impl<'a> MemberView<'a> {
    fn of(status: &Status, member: &'a MemberStatus) -> Self {
        let recent = &member.recent;
        let held = recent.held_by.iter().flatten();
        Self {
            id: member.worker,
            name: &member.name,
            state: member.state.to_string(),
            waits_for: WaitsFor::of(status, member),
            since_s: member.since.as_secs_f64(),
            silent_s: (member.state != MemberState::Awaited).then_some(member.silent.as_secs_f64()),
            gradients: member.pushes,
            dropped: member.dropped,
            called_off: member.called_off,
            staleness: member.staleness,
            steps: recent.steps,
            compute_s: recent.spent.compute.as_secs_f64(),
            called_off_s: recent.spent.called_off.as_secs_f64(),
            network_s: recent.spent.network.as_secs_f64(),
            barrier_s: recent.spent.barrier.as_secs_f64(),
            held_by: held
                .map(|held| HeldView { worker: held.by, waited_s: held.waited.as_secs_f64() })
                .collect(),
            link: member.link.as_ref().map(LinkView::of),
        }
    }
}

impl LinkView {
    fn of(link: &LinkFigures) -> Self {
        Self {
            received_bytes: link.received,
            sent_bytes: link.sent,
            queued_bytes: link.queued,
            rtt_s: link.tcp.map(|tcp| tcp.rtt.as_secs_f64()),
            rtt_deviation_s: link.tcp.map(|tcp| tcp.rtt_deviation.as_secs_f64()),
            retransmits: link.tcp.map(|tcp| tcp.retransmits),
            unacknowledged_bytes: link.tcp.map(|tcp| tcp.unacknowledged),
        }
    }
}

/// Most characters of a barrier's workers in the table.
const BARRIER: usize = 21;
/// Fewest workers in the table, if there are as many.
const MIN_ROWS: usize = 4;

/// Formats the findings, then facts and the table of workers, in `height` lines with one for the
/// prompt below, as far as the findings let it.
fn show(status: &Status, way: &ConnectionFlags, width: usize, height: usize) -> String {
    const COLUMNS: [Column<'_>; 12] = [
        Column::text("worker"),
        Column::name("name"),
        Column::text("waits for"),
        Column::number("since").spare(2),
        Column::number("steps").spare(4),
        Column::number("a step"),
        Column::number("compute"),
        Column::number("network"),
        Column::number("barrier"),
        Column::number("rtt").spare(1),
        Column::number("again").spare(3),
        Column::number("unacked").spare(5),
    ];
    let job = format!(
        "{} ({}), {}: {}",
        status.job,
        status.consistency,
        status.phase,
        counted(status.version.0, "update")
    );
    let waits = status.wait.as_ref().map_or_else(|| "for no worker".to_owned(), waiting);
    let facts = [("job", job), ("rule", status.rule.clone()), ("waiting", waits)];
    let facts = table::facts(&facts, width);
    let lines = |text: &str| text.lines().count();
    // The prompt, two empty lines, the header, and two lines of what is left out.
    let around = lines(&facts) + 6;
    let findings = verdict(status, way);
    let left = height.saturating_sub(around + MIN_ROWS.min(status.members.len()));
    let told = told(&findings, width, left);
    let left = height.saturating_sub(around + told.height).max(MIN_ROWS);
    let table = |members: &[&MemberStatus]| {
        let rows = members.iter().map(|member| row(status, member)).collect();
        table::fitting(&COLUMNS, rows, width)
    };
    let mut members = shown(status, &findings, left);
    let mut workers = table(&members);
    // Rows may fold. The header, and the line of columns that are left out, are no rows.
    while members.len() > MIN_ROWS && lines(&workers) > left + 2 {
        members = shown(status, &findings, members.len() - 1);
        workers = table(&members);
    }
    let others = status.members.len() - members.len();
    if others > 0 {
        workers +=
            &format!("\n{} more: pstrain status, top, or --json", counted(others as u64, "worker"));
    }
    [told.text, facts, workers].join("\n\n")
}

/// Findings as text.
struct Told {
    text: String,
    /// Its lines on a terminal.
    height: usize,
}

/// Formats the findings in about `most` lines, and at least the first of them. A cure that several
/// share is told once, after the last of them.
fn told(findings: &[Finding], width: usize, most: usize) -> Told {
    let (mut texts, mut height) = (Vec::new(), 0);
    let mut left = findings;
    while let [Finding { says, cure, .. }, rest @ ..] = left {
        let is_shared = rest.first().is_some_and(|next| next.cure == *cure);
        let cure = Some((cure.as_str(), 2)).filter(|_| !is_shared);
        let sentences: Vec<_> = [(says.as_str(), 0)].into_iter().chain(cure).collect();
        let lines = |(text, indent): &(&str, usize)| prose(text, *indent, width).lines().count();
        let more: usize = sentences.iter().map(lines).sum();
        if !texts.is_empty() && height + more + usize::from(!rest.is_empty()) > most {
            break;
        }
        texts.extend(sentences.into_iter().map(|(text, indent)| table::sentence(text, indent)));
        height += more;
        left = rest;
    }
    if !left.is_empty() {
        let workers: Vec<WorkerId> = left.iter().filter_map(|finding| finding.worker).collect();
        let about = match workers.as_slice() {
            [] => String::new(),
            workers => format!(" about {}", workers_in_words(workers)),
        };
        let more = format!("{} more{about}: --json", counted(left.len() as u64, "finding"));
        height += prose(&more, 0, width).lines().count();
        texts.push(table::sentence(&more, 0));
    }
    Told { text: texts.join("\n"), height }
}

/// The workers for the table, by number: at most `most`, those of the first findings before all
/// others.
fn shown<'a>(status: &'a Status, findings: &[Finding], most: usize) -> Vec<&'a MemberStatus> {
    let rank = |member: &&MemberStatus| {
        let found = findings.iter().position(|finding| finding.worker == Some(member.worker));
        (found.unwrap_or(usize::MAX), member.worker)
    };
    let mut members: Vec<&MemberStatus> = status.members.iter().collect();
    members.sort_by_key(rank);
    members.truncate(most);
    members.sort_by_key(|member| member.worker);
    members
}

/// Describes what a worker waits for, for a cell of the table: many workers are counted, and named
/// by the wait of the run.
fn wait_in_words(waits: &WaitsFor) -> String {
    let words = waits.in_words();
    match waits {
        WaitsFor::Barrier { workers } if words.chars().count() > BARRIER => {
            format!("barrier: {}", counted(workers.len() as u64, "worker"))
        }
        _ => words,
    }
}

fn row(status: &Status, member: &MemberStatus) -> Vec<String> {
    let dash = || "-".to_owned();
    let [step, compute, network, barrier] = match Usual::of(member) {
        None => [(); 4].map(|()| dash()),
        Some(usual) => {
            let [compute, network, barrier] = usual.shares().map(|share| format!("{share:.0} %"));
            [span(usual.step()), compute, network, barrier]
        }
    };
    let tcp = member.link.and_then(|link| link.tcp);
    vec![
        member.worker.to_string(),
        member.name.clone(),
        wait_in_words(&WaitsFor::of(status, member)),
        span(member.since),
        count(u64::from(member.recent.steps)),
        step,
        compute,
        network,
        barrier,
        tcp.map_or_else(dash, |tcp| span(tcp.rtt)),
        tcp.map_or_else(dash, |tcp| count(u64::from(tcp.retransmits))),
        tcp.map_or_else(dash, |tcp| bytes(tcp.unacknowledged)),
    ]
}

#[cfg(test)]
mod tests {
    use pstrain_wire::MemberState;

    use crate::why::tests::{large, way};
    use crate::why::verdict;

    #[test]
    fn the_waits_of_a_large_run_fit_a_narrow_terminal() {
        let text = super::show(&large(24), &way("gw:7070"), 80, 24);
        let (findings, tables) = text.split_once("\n\n").unwrap();
        for line in tables.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{text}");
        }
        assert!(tables.contains("left out at this width: unacked, steps, again, since"), "{text}");
        assert!(!findings.is_empty());
        let wide = super::show(&large(24), &way("gw:7070"), 250, 100);
        assert!(wide.contains("123.46 MB") && wide.contains("123,456"), "{wide}");
        assert_eq!(wide.matches("greenhouse-north-").count(), 24, "all workers: {wide}");
    }

    #[test]
    fn the_findings_about_24_workers_come_first_and_all_fits_a_small_terminal() {
        for lost in [0, 1, 5, 24] {
            let mut status = large(24);
            for member in status.members.iter_mut().rev().take(lost) {
                member.state = MemberState::Lost;
            }
            let (way, findings) = (way("gw:7070"), verdict(&status, &way("gw:7070")));
            let told = super::told(&findings, 80, 10);
            assert!(told.height <= 12, "{lost} lost: {}", told.text);
            let text = super::show(&status, &way, 80, 24);
            // In a pipe each sentence has one line; on a terminal it folds.
            let folded = text.lines().count() - told_lines(&text) + told.height;
            assert!(folded <= 24, "{lost} lost: {folded} lines\n{text}");
            let first = &findings[0].says;
            assert!(text.starts_with(first.as_str()), "{text}");
            if lost > 0 {
                assert!(
                    first.contains(" (greenhouse-") && first.contains(") is lost: "),
                    "{first}"
                );
            }
        }
    }

    fn told_lines(text: &str) -> usize {
        text.split("\n\n").next().map_or(0, |findings| findings.lines().count())
    }
}
