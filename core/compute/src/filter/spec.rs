//! Settings of the filters, as words in the job.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::PullFilter;
use crate::optim::{OptimizerSpec, UpdateSpec};

/// The gradient and parameter filters of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filters {
    /// The filters in the order of application: sparsifiers, then at most one filter that encodes
    /// the values.
    pub chain: Vec<FilterSpec>,
    /// Controls if the residual of the filters is added to the next gradient.
    pub error_feedback: ErrorFeedback,
    /// The filter of the parameters that workers pull.
    pub pull: PullFilter,
    /// Controls if the keys of a sparse model's working set are sent once only.
    pub key_caching: KeyCaching,
}

/// Key caching: a list of keys that the receiver knows is not sent again (Li et al., OSDI 2014).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyCaching {
    /// For a known list only its digest is sent, once per connection.
    #[default]
    On,
    /// The list is sent with each gradient, to measure its cost.
    Off,
}

words!(KeyCaching { On = "on", Off = "off" });

/// Error feedback: adding the residual of the filters to the worker's next gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorFeedback {
    /// On if one of the filters is biased, i.e. its mean is not the gradient.
    #[default]
    Auto,
    /// Always on. Random sparsifiers then do not scale values up.
    On,
    /// Always off: the residual is discarded.
    Off,
}

words!(ErrorFeedback { Auto = "auto", On = "on", Off = "off" });

/// The setting of one filter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum FilterSpec {
    /// Omits keys with value 0. Loses only the sign of zeros.
    ZeroSkip,
    /// Sends only values of a magnitude above `delta` (significantly modified: Li et al., OSDI
    /// 2014).
    Significant {
        /// The magnitude, 0 or more.
        delta: f32,
    },
    /// Sends each key with probability `share`, its value divided by `share` (random skip: Li et
    /// al., OSDI 2014).
    RandomSkip {
        /// The probability, above 0 and up to 1.
        share: f64,
    },
    /// Sends a random `share` of the keys, their values divided by `share` (Stich, Cordonnier and
    /// Jaggi, NeurIPS 2018).
    RandomK {
        /// The share, above 0 and up to 1.
        share: f64,
    },
    /// Sends the `share` of the keys with the largest magnitudes (Aji and Heafield, EMNLP 2017).
    TopK {
        /// The share, above 0 and up to 1.
        share: f64,
    },
    /// Omits the value of a parameter that is 0 if it cannot move the parameter away from 0: if its
    /// magnitude is at most `share` times the penalty of the l1 proximal step (KKT: Li et al., OSDI
    /// 2014). One mini-batch in `every` is sent whole: otherwise a parameter could stay at 0
    /// forever because each worker's part of its gradient is too small on its own.
    Kkt {
        /// The share, above 0 and up to 1.
        share: f32,
        /// The interval of mini-batches that are sent whole, 1 or more.
        every: u32,
    },
    /// Sends values as IEEE 754 half precision, at most 65504 in magnitude.
    Fp16,
    /// Sends values as bfloat16: the exponent of `f32`, with a fraction of 7 bits.
    Bf16,
    /// Sends values as integer multiples, up to 127, of a scale per block, with stochastic
    /// rounding.
    Int8,
    /// 1-bit quantizer: sends signs, and per block the mean of the negative values and the mean of
    /// the others (1-bit SGD: Seide et al., Interspeech 2014).
    OneBit,
    /// Sends values as -1, 0 or 1 times the largest magnitude of a block, with stochastic rounding
    /// (TernGrad: Wen et al., NIPS 2017, without its clipping).
    TernGrad,
    /// Sends values as multiples, up to `levels`, of a block's L2 norm divided by `levels`, with
    /// stochastic rounding (QSGD: Alistarh et al., NIPS 2017).
    Qsgd {
        /// The number of levels per sign, 1 to 127.
        levels: u8,
    },
    /// Sends each matrix as a product of two narrow ones (PowerSGD: Vogels, Karimireddy and Jaggi,
    /// NeurIPS 2019, but separately for each worker), and vectors unchanged.
    PowerSgd {
        /// The number of columns of the narrow matrices, 1 to [`GREATEST_RANK`].
        rank: u8,
    },
}

/// The greatest rank of [`FilterSpec::PowerSgd`].
pub const GREATEST_RANK: u8 = 64;
/// The largest number of filters in a chain.
pub const MOST_FILTERS: usize = 8;

const KNOWN: &str = "zero-skip, significant:DELTA, random-skip:Q, random-k:SHARE, top-k:SHARE, \
                     kkt[:SHARE[:EVERY]], fp16, \
                     bf16, int8, one-bit, terngrad, qsgd[:LEVELS] or powersgd[:RANK]";

impl FilterSpec {
    /// True for a filter that encodes values; false for a sparsifier.
    #[must_use]
    pub const fn encodes_values(&self) -> bool {
        !matches!(
            self,
            Self::ZeroSkip
                | Self::Significant { .. }
                | Self::RandomSkip { .. }
                | Self::RandomK { .. }
                | Self::TopK { .. }
                | Self::Kkt { .. }
        )
    }

    /// True if the filter loses nothing.
    #[must_use]
    pub const fn is_lossless(&self) -> bool {
        matches!(self, Self::ZeroSkip)
    }

    /// True if the mean of the filter's output differs from the gradient by more than
    /// floating-point rounding.
    #[must_use]
    pub const fn is_biased(&self) -> bool {
        matches!(
            self,
            Self::Significant { .. } | Self::TopK { .. } | Self::OneBit | Self::PowerSgd { .. }
        )
    }

    /// Returns the requirement that the filter's argument violates, if any.
    fn wrong(&self) -> Option<&'static str> {
        let (fits, allowed) = match *self {
            Self::Significant { delta } => {
                (delta.is_finite() && delta >= 0.0, "a finite DELTA of 0 or more")
            }
            Self::RandomSkip { share } | Self::RandomK { share } | Self::TopK { share } => {
                (share > 0.0 && share <= 1.0, "a share above 0 and up to 1")
            }
            Self::Kkt { share, every } => (
                share > 0.0 && share <= 1.0 && every > 0,
                "a share above 0 and up to 1, and EVERY of 1 or more",
            ),
            Self::Qsgd { levels } => ((1..=127).contains(&levels), "1 to 127 levels"),
            Self::PowerSgd { rank } => ((1..=GREATEST_RANK).contains(&rank), "a rank from 1 to 64"),
            _ => (true, ""),
        };
        (!fits).then_some(allowed)
    }
}

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSkip => f.write_str("zero-skip"),
            Self::Significant { delta } => write!(f, "significant:{delta}"),
            Self::RandomSkip { share } => write!(f, "random-skip:{share}"),
            Self::RandomK { share } => write!(f, "random-k:{share}"),
            Self::TopK { share } => write!(f, "top-k:{share}"),
            Self::Kkt { share, every } => write!(f, "kkt:{share}:{every}"),
            Self::Fp16 => f.write_str("fp16"),
            Self::Bf16 => f.write_str("bf16"),
            Self::Int8 => f.write_str("int8"),
            Self::OneBit => f.write_str("one-bit"),
            Self::TernGrad => f.write_str("terngrad"),
            Self::Qsgd { levels } => write!(f, "qsgd:{levels}"),
            Self::PowerSgd { rank } => write!(f, "powersgd:{rank}"),
        }
    }
}

/// A text that does not name a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFilter(alloc::string::String);

impl fmt::Display for UnknownFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no filter: use {KNOWN}", self.0)
    }
}

impl core::error::Error for UnknownFilter {}

impl FromStr for FilterSpec {
    type Err = UnknownFilter;

    fn from_str(text: &str) -> Result<Self, UnknownFilter> {
        parse(text).ok_or_else(|| UnknownFilter(text.into()))
    }
}

fn parse(text: &str) -> Option<FilterSpec> {
    let (word, number) = match text.split_once(':') {
        Some((word, number)) => (word, Some(number)),
        None => (text, None),
    };
    let share = |number: &str| number.parse::<f64>().ok();
    Some(match (word, number) {
        ("zero-skip", None) => FilterSpec::ZeroSkip,
        ("significant", Some(delta)) => FilterSpec::Significant { delta: delta.parse().ok()? },
        ("random-skip", Some(number)) => FilterSpec::RandomSkip { share: share(number)? },
        ("random-k", Some(number)) => FilterSpec::RandomK { share: share(number)? },
        ("top-k", Some(number)) => FilterSpec::TopK { share: share(number)? },
        ("kkt", numbers) => {
            let mut numbers = numbers.into_iter().flat_map(|numbers| numbers.split(':'));
            let share = numbers.next().map_or(Ok(1.0), str::parse).ok()?;
            let every = numbers.next().map_or(Ok(10), str::parse).ok()?;
            return numbers.next().is_none().then_some(FilterSpec::Kkt { share, every });
        }
        ("fp16", None) => FilterSpec::Fp16,
        ("bf16", None) => FilterSpec::Bf16,
        ("int8", None) => FilterSpec::Int8,
        ("one-bit", None) => FilterSpec::OneBit,
        ("terngrad", None) => FilterSpec::TernGrad,
        ("qsgd", None) => FilterSpec::Qsgd { levels: 7 },
        ("qsgd", Some(levels)) => FilterSpec::Qsgd { levels: levels.parse().ok()? },
        ("powersgd", None) => FilterSpec::PowerSgd { rank: 2 },
        ("powersgd", Some(rank)) => FilterSpec::PowerSgd { rank: rank.parse().ok()? },
        _ => return None,
    })
}

/// Filters that are incompatible with each other or with the job.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FilterError {
    /// An argument is out of its range.
    Number {
        /// The filter.
        filter: FilterSpec,
        /// The allowed range, in words.
        allowed: &'static str,
    },
    /// Too many filters.
    Long(usize),
    /// A filter follows one that encodes values.
    Late {
        /// The filter.
        filter: FilterSpec,
        /// The preceding filter.
        after: FilterSpec,
    },
    /// The argument of the pull filter is out of its range.
    Pull(&'static str),
    /// A low-rank filter, which needs whole matrices, follows a sparsifier.
    Gaps(FilterSpec),
    /// A KKT filter without an l1 penalty and a plain optimiser, or with error feedback.
    Penalty(FilterSpec),
    /// Error feedback is on, but the filters lose nothing.
    NoError,
    /// The model has no arithmetic, so there are no gradients to filter.
    Timing,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { filter, allowed } => write!(f, "filters: {filter} must have {allowed}"),
            Self::Long(count) => {
                write!(f, "filters: {count} of them, but {MOST_FILTERS} at most make sense")
            }
            Self::Late { filter, after } => write!(
                f,
                "filters: {filter} cannot come after {after}: first those that choose keys, then \
                 at most one that says how values travel"
            ),
            Self::Pull(what) => write!(f, "pull-filter: {what}"),
            Self::Gaps(filter) => write!(
                f,
                "filters: {filter} is for whole matrices, so no filter can choose keys before it"
            ),
            Self::Penalty(filter) => write!(
                f,
                "filters: {filter} leaves out what an l1 penalty would keep at 0, and \
                 error-feedback would bring it back: it needs optimizer = sgd or diagonal, \
                 proximal = l1:LAMBDA and error-feedback = auto or off"
            ),
            Self::NoError => f.write_str(
                "error-feedback = on: these filters take nothing away that could be added to the \
                 next gradient; leave it at auto",
            ),
            Self::Timing => f.write_str(
                "filters need gradients, but a timing model has none: choose another model, or no \
                 filters",
            ),
        }
    }
}

impl core::error::Error for FilterError {}

impl Filters {
    /// Parses a list of filters, separated by spaces or commas; `none` is the empty list.
    ///
    /// # Errors
    /// [`UnknownFilter`] for the first word that is not a filter.
    pub fn read_chain(text: &str) -> Result<Vec<FilterSpec>, UnknownFilter> {
        if text.trim() == "none" {
            return Ok(Vec::new());
        }
        let words = text.split([' ', ',']).filter(|word| !word.is_empty());
        words.map(str::parse).collect()
    }

    /// True if gradients are sent unfiltered.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.chain.is_empty()
    }

    /// True if error feedback is on.
    #[must_use]
    pub fn feeds_back(&self) -> bool {
        match self.error_feedback {
            ErrorFeedback::Auto => self.chain.iter().any(FilterSpec::is_biased),
            ErrorFeedback::On => true,
            ErrorFeedback::Off => false,
        }
    }

    /// True if the output for a gradient depends on earlier gradients.
    #[must_use]
    pub fn remember(&self) -> bool {
        self.feeds_back()
            || self.chain.iter().any(|filter| matches!(filter, FilterSpec::PowerSgd { .. }))
    }

    /// Checks that the filters are compatible with the update rule.
    ///
    /// # Errors
    /// [`FilterError::Penalty`] if the KKT filter is used without an l1 proximal step of sgd or
    /// diagonal, or with error feedback.
    pub fn check(&self, update: &UpdateSpec) -> Result<(), FilterError> {
        let is_kkt = |filter: &&FilterSpec| matches!(filter, FilterSpec::Kkt { .. });
        let is_plain = matches!(update.optimizer, OptimizerSpec::Sgd | OptimizerSpec::Diagonal);
        let fits = update.l1() > 0.0 && is_plain;
        match self.chain.iter().find(is_kkt) {
            Some(&filter) if !fits || self.feeds_back() => Err(FilterError::Penalty(filter)),
            _ => Ok(()),
        }
    }

    /// Checks the arguments and the order.
    ///
    /// # Errors
    /// [`FilterError`] that names the filter and the requirement.
    pub fn validate(&self) -> Result<(), FilterError> {
        self.pull.validate().map_err(FilterError::Pull)?;
        if self.chain.len() > MOST_FILTERS {
            return Err(FilterError::Long(self.chain.len()));
        }
        for (place, &filter) in self.chain.iter().enumerate() {
            if let Some(allowed) = filter.wrong() {
                return Err(FilterError::Number { filter, allowed });
            }
            let before = place.checked_sub(1).and_then(|place| self.chain.get(place));
            if let Some(&after) = before.filter(|before| before.encodes_values()) {
                return Err(FilterError::Late { filter, after });
            }
            if matches!(filter, FilterSpec::PowerSgd { .. }) && place > 0 {
                return Err(FilterError::Gaps(filter));
            }
        }
        let loses = self.chain.iter().any(|filter| !filter.is_lossless());
        if self.error_feedback == ErrorFeedback::On && !loses {
            return Err(FilterError::NoError);
        }
        Ok(())
    }
}

impl fmt::Display for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        for (place, filter) in self.chain.iter().enumerate() {
            write!(f, "{}{filter}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
