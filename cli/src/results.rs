//! Results of runs and models as text: first the result in a line, then facts and tables.

use std::collections::BTreeSet;

use pstrain_wire::worker::EndReason;

use crate::energy::{EnergyReport, joules};
use crate::figures::{self, bytes, count, counted, percent, seconds};
use crate::fold::TIE;
use crate::metric_text;
use crate::record::{ClassRecall, Departed, Ended, Quality, Report, TargetReport, WorkerReport};
use crate::table::{self, Column};
use crate::why::CROWDED;

/// Returns name and value of each fact about the quality of a model. The main metric, or
/// else the loss, names the evaluation rows.
pub(crate) fn quality(quality: &Quality) -> Vec<(&str, String)> {
    let dash = || String::from("-");
    let worst =
        |ClassRecall { name, recall }: &ClassRecall| format!("{name}, recall {}", percent(*recall));
    let mut metrics = quality.metrics.iter().enumerate().map(|(place, (name, value))| {
        let text = value.map_or_else(dash, |value| match metric_text::shown(name, value) {
            main if place == 0 => format!("{main} of {}", quality.evaluation),
            other => other,
        });
        (metric_text::title(name), text)
    });
    let classes = quality
        .classes
        .iter()
        // Without an evaluation there are no classes.
        .filter(|classes| !classes.recall.is_empty())
        .map(|classes| ("worst class", classes.worst_class.as_ref().map_or_else(dash, worst)));
    let loss = quality.loss.map_or_else(dash, |loss| match quality.metrics.is_empty() {
        true => format!("{loss:.4} of {}", quality.evaluation),
        false => format!("{loss:.4}"),
    });
    let (mut facts, others): (Vec<_>, Vec<_>) =
        (metrics.by_ref().take(1).collect(), metrics.collect());
    facts.push(("loss", loss));
    facts.into_iter().chain(others).chain(classes).collect()
}

/// Each class with its recall, if classes are predicted.
fn recalls(quality: &Quality) -> Option<impl Iterator<Item = [String; 2]>> {
    let share = |recall: &Option<f64>| recall.map_or_else(|| "-".into(), percent);
    let recall = &quality.classes.as_ref()?.recall;
    Some(recall.iter().map(move |(class, recall)| [class.clone(), share(recall)]))
}

/// Formats the recall of each class as a table, if classes are predicted.
pub(crate) fn recall(quality: &Quality, width: usize) -> Option<String> {
    let rows = recalls(quality)?.map(Vec::from).collect();
    Some(table::table(&["class", "recall"], 1, rows, width))
}

/// The recall of each class as a fact: with a table of it the result of a run would be longer than
/// a terminal.
fn recall_in_line(quality: &Quality) -> Option<(&'static str, String)> {
    let each: Vec<String> = recalls(quality)?.map(|each| each.join(TIE)).collect();
    (!each.is_empty()).then(|| ("recall", each.join(", ")))
}

/// Most classes of a confusion matrix that a terminal shows.
const SHOWN_CLASSES: usize = 16;

/// Formats the confusion matrix, if classes are predicted, and not too many: a row for each class,
/// with the number of its rows that were predicted to be of each class.
pub(crate) fn confusion(quality: &Quality, width: usize) -> Option<String> {
    let confusion = &quality.classes.as_ref()?.confusion;
    if !(1..=SHOWN_CLASSES).contains(&confusion.len()) {
        return None;
    }
    let header: Vec<&str> =
        ["class, predicted:"].into_iter().chain(confusion.keys().map(String::as_str)).collect();
    let rows = confusion.iter().map(|(class, counts)| {
        [class.clone()].into_iter().chain(counts.values().map(|times| count(*times))).collect()
    });
    Some(table::folded(&header, &rows.collect::<Vec<_>>(), width))
}

/// Formats the main metric and the loss, without the rows that they were measured on.
fn main_of(quality: &Quality) -> Option<String> {
    let loss = quality.loss.map(|loss| format!("loss {loss:.4}"));
    let main = quality.metrics.first();
    let metric = main.and_then(|(name, value)| Some(metric_text::named(name, (*value)?)));
    let known: Vec<String> = metric.into_iter().chain(loss).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The result of a run in one line of at most `width` characters, if its main metric fits there:
/// the time and the updates are the first to be left out.
fn headline(report: &Report, width: usize) -> String {
    let ended = match (report.ended, &report.target) {
        (Ended::For(EndReason::BudgetReached), Some(target)) if target.update.is_none() => {
            Some(reached(target))
        }
        (Ended::For(EndReason::BudgetReached), _) => None,
        (ended, _) => Some(ended.in_short()),
    };
    let main = main_of(&report.quality).unwrap_or_else(|| "not evaluated".into());
    let (time, updates) = (seconds(report.time_s), counted(report.updates, "update"));
    let done =
        [format!("{main} after {time} and {updates}"), format!("{main} after {updates}"), main];
    let mut lines = done.map(|done| match &ended {
        Some(ended) => format!("{ended}: {done}"),
        None => done,
    });
    let fits = lines.iter().position(|line| line.chars().count() <= width);
    std::mem::take(&mut lines[fits.unwrap_or(lines.len() - 1)])
}

/// Most departures that a terminal shows, and most characters of the reason for one.
const SHOWN_DEPARTURES: usize = 3;
const SHOWN_REASON: usize = 200;

/// Names the latest departures of workers, each with its reason.
fn departures(departures: &[Departed]) -> Vec<(&'static str, String)> {
    let earlier = departures.len().saturating_sub(SHOWN_DEPARTURES);
    let shown = departures[earlier..].iter().map(|Departed { worker, at_s, how, why }| {
        let (at, why) = (seconds(*at_s), figures::shortened(why, SHOWN_REASON));
        ("departed", format!("worker {worker} {how} at {at}: {why}"))
    });
    let more =
        (earlier > 0).then(|| ("departed", format!("{} before", counted(earlier as u64, "time"))));
    more.into_iter().chain(shown).collect()
}

/// Lines of a terminal around the facts and the workers of a report: the first line and an empty
/// one, an empty one and the head of the table, the columns and the workers that are left out, the
/// last words of the run in two lines, and the prompt.
const AROUND: usize = 9;
/// Fewest workers in the table, if there are as many.
const MIN_ROWS: usize = 2;
/// The facts that a terminal does without if they do not fit there, the first of them first.
const LEAST: [&str; 2] = ["staleness", "recall"];

/// Formats the report of a run. On a terminal of `height` lines it has as many facts and workers as
/// fit there, the slowest ones.
pub(crate) fn report(report: &Report, width: usize, height: Option<usize>) -> String {
    let (staleness, batches) = (report.staleness, report.batches);
    let speed = figures::rounded(report.samples_per_s);
    let time = format!("{}, {speed} samples/s", seconds(report.time_s));
    let facts = [
        ("updates", updates(report)),
        (
            "staleness",
            format!(
                "mean {:.2}, median {}, p99 {}, max {}",
                staleness.mean,
                count(staleness.median),
                count(staleness.p99),
                count(staleness.max)
            ),
        ),
        ("training time", time),
        ("gradients", sent(report)),
        (
            "mini-batches",
            format!(
                "{} assigned = {} applied + {} discarded{} + {} lost",
                count(batches.assigned),
                count(batches.applied),
                count(batches.discarded),
                left_out(batches.left_out),
                count(batches.lost)
            ),
        ),
    ];
    let model = report.model_update.map(|update| {
        ("model", format!("of update {}: later updates are not in it", count(update)))
    });
    let shaping = report.shaping.map(|shaping| ("shaping", shaping.in_words()));
    let ended = [("ended", report.ended.to_string())].into_iter();
    let ended = ended.chain(departures(&report.departures));
    let target = report.target.as_ref().map(|target| ("target", reached(target)));
    let quality = target.into_iter().chain(quality(&report.quality));
    let quality = quality.chain(recall_in_line(&report.quality));
    let called_off = called_off(report).map(|called_off| ("called off", called_off));
    let processors = processors(report).map(|processors| ("processors", processors));
    let facts = facts.into_iter().chain(called_off).chain(shaping).chain(processors);
    let mut facts = ended.chain(quality).chain(model).chain(facts).collect::<Vec<_>>();
    facts.extend(report.energy.as_ref().map(EnergyReport::facts).unwrap_or_default());
    let mut text = table::facts(&facts, width);
    let room =
        |text: &str| height.map(|height| height.saturating_sub(AROUND + text.lines().count()));
    for least in LEAST {
        if room(&text).is_some_and(|rows| rows < MIN_ROWS) {
            facts.retain(|(name, _)| *name != least);
            text = table::facts(&facts, width);
        }
    }
    let most = room(&text).map(|rows| rows.max(MIN_ROWS));
    [headline(report, width), text, workers(report, width, most)].join("\n\n")
}

/// The share of time that threads wait for a processor, if it is long.
fn processors(report: &Report) -> Option<String> {
    let share = report.processor_wait.filter(|share| *share >= CROWDED)?;
    Some(format!("threads wait for one {} of the time: run fewer workers here", percent(share)))
}

/// The gradients that were called off while workers computed them, and the time that this took.
fn called_off(report: &Report) -> Option<String> {
    let gradients: u64 = report.workers.iter().map(|worker| worker.called_off).sum();
    let time: f64 = report.workers.iter().map(|worker| worker.called_off_s).sum();
    (gradients > 0).then(|| {
        let gradients = counted(gradients, "gradient");
        format!("{gradients}, after {} of computing in all", seconds(time))
    })
}

/// The part of the discarded mini-batches that is left out.
fn left_out(batches: u64) -> String {
    match batches {
        0 => String::new(),
        batches => format!(" ({} left out, not finite)", count(batches)),
    }
}

/// The updates, and how evenly the workers' shares in them are spread.
fn updates(report: &Report) -> String {
    let updates = format!("{} in {:.2} epochs", count(report.updates), report.epochs);
    let fairness = report.jain.map(|index| format!(", fairness {index:.3} (Jain's index)"));
    updates + &fairness.unwrap_or_default()
}

fn reached(target: &TargetReport) -> String {
    let TargetReport { goal, update, time_s, epochs } = target;
    match (update, time_s, epochs) {
        (Some(update), Some(time), Some(epochs)) => format!(
            "{goal} at update {}, after {} and {epochs:.2} epochs",
            count(*update),
            seconds(*time)
        ),
        _ => format!("{goal} was not reached"),
    }
}

/// Formats the bytes of gradients on the wire, next to the bytes without filters if they differ.
fn sent(report: &Report) -> String {
    let sum = |bytes: fn(&WorkerReport) -> u64| report.workers.iter().map(bytes).sum::<u64>();
    let (pushed, unfiltered) = (sum(|it| it.pushed_bytes), sum(|it| it.unfiltered_bytes));
    match report.bytes_ratio {
        Some(ratio) if pushed != unfiltered => {
            format!("{} sent of {} ({})", bytes(pushed), bytes(unfiltered), percent(ratio))
        }
        _ => format!("{} sent", bytes(pushed)),
    }
}

/// The table of workers: the slowest `most`, if there are more.
fn workers(report: &Report, width: usize, most: Option<usize>) -> String {
    let modelled = report.energy.as_ref().and_then(|energy| energy.modelled.as_ref());
    let mut rows: Vec<Vec<String>> = report.workers.iter().map(worker_row).collect();
    let mut columns = COLUMNS.to_vec();
    if report.workers.iter().any(|worker| worker.called_off > 0) {
        columns.push(Column::number("called off").spare(1));
        for (row, worker) in rows.iter_mut().zip(&report.workers) {
            row.push(seconds(worker.called_off_s));
        }
    }
    if let Some(modelled) = modelled {
        columns.push(Column::number("energy").spare(1));
        for (row, machine) in rows.iter_mut().zip(&modelled.workers) {
            row.push(joules(machine.joules));
        }
    }
    let others = rows.len().saturating_sub(most.unwrap_or(usize::MAX));
    let left_out = fastest(&report.workers, others);
    let mut place = 0..;
    rows.retain(|_| place.next().is_some_and(|place| !left_out.contains(&place)));
    let more = match others {
        0 => String::new(),
        others => format!("\n{} more: --json", counted(others as u64, "worker")),
    };
    table::fitting(&columns, rows, width) + &more
}

/// The places of the `most` workers that take the least time for an update.
fn fastest(workers: &[WorkerReport], most: usize) -> BTreeSet<usize> {
    let time = |worker: &WorkerReport| {
        (worker.compute_s + worker.network_s) / worker.updates.max(1) as f64
    };
    let mut places: Vec<usize> = (0..workers.len()).collect();
    places.sort_by(|&one, &other| time(&workers[one]).total_cmp(&time(&workers[other])));
    places.into_iter().take(most).collect()
}

/// The columns of the table of workers.
const COLUMNS: [Column<'_>; 10] = [
    Column::text("worker"),
    Column::name("name"),
    Column::number("updates"),
    Column::number("share").spare(2),
    Column::number("samples").spare(4),
    Column::number("staleness").spare(3),
    Column::number("compute"),
    Column::number("network"),
    Column::number("barrier"),
    Column::number("idle").spare(1),
];

fn worker_row(worker: &WorkerReport) -> Vec<String> {
    vec![
        worker.id.to_string(),
        worker.name.clone(),
        count(worker.updates),
        percent(worker.share),
        count(worker.samples),
        format!("{:.2}", worker.staleness_mean),
        seconds(worker.compute_s),
        seconds(worker.network_s),
        seconds(worker.barrier_s),
        worker.idleness.map_or_else(|| "-".into(), percent),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use pstrain_compute::id::WorkerId;
    use pstrain_data::EvaluationRows;
    use pstrain_roles::node::{Departure, Ledger};
    use pstrain_transports::Punctuality;

    use super::*;
    use crate::record::{AgeOfInformation, ClassQuality, Shaping, Staleness};

    /// A worker of a large run.
    fn worker(number: u32) -> WorkerReport {
        WorkerReport {
            id: WorkerId(number),
            name: format!("greenhouse-north-{}.example.org:41234", number + 1),
            updates: 10_000_000,
            samples: 640_000_000,
            share: 1.0 / 24.0,
            rows: Some(1_234_567),
            data_share: Some(1.0 / 24.0),
            staleness_mean: 23.45,
            elapsed_s: 123_456.7,
            compute_s: 98_765.4,
            called_off: 0,
            called_off_s: 0.0,
            network_s: 4_321.0,
            barrier_s: 599.9,
            idleness: Some(0.4567),
            communicate_s: 1.0,
            send_s: None,
            receive_s: None,
            wait_s: 1.0,
            pushed_bytes: 12_345_678_901,
            unfiltered_bytes: 123_456_789_012,
            key_bytes: 0,
            pulled_bytes: 1,
            relayed_bytes: 0,
            age_of_information: AgeOfInformation::default(),
        }
    }

    fn large() -> Report {
        let names = (0..16).map(|class| format!("class-number-{class}"));
        let counts: BTreeMap<String, u64> = names.map(|name| (name, 1_234_567)).collect();
        let confusion = counts.keys().map(|name| (name.clone(), counts.clone())).collect();
        let recall = counts.keys().map(|name| (name.clone(), Some(0.5))).collect();
        let batches = Ledger {
            assigned: 240_000_000,
            applied: 239_999_000,
            discarded: 900,
            left_out: 0,
            lost: 100,
            outstanding: 0,
        };
        let source = String::from("a/long/way/to/the/rows/of/this/greenhouse/rows.csv");
        Report {
            job: "large".into(),
            pstrain: crate::record::BUILD,
            job_sha256: String::new(),
            consistency: "ssp:3".into(),
            transport: "tcp".into(),
            ended: Ended::For(EndReason::BudgetReached),
            target: None,
            quality: Quality {
                metrics: vec![("accuracy".into(), Some(0.912))],
                evaluation: EvaluationRows { rows: 1_234_567, source, share: Some(0.25) },
                loss: Some(0.3),
                classes: Some(ClassQuality { worst_class: None, recall, confusion }),
            },
            objective: None,
            non_zeros: None,
            updates: 10_000_000,
            samples: 640_000_000,
            epochs: 1234.5,
            time_s: 123_456.7,
            samples_per_s: 1_234_567.8,
            updates_per_s: 1_234.5,
            started_s: None,
            first_update_s: None,
            staleness: Staleness { mean: 23.4, median: 23, p99: 1_234, max: 12_345 },
            age_of_information: AgeOfInformation::default(),
            jain: Some(0.987),
            bytes_ratio: Some(0.1),
            batches,
            model_update: None,
            params_sha256: None,
            missing_updates: Vec::new(),
            full_files: Vec::new(),
            departures: Vec::new(),
            processor_wait: None,
            peak_rss_mib: None,
            usage: None,
            workers: (0..24).map(worker).collect(),
            virtual_time: None,
            shaping: None,
            energy: None,
        }
    }

    #[test]
    fn the_report_of_a_large_run_fits_a_narrow_terminal_and_begins_with_the_result() {
        let text = report(&large(), 80, None);
        let confused = confusion(&large().quality, 80).unwrap();
        for line in text.lines().chain(confused.lines()) {
            assert!(line.chars().count() <= 80, "{line}\n{text}\n{confused}");
        }
        let first = "accuracy 91.20 %, loss 0.3000 after 1d 10h and 10,000,000 updates";
        assert_eq!(text.lines().next(), Some(first));
        for words in [
            "gradients      296.30 GB sent of 2.96 TB (10.00 %)",
            "training time  1d 10h, 1,234,568 samples/s",
            "updates        10,000,000 in 1234.50 epochs, fairness 0.987 (Jain's index)",
            "240,000,000 assigned = 239,999,000 applied",
            "24      greenho…:41234  10,000,000",
            "left out at this width: samples",
        ] {
            assert!(text.contains(words), "nothing of {words:?} in\n{text}");
        }
        assert!(report(&large(), 200, None).contains("greenhouse-north-24.example.org:41234"));
    }

    /// The quality of the reference task.
    fn reference() -> Quality {
        let classes = ["DoS", "Normal", "Probe", "R2L", "U2R"];
        let recall = classes.map(|class| (class.to_owned(), Some(0.9555))).into();
        let worst_class = Some(ClassRecall { name: "R2L".into(), recall: 0.0 });
        let source = String::from("synthetic NSL-KDD, 125,973 rows, seed 1");
        Quality {
            metrics: vec![("accuracy".into(), Some(0.9465)), ("macro_f1".into(), Some(0.5465))],
            evaluation: EvaluationRows { rows: 31_493, source, share: Some(0.25) },
            loss: Some(0.1834),
            classes: Some(ClassQuality { worst_class, recall, ..ClassQuality::default() }),
        }
    }

    #[test]
    fn the_report_of_two_workers_fits_a_terminal_of_24_lines_with_its_prompt() {
        let workers = (0..2).map(worker).collect();
        let mut punctuality = Punctuality::default();
        for late in (0..14_790).map(|micros| Duration::from_micros(micros % 4_990)) {
            punctuality.messages.note(late);
            punctuality.batches.note(late);
        }
        punctuality.overruns.note(Duration::from_millis(2));
        let shaping = Shaping::of(&punctuality).unwrap();
        assert_eq!(shaping.stalls, 0);
        let quality = reference();
        let whole = Report { quality, workers, shaping: Some(shaping), ..large() };
        let text = report(&whole, 80, None);
        assert!(text.lines().count() <= 23, "{text}");
        assert!(text.contains("recall         DoS 95.55 %, Normal 95.55 %, Probe"), "{text}");
        assert!(text.contains("\n               U2R 95.55 %\n"), "{text}");
        assert!(text.contains("updates        10,000,000 in 1234.50 epochs, fair"), "{text}");
    }

    #[test]
    fn the_report_of_24_workers_fits_a_terminal_of_24_lines_where_threads_wait_for_processors() {
        let mut whole = Report { quality: reference(), processor_wait: Some(1.0), ..large() };
        whole.workers[16].compute_s *= 4.0;
        let text = report(&whole, 80, Some(24));
        // Below are the last words of the run, in two lines, and the prompt.
        assert!(text.lines().count() <= 21, "{text}");
        let first = "accuracy 94.65 %, loss 0.1834 after 1d 10h and 10,000,000 updates";
        assert_eq!(text.lines().next(), Some(first));
        for words in [
            "\nprocessors     threads wait for one 100.00 % of the time: run fewer workers here\n",
            "\n17      greenho",
            "workers more: --json",
        ] {
            assert!(text.contains(words), "nothing of {words:?} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let in_a_file = report(&whole, 80, None);
        assert_eq!(in_a_file.lines().filter(|line| line.contains("greenho")).count(), 24);
    }

    #[test]
    fn the_first_line_says_how_the_run_ended_and_fits() {
        let first = |ended, width| {
            let text = report(&Report { ended: Ended::For(ended), ..large() }, width, None);
            text.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(
            first(EndReason::Stopped, 80),
            "stopped on request: accuracy 91.20 %, loss 0.3000 after 10,000,000 updates"
        );
        let left = EndReason::WorkerLost(WorkerId(1), Departure::Left);
        let line = "worker 2 has left: accuracy 91.20 %, loss 0.3000 after 10,000,000 updates";
        assert_eq!(first(left, 80), line);
        assert_eq!(first(left, 50), "worker 2 has left: accuracy 91.20 %, loss 0.3000");
        let wide = "worker 2 has left: accuracy 91.20 %, loss 0.3000 after 1d 10h and 10,000,000 \
                    updates";
        assert_eq!(first(left, 100), wide);
    }

    #[test]
    fn departures_have_lines_of_their_own() {
        let departed = |worker| Departed {
            worker: WorkerId(worker),
            at_s: 3.25,
            how: Departure::Left,
            why: format!("no rows in {}", "a/long/way/".repeat(36)),
        };
        let ended = Ended::For(EndReason::WorkerLost(WorkerId(4), Departure::Left));
        let departures = (0..5).map(departed).collect();
        let text = report(&Report { ended, departures, ..large() }, 80, None);
        for words in [
            "ended          worker 5 has left, and on-worker-loss does not let",
            "departed       2 times before",
            "departed       worker 5 has left at 3.250 s: no rows in",
        ] {
            assert!(text.contains(words), "nothing of {words:?} in\n{text}");
        }
        assert!(!text.contains("worker 2 has left"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn accuracy_names_its_rows_and_the_loss_stands_below() {
        let source = String::from("KDDTrain+.txt");
        let known = Quality {
            metrics: vec![("accuracy".into(), Some(0.8)), ("macro_f1".into(), Some(0.5))],
            classes: Some(ClassQuality {
                recall: [("U2R".into(), Some(0.125))].into(),
                worst_class: Some(ClassRecall { name: "U2R".into(), recall: 0.125 }),
                ..ClassQuality::default()
            }),
            evaluation: EvaluationRows { rows: 6298, source, share: Some(0.25) },
            loss: Some(0.5),
        };
        let wanted = [
            "accuracy 80.00 % of 6,298 evaluation rows, 25 % of KDDTrain+.txt",
            "loss 0.5000",
            "macro F1 50.00 %",
            "worst class U2R, recall 12.50 %",
        ];
        let found = quality(&known).into_iter().map(|(name, text)| format!("{name} {text}"));
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }
}
