//! Text tables for the terminal.

use comfy_table::{CellAlignment, Table, presets};

use crate::record::{ClassRecall, Quality, Report, WorkerReport};

/// Formats a table with a header; all columns but the first `text` ones are numbers.
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

/// Formats a share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Formats seconds with three decimals below 10 s, else with one.
fn seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.3} s") } else { format!("{seconds:.1} s") }
}

/// Returns name and value of each fact about the quality of a model.
pub(crate) fn quality(quality: &Quality) -> [(&'static str, String); 4] {
    let dash = || String::from("-");
    let accuracy = |share| format!("{} of {}", percent(share), quality.evaluation);
    let worst =
        |ClassRecall { name, recall }: &ClassRecall| format!("{name}, recall {}", percent(*recall));
    [
        ("accuracy", quality.accuracy.map_or_else(dash, accuracy)),
        ("macro F1", quality.macro_f1.map_or_else(dash, percent)),
        ("worst class", quality.worst_class.as_ref().map_or_else(dash, worst)),
        ("loss", quality.loss.map_or_else(dash, |loss| format!("{loss:.4}"))),
    ]
}

/// Formats the recall of each class.
pub(crate) fn recall(quality: &Quality) -> String {
    let share = |recall: &Option<f64>| recall.map_or_else(|| "-".into(), percent);
    let rows = quality.recall.iter().map(|(class, recall)| vec![class.clone(), share(recall)]);
    table(&["class", "recall"], 1, rows.collect())
}

/// Formats the report of a run.
pub(crate) fn report(report: &Report) -> String {
    let optional =
        |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".into(), show);
    let staleness = report.staleness;
    let facts = [
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
    let ended = ("ended", report.ended.clone());
    let facts = [ended].into_iter().chain(quality(&report.quality)).chain(facts).chain(shaping);
    for (name, value) in facts {
        text += &format!("{name:<14} {value}\n");
    }
    text += "\n";
    text += &recall(&report.quality);
    text += "\n\n";
    text += &workers(&report.workers);
    text
}

/// Formats the bytes of gradients on the wire, next to the bytes without filters if they differ.
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
            seconds(worker.network_s),
            seconds(worker.barrier_s),
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
        "network",
        "barrier",
        "idle",
    ];
    table(&header, 2, rows.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pstrain_data::EvaluationRows;

    use super::*;

    #[test]
    fn accuracy_names_its_rows_and_the_worst_class_stands_below() {
        let source = String::from("KDDTrain+.txt");
        let known = Quality {
            accuracy: Some(0.8),
            macro_f1: Some(0.5),
            worst_class: Some(ClassRecall { name: "U2R".into(), recall: 0.125 }),
            evaluation: EvaluationRows { rows: 6298, source, share: Some(0.25) },
            loss: Some(0.5),
            recall: BTreeMap::new(),
        };
        let wanted = [
            "accuracy 80.00 % of 6,298 evaluation rows, 25 % of KDDTrain+.txt",
            "macro F1 50.00 %",
            "worst class U2R, recall 12.50 %",
            "loss 0.5000",
        ];
        assert_eq!(quality(&known).map(|(name, text)| format!("{name} {text}")), wanted);
    }
}
