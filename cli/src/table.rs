//! Tables for people.

use comfy_table::{CellAlignment, Table, presets};

use crate::record::{Report, WorkerReport};

/// A plain table with a header; all columns but the first `text` ones are numbers.
pub(crate) fn table(header: &[&str], text: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if number >= text {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Seconds with three digits that matter.
fn seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.3} s") } else { format!("{seconds:.1} s") }
}

/// The report of a run.
pub(crate) fn report(report: &Report) -> String {
    let optional =
        |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".into(), show);
    let staleness = report.staleness;
    let facts = [
        ("ended", report.ended.clone()),
        ("accuracy", optional(report.accuracy, percent)),
        ("loss", optional(report.loss, |loss| format!("{loss:.4}"))),
        ("updates", report.updates.to_string()),
        ("epochs", format!("{:.2}", report.epochs)),
        (
            "staleness",
            format!(
                "mean {:.2}, median {}, p99 {}, max {}",
                staleness.mean, staleness.median, staleness.p99, staleness.max
            ),
        ),
        (
            "fairness",
            optional(report.jain, |index| format!("{index:.3} (Jain's index of the shares)")),
        ),
        ("training time", seconds(report.time_s)),
        ("speed", format!("{:.0} samples/s", report.samples_per_s)),
        ("gradients", sent(report)),
        (
            "mini-batches",
            format!(
                "{} assigned = {} applied + {} discarded + {} lost",
                report.batches.assigned,
                report.batches.applied,
                report.batches.discarded,
                report.batches.lost
            ),
        ),
    ];
    let shaping = report.shaping.map(|shaping| ("shaping", shaping.in_words()));
    let mut text = String::new();
    for (name, value) in facts.into_iter().chain(shaping) {
        text += &format!("{name:<14} {value}\n");
    }
    let recall = report
        .recall
        .iter()
        .map(|(class, recall)| vec![class.clone(), recall.map_or("-".into(), percent)])
        .collect();
    text += "\n";
    text += &table(&["class", "recall"], 1, recall);
    text += "\n\n";
    text += &workers(&report.workers);
    text
}

/// Bytes of the gradients on the wire, with what the filters made of them.
fn sent(report: &Report) -> String {
    let sum = |bytes: fn(&WorkerReport) -> u64| report.workers.iter().map(bytes).sum::<u64>();
    let (pushed, unfiltered) = (sum(|it| it.pushed_bytes), sum(|it| it.unfiltered_bytes));
    match report.bytes_ratio {
        Some(ratio) if pushed != unfiltered => {
            format!("{pushed} bytes sent of {unfiltered} ({})", percent(ratio))
        }
        _ => format!("{pushed} bytes sent"),
    }
}

fn workers(workers: &[WorkerReport]) -> String {
    let rows = workers.iter().map(|worker| {
        vec![
            worker.id.to_string(),
            worker.name.clone(),
            worker.updates.to_string(),
            percent(worker.share),
            worker.samples.to_string(),
            format!("{:.2}", worker.staleness_mean),
            seconds(worker.compute_s),
            seconds(worker.communicate_s),
            seconds(worker.wait_s),
            worker.idleness.map_or_else(|| "-".into(), percent),
        ]
    });
    let header = [
        "worker",
        "name",
        "updates",
        "share",
        "samples",
        "staleness",
        "compute",
        "communicate",
        "wait",
        "idle",
    ];
    table(&header, 2, rows.collect())
}
