//! The runs of an experiment, by cell and repetition.

use std::collections::BTreeMap;

use super::grid::Cell;
use super::metric::Metric;
use super::quantity::Sample;
use super::record::Record;
use super::spec::Spec;

/// All runs that are done, with what they are runs of.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) cells: &'a [Cell],
    pub(crate) records: BTreeMap<(usize, u32), Record>,
}

impl Runs<'_> {
    /// The runs of one cell, by repetition.
    pub(crate) fn of(&self, cell: &Cell) -> impl Iterator<Item = &Record> {
        self.records.range((cell.index, 0)..=(cell.index, u32::MAX)).map(|(_, record)| record)
    }

    /// The cells that have all these values.
    pub(crate) fn cells_at(&self, at: &BTreeMap<String, String>) -> Vec<&Cell> {
        let wanted = || at.iter().map(|(axis, value)| (axis, value.as_str()));
        self.cells.iter().filter(|cell| cell.is_at(self.spec, wanted())).collect()
    }

    /// What the repetitions of a cell answer; all of them must.
    pub(crate) fn sample(&self, metric: &Metric, cell: &Cell) -> Result<Sample, String> {
        let mut sample = Sample::default();
        for record in self.of(cell) {
            sample.push(metric.of(record, cell)).map_err(|why| {
                let place = cell.describe(self.spec);
                format!("{place}, repetition {}: {why}", record.rep + 1)
            })?;
        }
        if sample.values.is_empty() {
            return Err(format!("{}: no run is done yet", cell.describe(self.spec)));
        }
        Ok(sample)
    }

    /// The names of all numbers that any run reports.
    pub(crate) fn metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .records
            .values()
            .flat_map(|record| record.metrics.keys().map(String::as_str))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
