//! Text tables for the terminal.

use comfy_table::{CellAlignment, Table, presets};

use crate::metric_text;
use crate::record::{ClassRecall, Quality, Report, TargetReport, WorkerReport};

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

/// Returns name and value of each fact about the quality of a model. The main metric, or
/// else the loss, names the evaluation rows.
pub(crate) fn quality(quality: &Quality) -> Vec<(&str, String)> {
    let dash = || String::from("-");
    let worst =
        |ClassRecall { name, recall }: &ClassRecall| format!("{name}, recall {}", percent(*recall));
    let metrics = quality.metrics.iter().enumerate().map(|(place, (name, value))| {
        let text = value.map_or_else(dash, |value| match metric_text::shown(name, value) {
            main if place == 0 => format!("{main} of {}", quality.evaluation),
            other => other,
        });
        (metric_text::title(name), text)
    });
    let classes = quality
        .classes
        .iter()
        .map(|classes| ("worst class", classes.worst_class.as_ref().map_or_else(dash, worst)));
    let loss = quality.loss.map_or_else(dash, |loss| match quality.metrics.is_empty() {
        true => format!("{loss:.4} of {}", quality.evaluation),
        false => format!("{loss:.4}"),
    });
    metrics.chain(classes).chain([("loss", loss)]).collect()
}

/// Formats the recall of each class, if classes are predicted.
pub(crate) fn recall(quality: &Quality) -> Option<String> {
    let share = |recall: &Option<f64>| recall.map_or_else(|| "-".into(), percent);
    let recall = &quality.classes.as_ref()?.recall;
    let rows = recall.iter().map(|(class, recall)| vec![class.clone(), share(recall)]);
    Some(table(&["class", "recall"], 1, rows.collect()))
}

/// Most classes of a confusion matrix that a terminal shows.
const SHOWN_CLASSES: usize = 16;

/// Formats the confusion matrix, if classes are predicted, and not too many: a row for each class,
/// with the number of its rows that were predicted to be of each class.
pub(crate) fn confusion(quality: &Quality) -> Option<String> {
    let confusion = &quality.classes.as_ref()?.confusion;
    if !(1..=SHOWN_CLASSES).contains(&confusion.len()) {
        return None;
    }
    let header: Vec<&str> =
        ["class, predicted:"].into_iter().chain(confusion.keys().map(String::as_str)).collect();
    let rows = confusion.iter().map(|(class, counts)| {
        [class.clone()].into_iter().chain(counts.values().map(u64::to_string)).collect()
    });
    Some(table(&header, 1, rows.collect()))
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
    let target = report.target.as_ref().map(|target| ("target", reached(target)));
    let facts = [ended]
        .into_iter()
        .chain(target)
        .chain(quality(&report.quality))
        .chain(facts)
        .chain(shaping);
    for (name, value) in facts {
        text += &format!("{name:<14} {value}\n");
    }
    text += "\n";
    if let Some(recall) = recall(&report.quality) {
        text += &recall;
        text += "\n\n";
    }
    text += &workers(&report.workers);
    text
}

fn reached(target: &TargetReport) -> String {
    let TargetReport { goal, update, time_s, epochs } = target;
    match (update, time_s, epochs) {
        (Some(update), Some(time), Some(epochs)) => {
            format!("{goal} at update {update}, after {} and {epochs:.2} epochs", seconds(*time))
        }
        _ => format!("{goal} was not reached"),
    }
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
    use pstrain_data::EvaluationRows;

    use super::*;
    use crate::record::ClassQuality;

    #[test]
    fn accuracy_names_its_rows_and_the_worst_class_stands_below() {
        let source = String::from("KDDTrain+.txt");
        let known = Quality {
            metrics: vec![("accuracy".into(), Some(0.8)), ("macro_f1".into(), Some(0.5))],
            classes: Some(ClassQuality {
                worst_class: Some(ClassRecall { name: "U2R".into(), recall: 0.125 }),
                ..ClassQuality::default()
            }),
            evaluation: EvaluationRows { rows: 6298, source, share: Some(0.25) },
            loss: Some(0.5),
        };
        let wanted = [
            "accuracy 80.00 % of 6,298 evaluation rows, 25 % of KDDTrain+.txt",
            "macro F1 50.00 %",
            "worst class U2R, recall 12.50 %",
            "loss 0.5000",
        ];
        let found = quality(&known).into_iter().map(|(name, text)| format!("{name} {text}"));
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }
}
