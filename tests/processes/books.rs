//! Checks that the files of a results folder agree with each other; call [`check_books`] after a
//! run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::cluster::{number, path, real};
use crate::process::finish;

/// The reference page of events.
const EVENTS: &str = include_str!("../../docs/reference/events.md");

/// The keys in a table of the reference page; those of lists without their brackets.
fn keys(table: &str) -> impl Iterator<Item = &str> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(|key| key.trim_end_matches("[]"))
}

/// Checks that the reference page has the kind of an event and its keys.
fn check_documented(event: &Value) {
    let kind = event["event"].as_str().unwrap();
    let mut sections = EVENTS.split("\n## ");
    let of_all = sections.next().unwrap_or_default();
    let section = sections.find(|it| it.split('\n').next() == Some(kind));
    let section = section.unwrap_or_else(|| panic!("the page of events has no {kind}"));
    let documented: BTreeSet<&str> = keys(of_all).chain(keys(section)).collect();
    // NAME: a compute process chooses the names.
    if !documented.contains("NAME") {
        for key in event.as_object().unwrap().keys() {
            assert!(documented.contains(key.as_str()), "the page of events has no {kind}: {key}");
        }
    }
}

/// Reads the events of a results folder, and checks that their reference page has them.
pub(crate) fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).expect(line));
    events.inspect(check_documented).collect()
}

/// Filters the events of kind `name`.
pub(crate) fn called<'a>(events: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["event"] == name)
}

/// A row of timeline.csv: an assigned mini-batch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) worker: u64,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    pub(crate) batch: u64,
    pub(crate) base: u64,
    pub(crate) waited_ns: Option<u64>,
    pub(crate) granted_ns: u64,
    pub(crate) received_ns: Option<u64>,
    pub(crate) sent_ns: Option<u64>,
    pub(crate) pushed_ns: Option<u64>,
    pub(crate) compute_ns: Option<u64>,
    pub(crate) outcome: String,
    pub(crate) version: Option<u64>,
    pub(crate) staleness: Option<u64>,
}

impl Row {
    pub(crate) fn is(&self, outcome: &str) -> bool {
        self.outcome == outcome
    }
}

/// Reads timeline.csv of a results folder.
pub(crate) fn timeline(folder: &Path) -> Vec<Row> {
    let mut file = csv::Reader::from_path(folder.join("timeline.csv")).unwrap();
    file.deserialize().map(|row| row.unwrap()).collect()
}

/// Returns partition and mini-batch of each gradient in order.log.
pub(crate) fn parts(folder: &Path) -> Vec<(u64, u64)> {
    let text = fs::read_to_string(folder.join("order.log")).unwrap();
    let fields = text.lines().skip(1).flat_map(|line| line.split(' ').skip(1));
    let gradient = |gradient: &str| {
        let fields: Option<Vec<u64>> =
            gradient.split(',').map(|field| field.parse().ok()).collect();
        let fields = fields.filter(|fields| fields.len() >= 7)?;
        Some((fields.get(7).copied().unwrap_or(fields[0]), fields[3]))
    };
    fields.filter_map(gradient).collect()
}

/// Reads the gradients of each update in order.log, as
/// `worker,incarnation,sequence,batch,clock,base,samples`.
fn order(folder: &Path) -> Vec<Vec<[u64; 7]>> {
    let text = fs::read_to_string(folder.join("order.log")).unwrap();
    let mut lines = text.lines().skip(1);
    let mut updates = Vec::new();
    while let Some((version, gradients)) = lines.next().and_then(|line| line.split_once(' ')) {
        if version == "mode" || version == "initial" {
            continue;
        }
        if version == "restore" {
            // A version without gradients: an earlier version.
            let (version, _) = gradients.split_once(' ').unwrap();
            assert_eq!(version, (updates.len() + 1).to_string(), "versions without a gap");
            updates.push(Vec::new());
            continue;
        }
        if version == "end" {
            assert_eq!(gradients, updates.len().to_string());
            assert_eq!(lines.next(), None, "the end is the end");
            return updates;
        }
        assert_eq!(version, (updates.len() + 1).to_string(), "versions without a gap");
        // A word after the gradients says that the server had more gradients than these.
        let chosen = [" oldest", " latest"].iter().find_map(|word| gradients.strip_suffix(word));
        // Partition and size follow only where they differ from the defaults.
        let gradient = |gradient: &str| {
            let fields: Vec<u64> =
                gradient.split(',').map(|field| field.parse().unwrap()).collect();
            let part = fields.get(7).copied().unwrap_or(fields[0]);
            (part, <[u64; 7]>::try_from(&fields[..7]).unwrap())
        };
        let gradients: Vec<_> = chosen.unwrap_or(gradients).split(' ').map(gradient).collect();
        assert!(gradients.is_sorted(), "combined in the order of parts and workers: {gradients:?}");
        updates.push(gradients.into_iter().map(|(_, gradient)| gradient).collect());
    }
    panic!("order.log has no end:\n{text}");
}

/// Returns first and last of each range of updates that is missing from summary and order.log.
#[track_caller]
pub(crate) fn missing(folder: &Path, summary: &Value) -> Vec<[u64; 2]> {
    let text = fs::read_to_string(folder.join("order.log")).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("missing "));
    let line = |line: &str| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<_>>();
    let logged: Vec<[u64; 2]> = lines.map(|it| line(it).try_into().unwrap()).collect();
    let told = summary["missing_updates"].as_array().cloned().unwrap_or_default();
    let told: Vec<_> = told.iter().map(|it| [&it["first"], &it["last"]].map(number)).collect();
    assert_eq!(logged, told, "{summary}");
    logged
}

/// Replays order.log and checks that it is complete and ends at identical parameters.
#[track_caller]
pub(crate) fn check_alike(folder: &Path) {
    let order = folder.join("order.log");
    let again = finish(&["replay", path(&order), "--json"]).with_code(0).json();
    let told = (&again["identical"], &again["complete"]);
    assert_eq!(told, (&true.into(), &true.into()), "{again}");
}

/// Returns the gradients that were called off for good: their mini-batches were lost with a worker
/// before the end of the run, or discarded after it. A gradient that newer parameters supersede is
/// computed again instead, and counts in that row.
fn given_up(folder: &Path) -> [u64; 2] {
    let (mut given_up, mut has_ended) = ([0, 0], false);
    let mut first_of = BTreeMap::new(); // the first push after the superseded ones
    let mut open: BTreeMap<Option<u64>, u64> = BTreeMap::new();
    for event in events(folder) {
        let (worker, sequence) = (event["worker"].as_u64(), event["sequence"].as_u64());
        match event["event"].as_str() {
            Some("joined") if event["resumed"] == false => drop(first_of.remove(&worker)),
            Some("superseded") => drop(first_of.insert(worker, sequence)),
            Some("called_off") if sequence >= first_of.get(&worker).copied().flatten() => {
                *open.entry(worker).or_default() += 1;
            }
            Some("departed") => {
                given_up[usize::from(has_ended)] += open.remove(&worker).unwrap_or(0);
            }
            Some("ended") => has_ended = true,
            _ => {}
        }
    }
    given_up[1] += open.values().sum::<u64>();
    given_up
}

/// Checks that the files of a results folder agree: no push was applied twice, every assigned
/// mini-batch has an outcome that the summary counts, each update was made of the gradients in the
/// timeline, and the times of each gradient are in order.
#[track_caller]
pub(crate) fn check_books(folder: &Path, summary: &Value) {
    check_counts(folder, summary);
    let rows = timeline(folder);
    rows.iter().filter(|row| row.is("applied")).for_each(check_times);
    check_workers(folder, &rows, summary);
}

/// Like [`check_books`], without the times: a push that arrives while the server is down is timed
/// when the server is up again, and its parameters may have been sent a second time.
#[track_caller]
pub(crate) fn check_counts(folder: &Path, summary: &Value) {
    let rows = timeline(folder);
    let batches = &summary["batches"];
    let count = |name: &str| number(&batches[name]);
    let ended = |outcome: &str| rows.iter().filter(|row| row.is(outcome)).count() as u64;
    assert_eq!(count("applied"), ended("applied"), "{batches}");
    let [lost, discarded] = given_up(folder);
    assert_eq!(count("lost"), ended("lost") + lost, "{batches}");
    let without_update = count("discarded") + count("outstanding");
    assert_eq!(without_update, ended("dropped") + ended("discarded") + discarded, "{batches}");
    let again = ended("called-off") - lost - discarded;
    assert_eq!(count("assigned"), rows.len() as u64 - again, "{batches}");

    let mut applied = BTreeSet::new();
    let mut made_of: BTreeMap<u64, BTreeSet<[u64; 5]>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.is("applied")) {
        let key = [row.worker, row.incarnation, row.sequence];
        assert!(applied.insert(key), "applied twice: {row:?}");
        let version = row.version.unwrap();
        assert_eq!(version, row.base + row.staleness.unwrap() + 1, "{row:?}");
        let [worker, incarnation, sequence] = key;
        let gradient = [worker, incarnation, sequence, row.batch, row.base];
        made_of.entry(version).or_default().insert(gradient);
    }
    let order = order(folder);
    assert_eq!(order.len() as u64, number(&summary["updates"]));
    assert_eq!(order.iter().flatten().map(|g| g[6]).sum::<u64>(), number(&summary["samples"]));
    let updates = || order.iter().filter(|gradients| !gradients.is_empty());
    for ((version, told), gradients) in made_of.iter().zip(updates()) {
        let logged =
            gradients.iter().map(|[w, i, s, batch, _, base, _]| [*w, *i, *s, *batch, *base]);
        assert_eq!(&logged.collect::<BTreeSet<_>>(), told, "version {version}");
    }
    assert_eq!(made_of.len(), updates().count());
}

/// Checks that grant, receipt, sending and push of a mini-batch follow each other in time.
#[track_caller]
fn check_times(row: &Row) {
    let times = [Some(row.granted_ns), row.received_ns, row.sent_ns, row.pushed_ns];
    assert!(times.iter().flatten().is_sorted(), "{row:?}");
    assert_eq!(row.received_ns.is_some(), row.sent_ns.is_some(), "{row:?}");
    let turnaround = row.pushed_ns.unwrap() - row.granted_ns;
    assert!(row.compute_ns.unwrap() <= turnaround, "{row:?}");
}

/// Checks the totals of each worker in the summary against its rows in the timeline.
#[track_caller]
fn check_workers(folder: &Path, rows: &[Row], summary: &Value) {
    let mut histogram = csv::Reader::from_path(folder.join("staleness.csv")).unwrap();
    let bins: Vec<(String, String, f64, f64, f64)> =
        histogram.deserialize().map(|bin| bin.unwrap()).collect();
    let workers = summary["workers"].as_array().unwrap();
    for worker in workers {
        let id = number(&worker["id"]);
        let own = || rows.iter().filter(|row| row.worker == id);
        let applied: Vec<&Row> = own().filter(|row| row.is("applied")).collect();
        assert_eq!(number(&worker["updates"]), applied.len() as u64, "{worker}");
        let stale: u64 = applied.iter().filter_map(|row| row.staleness).sum();
        let mean = stale as f64 / applied.len().max(1) as f64;
        assert!((real(&worker["staleness_mean"]) - mean).abs() < 1e-9, "{worker}");
        let counted: f64 = bins
            .iter()
            .filter(|(measure, of, ..)| measure == "staleness_updates" && *of == id.to_string())
            .map(|(.., amount)| amount)
            .sum();
        assert_eq!(counted, applied.len() as f64, "{worker}");
        let waited: u64 = own().filter_map(|row| row.waited_ns).sum();
        assert!((real(&worker["wait_s"]) - waited as f64 / 1e9).abs() < 1e-6, "{worker}");
        let turnaround: u64 = own().filter_map(|row| Some(row.pushed_ns? - row.granted_ns)).sum();
        let stopped = own().filter(|row| row.is("called-off")).filter_map(|row| row.compute_ns);
        let stopped = stopped.sum::<u64>() as f64 / 1e9;
        assert!((real(&worker["called_off_s"]) - stopped).abs() < 1e-6, "{worker}");
        let spent = real(&worker["compute_s"]) - stopped + real(&worker["communicate_s"]);
        assert!((spent - turnaround as f64 / 1e9).abs() < 1e-6, "{worker}");
        if worker["send_s"].is_number() {
            let ways = real(&worker["send_s"]) + real(&worker["receive_s"]);
            assert!((ways - real(&worker["communicate_s"])).abs() < 1e-6, "{worker}");
        }
    }
    let shares: Vec<f64> = workers.iter().map(|worker| real(&worker["share"])).collect();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 {
        let index = shares.iter().sum::<f64>().powi(2) / (shares.len() as f64 * squares);
        assert!((real(&summary["jain"]) - index).abs() < 1e-9, "{summary}");
    }
}
