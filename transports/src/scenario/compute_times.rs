//! The setting `compute`: durations of mini-batches.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use serde::{Deserialize, Serialize};

use super::item::{ScenarioError, Who, as_text, items, unknown, write_items};
use super::outage::window;
use super::quantity::{Span, span};
use super::straggler_model::StragglerModel;

const SETTING: &str = "compute";

/// Durations of the mini-batches of each worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ComputeTimes {
    said: BTreeMap<Who, Said>,
}

as_text!(ComputeTimes);

/// Durations of the mini-batches of one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputeSpec {
    /// Duration of a mini-batch at ordinary speed.
    pub time: TimeModel,
    /// Factor by which the machine is slower; 1 is ordinary speed.
    pub factor: f64,
    /// Spans in which the machine is slower still.
    pub slow: Vec<Slowdown>,
}

/// Distribution of the duration of a mini-batch.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeModel {
    /// Constant.
    Fixed(Duration),
    /// Normally distributed; negative values become 0.
    Normal {
        /// The mean.
        mean: Duration,
        /// The standard deviation.
        deviation: Duration,
    },
    /// Log-normally distributed.
    LogNormal {
        /// The median.
        median: Duration,
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// Pareto distributed, plus a constant part.
    Pareto {
        /// The minimum of the random part.
        minimum: Duration,
        /// The exponent of the tail.
        alpha: f64,
        /// The constant part.
        plus: Duration,
    },
    /// Two states, fast and slow, starting in the fast one.
    Straggler {
        /// The time in the fast state.
        fast: Duration,
        /// The time in the slow state.
        slow: Duration,
        /// The probability that a slow mini-batch follows a fast one.
        enter: f64,
        /// The probability that a fast mini-batch follows a slow one.
        leave: f64,
    },
    /// The duration on the real machine.
    Measured,
}

/// A span in which a machine is slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// Factor by which the machine is slower in this span.
    pub factor: f64,
    /// Start of the span.
    pub begin: Time,
    /// Length of the span.
    pub length: Duration,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    time: Option<TimeModel>,
    factor: Option<f64>,
    slow: Option<Vec<Slowdown>>,
}

const KEYS: &[&str] = &["time", "factor", "slow"];

impl ComputeSpec {
    /// Returns the pace of a worker with these times. Its randomness depends only on `stream` and
    /// the worker, so it is the same in real and in virtual time.
    #[must_use]
    pub fn pace(self, worker: WorkerId, stream: Stream) -> StragglerModel {
        StragglerModel::new(self, stream.fork("compute", u64::from(worker.0)))
    }

    /// True if [`Self::with_measured`] must supply the duration of a mini-batch.
    #[must_use]
    pub fn needs_measurement(&self) -> bool {
        self.time == TimeModel::Measured
    }

    /// Replaces `measured` by a measured duration.
    #[must_use]
    pub fn with_measured(mut self, time: Duration) -> Self {
        if self.needs_measurement() {
            self.time = TimeModel::Fixed(time);
        }
        self
    }
}

impl ComputeTimes {
    /// True if no computation is modelled.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.said.is_empty()
    }

    /// Returns the times of one worker; `None` if its mini-batches have no duration.
    #[must_use]
    pub fn of(&self, worker: WorkerId) -> Option<ComputeSpec> {
        let own = self.said.get(&Who::Worker(worker));
        let said = [own, self.said.get(&Who::All)];
        let said = || said.into_iter().flatten();
        Some(ComputeSpec {
            time: said().find_map(|said| said.time.clone())?,
            factor: said().find_map(|said| said.factor).unwrap_or(1.0),
            slow: said().find_map(|said| said.slow.clone()).unwrap_or_default(),
        })
    }

    /// Rejects items about workers that the job does not have, and factors or slow-downs without a
    /// duration of a mini-batch.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item.
    pub fn check(&self, workers: u32) -> Result<(), ScenarioError> {
        let all_timed = self.said.get(&Who::All).is_some_and(|said| said.time.is_some());
        for (&who, said) in &self.said {
            let item = said.items().into_iter().next().unwrap_or_default();
            let error = |problem| ScenarioError::new(SETTING, format!("{who}.{item}"), problem);
            who.check(workers).map_err(error)?;
            let others_timed = who == Who::All
                && (0..workers).all(|worker| {
                    let own = self.said.get(&Who::Worker(WorkerId(worker)));
                    own.is_some_and(|said| said.time.is_some())
                });
            if said.time.is_none() && !all_timed && !others_timed {
                return Err(error(format!(
                    "it is not said what a mini-batch takes; add {who}.time=4.5ms or the like"
                )));
            }
        }
        Ok(())
    }

    fn take(&mut self, item: &str) -> Result<(), String> {
        let (who, key, value) = match item.split_once('=') {
            None => (Who::All, "time", item),
            Some((path, value)) => match path.split_once('.') {
                None => (Who::All, path, value),
                Some((who, key)) => (Who::read(who)?, key, value),
            },
        };
        if matches!(who, Who::Site(_)) {
            return Err("a site computes no gradients; say it of a worker or of all".into());
        }
        if matches!(who, Who::Server | Who::Standby) {
            return Err("the server computes no gradients; say it of a worker or of all".into());
        }
        let mut said = self.said.get(&who).cloned().unwrap_or_default();
        match key {
            "time" => said.time = Some(value.parse()?),
            "factor" => said.factor = Some(factor(value)?),
            "slow" if value == "none" => said.slow = Some(Vec::new()),
            "slow" => said.slow.get_or_insert_default().push(value.parse()?),
            _ => return Err(unknown("key of a computation", key, KEYS)),
        }
        self.said.insert(who, said);
        Ok(())
    }
}

impl Said {
    fn items(&self) -> Vec<String> {
        let mut items = Vec::new();
        items.extend(self.time.as_ref().map(|time| format!("time={time}")));
        items.extend(self.factor.map(|factor| format!("factor={factor}")));
        match self.slow.as_deref() {
            Some([]) => items.push("slow=none".into()),
            slow => items.extend(slow.iter().copied().flatten().map(|slow| format!("slow={slow}"))),
        }
        items
    }
}

impl FromStr for ComputeTimes {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let mut times = Self::default();
        for item in items(SETTING, text)? {
            times.take(item).map_err(|problem| ScenarioError::new(SETTING, item, problem))?;
        }
        Ok(times)
    }
}

impl fmt::Display for ComputeTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.said.iter().flat_map(|(who, said)| {
            said.items().into_iter().map(move |item| format!("{who}.{item}"))
        });
        write_items(f, items)
    }
}

/// Parses a number in `range`, which `allowed` describes in words.
fn number(
    text: &str,
    range: impl std::ops::RangeBounds<f64>,
    allowed: &str,
) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| format!("{text:?} must be {allowed}"))
}

fn factor(text: &str) -> Result<f64, String> {
    number(text, 0.001..=1e6, "a factor from 0.001 to 1000000")
}

fn probability(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0, "a probability from 0 to 1")
}

impl FromStr for TimeModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        let fields: Vec<&str> = rest.split(',').collect();
        Ok(match (word, fields.as_slice()) {
            ("normal", [mean, deviation]) => {
                Self::Normal { mean: span(mean)?, deviation: span(deviation)? }
            }
            ("lognormal", [median, sigma]) => Self::LogNormal {
                median: span(median)?,
                sigma: number(sigma, 0.0..=10.0, "a number from 0 to 10")?,
            },
            ("exponential", [mean]) => Self::Exponential { mean: span(mean)? },
            ("pareto", [minimum, alpha, plus @ ..]) if plus.len() <= 1 => Self::Pareto {
                minimum: span(minimum)?,
                alpha: number(alpha, 0.1..=1000.0, "a number from 0.1 to 1000")?,
                plus: plus.first().map_or(Ok(Duration::ZERO), |plus| span(plus))?,
            },
            ("straggler", [fast, slow, enter, leave]) => Self::Straggler {
                fast: span(fast)?,
                slow: span(slow)?,
                enter: probability(enter)?,
                leave: probability(leave)?,
            },
            ("measured", [""]) => Self::Measured,
            _ => match span(text) {
                Ok(time) => Self::Fixed(time),
                Err(_) => {
                    return Err(format!(
                        "{text:?} is no time of a mini-batch; use a time such as 4.5ms, \
                         normal:MEAN,DEVIATION, lognormal:MEDIAN,SIGMA, exponential:MEAN, \
                         pareto:MINIMUM,ALPHA[,PLUS], straggler:FAST,SLOW,P_ENTER,P_LEAVE or \
                         measured"
                    ));
                }
            },
        })
    }
}

impl fmt::Display for TimeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed(time) => Span(time).fmt(f),
            Self::Normal { mean, deviation } => {
                write!(f, "normal:{},{}", Span(mean), Span(deviation))
            }
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{},{sigma}", Span(median)),
            Self::Exponential { mean } => write!(f, "exponential:{}", Span(mean)),
            Self::Pareto { minimum, alpha, plus: Duration::ZERO } => {
                write!(f, "pareto:{},{alpha}", Span(minimum))
            }
            Self::Pareto { minimum, alpha, plus } => {
                write!(f, "pareto:{},{alpha},{}", Span(minimum), Span(plus))
            }
            Self::Straggler { fast, slow, enter, leave } => {
                write!(f, "straggler:{},{},{enter},{leave}", Span(fast), Span(slow))
            }
            Self::Measured => f.write_str("measured"),
        }
    }
}

impl FromStr for Slowdown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('@').and_then(|(times, when)| Some((times.strip_suffix('x')?, when)));
        let Some((times, when)) = parts else {
            return Err(format!(
                "{text:?} is no slow-down; write FACTORx@START+LENGTH, such as 10x@30s+60s"
            ));
        };
        let (begin, length) = window(when)?;
        Ok(Self { factor: factor(times)?, begin, length })
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = Span(self.begin.since(Time::ZERO));
        write!(f, "{}x@{begin}+{}", self.factor, Span(self.length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(text: &str) -> ComputeTimes {
        text.parse().unwrap()
    }

    #[test]
    fn a_worker_has_its_own_times_or_those_of_all() {
        let times = times("4.5ms 2.factor=4 3.time=normal:2ms,100us slow=2x@1s+1s 3.slow=none");
        let fixed = TimeModel::Fixed(Duration::from_micros(4_500));
        let slow = vec!["2x@1s+1s".parse().unwrap()];
        let first = ComputeSpec { time: fixed, factor: 1.0, slow };
        assert_eq!(times.of(WorkerId(0)), Some(first.clone()));
        assert_eq!(times.of(WorkerId(1)), Some(ComputeSpec { factor: 4.0, ..first }));
        let third = times.of(WorkerId(2)).unwrap();
        assert!(matches!(third.time, TimeModel::Normal { .. }) && third.slow.is_empty());
    }

    #[test]
    fn what_must_be_measured_says_so() {
        let spec = times("measured").of(WorkerId(0)).unwrap();
        assert!(spec.needs_measurement());
        let spec = spec.with_measured(Duration::from_millis(3));
        assert_eq!(spec.time, TimeModel::Fixed(Duration::from_millis(3)));
        assert_eq!(spec.clone().with_measured(Duration::ZERO), spec);
    }

    #[test]
    fn a_missing_time_is_an_error() {
        assert_eq!(times("1.time=1ms").of(WorkerId(1)), None);
        assert_eq!(times("1.time=1ms 2.time=2ms factor=3").check(2), Ok(()));
        for text in ["2.factor=4", "factor=4", "1.time=1ms factor=4"] {
            let error = times(text).check(2).unwrap_err().to_string();
            assert!(error.contains("what a mini-batch takes"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_the_item_and_what_is_allowed() {
        for (text, told) in [
            (
                "1.tim=5ms",
                "compute: 1.tim=5ms: \"tim\" is no key of a computation (did you mean time?)",
            ),
            (
                "norml:1ms,1ms",
                "compute: norml:1ms,1ms: \"norml:1ms,1ms\" is no time of a mini-batch; use",
            ),
            ("factor=0", "compute: factor=0: \"0\" must be a factor from 0.001 to 1000000"),
            (
                "straggler:1ms,2ms,2,0",
                "compute: straggler:1ms,2ms,2,0: \"2\" must be a probability",
            ),
            (
                "slow=10@1s+1s",
                "compute: slow=10@1s+1s: \"10@1s+1s\" is no slow-down; write FACTORx",
            ),
            ("server.time=1ms", "compute: server.time=1ms: the server computes no gradients"),
        ] {
            let error = text.parse::<ComputeTimes>().unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }

    fn item() -> impl Strategy<Value = String> {
        let who =
            prop_oneof![Just("all".to_owned()), (1_u32..5).prop_map(|worker| worker.to_string()),];
        let value = prop_oneof![
            (0_u64..u64::MAX).prop_map(|ns| format!("time={}", Span(Duration::from_nanos(ns)))),
            (1_u32..999, 0.0..10.0).prop_map(|(ms, s)| format!("time=lognormal:{ms}ms,{s}")),
            (1_u32..999, 0.0..1.0).prop_map(|(ms, p)| format!("time=straggler:1s,{ms}us,{p},0.5")),
            Just("time=exponential:5ms".to_owned()),
            Just("time=pareto:1ms,2.5".to_owned()),
            Just("time=pareto:1ms,1.2,5ms".to_owned()),
            Just("time=measured".to_owned()),
            (0.001..1e6).prop_map(|factor| format!("factor={factor}")),
            (0.001..1e6, 0_u32..99).prop_map(|(x, at)| format!("slow={x}x@{at}ms+1s")),
            Just("slow=none".to_owned()),
        ];
        (who, value).prop_map(|(who, value)| format!("{who}.{value}"))
    }

    proptest! {
        #[test]
        fn the_canonical_text_reads_back(items in prop::collection::vec(item(), 0..9)) {
            let times = times(&items.join(" "));
            prop_assert_eq!(times.to_string().parse::<ComputeTimes>().unwrap(), times);
        }
    }
}
