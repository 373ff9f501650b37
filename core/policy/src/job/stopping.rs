//! When a run evaluates its parameters, and when an evaluation ends it.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use pstrain_compute::evaluation::{Evaluation, Figures, METRICS, Metric};
use serde::{Deserialize, Serialize};

/// Evaluations of a run, and the ends that depend on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stopping {
    /// Passes over the training data between two evaluations, above 0.
    pub evaluate_every: f64,
    /// The run ends once an evaluation reaches it.
    pub target: Option<Goal>,
    /// The run ends after so many evaluations, 1 or more, of which none was the best.
    pub patience: Option<u32>,
    /// The parameters that are the model of the run.
    pub keep: Keep,
}

/// The parameters that are the model of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// The last.
    #[default]
    Last,
    /// The best that were evaluated, by the number that patience watches; the last if there are
    /// none.
    Best,
}

impl Default for Stopping {
    fn default() -> Self {
        Self { evaluate_every: 1.0, target: None, patience: None, keep: Keep::Last }
    }
}

impl Stopping {
    /// Training examples between two evaluations, where the workers have `rows` together.
    #[must_use]
    pub fn interval(&self, rows: u64) -> u64 {
        // The product of whole passes is exact below 2^53 rows.
        (libm::round(self.evaluate_every * rows as f64) as u64).max(1)
    }

    /// The number that `patience` watches: the target's, else the loss.
    #[must_use]
    pub fn watched(&self, evaluation: &Evaluation) -> Option<f64> {
        value_of(self.target.as_ref().map_or(LOSS, |goal| &goal.metric), evaluation)
    }

    /// The metric of the target, if the evaluation does not have it.
    #[must_use]
    pub fn unknown(&self, evaluation: &Evaluation) -> Option<&str> {
        let goal = self.target.as_ref()?;
        let is_known = match (goal.metric.as_str(), &evaluation.figures) {
            (LOSS, _) => true,
            (metric, Figures::Named(values)) => values.contains_key(metric),
            (metric, Figures::Classes(_) | Figures::Value(_)) => Metric::find(metric).is_some(),
        };
        (!is_known).then_some(&goal.metric)
    }

    /// The number that `patience` watches, if the evaluation has rows and is better than `best`,
    /// the best one before it.
    #[must_use]
    pub fn better(&self, evaluation: &Evaluation, best: Option<f64>) -> Option<f64> {
        let is_higher_better = self.target.as_ref().is_some_and(|goal| goal.is_higher_better);
        let is_better =
            |value: f64, best| if is_higher_better { value > best } else { value < best };
        let value = self.watched(evaluation).filter(|_| evaluation.examples > 0)?;
        best.is_none_or(|best| is_better(value, best)).then_some(value)
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !(self.evaluate_every > 0.0 && self.evaluate_every.is_finite()) {
            return Err("evaluate-every: must be a number of passes above 0");
        }
        if self.patience == Some(0) {
            return Err("patience: must be 1 evaluation or more");
        }
        Ok(())
    }
}

/// A quality to reach, as users write it: `accuracy=0.95`, `loss=0.1`; or, for metrics that a
/// compute process names, `bleu>=30` and `perplexity<=20`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Goal {
    /// Name of a metric, or `loss`.
    pub metric: String,
    /// The least value, or the greatest if lower ones are better.
    pub value: f64,
    /// True if a better model has a higher value.
    pub is_higher_better: bool,
}

/// The name of the loss among metrics.
const LOSS: &str = "loss";

impl Goal {
    /// True if an evaluation has this value or a better one.
    #[must_use]
    pub fn is_reached(&self, evaluation: &Evaluation) -> bool {
        value_of(&self.metric, evaluation).is_some_and(|value| {
            if self.is_higher_better { value >= self.value } else { value <= self.value }
        })
    }

    /// True if evaluations of a model of pstrain may have it: it is the loss, or one of `metrics`.
    pub fn is_among(&self, mut metrics: impl Iterator<Item = &'static Metric>) -> bool {
        self.metric == LOSS || metrics.any(|metric| metric.name == self.metric)
    }

    /// True if it is a loss below 0, which no loss of pstrain reaches.
    #[must_use]
    pub fn is_negative_loss(&self) -> bool {
        self.metric == LOSS && self.value < 0.0
    }
}

/// The value of an evaluation; `None` if it has none, or one that is not finite.
fn value_of(metric: &str, evaluation: &Evaluation) -> Option<f64> {
    let value = match metric {
        LOSS => Some(evaluation.loss),
        metric => {
            let mut all = evaluation.named().into_iter();
            all.find(|(name, _)| name == metric).map(|(_, value)| value)
        }
    };
    value.filter(|value| value.is_finite())
}

/// Returns whether higher values of a metric are better; `None` if that is not known.
fn is_higher_better(metric: &str) -> Option<bool> {
    if metric == LOSS {
        return Some(false);
    }
    Metric::find(metric).map(|metric| metric.is_higher_better)
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (metric, compared, value) = if let Some((metric, value)) = text.split_once(">=") {
            (metric, Some(true), value)
        } else if let Some((metric, value)) = text.split_once("<=") {
            (metric, Some(false), value)
        } else if let Some((metric, value)) = text.split_once('=') {
            (metric, None, value)
        } else {
            return Err(format!("{text:?} names no value: write METRIC=VALUE, as accuracy=0.95"));
        };
        if metric.is_empty() {
            return Err(format!("{text:?} names no metric: write METRIC=VALUE, as accuracy=0.95"));
        }
        let number = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite());
        let value =
            number(value).ok_or_else(|| match value.strip_suffix('%').and_then(number) {
                Some(percent) => format!("{value:?} is no number: write {}", percent / 100.0),
                None => format!("{value:?} is no number"),
            })?;
        if let Some(Metric { is_share, range: (least, most), .. }) = Metric::find(metric)
            && !(*least..=*most).contains(&value)
        {
            return Err(match is_share {
                true => format!("{metric} is a share, from 0 to 1: 0.95 is 95 %"),
                false if value < *least => format!("{metric} is never below {least}"),
                false => format!("{metric} is never above {most}"),
            });
        }
        let known = is_higher_better(metric);
        let is_higher_better = match (known, compared) {
            (Some(known), Some(compared)) if known != compared => {
                let right = if known { ">=" } else { "<=" };
                return Err(format!("a better model has {metric}{right}{value}"));
            }
            (Some(known), _) => known,
            (None, Some(compared)) => compared,
            (None, None) => {
                let names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
                return Err(format!(
                    "{metric:?} is not known: use loss, {}, or for a metric of a compute process \
                     {metric}>={value} or {metric}<={value}",
                    names.join(", ")
                ));
            }
        };
        Ok(Self { metric: metric.to_owned(), value, is_higher_better })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compared = if self.is_higher_better { ">=" } else { "<=" };
        write!(f, "{}{compared}{}", self.metric, self.value)
    }
}

impl TryFrom<String> for Goal {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Goal> for String {
    fn from(goal: Goal) -> Self {
        format!("{goal}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::string::ToString;
    use pstrain_compute::evaluation::ClassFigures;

    fn named(loss: f64, name: &str, value: f64) -> Evaluation {
        let figures = Figures::Named(BTreeMap::from([(name.to_owned(), value)]));
        Evaluation { examples: 10, loss, figures, ..Evaluation::default() }
    }

    #[test]
    fn goals_are_read_written_and_reached() {
        for (text, written, not_yet, reached) in [
            ("accuracy=0.95", "accuracy>=0.95", 0.949, 0.95),
            ("rmse=0.5", "rmse<=0.5", 0.51, 0.5),
            ("loss=0.1", "loss<=0.1", 0.2, 0.01),
            // A compute process may have such a loss.
            ("loss=-3", "loss<=-3", -2.5, -3.5),
            ("r2=-1", "r2>=-1", -1.5, 0.5),
            ("bleu>=30", "bleu>=30", 29.0, 31.0),
            ("perplexity<=20", "perplexity<=20", 21.0, 20.0),
        ] {
            let goal: Goal = text.parse().unwrap();
            assert_eq!(goal.to_string(), written);
            assert_eq!(written.parse(), Ok(goal.clone()));
            let of = |value| match goal.metric.as_str() {
                "loss" => named(value, "x", 0.0),
                name => named(9.0, name, value),
            };
            assert!(!goal.is_reached(&of(not_yet)) && goal.is_reached(&of(reached)), "{text}");
            assert!(!goal.is_reached(&of(f64::NAN)), "{text}");
            assert!(!goal.is_reached(&named(f64::NAN, "another", 1.0)), "{text}");
        }
        for (text, words) in [
            ("accuracy", "names no value"),
            ("accuracy=high", "\"high\" is no number"),
            ("accuracy=nan", "is no number"),
            ("accuracy=95", "accuracy is a share, from 0 to 1"),
            ("accuracy=-1", "accuracy is a share, from 0 to 1"),
            ("accuracy=90%", "\"90%\" is no number: write 0.9"),
            ("loss=much%", "\"much%\" is no number"),
            ("=0.5", "names no metric"),
            ("rmse=-1", "rmse is never below 0"),
            ("r2=1.5", "r2 is never above 1"),
            ("accuracy<=0.9", "a better model has accuracy>=0.9"),
            ("acuracy=0.9", "use loss, accuracy, macro_f1"),
        ] {
            let error = text.parse::<Goal>().unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_metric_is_unknown_if_no_evaluation_names_it_and_known_if_it_is_not_finite() {
        let of = |goal: &str| Stopping { target: goal.parse().ok(), ..Stopping::default() };
        let named = named(1.0, "bleu", f64::NAN);
        assert_eq!(of("blue>=30").unknown(&named), Some("blue"));
        assert_eq!(of("accuracy=0.9").unknown(&named), Some("accuracy"));
        for known in ["bleu>=30", "loss=0.1"] {
            assert_eq!(of(known).unknown(&named), None, "{known}");
        }
        assert_eq!(Stopping::default().unknown(&named), None, "there is no target");
        let figures = Figures::Classes(ClassFigures::default());
        let one_class = Evaluation { figures, ..Evaluation::default() };
        assert_eq!(of("auc=0.9").unknown(&one_class), None, "it is not defined there");
    }

    #[test]
    fn an_evaluation_is_better_by_the_metric_of_the_target_and_otherwise_by_the_loss() {
        let by = |target: Option<&str>| {
            let target = target.map(|it| it.parse().unwrap());
            move |value, best| {
                let stopping = Stopping { target: target.clone(), ..Stopping::default() };
                stopping.better(&named(value, "bleu", -value), best)
            }
        };
        let (loss, bleu) = (by(None), by(Some("bleu>=30")));
        assert_eq!((loss(2.0, None), loss(2.0, Some(3.0))), (Some(2.0), Some(2.0)));
        assert_eq!((loss(2.0, Some(2.0)), loss(f64::NAN, None)), (None, None));
        assert_eq!((bleu(2.0, Some(-3.0)), bleu(2.0, Some(-1.0))), (Some(-2.0), None));
        let without_rows = Evaluation { examples: 0, ..named(2.0, "bleu", 1.0) };
        assert_eq!(Stopping::default().better(&without_rows, None), None);
    }

    #[test]
    fn evaluations_are_some_examples_apart() {
        let every = |evaluate_every| Stopping { evaluate_every, ..Stopping::default() };
        assert_eq!(every(1.0).interval(1_001), 1_001);
        assert_eq!(every(0.25).interval(1_001), 250);
        assert_eq!(every(3.0).interval(10), 30);
        assert_eq!(every(1e-9).interval(10), 1);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(every(wrong).check().is_err());
        }
    }
}
