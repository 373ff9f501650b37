//! Settings of the filters, as words in the job.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::PullFilter;
use crate::named::{Limits, NamedError, Number, Word, check};
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

named!(KeyCaching: "key caching", ',' {
    On = Word::new("on", &[], "once"),
    Off = Word::new("off", &[], "with each gradient"),
});

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

named!(ErrorFeedback: "error feedback", ',' {
    Auto = Word::new("auto", &[], "on if they are biased"),
    On = Word::new("on", &[], "is added to the next gradient of the worker"),
    Off = Word::new("off", &[], "is discarded"),
});

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

named!(FilterSpec: "filter", ':' {
    ZeroSkip = Word::new("zero-skip", &[], "leaves out zeros"),
    Significant { delta } = Word::new("significant", &[Number::real("DELTA", Limits::NOT_NEGATIVE)],
        "values of a magnitude above DELTA"),
    RandomSkip { share } = Word::new("random-skip", &[Number::real("Q", Limits::SHARE)],
        "each value with chance Q"),
    RandomK { share } = Word::new("random-k", &[Number::real("SHARE", Limits::SHARE)],
        "a random SHARE of them"),
    TopK { share } = Word::new("top-k", &[Number::real("SHARE", Limits::SHARE)],
        "the largest SHARE of them"),
    Kkt { share, every } = Word::new("kkt",
        &[Number::real("SHARE", Limits::SHARE).usual("1"),
          Number::whole("EVERY", 1..=u32::MAX as u64).usual("10")],
        "leaves out what an l1 penalty would keep at 0, but not in every EVERY-th mini-batch"),
    Fp16 = Word::new("fp16", &[], "half precision"),
    Bf16 = Word::new("bf16", &[], "half precision with the range of single precision"),
    Int8 = Word::new("int8", &[], "a byte per value"),
    OneBit = Word::new("one-bit", &[], "a sign per value"),
    Qsgd { levels } = Word::new("qsgd", &[Number::whole("LEVELS", 1..=127).usual("7")],
        "LEVELS steps per sign"),
    PowerSgd { rank } =
        Word::new("powersgd", &[Number::whole("RANK", 1..=GREATEST_RANK as u64).usual("2")],
            "each matrix as a product of two narrow ones, alone"),
});

impl FilterSpec {
    /// True for a filter that encodes values; false for a sparsifier.
    #[must_use]
    pub const fn encodes_values(&self) -> bool {
        match self {
            Self::ZeroSkip
            | Self::Significant { .. }
            | Self::RandomSkip { .. }
            | Self::RandomK { .. }
            | Self::TopK { .. }
            | Self::Kkt { .. } => false,
            Self::Fp16
            | Self::Bf16
            | Self::Int8
            | Self::Qsgd { .. }
            | Self::OneBit
            | Self::PowerSgd { .. } => true,
        }
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
        match self {
            Self::Significant { .. } | Self::TopK { .. } | Self::OneBit | Self::PowerSgd { .. } => {
                true
            }
            Self::ZeroSkip
            | Self::RandomSkip { .. }
            | Self::RandomK { .. }
            | Self::Kkt { .. }
            | Self::Fp16
            | Self::Bf16
            | Self::Int8
            | Self::Qsgd { .. } => false,
        }
    }
}

/// Filters that are incompatible with each other or with the job.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// An argument is out of its range.
    #[error("filters: {}: {}", .0, .1.must())]
    Number(FilterSpec, Number),
    /// Too many filters.
    #[error("filters: {0} of them, but {MOST_FILTERS} at most make sense")]
    Long(usize),
    /// A filter follows one that encodes values.
    #[error(
        "filters: {filter} cannot come after {after}: first those that choose keys, then at most \
         one that says how values travel"
    )]
    Late {
        /// The filter.
        filter: FilterSpec,
        /// The preceding filter.
        after: FilterSpec,
    },
    /// The argument of the pull filter is out of its range.
    #[error("pull-filter = {}: {}", .0, .1.must())]
    Pull(PullFilter, Number),
    /// A low-rank filter, which needs whole matrices, follows a sparsifier.
    #[error("filters: {0} is for whole matrices, so no filter can choose keys before it")]
    Gaps(FilterSpec),
    /// A KKT filter without an l1 penalty and a plain optimiser, or with error feedback.
    #[error(
        "filters: {0} leaves out what an l1 penalty would keep at 0, and error-feedback would \
         bring it back: it needs optimizer = sgd or diagonal, proximal = l1:LAMBDA and \
         error-feedback = auto or off"
    )]
    Penalty(FilterSpec),
    /// Error feedback is on, but the filters lose nothing.
    #[error(
        "error-feedback = on: these filters take nothing away that could be added to the next \
         gradient; leave it at auto"
    )]
    NoError,
    /// The model has no arithmetic, so there are no gradients to filter.
    #[error(
        "filters need gradients, but a timing model has none: choose another model, or no filters"
    )]
    Timing,
}

impl Filters {
    /// Parses a list of filters, separated by spaces or commas; `none` is the empty list.
    ///
    /// # Errors
    /// [`NamedError`] for the first word that is not a filter.
    pub fn read_chain(text: &str) -> Result<Vec<FilterSpec>, NamedError> {
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
        check(self.pull, FilterError::Pull)?;
        if self.chain.len() > MOST_FILTERS {
            return Err(FilterError::Long(self.chain.len()));
        }
        for (place, &filter) in self.chain.iter().enumerate() {
            check(filter, FilterError::Number)?;
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
