//! Partitions in text form.

use pstrain_compute::named;
use pstrain_compute::named::{Limits, NamedError, Number, Presence, Word, out_of_range};
use serde::{Deserialize, Serialize};

use super::error::PartitionError;

/// How the training rows are assigned to the workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[non_exhaustive]
pub enum PartitionSpec {
    /// `iid`: random parts of equal size.
    #[default]
    Iid,
    /// `paper-non-iid`: two sides, one with the odd classes and half of class 0, the other with the
    /// even classes and the other half. Workers 0, 2, 4, ... share the first side evenly, workers
    /// 1, 3, 5, ... the second; a single worker has all rows. In NSL-KDD the first side has DoS,
    /// R2L and half of Normal, the second U2R, Probe and the other half.
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
    /// `local`: each worker has rows of its own, all of which it trains on; no node has the rows of
    /// two workers.
    Local,
}

/// Below this, all rows of a class go to one worker anyway, and the logarithms become too large.
const SMALLEST_ALPHA: f64 = 0.0001;

named!(PartitionSpec: "partition", ',' {
    Iid = Word::new("iid", &[], "random parts of equal size"),
    PaperNonIid = Word::new("paper-non-iid", &[],
        "workers 0, 2, ... share the odd classes and half of class 0, workers 1, 3, ... the rest"),
    ByClass = Word::new("by-class", &[], "classes in turn to the workers"),
    Dirichlet { alpha } = Word::new("dirichlet",
        &[Number::real("ALPHA", Limits::Real(SMALLEST_ALPHA, f64::INFINITY))],
        "random shares of each class: 100 is nearly iid, 0.1 severe"),
    Mix { q } = Word::new("mix", &[Number::real("Q", Limits::Real(0.0, 1.0))],
        "a row goes by paper-non-iid with chance Q, else to a random worker"),
    Sizes(weights) =
        Word::new("sizes", &[Number::real("W", Limits::POSITIVE).with(Presence::Repeated)],
            "random parts with sizes in proportion to the weights, one per worker"),
    Local = Word::new("local", &[], "each worker has rows of its own, and the server none"),
});

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
        out_of_range(self).map_or(Ok(()), |number| {
            Err(PartitionError::Parameter { partition: self.to_string(), number })
        })
    }
}

impl From<PartitionSpec> for String {
    fn from(spec: PartitionSpec) -> Self {
        spec.to_string()
    }
}

impl TryFrom<String> for PartitionSpec {
    type Error = NamedError;

    fn try_from(text: String) -> Result<Self, NamedError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read_and_written_back() {
        for text in [
            "iid",
            "paper-non-iid",
            "by-class",
            "dirichlet:0.1",
            "mix:0.25",
            "sizes:1,2,0.5",
            "local",
        ] {
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
            ("dirichlet:-1", "dirichlet:-1: ALPHA must be finite and at least 0.0001"),
            ("mix:1.5", "mix:1.5: Q must be from 0 to 1"),
            ("mix:nan", "mix:nan: Q must be from 0 to 1"),
            ("sizes:1,0", "sizes:1,0: W must be finite and above 0"),
        ] {
            assert_eq!(text.parse::<PartitionSpec>().unwrap_err().to_string(), told);
        }
        let told = PartitionSpec::Sizes(vec![1.0, 0.0]).check().unwrap_err().to_string();
        assert_eq!(told, "partition sizes:1,0: W must be finite and above 0");
        for text in ["", "iid:1", "dirichlet", "sizes:", "random", "mix:x"] {
            let told = text.parse::<PartitionSpec>().unwrap_err().to_string();
            let forms =
                "iid, paper-non-iid, by-class, dirichlet:ALPHA, mix:Q, sizes:W[,W...] or local";
            assert_eq!(told, format!("{text:?} is no partition: use {forms}"));
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
