//! The reference page of results: the keys of summary.json with the doc comments of their fields,
//! and the columns of the tables.

mod events;
mod fields;
mod order_log;

use pstrain_compute::evaluation::METRICS;

use super::{curve, histograms, timeline};
use crate::experiment;
use crate::tests::{assert_page, row};
use fields::Structs;

/// The sources of all structs in reports.
const SOURCES: [&str; 17] = [
    include_str!("age.rs"),
    include_str!("departures.rs"),
    include_str!("gaps.rs"),
    include_str!("quality.rs"),
    include_str!("report.rs"),
    include_str!("shaping.rs"),
    include_str!("usage.rs"),
    include_str!("../energy/mod.rs"),
    include_str!("../energy/rapl.rs"),
    include_str!("../simulate.rs"),
    include_str!("../experiment/answers.rs"),
    include_str!("../experiment/claims.rs"),
    include_str!("../experiment/runs.rs"),
    include_str!("../experiment/sampled.rs"),
    include_str!("../experiment/tables.rs"),
    include_str!("../../../core/roles/src/node/server/progress.rs"),
    include_str!("../../../data/src/evaluation.rs"),
];

/// A table of keys or columns.
fn table(rows: impl IntoIterator<Item = (String, String)>) -> String {
    let rows = rows.into_iter().map(|(name, about)| row(&[&format!("`{name}`"), &about]));
    format!("\n| name | meaning |\n|---|---|\n{}", rows.collect::<String>())
}

fn columns<'a>(columns: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> String {
    table(columns.into_iter().map(|&(name, about)| (name.to_owned(), about.to_owned())))
}

fn page() -> String {
    let structs = Structs::of(&SOURCES);
    let metrics: Vec<(&str, String)> = METRICS
        .iter()
        .map(|metric| {
            let best = if metric.is_higher_better { "higher" } else { "lower" };
            (metric.name, format!("{}: {best} is better; if the task has it", metric.title))
        })
        .collect();
    let metrics: Vec<_> = metrics.iter().map(|(name, about)| (*name, about.as_str())).collect();
    let of_workers = |name: &str| (name.to_owned(), structs.about("WorkerReport", name));
    let parts = experiment::PARTS.iter().chain(&experiment::WAYS);
    let shares = experiment::SHARES.map(|(name, about)| (name.to_owned(), about.to_owned()));
    let times = [("worker".to_owned(), "The worker, counted from 1".to_owned())];
    [
        "# Results: keys and columns\n\nThis page is generated from the program. [Results](../results.md) \
         says what the files are for.\n\n## summary.json\n\nThe same object as that of `--json`. \
         `NAME` is any name, `[]` each item of a list. The metrics are those of the \
         [task](../data.md#numbers-to-predict); a compute process may name others.\n",
        &table(structs.keys("Report")),
        "\n## curve.csv\n\nThe main metric of the task is before `loss`, its other metrics are last.\n",
        &columns(curve::POINT.iter().chain(&metrics).chain(&curve::LOSSES)),
        "\n## timeline.csv\n",
        &columns(&timeline::COLUMNS),
        "\n## staleness.csv\n",
        &columns(&histograms::COLUMNS),
        "\n## Experiments\n\nAn [experiment](../experiments.md) writes tables of all its runs. Each \
         begins with a column for each axis, and `rep`, the number of the repetition, counted from \
         1. `runs.csv` then has `seed`, and each number and text of summary.json under its path, \
         such as `workers.1.share`. `curve.csv` has the columns above, but for `objective`. The \
         others:\n\n### timeline.csv\n",
        &table(times.into_iter().chain(parts.map(|name| of_workers(name))).chain(shares)),
        "\n### staleness.csv\n",
        &columns(&experiment::STALENESS),
        "\n### summary.json\n",
        &table(structs.keys("Summary")),
    ]
    .concat()
}

#[test]
fn the_page_of_results_has_every_key_and_column() {
    assert_page("results", &page());
}
