//! The runs of an experiment, by cell and repetition.

use std::collections::{BTreeMap, BTreeSet};

use pstrain_compute::evaluation::{METRICS, Metric as Quality};
use serde::Serialize;

use super::draws::Draws;
use super::grid::Cell;
use super::metric::{Metric, is_meant, is_usual, no_metric};
use super::quantity::Sample;
use super::record::Record;
use super::spec::Spec;

/// A run that ended without reaching its goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NotReached {
    /// Its cell.
    pub(crate) cell: String,
    /// Number of the repetition, from 1.
    pub(crate) rep: u32,
    /// Why it ended.
    pub(crate) ended: String,
}

/// Most runs that a warning names; the others are counted.
const NAMED: usize = 3;

/// Values of some axes, by axis name.
pub(crate) type Place = BTreeMap<String, String>;

/// All completed runs of an experiment.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) cells: &'a [Cell],
    pub(crate) records: BTreeMap<(usize, u32), Record>,
    /// Random numbers that model other repetitions.
    pub(crate) draws: Draws,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(
        spec: &'a Spec,
        cells: &'a [Cell],
        records: BTreeMap<(usize, u32), Record>,
    ) -> Self {
        let reps = records.keys().map(|(_, rep)| rep + 1).max().unwrap_or(0);
        Self { spec, cells, records, draws: Draws::new(reps) }
    }

    /// The runs of one cell, by repetition.
    pub(crate) fn of(&self, cell: &Cell) -> impl Iterator<Item = &Record> {
        self.records.range((cell.index, 0)..=(cell.index, u32::MAX)).map(|(_, record)| record)
    }

    /// The cells with all these values.
    pub(crate) fn cells_at(&self, at: &BTreeMap<String, String>) -> Vec<&Cell> {
        let wanted = || at.iter().map(|(axis, value)| (axis, value.as_str()));
        self.cells.iter().filter(|cell| cell.is_at(self.spec, wanted())).collect()
    }

    /// Every combination of values of some axes for which there are cells.
    pub(crate) fn places(&self, axes: &[String]) -> Vec<Place> {
        let mut places = vec![Place::new()];
        for axis in axes.iter().filter_map(|name| self.spec.axis(name)) {
            let with = |place: &Place, value: &str| {
                let mut place = place.clone();
                place.insert(axis.name.clone(), value.to_owned());
                place
            };
            places = places
                .iter()
                .flat_map(|place| axis.values.iter().map(move |value| with(place, &value.0)))
                .collect();
        }
        places.retain(|place| !self.cells_at(place).is_empty());
        places
    }

    /// The label of a place: its values, in the order of the axes.
    pub(crate) fn place_label(&self, place: &Place) -> String {
        let values = self.spec.axis.iter().filter_map(|axis| {
            let value = axis.full_label(axis.position(place.get(&axis.name)?)?);
            Some(value)
        });
        values.collect::<Vec<_>>().join(", ")
    }

    /// The values of a metric for all repetitions of a cell; an error if one of them has none.
    pub(crate) fn sample(&self, metric: &Metric, cell: &Cell) -> Result<Sample, String> {
        let mut sample = Sample::default();
        for record in self.of(cell) {
            sample.push(record.rep, metric.of(record, cell)).map_err(|why| {
                let place = cell.describe(self.spec);
                format!("{place}, repetition {}: {why}", record.rep + 1)
            })?;
        }
        if sample.values.is_empty() {
            return Err(format!("{}: no run is done yet", cell.describe(self.spec)));
        }
        Ok(sample)
    }

    /// The runs that ended without reaching their goal. The statistics include them.
    pub(crate) fn not_reached(&self) -> Vec<NotReached> {
        let early = |cell| {
            self.of(cell).filter(|record| !record.reached_its_goal()).map(|record| NotReached {
                cell: cell.describe(self.spec),
                rep: record.rep + 1,
                ended: record.ended().to_owned(),
            })
        };
        self.cells.iter().flat_map(early).collect()
    }

    /// A sentence about [`Self::not_reached`], if there are any.
    pub(crate) fn warning(&self) -> Option<String> {
        let early = self.not_reached();
        let named = |run: &NotReached| {
            let NotReached { cell, rep, ended } = run;
            let ended = if ended.is_empty() { "it does not say why" } else { ended };
            format!("{cell}, repetition {rep}: {ended}")
        };
        let mut list: Vec<String> = early.iter().take(NAMED).map(named).collect();
        if early.len() > NAMED {
            list.push(format!("and {} more (summary.json names them)", early.len() - NAMED));
        }
        (!early.is_empty()).then(|| {
            format!(
                "{} of {} runs ended without reaching their goal: {}",
                early.len(),
                self.records.len(),
                list.join("; ")
            )
        })
    }

    /// Number of runs that each build of the program made, for runs that record the build.
    pub(crate) fn builds(&self) -> BTreeMap<&str, usize> {
        let mut builds = BTreeMap::new();
        for record in self.records.values() {
            if let Some(build) = record.texts.get("pstrain") {
                *builds.entry(build.as_str()).or_default() += 1;
            }
        }
        builds
    }

    /// The reason if no run can have the metric: none has such a number.
    pub(crate) fn lacks(&self, metric: &Metric) -> Option<String> {
        if let Some(name) = metric.of_curve() {
            return self.curves_lack(name);
        }
        let names = self.metrics();
        let there = |path: &str| {
            let suggestion = || path.contains('*') && names.iter().any(|name| is_meant(path, name));
            names.binary_search(&path).is_ok() || is_usual(path) || suggestion()
        };
        let path = metric.paths().into_iter().find(|path| !there(path))?;
        (!self.records.is_empty()).then(|| no_metric(path, names.into_iter()))
    }

    /// The reason if no curve has the metric of models.
    pub(crate) fn curves_lack(&self, name: &str) -> Option<String> {
        let names = self.curve_metrics();
        // Runs that ended before their first evaluation have none.
        if names.is_empty() || names.contains(&name) {
            return None;
        }
        Some(format!("the curves have no {name:?}, but {}", names.join(", ")))
    }

    /// The metrics of models that the curves have, the main one first.
    pub(crate) fn curve_metrics(&self) -> Vec<&str> {
        let points = self.records.values().flat_map(|record| &record.curve);
        let names: BTreeSet<&str> =
            points.flat_map(|point| point.metrics.keys().map(String::as_str)).collect();
        let known = METRICS.iter().map(|metric| metric.name).filter(|name| names.contains(name));
        let own = names.iter().copied().filter(|name| Quality::find(name).is_none());
        known.chain(own).collect()
    }

    /// The names of all numbers of all runs, sorted.
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
