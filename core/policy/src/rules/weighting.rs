//! Names of the rules for stale gradients and for unequal participation.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Rule for gradients that were computed on an earlier version, as the job names it.
///
/// Below, `g` is the gradient and `tau` its staleness: the number of updates since the version it
/// was computed on. Under every rule, a fresh gradient (`tau` 0) counts in full.
///
/// Every rule that depends on staleness lowers the weight of a slow worker, which already
/// contributes less often than the others. If workers hold different data, as with label skew, this
/// increases the bias; [`ParticipationSpec::Share`] reduces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum StalenessSpec {
    /// No correction: the gradient counts as if it were fresh.
    #[default]
    Plain,
    /// Factor `1 / max(1, tau)` (Zhang, Gupta, Lian and Liu, IJCAI 2016).
    Inverse,
    /// Factor `1 / (1 + tau)`: the form that most programs took from the same paper.
    InversePlusOne,
    /// Factor `(1 + tau)^-power` (Xie, Koyejo and Gupta 2019, polynomial).
    Polynomial {
        /// The power, 0 to [`GREATEST_POWER`].
        power: f64,
    },
    /// Factor 1 up to a staleness of `free`, then `1 / (slope (tau - free) + 1)` (Xie, Koyejo and
    /// Gupta 2019, hinge).
    Hinge {
        /// Slope of the decrease, above 0.
        slope: f64,
        /// The largest staleness with factor 1.
        free: u64,
    },
    /// Each iteration of the workers contributes the mean of the gradients that have arrived for
    /// it: a late gradient is averaged in, and the contribution of earlier ones is revised (Jiang,
    /// Cui, Zhang and Yu, SIGMOD 2017, DynSGD). An update is the change of that mean under any
    /// aggregation.
    DynSgd,
    /// `g + lambda g g (now - then)`, element by element, with the current parameters and the ones
    /// that the gradient was computed on (Zheng et al., ICML 2017, DC-ASGD-c).
    Delay {
        /// The strength, 0 or more.
        lambda: f64,
    },
    /// The same with `lambda / sqrt(MS + 1e-7)` and `MS` the running mean of `g g` (Zheng et al.,
    /// ICML 2017, DC-ASGD-a).
    DelayAdaptive {
        /// The strength, 0 or more.
        lambda: f64,
        /// The share of `MS` that is kept at each gradient, in [0, 1).
        memory: f64,
    },
    /// `g / P`, element by element, with `P = 1 + |now - then| / C` and `C` the usual movement of a
    /// parameter in one update: the distance moved counts, not the number of updates (Barkai,
    /// Hakimi and Schuster, ICLR 2020). Weight decay is added in full: the source divides it by `P`
    /// as well where it is part of the gradient.
    GapAware,
}

/// Rule for workers that contribute more often than others, as the job names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParticipationSpec {
    /// No rule: a worker that contributes more often counts more.
    #[default]
    Plain,
    /// A gradient counts for its worker's share of the data over its share of the gradients, at
    /// most 20 (importance weights; Leconte et al. 2024).
    Share,
    /// Each update steps with the latest gradients of all workers, by their shares of the data
    /// (incremental aggregated gradient: Blatt, Hero and Gauchman 2007; for learning from
    /// intermittently present workers, Gu et al. 2021). Keeps one gradient per worker and their
    /// sum in memory.
    Incremental,
}

/// The largest power of [`StalenessSpec::Polynomial`].
pub const GREATEST_POWER: f64 = 8.0;

const STALENESS: &str = "plain, inverse, inverse-plus-one, polynomial[:POWER] with 0 to 8, \
     hinge[:SLOPE,FREE] with a slope above 0 and a whole number of updates, 18446744073709551615 at \
     most, dynsgd, dc[:LAMBDA] and dc-adaptive[:LAMBDA,MEMORY] with a finite lambda of 0 or more \
     and a memory from 0 to below 1, or gap-aware";

impl StalenessSpec {
    /// The power its authors recommend.
    pub const POLYNOMIAL: Self = Self::Polynomial { power: 0.5 };
    /// The slope and the free staleness their authors recommend.
    pub const HINGE: Self = Self::Hinge { slope: 10.0, free: 4 };
    /// The lambda its authors recommend.
    pub const DELAY: Self = Self::Delay { lambda: 0.04 };
    /// The lambda and the memory that its authors recommend (for CIFAR-10).
    pub const DELAY_ADAPTIVE: Self = Self::DelayAdaptive { lambda: 2.0, memory: 0.95 };

    /// Returns true if its numbers are in their ranges.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let is_strength = |lambda: f64| lambda.is_finite() && lambda >= 0.0;
        match *self {
            Self::Polynomial { power } => (0.0..=GREATEST_POWER).contains(&power),
            Self::Hinge { slope, .. } => slope.is_finite() && slope > 0.0,
            Self::Delay { lambda } => is_strength(lambda),
            Self::DelayAdaptive { lambda, memory } => {
                is_strength(lambda) && (0.0..1.0).contains(&memory)
            }
            Self::Plain | Self::Inverse | Self::InversePlusOne | Self::DynSgd | Self::GapAware => {
                true
            }
        }
    }

    /// Returns the factor of a gradient of this staleness: in (0, 1], 1 for a fresh gradient, and
    /// non-increasing in staleness. 1 for rules that do not depend on staleness alone.
    #[must_use]
    pub fn factor(&self, staleness: u64) -> f64 {
        let tau = staleness as f64;
        match *self {
            Self::Inverse => 1.0 / tau.max(1.0),
            Self::InversePlusOne => 1.0 / (1.0 + tau),
            Self::Polynomial { power } => libm::pow(1.0 + tau, -power),
            Self::Hinge { slope, free } => {
                1.0 / (slope * staleness.saturating_sub(free) as f64 + 1.0)
            }
            Self::Plain
            | Self::DynSgd
            | Self::Delay { .. }
            | Self::DelayAdaptive { .. }
            | Self::GapAware => 1.0,
        }
    }
}

impl fmt::Display for StalenessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            Self::Inverse => f.write_str("inverse"),
            Self::InversePlusOne => f.write_str("inverse-plus-one"),
            Self::Polynomial { power } => write!(f, "polynomial:{power}"),
            Self::Hinge { slope, free } => write!(f, "hinge:{slope},{free}"),
            Self::DynSgd => f.write_str("dynsgd"),
            Self::Delay { lambda } => write!(f, "dc:{lambda}"),
            Self::DelayAdaptive { lambda, memory } => write!(f, "dc-adaptive:{lambda},{memory}"),
            Self::GapAware => f.write_str("gap-aware"),
        }
    }
}

impl fmt::Display for ParticipationSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Share => "share",
            Self::Incremental => "incremental",
        })
    }
}

/// A text that names no rule, or a rule with numbers out of range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRule {
    text: String,
    known: &'static str,
}

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no such rule: use {}", self.text, self.known)
    }
}

impl core::error::Error for UnknownRule {}

impl FromStr for StalenessSpec {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        parse(text)
            .filter(Self::is_valid)
            .ok_or_else(|| UnknownRule { text: text.into(), known: STALENESS })
    }
}

/// Parses the rule without checking the ranges of its numbers.
fn parse(text: &str) -> Option<StalenessSpec> {
    let (word, numbers) = match text.split_once(':') {
        Some((word, numbers)) => (word, Some(numbers)),
        None => (text, None),
    };
    let one = |numbers: &str| numbers.trim().parse::<f64>().ok();
    Some(match (word, numbers) {
        ("plain", None) => StalenessSpec::Plain,
        ("inverse", None) => StalenessSpec::Inverse,
        ("inverse-plus-one", None) => StalenessSpec::InversePlusOne,
        ("polynomial", None) => StalenessSpec::POLYNOMIAL,
        ("polynomial", Some(power)) => StalenessSpec::Polynomial { power: one(power)? },
        ("hinge", None) => StalenessSpec::HINGE,
        ("hinge", Some(numbers)) => {
            let (slope, free) = numbers.split_once(',')?;
            StalenessSpec::Hinge { slope: one(slope)?, free: free.trim().parse().ok()? }
        }
        ("dynsgd", None) => StalenessSpec::DynSgd,
        ("dc", None) => StalenessSpec::DELAY,
        ("dc", Some(lambda)) => StalenessSpec::Delay { lambda: one(lambda)? },
        ("dc-adaptive", None) => StalenessSpec::DELAY_ADAPTIVE,
        ("dc-adaptive", Some(numbers)) => {
            let (lambda, memory) = numbers.split_once(',')?;
            StalenessSpec::DelayAdaptive { lambda: one(lambda)?, memory: one(memory)? }
        }
        ("gap-aware", None) => StalenessSpec::GapAware,
        _ => return None,
    })
}

impl FromStr for ParticipationSpec {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        match text {
            "plain" => Ok(Self::Plain),
            "share" => Ok(Self::Share),
            "incremental" => Ok(Self::Incremental),
            _ => Err(UnknownRule { text: text.into(), known: "plain, share or incremental" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rules_are_named_by_a_word_and_numbers() {
        for text in [
            "plain",
            "inverse",
            "inverse-plus-one",
            "polynomial:0.25",
            "hinge:0.1,0",
            "dynsgd",
            "dc:0.04",
            "dc-adaptive:2,0.95",
            "gap-aware",
        ] {
            assert_eq!(text.parse::<StalenessSpec>().unwrap().to_string(), text);
        }
        for (short, long) in [
            ("polynomial", "polynomial:0.5"),
            ("hinge", "hinge:10,4"),
            ("dc", "dc:0.04"),
            ("dc-adaptive", "dc-adaptive:2,0.95"),
        ] {
            assert_eq!(short.parse::<StalenessSpec>().unwrap().to_string(), long);
        }
        for text in ["plain", "share", "incremental"] {
            assert_eq!(text.parse::<ParticipationSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_words_and_numbers_are_refused_with_what_is_allowed() {
        for text in [
            "",
            "Inverse",
            "inverse:1",
            "polynomial:-1",
            "polynomial:9",
            "polynomial:NaN",
            "hinge:0,4",
            "hinge:10",
            "hinge:10,-1",
            "dc:-1",
            "dc:inf",
            "dc-adaptive:1,1",
            "dc-adaptive:1",
            "gap-aware:2",
        ] {
            let error = text.parse::<StalenessSpec>().unwrap_err().to_string();
            assert!(error.contains("hinge[:SLOPE,FREE]"), "{error}");
        }
        let error = "shares".parse::<ParticipationSpec>().unwrap_err().to_string();
        assert_eq!(error, r#""shares" is no such rule: use plain, share or incremental"#);
    }

    #[test]
    fn factors_are_those_of_the_papers() {
        let factors = |spec: StalenessSpec| [0, 1, 3, 4, 5, 6].map(|tau| spec.factor(tau));
        assert_eq!(factors(StalenessSpec::Inverse), [1.0, 1.0, 1.0 / 3.0, 0.25, 0.2, 1.0 / 6.0]);
        assert_eq!(
            factors(StalenessSpec::InversePlusOne),
            [1.0, 0.5, 0.25, 0.2, 1.0 / 6.0, 1.0 / 7.0]
        );
        assert_eq!(factors(StalenessSpec::HINGE), [1.0, 1.0, 1.0, 1.0, 1.0 / 11.0, 1.0 / 21.0]);
        let half = factors(StalenessSpec::POLYNOMIAL);
        assert!((half[2] - 0.5).abs() < 1e-15 && (half[1] - 0.5_f64.sqrt()).abs() < 1e-15);
    }

    fn rules() -> impl Strategy<Value = StalenessSpec> {
        prop_oneof![
            Just(StalenessSpec::Plain),
            Just(StalenessSpec::Inverse),
            Just(StalenessSpec::InversePlusOne),
            (0.0..=GREATEST_POWER).prop_map(|power| StalenessSpec::Polynomial { power }),
            (1e-3..1e3, 0..50_u64).prop_map(|(slope, free)| StalenessSpec::Hinge { slope, free }),
            Just(StalenessSpec::DynSgd),
            Just(StalenessSpec::DELAY),
            Just(StalenessSpec::DELAY_ADAPTIVE),
            Just(StalenessSpec::GapAware),
        ]
    }

    proptest! {
        #[test]
        fn factors_fall_from_one_and_stay_above_zero(
            rule in rules(),
            tau in prop_oneof![0..100_u64, any::<u64>()],
            more in 0..100_u64,
        ) {
            prop_assert_eq!(rule.factor(0), 1.0);
            let (sooner, later) = (rule.factor(tau), rule.factor(tau.saturating_add(more)));
            prop_assert!(0.0 < later && later <= sooner && sooner <= 1.0);
        }

        #[test]
        fn every_rule_is_read_as_it_is_written(rule in rules()) {
            prop_assert_eq!(rule.to_string().parse::<StalenessSpec>().unwrap(), rule);
        }
    }
}
