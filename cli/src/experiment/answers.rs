//! Tables that a specification asks for: what the runs say at each place.

use anyhow::Context;
use serde::Serialize;

use super::claims::evaluate;
use super::quantity::Quantity;
use super::runs::{Place, Runs};
use super::spec::{Column, Spec, TableSpec};

/// A table with what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answers {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    /// How many of the columns say where.
    #[serde(skip)]
    pub(crate) places: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Fills all tables of the specification.
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
    let rows = runs.places(&table.rows);
    let row = |place: &Place| {
        let values = table.rows.iter().map(|axis| value_label(runs.spec, axis, place));
        values.chain(table.column.iter().map(|column| said(runs, column, place))).collect()
    };
    Answers {
        file: table.file.clone(),
        title: table.title.clone(),
        header: axes.chain(table.column.iter().map(titled)).collect(),
        places: table.rows.len(),
        rows: rows.iter().map(row).collect(),
    }
}

fn value_label(spec: &Spec, axis: &str, place: &Place) -> String {
    let label = spec
        .axis(axis)
        .zip(place.get(axis))
        .and_then(|(axis, value)| Some(axis.value_label(axis.position(value)?)));
    label.unwrap_or_default()
}

fn said(runs: &Runs<'_>, column: &Column, place: &Place) -> String {
    let said = if column.which.is_empty() {
        evaluate(runs, &column.value, &[], place).map(|value| value.to_string())
    } else {
        column.which.parse().and_then(|quantity: Quantity| quantity.at(place).which(runs))
    };
    said.unwrap_or_else(|_| "unknown".into())
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
