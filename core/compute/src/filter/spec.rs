//! The words that select what is done to a gradient before it travels.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::PullFilter;
use crate::optim::{OptimizerSpec, UpdateSpec};

/// What is done to a gradient before it travels, as the job names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filters {
    /// The filters, in the order in which they are applied: those that choose keys, then at most
    /// one that says how values travel.
    pub chain: Vec<FilterSpec>,
    /// Whether what the filters take away is added to the next gradient.
    pub error_feedback: ErrorFeedback,
    /// What of the parameters travels back.
    pub pull: PullFilter,
    /// Whether the keys of a sparse model's working set travel once.
    pub key_caching: KeyCaching,
}

/// Whether a list of keys is remembered, so that values travel without it (key caching: Li et al.,
/// OSDI 2014).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyCaching {
    /// It is: of a list that is known its digest alone travels, once for each connection.
    #[default]
    On,
    /// The list travels with each gradient, to see what it costs.
    Off,
}

words!(KeyCaching { On = "on", Off = "off" });

/// Whether what the filters take from a gradient is added to the worker's next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorFeedback {
    /// If one of the filters is biased: its mean is not the gradient.
    #[default]
    Auto,
    /// Always. Random choices then are not scaled up.
    On,
    /// Never: what is taken away is gone.
    Off,
}

words!(ErrorFeedback { Auto = "auto", On = "on", Off = "off" });

/// One filter, as the job names it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum FilterSpec {
    /// Keys whose value is 0 do not travel. Takes nothing away but the sign of a zero.
    ZeroSkip,
    /// Only values of a magnitude above `delta` travel (significantly modified: Li et al., OSDI
    /// 2014).
    Significant {
        /// The magnitude, 0 or more.
        delta: f32,
    },
    /// Each key travels with probability `share`, its value divided by that (random skip: Li et
    /// al., OSDI 2014).
    RandomSkip {
        /// The probability, above 0 and up to 1.
        share: f64,
    },
    /// A random `share` of the keys travels, their values divided by it (Stich, Cordonnier and
    /// Jaggi, NeurIPS 2018).
    RandomK {
        /// The share, above 0 and up to 1.
        share: f64,
    },
    /// The `share` of the keys with the largest magnitudes travels (Aji and Heafield, EMNLP 2017).
    TopK {
        /// The share, above 0 and up to 1.
        share: f64,
    },
    /// What cannot move a parameter that is 0 away from it does not travel: values of a magnitude
    /// of at most `share` times the penalty of the l1 proximal step, whose parameter is 0 (KKT: Li
    /// et al., OSDI 2014). One mini-batch in `every` travels whole, so that no parameter stays at 0
    /// for ever because each worker's part of its gradient is too small by itself.
    Kkt {
        /// The share, above 0 and up to 1.
        share: f32,
        /// The distance of those that travel whole, 1 or more.
        every: u32,
    },
    /// Values travel as IEEE 754 half precision, at most 65504 in magnitude.
    Fp16,
    /// Values travel as bfloat16: eight bits of fraction less than a half has exponent for.
    Bf16,
    /// Values travel as whole multiples, up to 127, of a scale for each block, rounded at random.
    Int8,
    /// Signs travel, and for each block the mean of the negative values and that of the others
    /// (1-bit SGD: Seide et al., Interspeech 2014).
    OneBit,
    /// Values travel as -1, 0 or 1 times the largest magnitude of a block, rounded at random
    /// (TernGrad: Wen et al., NIPS 2017, without its clipping).
    TernGrad,
    /// Values travel as multiples, up to `levels`, of a block's L2 norm over `levels`, rounded at
    /// random (QSGD: Alistarh et al., NIPS 2017).
    Qsgd {
        /// The levels of a sign, 1 to 127.
        levels: u8,
    },
    /// Matrices travel as a product of two narrow ones (PowerSGD: Vogels, Karimireddy and Jaggi,
    /// NeurIPS 2019, each worker's for itself), vectors as they are.
    PowerSgd {
        /// The columns of the narrow matrices, 1 to [`GREATEST_RANK`].
        rank: u8,
    },
}

/// The greatest rank of [`FilterSpec::PowerSgd`].
pub const GREATEST_RANK: u8 = 64;
/// The most filters of a chain.
pub const MOST_FILTERS: usize = 8;

const KNOWN: &str = "zero-skip, significant:DELTA, random-skip:Q, random-k:SHARE, top-k:SHARE, \
                     kkt[:SHARE[:EVERY]], fp16, \
                     bf16, int8, one-bit, terngrad, qsgd[:LEVELS] or powersgd[:RANK]";

impl FilterSpec {
    /// Whether it says how values travel, not which.
    #[must_use]
    pub const fn is_coding(&self) -> bool {
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

    /// Whether it takes nothing away.
    #[must_use]
    pub const fn is_lossless(&self) -> bool {
        matches!(self, Self::ZeroSkip)
    }

    /// Whether the mean of what it lets through is something else than the gradient, by more than
    /// the rounding of a floating-point number.
    #[must_use]
    pub const fn is_biased(&self) -> bool {
        matches!(
            self,
            Self::Significant { .. } | Self::TopK { .. } | Self::OneBit | Self::PowerSgd { .. }
        )
    }

    /// What its number must be, unless it is.
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

/// Text that names no filter.
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

/// Filters that do not go together, or with the job.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FilterError {
    /// A number is out of its range.
    Number {
        /// The filter.
        filter: FilterSpec,
        /// What it must have.
        allowed: &'static str,
    },
    /// Too many filters.
    Long(usize),
    /// A filter after one that says how values travel.
    Late {
        /// The filter.
        filter: FilterSpec,
        /// The one before it.
        after: FilterSpec,
    },
    /// The filter of parameters is out of its range.
    Pull(&'static str),
    /// Low rank is of the whole matrices.
    Gaps(FilterSpec),
    /// A filter that goes by a penalty, without the penalty.
    Penalty(FilterSpec),
    /// Nothing is taken away that could be fed back.
    NoError,
    /// The model has no arithmetic.
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
    /// Reads a list of filters, with spaces or commas between them; `none` is no filter.
    ///
    /// # Errors
    /// [`UnknownFilter`] at the first that is none.
    pub fn read_chain(text: &str) -> Result<Vec<FilterSpec>, UnknownFilter> {
        if text.trim() == "none" {
            return Ok(Vec::new());
        }
        let words = text.split([' ', ',']).filter(|word| !word.is_empty());
        words.map(str::parse).collect()
    }

    /// Whether gradients travel as they are.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.chain.is_empty()
    }

    /// Whether what the filters take away is added to the next gradient.
    #[must_use]
    pub fn feeds_back(&self) -> bool {
        match self.error_feedback {
            ErrorFeedback::Auto => self.chain.iter().any(FilterSpec::is_biased),
            ErrorFeedback::On => true,
            ErrorFeedback::Off => false,
        }
    }

    /// Whether what becomes of a gradient depends on those before it.
    #[must_use]
    pub fn remember(&self) -> bool {
        self.feeds_back()
            || self.chain.iter().any(|filter| matches!(filter, FilterSpec::PowerSgd { .. }))
    }

    /// Checks whether they go with how gradients become parameters.
    ///
    /// # Errors
    /// [`FilterError::Penalty`] if one goes by a penalty that there is not.
    pub fn check(&self, update: &UpdateSpec) -> Result<(), FilterError> {
        let is_kkt = |filter: &&FilterSpec| matches!(filter, FilterSpec::Kkt { .. });
        let is_plain = matches!(update.optimizer, OptimizerSpec::Sgd | OptimizerSpec::Diagonal);
        let fits = update.l1() > 0.0 && is_plain;
        match self.chain.iter().find(is_kkt) {
            Some(&filter) if !fits || self.feeds_back() => Err(FilterError::Penalty(filter)),
            _ => Ok(()),
        }
    }

    /// Checks the numbers and the order.
    ///
    /// # Errors
    /// [`FilterError`] names the filter and what is allowed.
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
            if let Some(&after) = before.filter(|before| before.is_coding()) {
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
