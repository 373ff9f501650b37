//! Tables that a specification asks for: expressions over the runs, by place.

use anyhow::Context;
use serde::Serialize;

use super::bounds::readable;
use super::claims::evaluate;
use super::quantity::Quantity;
use super::runs::{Place, Runs};
use super::sampled::Interval;
use super::spec::{Column, Spec, TableSpec};

/// A table with its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answers {
    /// Name of its file under `tables/`, without `.csv`.
    pub(crate) file: String,
    /// Its title.
    pub(crate) title: String,
    /// Each column with a value is followed by two more, for the ends of its 95 % confidence
    /// interval.
    pub(crate) header: Vec<String>,
    /// The rows, as texts.
    pub(crate) rows: Vec<Vec<String>>,
    /// The same table for readers: the interval stands next to the value.
    #[serde(skip)]
    pub(crate) shown: Shown,
}

/// A table as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) header: Vec<String>,
    /// Number of leading columns that name the place.
    pub(crate) places: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Value of a cell of the table.
enum Said {
    Value(String, Option<Interval>),
    Which(String),
}

/// Computes all tables of the specification.
pub(crate) fn answers(runs: &Runs<'_>) -> Vec<Answers> {
    runs.spec.table.iter().map(|table| one(runs, table)).collect()
}

fn one(runs: &Runs<'_>, table: &TableSpec) -> Answers {
    let titled = |column: &Column| match column.unit.as_str() {
        "" => column.title.clone(),
        unit => format!("{} ({unit})", column.title),
    };
    let axes = table.rows.iter().filter_map(|name| runs.spec.axis(name));
    let axes = axes.map(|axis| match axis.unit.as_str() {
        "" => axis.title().to_owned(),
        unit => format!("{} ({unit})", axis.title()),
    });
    let axes: Vec<String> = axes.collect();
    let rows: Vec<(Vec<String>, Vec<Said>)> = runs
        .places(&table.rows)
        .iter()
        .map(|place| {
            let values = table.rows.iter().map(|axis| value_label(runs.spec, axis, place));
            (
                values.collect(),
                table.column.iter().map(|column| said(runs, column, place)).collect(),
            )
        })
        .collect();
    let titles = || table.column.iter().map(titled);
    let ends = |column: &Column| {
        let title = titled(column);
        let ends = [format!("{title} low"), format!("{title} high")];
        let ends = column.which.is_empty().then_some(ends);
        std::iter::once(title).chain(ends.into_iter().flatten()).collect::<Vec<_>>()
    };
    let all = |cell: fn(&Said) -> Vec<String>| {
        let row = |(place, said): &(Vec<String>, Vec<Said>)| {
            place.iter().cloned().chain(said.iter().flat_map(cell)).collect()
        };
        rows.iter().map(row).collect()
    };
    Answers {
        file: table.file.clone(),
        title: table.title.clone(),
        header: axes.iter().cloned().chain(table.column.iter().flat_map(ends)).collect(),
        rows: all(Said::fields),
        shown: Shown {
            header: axes.iter().cloned().chain(titles()).collect(),
            places: axes.len(),
            rows: all(|said| vec![said.shown()]),
        },
    }
}

impl Said {
    /// Its CSV fields. A value that does not vary has no interval.
    fn fields(&self) -> Vec<String> {
        match self {
            Self::Which(text) => vec![text.clone()],
            Self::Value(text, interval) => {
                let ends = interval.map_or_else(Default::default, |interval| {
                    [interval.low, interval.high].map(readable)
                });
                [text.clone()].into_iter().chain(ends).collect()
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Which(text) | Self::Value(text, None) => text.clone(),
            Self::Value(text, Some(interval)) => format!("{text} ({interval})"),
        }
    }
}

fn value_label(spec: &Spec, axis: &str, place: &Place) -> String {
    let label = spec
        .axis(axis)
        .zip(place.get(axis))
        .and_then(|(axis, value)| Some(axis.value_label(axis.position(value)?)));
    label.unwrap_or_default()
}

fn said(runs: &Runs<'_>, column: &Column, place: &Place) -> Said {
    let unknown = || "unknown".to_owned();
    if column.which.is_empty() {
        match evaluate(runs, &column.value, &[], place) {
            Ok(value) => Said::Value(value.observed().to_string(), value.interval()),
            Err(_) => Said::Value(unknown(), None),
        }
    } else {
        let which = column.which.parse();
        let which = which.and_then(|quantity: Quantity| quantity.at(place).which(runs));
        Said::Which(which.unwrap_or_else(|_| unknown()))
    }
}

impl Answers {
    /// The table as a CSV file.
    pub(crate) fn csv(&self) -> anyhow::Result<Vec<u8>> {
        let mut csv = csv::Writer::from_writer(Vec::new());
        let place = || format!("cannot write the table {}", self.file);
        for row in std::iter::once(&self.header).chain(&self.rows) {
            csv.write_record(row).with_context(place)?;
        }
        csv.into_inner().map_err(|error| anyhow::anyhow!("{}: {error}", place()))
    }
}
