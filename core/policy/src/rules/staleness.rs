//! Rules for stale gradients: their names, and the factor by which a stale gradient counts.

use serde::{Deserialize, Serialize};

use pstrain_compute::named;
use pstrain_compute::named::{Limits, Number, Presence, Word};

/// Rule for gradients that were computed on an earlier version, as the job names it.
///
/// Below, `g` is the gradient and `tau` its staleness: the number of updates since the version it
/// was computed on. Under every rule, a fresh gradient (`tau` 0) counts in full.
///
/// Every rule that depends on staleness lowers the weight of a slow worker, which already
/// contributes less often than the others. If workers hold different data, as with label skew, this
/// increases the bias; [`ParticipationSpec::Share`](super::ParticipationSpec::Share) reduces it.
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
    /// `g + now - then`, with the factor `(1 + tau)^-power`. With a difference of local training in
    /// place of `g`, plain gradient descent at rate `a` then mixes the parameters with the model
    /// that the worker trained: `(1 - a s) now + a s (then - g)`, where `s` is the factor (Xie,
    /// Koyejo and Gupta 2019, FedAsync with `s` polynomial, or constant with the power 0).
    Mixing {
        /// The power, 0 to [`GREATEST_POWER`].
        power: f64,
    },
    /// The same with the factor of [`StalenessSpec::Hinge`].
    MixingHinge {
        /// Slope of the decrease, above 0.
        slope: f64,
        /// The largest staleness with factor 1.
        free: u64,
    },
}

/// The largest power of [`StalenessSpec::Polynomial`].
pub const GREATEST_POWER: f64 = 8.0;

named!(StalenessSpec: "staleness rule", ',' {
    Plain = Word::new("plain", &[], "in full"),
    Inverse = Word::new("inverse", &[], "1/max(1,TAU)"),
    InversePlusOne = Word::new("inverse-plus-one", &[], "1/(1+TAU)"),
    Polynomial { power } = Word::new("polynomial",
        &[Number::real("POWER", Limits::Real(0.0, GREATEST_POWER)).usual("0.5")],
        "(1+TAU)^-POWER"),
    Hinge { slope, free } = Word::new("hinge",
        &[Number::real("SLOPE", Limits::POSITIVE).usual("10"),
          Number::any("FREE").with(Presence::Joined("4"))],
        "in full up to FREE, then 1/(SLOPE(TAU-FREE)+1)"),
    DynSgd = Word::new("dynsgd", &[], "averaged into its iteration"),
    Delay { lambda } =
        Word::new("dc", &[Number::real("LAMBDA", Limits::NOT_NEGATIVE).usual("0.04")],
            "corrected by how far the parameters have moved"),
    DelayAdaptive { lambda, memory } = Word::new("dc-adaptive",
        &[Number::real("LAMBDA", Limits::NOT_NEGATIVE).usual("2"),
          Number::real("MEMORY", Limits::PART).with(Presence::Joined("0.95"))],
        "as dc, with LAMBDA over the root of the mean squared gradient"),
    Mixing { power } = Word::new("mixing",
        &[Number::real("POWER", Limits::Real(0.0, GREATEST_POWER)).usual("0.5")],
        "towards the model that the worker trained, by (1+TAU)^-POWER; needs local training"),
    MixingHinge { slope, free } = Word::new("mixing-hinge",
        &[Number::real("SLOPE", Limits::POSITIVE).usual("10"),
          Number::any("FREE").with(Presence::Joined("4"))],
        "the same by the factor of hinge"),
    GapAware = Word::new("gap-aware", &[], "divided by how far the parameters have moved"),
});

impl StalenessSpec {
    /// The power its authors recommend.
    pub const POLYNOMIAL: Self = Self::Polynomial { power: 0.5 };
    /// The slope and the free staleness their authors recommend.
    pub const HINGE: Self = Self::Hinge { slope: 10.0, free: 4 };
    /// The power its authors recommend.
    pub const MIXING: Self = Self::Mixing { power: 0.5 };
    /// The slope and the free staleness their authors recommend.
    pub const MIXING_HINGE: Self = Self::MixingHinge { slope: 10.0, free: 4 };
    /// The lambda its authors recommend.
    pub const DELAY: Self = Self::Delay { lambda: 0.04 };
    /// The lambda and the memory that its authors recommend (for CIFAR-10).
    pub const DELAY_ADAPTIVE: Self = Self::DelayAdaptive { lambda: 2.0, memory: 0.95 };

    /// Returns true if it uses the parameters that a gradient was computed on.
    #[must_use]
    pub const fn needs_base(&self) -> bool {
        self.mixes()
            || matches!(self, Self::Delay { .. } | Self::DelayAdaptive { .. } | Self::GapAware)
    }

    /// Returns true if it mixes the parameters with the models of workers.
    #[must_use]
    pub const fn mixes(&self) -> bool {
        matches!(self, Self::Mixing { .. } | Self::MixingHinge { .. })
    }

    /// Returns the factor of a gradient of this staleness: in (0, 1], 1 for a fresh gradient, and
    /// non-increasing in staleness. 1 for rules that do not depend on staleness alone.
    #[must_use]
    pub fn factor(&self, staleness: u64) -> f64 {
        let tau = staleness as f64;
        match *self {
            Self::Inverse => 1.0 / tau.max(1.0),
            Self::InversePlusOne => 1.0 / (1.0 + tau),
            Self::Polynomial { power } | Self::Mixing { power } => libm::pow(1.0 + tau, -power),
            Self::Hinge { slope, free } | Self::MixingHinge { slope, free } => {
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
            "mixing:0",
            "mixing-hinge:10,4",
            "gap-aware",
        ] {
            assert_eq!(text.parse::<StalenessSpec>().unwrap().to_string(), text);
        }
        for (short, long) in [
            ("polynomial", "polynomial:0.5"),
            ("hinge", "hinge:10,4"),
            ("dc", "dc:0.04"),
            ("dc-adaptive", "dc-adaptive:2,0.95"),
            ("mixing", "mixing:0.5"),
            ("mixing-hinge", "mixing-hinge:10,4"),
        ] {
            assert_eq!(short.parse::<StalenessSpec>().unwrap().to_string(), long);
        }
        for (word, usual) in [
            ("polynomial", StalenessSpec::POLYNOMIAL),
            ("hinge", StalenessSpec::HINGE),
            ("dc", StalenessSpec::DELAY),
            ("dc-adaptive", StalenessSpec::DELAY_ADAPTIVE),
            ("mixing", StalenessSpec::MIXING),
            ("mixing-hinge", StalenessSpec::MIXING_HINGE),
        ] {
            assert_eq!(word.parse(), Ok(usual));
        }
    }

    #[test]
    fn other_words_and_numbers_are_refused_with_what_is_allowed() {
        let told = |text: &str| text.parse::<StalenessSpec>().unwrap_err().to_string();
        for text in
            ["", "Inverse", "inverse:1", "hinge:10", "hinge:10,-1", "dc-adaptive:1", "gap-aware:2"]
        {
            assert!(told(text).contains("hinge[:SLOPE,FREE]"), "{}", told(text));
        }
        for (text, says) in [
            ("polynomial:-1", "POWER must be from 0 to 8"),
            ("polynomial:9", "POWER must be from 0 to 8"),
            ("polynomial:NaN", "POWER must be from 0 to 8"),
            ("hinge:0,4", "SLOPE must be finite and above 0"),
            ("dc:-1", "LAMBDA must be finite and at least 0"),
            ("dc:inf", "LAMBDA must be finite and at least 0"),
            ("dc-adaptive:1,1", "MEMORY must be at least 0 and below 1"),
        ] {
            assert_eq!(told(text), alloc::format!("{text}: {says}"));
        }
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
