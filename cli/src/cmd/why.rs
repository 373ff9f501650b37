//! `pstrain why`: which workers the run waits for, and where the time goes.

use std::collections::BTreeMap;

use pstrain_compute::id::WorkerId;
use pstrain_wire::{LinkFigures, MemberState, MemberStatus, Status};
use serde::Serialize;

use super::status;
use crate::args::StatusArgs;
use crate::exit::Ending;
use crate::figures::{bytes, count, counted, span};
use crate::table::{self, Column};
use crate::wait_text::waiting;
use crate::why::{ConnectionFlags, Finding, Usual, WaitsFor, verdict};
use crate::{messages, metric_text};

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Ending> {
    let status = status::of_leader(args.server.way(), args.timeout)?;
    let way = ConnectionFlags::new(args.server.address.to_string(), &args.server.security);
    args.form.print(&View::of(&status, &way), || show(&status, &way, messages::width()))?;
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
    staleness: u64,
    /// Number of steps that the times cover. A step is the time from one gradient to the next.
    steps: u32,
    compute_s: f64,
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
            staleness: member.staleness,
            steps: recent.steps,
            compute_s: recent.spent.compute.as_secs_f64(),
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

fn show(status: &Status, way: &ConnectionFlags, width: usize) -> String {
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
    let rows = status.members.iter().map(|member| row(status, member)).collect();
    let tables = [table::facts(&facts, width), table::fitting(&COLUMNS, rows, width)];
    let mut text = tables.join("\n\n") + "\n\n";
    let mut findings = verdict(status, way).into_iter().peekable();
    while let Some(Finding { says, cure, .. }) = findings.next() {
        text += &table::sentence(&says, 0);
        text += "\n";
        // A cure that several findings share is printed once, after the last of them.
        if findings.peek().is_none_or(|next| next.cure != cure) {
            text += &table::sentence(&cure, 2);
            text += "\n";
        }
    }
    text
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
        WaitsFor::of(status, member).in_words(),
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
    use crate::why::tests::{large, way};

    #[test]
    fn the_waits_of_a_large_run_fit_a_narrow_terminal() {
        let text = super::show(&large(24), &way("gw:7070"), 80);
        let (tables, findings) = text.rsplit_once("\n\n").unwrap();
        for line in tables.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{text}");
        }
        assert!(tables.contains("left out at this width: unacked, steps, again, since"), "{text}");
        assert!(!findings.is_empty());
        let wide = super::show(&large(24), &way("gw:7070"), 250);
        assert!(wide.contains("123.46 MB") && wide.contains("123,456"), "{wide}");
    }
}
