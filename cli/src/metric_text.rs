//! Metrics of models in words.

use std::collections::BTreeMap;

use pstrain_compute::evaluation::Metric;
use pstrain_wire::{LatestEvaluation, Status};

use crate::figures::{count, percent};

/// Returns the name of a metric for people.
pub(crate) fn title(name: &str) -> &str {
    Metric::find(name).map_or(name, |metric| metric.title)
}

/// Significant digits of a number.
const DIGITS: i32 = 4;

/// Formats a value of the metric called `name`: a share as a percentage, another number with four
/// significant digits, and with all digits before its point.
pub(crate) fn shown(name: &str, value: f64) -> String {
    if Metric::find(name).is_some_and(|metric| metric.is_share) {
        return percent(value);
    }
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    let before = if size == 0.0 { 0 } else { size.log10().floor() as i32 };
    let decimals = (DIGITS - 1 - before).max(0) as usize;
    format!("{value:.decimals$}")
}

/// Formats the metric called `name` with its value.
pub(crate) fn named(name: &str, value: f64) -> String {
    format!("{} {}", title(name), shown(name, value))
}

/// Returns the main metric of the latest evaluation.
pub(crate) fn main_of(latest: Option<&LatestEvaluation>) -> Option<(&str, f64)> {
    let (name, value) = latest?.metrics.first()?;
    Some((name, *value))
}

/// Describes the newest known quality of a run's model: the main metric next to its loss, and the
/// loss of the last mini-batches.
pub(crate) fn standing(status: &Status) -> Option<String> {
    let evaluated = status.evaluated.as_ref().map(|latest| {
        let main = main_of(Some(latest)).map(|(name, value)| format!("{}, ", named(name, value)));
        format!(
            "{}loss {:.4} at update {}",
            main.unwrap_or_default(),
            latest.loss,
            count(latest.version.0)
        )
    });
    let recent = status.loss.map(|loss| format!("loss {loss:.4} now"));
    let known: Vec<String> = evaluated.into_iter().chain(recent).collect();
    (!known.is_empty()).then(|| known.join("; "))
}

/// Returns all metrics of the latest evaluation.
pub(crate) fn all_of(latest: Option<&LatestEvaluation>) -> BTreeMap<String, f64> {
    latest.map_or_else(BTreeMap::new, |latest| latest.metrics.iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_and_other_numbers_have_four_digits() {
        for (name, value, text) in [
            ("accuracy", 0.912, "91.20 %"),
            ("auc", 1.0, "100.00 %"),
            ("rmse", 0.51234, "0.5123"),
            ("mae", 2.5e-5, "2.500e-5"),
            ("r2", -0.5, "-0.5000"),
            ("rmse", 12.3456, "12.35"),
            ("rmse", 0.012_345_6, "0.01235"),
            ("perplexity", 1234.6, "1235"),
            ("mae", 52_347.8, "52348"),
            ("rmse", 0.0, "0.000"),
        ] {
            assert_eq!(shown(name, value), text);
        }
        assert_eq!((title("macro_f1"), title("perplexity")), ("macro F1", "perplexity"));
    }
}
