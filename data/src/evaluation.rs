//! The rows that models are evaluated on, and their origin.

use std::fmt;

use pstrain_compute::examples::Examples;
use serde::Serialize;

use crate::dataset::{Dataset, Origin, Schema};
use crate::error::DataError;
use crate::grouped::grouped;

/// Number and origin of the evaluation rows, without a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvaluationRows {
    /// Number of rows.
    pub rows: u64,
    /// Their source, in words ([`Dataset::describe`]).
    pub source: String,
    /// The fraction of the source's rows that is held out, from 0 to 1; `None` if all its rows are
    /// evaluated on.
    pub share: Option<f64>,
}

impl EvaluationRows {
    /// Describes `examples`, which are all rows of the source called `name`.
    #[must_use]
    pub fn all(examples: &Examples, name: String) -> Self {
        Self { rows: examples.len() as u64, source: name, share: None }
    }

    /// Returns the evaluation examples with their description: all rows of `given` if there are
    /// any, otherwise the rows that were held out of `origin`, a `share` of its rows.
    pub(crate) fn of(
        (origin, held_out, share): (&Origin, Examples, f64),
        given: Option<(String, Examples)>,
    ) -> (Examples, Self) {
        if let Some((given, all)) = given {
            let rows = Self::all(&all, given);
            return (all, rows);
        }
        let rows = Self { share: Some(share), ..Self::all(&held_out, origin.name.clone()) };
        (held_out, rows)
    }
}

/// Reads evaluation rows by `read`. Names them in the error if they are of another kind than the
/// training rows, do not fit the model, or are none.
pub(crate) fn checked(
    given: &dyn Dataset,
    schema: &Schema,
    read: impl FnOnce() -> Result<Examples, DataError>,
) -> Result<Examples, DataError> {
    let unfit = |problem| Err(DataError::Evaluation { data: given.describe(), problem });
    if given.kind() != schema.kind {
        let (its, wanted) = (given.kind(), &schema.kind);
        return unfit(format!("its rows are {its}, the training rows are {wanted}"));
    }
    match read() {
        Ok(examples) if examples.is_empty() => unfit("it has no rows".into()),
        other => other,
    }
}

impl fmt::Display for EvaluationRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, source, share } = self;
        let noun = if *rows == 1 { "row" } else { "rows" };
        let rows = grouped(*rows);
        match share {
            Some(share) => {
                // Users write shares with few digits: rounding to 4 decimals of a percent keeps
                // them exact.
                let percent = (share * 1e6).round() / 1e4;
                write!(f, "{rows} evaluation {noun}, {percent} % of {source}")
            }
            None => write!(f, "{rows} evaluation {noun}, all of {source}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_with_their_number_and_their_source() {
        let words =
            |rows, share| EvaluationRows { rows, source: "rows.csv".into(), share }.to_string();
        assert_eq!(words(6298, Some(0.25)), "6,298 evaluation rows, 25 % of rows.csv");
        assert_eq!(words(125_973, None), "125,973 evaluation rows, all of rows.csv");
        assert_eq!(words(1, None), "1 evaluation row, all of rows.csv");
        assert_eq!(words(999, Some(0.125)), "999 evaluation rows, 12.5 % of rows.csv");
        assert_eq!(words(1_000_000, Some(0.3)), "1,000,000 evaluation rows, 30 % of rows.csv");
        assert_eq!(words(0, Some(0.0)), "0 evaluation rows, 0 % of rows.csv");
    }
}
