//! The stored record of one run.

use std::collections::BTreeMap;

use pstrain_transports::simulation::{LinkUsage, Outcome};
use pstrain_wire::worker::EndReason;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One run of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Number of the run's cell.
    pub(crate) cell: usize,
    pub(crate) rep: u32,
    pub(crate) seed: u64,
    /// Every number of the run's report, by path: `staleness.mean`, `workers.1.share`.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// Every text of the report, by path.
    pub(crate) texts: BTreeMap<String, String>,
    pub(crate) curve: Vec<CurvePoint>,
    /// Number of gradients that were applied with each staleness.
    pub(crate) staleness: BTreeMap<u64, u64>,
    /// Use of the link that all workers share at the server, if it has a rate.
    #[serde(default, skip_serializing_if = "LinkUse::is_empty")]
    pub(crate) link_use: LinkUse,
}

/// The first intervals in which the link that all workers share at the server was in use: begin and
/// end, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkUse {
    pub(crate) up: Vec<(f64, f64)>,
    pub(crate) down: Vec<(f64, f64)>,
}

impl LinkUse {
    fn is_empty(&self) -> bool {
        self.up.is_empty() && self.down.is_empty()
    }

    pub(crate) fn of(outcome: &Outcome) -> Self {
        let spans = |usage: &Option<LinkUsage>| {
            let spans = usage.iter().flat_map(|usage| &usage.spans);
            spans.map(|(from, to)| (from.as_secs_f64(), to.as_secs_f64())).collect()
        };
        Self { up: spans(&outcome.shared_up), down: spans(&outcome.shared_down) }
    }
}

/// An evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurvePoint {
    /// Number of updates.
    pub(crate) version: u64,
    pub(crate) samples: u64,
    pub(crate) epoch: f64,
    /// Training time in seconds.
    pub(crate) time_s: f64,
    /// `None` if it was not a number.
    pub(crate) loss: Option<f64>,
    /// The loss plus its penalty.
    #[serde(default)]
    pub(crate) objective: Option<f64>,
    /// The metrics by name; `None` for a value that was not a number.
    #[serde(flatten)]
    pub(crate) metrics: BTreeMap<String, Option<f64>>,
}

/// Parts of a report about the process and the machine instead of the run: they differ each time.
const OF_THE_PROCESS: [&str; 5] =
    ["peak_rss_mib", "usage", "processor_wait", "started_s", "first_update_s"];

/// Digest of the parameters. It is stored as a number, too, so that claims can test whether two
/// runs ended with identical parameters.
const PARAMETERS: &str = "params_sha256";

/// The first 13 hexadecimal digits of a digest as a number: as many as an `f64` holds exactly.
fn head(digest: &str) -> Option<f64> {
    let digits = digest.get(..13)?;
    Some(u64::from_str_radix(digits, 16).ok()? as f64)
}

impl Record {
    /// Adds a report. `repeatable` leaves out the parts that differ between equal runs.
    pub(crate) fn keep(&mut self, report: &Value, repeatable: bool) {
        self.flatten("", report);
        if repeatable {
            let is_its =
                |path: &str| OF_THE_PROCESS.contains(&path.split('.').next().unwrap_or(path));
            self.metrics.retain(|path, _| !is_its(path));
        }
    }

    fn flatten(&mut self, path: &str, value: &Value) {
        let below = |name: &str| {
            if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
        };
        match value {
            Value::Null => {}
            Value::Bool(value) => {
                self.metrics.insert(path.to_owned(), f64::from(u8::from(*value)));
            }
            Value::Number(number) => {
                if let Some(number) = number.as_f64() {
                    self.metrics.insert(path.to_owned(), number);
                }
            }
            Value::String(text) => {
                if path == PARAMETERS {
                    self.metrics.extend(head(text).map(|head| (path.to_owned(), head)));
                }
                self.texts.insert(path.to_owned(), text.clone());
            }
            // Workers are numbered from 1.
            Value::Array(items) => {
                for (number, item) in (1..).zip(items) {
                    self.flatten(&below(&number.to_string()), item);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.flatten(&below(name), field);
                }
            }
        }
    }

    /// The reason why the run ended.
    pub(crate) fn ended(&self) -> &str {
        self.texts.get("ended").map_or("", String::as_str)
    }

    /// True if the run came to the end that its job foresees.
    pub(crate) fn reached_its_goal(&self) -> bool {
        use EndReason::{BudgetReached, NoImprovement, TargetReached};
        [BudgetReached, TargetReached, NoImprovement]
            .iter()
            .any(|reason| self.ended() == reason.to_string())
    }

    /// Numbers, from 1, of the workers with figures in the record.
    pub(crate) fn workers(&self) -> impl Iterator<Item = usize> {
        (1..).take_while(|worker| self.metrics.contains_key(&format!("workers.{worker}.updates")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_numbers_and_texts_by_path() {
        let report = serde_json::json!({
            "ended": "the budget is used up",
            "accuracy": null,
            "peak_rss_mib": 12.5,
            "usage": { "processor_s": 3.5 },
            "params_sha256": "000000000002affe",
            "staleness": { "mean": 1.0 },
            "workers": [{ "id": 1, "updates": 5 }, { "id": 2, "updates": 7 }],
        });
        let mut record = Record::default();
        record.keep(&report, true);
        let paths: Vec<_> = record.metrics.keys().map(String::as_str).collect();
        let expected = [
            "params_sha256",
            "staleness.mean",
            "workers.1.id",
            "workers.1.updates",
            "workers.2.id",
            "workers.2.updates",
        ];
        assert_eq!(paths, expected);
        assert_eq!(record.ended(), "the budget is used up");
        assert!(record.reached_its_goal() && !Record::default().reached_its_goal());
        assert_eq!(record.workers().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(record.metrics["params_sha256"], f64::from(0x2a));
        record.keep(&report, false);
        assert_eq!(record.metrics["peak_rss_mib"], 12.5);
        assert_eq!(record.metrics["usage.processor_s"], 3.5);
    }
}
