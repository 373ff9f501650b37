//! Partitions in text form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{PartitionError, UnknownPartition};

/// How the training rows are assigned to the workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[non_exhaustive]
pub enum PartitionSpec {
    /// `iid`: random parts of equal size.
    #[default]
    Iid,
    /// `paper-non-iid`: two sides, one with DoS, R2L and half of Normal, the other with U2R, Probe
    /// and the other half. Workers 0, 2, 4, ... share the first side evenly, workers 1, 3, 5, ...
    /// the second; a single worker has all rows.
    PaperNonIid,
    /// `by-class`: classes are assigned to the workers in turn; with more workers than classes,
    /// several workers share a class evenly.
    ByClass,
    /// `dirichlet:ALPHA`: for each class, the workers' shares are drawn from a symmetric Dirichlet
    /// distribution. 100 is nearly IID, 0.1 severe.
    Dirichlet {
        /// The concentration, above 0.
        alpha: f64,
    },
    /// `mix:Q`: each row goes to its owner under `paper-non-iid` with probability Q, otherwise to a
    /// uniformly drawn worker. 0 is IID, 1 is `paper-non-iid`.
    Mix {
        /// The probability, 0 to 1.
        q: f64,
    },
    /// `sizes:W1,W2,...`: random parts with sizes in proportion to the weights, one per worker.
    Sizes(Vec<f64>),
}

/// All forms, for error messages.
pub(super) const FORMS: &str =
    "iid, paper-non-iid, by-class, dirichlet:ALPHA, mix:Q, sizes:W1,W2,...";

impl PartitionSpec {
    /// Returns the number of rows that each of `workers` workers has at least, of `rows` rows, if
    /// `minimum` are requested. A Dirichlet partition guarantees `minimum`, or half of an even
    /// share if that is less; all other partitions guarantee a single row.
    #[must_use]
    pub fn least_rows(&self, minimum: u32, rows: usize, workers: u32) -> u32 {
        let even = u32::try_from(rows).unwrap_or(u32::MAX) / workers.max(1);
        match self {
            Self::Dirichlet { .. } => minimum.min(even / 2).max(1),
            _ => 1,
        }
    }

    /// Checks the parameters, because the public fields can have any value.
    pub(super) fn check(&self) -> Result<(), PartitionError> {
        let (value, allowed) = match self {
            Self::Dirichlet { alpha } if !(alpha.is_finite() && *alpha >= SMALLEST_ALPHA) => {
                (alpha, "a number from 0.0001 up")
            }
            Self::Mix { q } if !(0.0..=1.0).contains(q) => (q, "a number from 0 to 1"),
            Self::Sizes(weights) => {
                match weights.iter().find(|weight| !(weight.is_finite() && **weight > 0.0)) {
                    Some(weight) => (weight, "numbers above 0, one per worker"),
                    None => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        Err(PartitionError::Parameter { partition: self.to_string(), value: *value, allowed })
    }
}

/// Below this, all rows of a class go to one worker anyway, and the logarithms become too large.
const SMALLEST_ALPHA: f64 = 0.0001;

impl fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iid => f.write_str("iid"),
            Self::PaperNonIid => f.write_str("paper-non-iid"),
            Self::ByClass => f.write_str("by-class"),
            Self::Dirichlet { alpha } => write!(f, "dirichlet:{alpha}"),
            Self::Mix { q } => write!(f, "mix:{q}"),
            Self::Sizes(weights) => {
                for (index, weight) in weights.iter().enumerate() {
                    write!(f, "{}{weight}", if index == 0 { "sizes:" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for PartitionSpec {
    type Err = UnknownPartition;

    fn from_str(text: &str) -> Result<Self, UnknownPartition> {
        let unknown = || UnknownPartition::new(text, FORMS);
        let number = |field: &str| field.trim().parse::<f64>().map_err(|_| unknown());
        let (kind, parameter) = match text.split_once(':') {
            Some((kind, parameter)) => (kind, Some(parameter)),
            None => (text, None),
        };
        let spec = match (kind, parameter) {
            ("iid", None) => Self::Iid,
            ("paper-non-iid", None) => Self::PaperNonIid,
            ("by-class", None) => Self::ByClass,
            ("dirichlet", Some(alpha)) => Self::Dirichlet { alpha: number(alpha)? },
            ("mix", Some(q)) => Self::Mix { q: number(q)? },
            ("sizes", Some(weights)) => {
                Self::Sizes(weights.split(',').map(number).collect::<Result<_, _>>()?)
            }
            _ => return Err(unknown()),
        };
        match spec.check() {
            Ok(()) => Ok(spec),
            Err(PartitionError::Parameter { value, allowed, .. }) => {
                Err(UnknownPartition::parameter(text, value, allowed))
            }
            Err(_) => Err(unknown()),
        }
    }
}

impl From<PartitionSpec> for String {
    fn from(spec: PartitionSpec) -> Self {
        spec.to_string()
    }
}

impl TryFrom<String> for PartitionSpec {
    type Error = UnknownPartition;

    fn try_from(text: String) -> Result<Self, UnknownPartition> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read_and_written_back() {
        for text in
            ["iid", "paper-non-iid", "by-class", "dirichlet:0.1", "mix:0.25", "sizes:1,2,0.5"]
        {
            let spec: PartitionSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<PartitionSpec>(&json).unwrap(), spec);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_allowed() {
        for (text, told) in [
            ("dirichlet:-1", "partition dirichlet:-1: -1 must be a number from 0.0001 up"),
            ("mix:1.5", "partition mix:1.5: 1.5 must be a number from 0 to 1"),
            ("mix:nan", "partition mix:nan: NaN must be a number from 0 to 1"),
            ("sizes:1,0", "partition sizes:1,0: 0 must be numbers above 0, one per worker"),
        ] {
            assert_eq!(text.parse::<PartitionSpec>().unwrap_err().to_string(), told);
        }
        for text in ["", "iid:1", "dirichlet", "sizes:", "random", "mix:x"] {
            let told = text.parse::<PartitionSpec>().unwrap_err().to_string();
            assert_eq!(told, format!("unknown partition {text:?}; allowed are {FORMS}"));
        }
    }

    proptest! {
        #[test]
        fn numbers_survive_exactly(alpha in 0.0001_f64..1e9, weights in prop::collection::vec(1e-9_f64..1e9, 1..9)) {
            for spec in [PartitionSpec::Dirichlet { alpha }, PartitionSpec::Sizes(weights)] {
                prop_assert_eq!(spec.to_string().parse(), Ok(spec));
            }
        }
    }
}
