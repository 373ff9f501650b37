//! The cells of an experiment: every combination of the values of the axes, with its job.

use std::collections::BTreeMap;

use super::spec::{Spec, Text, Values};
use crate::job::find;

/// True if an axis adds to the setting instead of replacing it: the setting is a list, in which
/// later items win over earlier ones.
pub(super) fn is_list(key: &str) -> bool {
    find(key).is_some_and(|setting| setting.many)
}

/// One combination of axis values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Number of the cell, from 0.
    pub(crate) index: usize,
    /// For each axis, the index of its value.
    pub(crate) at: Vec<usize>,
    /// Settings of the job, without the seed of the repetition.
    pub(crate) job: BTreeMap<String, String>,
}

impl Cell {
    /// The value on axis `number` of the specification.
    pub(crate) fn value<'a>(&self, spec: &'a Spec, number: usize) -> &'a str {
        let value = self.at.get(number).and_then(|&at| spec.axis.get(number)?.values.get(at));
        value.map_or("", |Text(text)| text)
    }

    /// True if the cell has all these values.
    pub(crate) fn is_at<'a>(
        &self,
        spec: &Spec,
        wanted: impl IntoIterator<Item = (&'a String, &'a str)>,
    ) -> bool {
        wanted.into_iter().all(|(axis, value)| {
            let number = spec.axis.iter().position(|other| other.name == *axis);
            number.is_some_and(|number| self.value(spec, number) == value)
        })
    }

    /// True if the cell has one of the values of each of these axes.
    pub(crate) fn is_among(&self, spec: &Spec, wanted: &BTreeMap<String, Values>) -> bool {
        wanted.iter().all(|(axis, Values(values))| {
            values.iter().any(|Text(value)| self.is_at(spec, [(axis, value.as_str())]))
        })
    }

    /// The values, for messages: `delay=100 partition=iid`.
    pub(crate) fn describe(&self, spec: &Spec) -> String {
        let values = spec.axis.iter().enumerate();
        let values: Vec<String> = values
            .map(|(number, axis)| format!("{}={}", axis.name, self.value(spec, number)))
            .collect();
        if values.is_empty() { "the only cell".into() } else { values.join(" ") }
    }
}

/// The cells of `spec`. Its `[job]` must hold every setting that the axes do not make.
pub(crate) fn cells(spec: &Spec) -> Vec<Cell> {
    let mut places = vec![Vec::new()];
    for axis in &spec.axis {
        let with = |place: &Vec<usize>, at| place.iter().copied().chain([at]).collect();
        places = places
            .iter()
            .flat_map(|place| (0..axis.values.len()).map(move |at| with(place, at)))
            .collect();
    }
    let cells = places.into_iter().map(|at| Cell { index: 0, job: job(spec, &at), at });
    let mut cells: Vec<Cell> = cells.filter(|cell| !excluded(spec, cell)).collect();
    for (index, cell) in cells.iter_mut().enumerate() {
        cell.index = index;
    }
    cells
}

fn excluded(spec: &Spec, cell: &Cell) -> bool {
    spec.exclude.iter().any(|values| cell.is_among(spec, values))
}

fn job(spec: &Spec, at: &[usize]) -> BTreeMap<String, String> {
    let mut job: BTreeMap<String, String> =
        spec.job.iter().map(|(key, text)| (key.clone(), text.0.clone())).collect();
    for (axis, &at) in spec.axis.iter().zip(at) {
        let Some(Text(value)) = axis.values.get(at) else { continue };
        for (key, text) in axis.settings_of(value) {
            match job.get_mut(&key).filter(|_| is_list(&key)) {
                Some(before) if before != "none" && text != "none" => {
                    before.push(' ');
                    before.push_str(&text);
                }
                _ => {
                    job.insert(key, text);
                }
            }
        }
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn cells_are_all_combinations_but_those_left_out() {
        let spec = spec(
            "name = 'x'\ntitle = 'x'\n\
             job = { link = '1.delay=1ms', epochs = 2 }\n\
             [[axis]]\nname = 'consistency'\nvalues = ['bsp', 'asp']\n\
             [[axis]]\nname = 'delay'\nvalues = [1, 100]\nset = { link = '2.delay={}ms' }\n\
             [[exclude]]\nconsistency = 'bsp'\ndelay = 1\n",
        );
        let mut more = spec.clone();
        more.exclude[0].insert("delay".into(), Values(vec![Text("1".into()), Text("100".into())]));
        let described: Vec<_> = cells(&more).iter().map(|cell| cell.describe(&more)).collect();
        assert_eq!(described, ["consistency=asp delay=1", "consistency=asp delay=100"]);
        for spec in [&spec, &more] {
            let text = toml::to_string(spec).unwrap();
            let read: Spec = toml::from_str(&text).unwrap();
            assert_eq!(read.exclude, spec.exclude, "{text}");
        }
        let cells = cells(&spec);
        let described: Vec<_> = cells.iter().map(|cell| cell.describe(&spec)).collect();
        let expected =
            ["consistency=bsp delay=100", "consistency=asp delay=1", "consistency=asp delay=100"];
        assert_eq!(described, expected);
        assert_eq!(cells[2].index, 2);
        assert_eq!(cells[2].job["link"], "1.delay=1ms 2.delay=100ms");
        assert_eq!(cells[2].job["consistency"], "asp");
        assert_eq!(cells[2].job["epochs"], "2");
    }

    #[test]
    fn a_value_may_stand_for_several_settings() {
        let spec = spec(
            "name = 'x'\ntitle = 'x'\njob = { learning-rate = 0.1, compute = '1ms' }\n\
             [[axis]]\nname = 'policy'\nvalues = ['sync', 'slow', 'plain']\n\
             [axis.settings]\n\
             sync = { consistency = 'bsp', learning-rate = 0.2 }\n\
             slow = { consistency = 'asp', compute = '2.factor=4' }\n\
             plain = { consistency = 'asp' }\n",
        );
        let cells = cells(&spec);
        let of = |key: &str| cells.iter().map(|cell| cell.job[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("consistency"), ["bsp", "asp", "asp"]);
        assert_eq!(of("learning-rate"), ["0.2", "0.1", "0.1"]);
        assert_eq!(of("compute"), ["1ms", "1ms 2.factor=4", "1ms"]);
        let axis = &spec.axis[0];
        assert_eq!(
            axis.keys().into_iter().collect::<Vec<_>>(),
            ["compute", "consistency", "learning-rate"]
        );
        assert_eq!(axis.made_by_all().into_iter().collect::<Vec<_>>(), ["consistency"]);
    }

    #[test]
    fn items_may_be_listed_one_by_one() {
        let spec =
            spec("name = 'x'\ntitle = 'x'\njob = { link = ['1.delay=5ms', '2.delay=40ms'] }\n");
        assert_eq!(cells(&spec)[0].job["link"], "1.delay=5ms 2.delay=40ms");
    }

    #[test]
    fn without_axes_there_is_one_cell() {
        let spec = spec("name = 'x'\ntitle = 'x'\n");
        let cells = cells(&spec);
        assert_eq!(cells.len(), 1);
        assert_eq!(cells[0].describe(&spec), "the only cell");
    }

    #[test]
    fn a_list_that_says_none_is_replaced() {
        let spec = spec(
            "name = 'x'\ntitle = 'x'\njob = { link = 'none' }\n\
             [[axis]]\nname = 'link'\nvalues = ['none', 'delay=1ms']\n",
        );
        let links: Vec<_> = cells(&spec).iter().map(|cell| cell.job["link"].clone()).collect();
        assert_eq!(links, ["none", "delay=1ms"]);
    }
}
