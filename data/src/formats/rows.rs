//! Rows that only a compute process knows: here they are numbers.

use std::sync::Arc;

use pstrain_compute::examples::{Label, Row, Shape, Target};

use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

pub(super) const FORMAT: Format = Format {
    form: "rows:COUNT[,DIGEST]",
    summary: "rows of a compute process, by number",
    paths: Paths::None,
    open: |arguments, _| {
        let (count, digest) = arguments.split_once(',').unwrap_or((arguments, ""));
        match count.parse() {
            Ok(count) if count > 0 => Ok(Arc::new(Numbered { count, digest: digest.to_owned() })),
            _ => Err(format!("{count:?} is no number of rows; write rows:COUNT[,DIGEST]")),
        }
    },
};

/// Rows 0 to `count`: the only column of row n that is not 0 is column n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Number of rows.
    pub count: u32,
    /// Tells the rows of different processes apart; may be empty.
    pub digest: String,
}

impl Numbered {
    /// The kind of the rows.
    pub const KIND: &'static str = "numbers of a compute process";

    /// The digest of the rows that `schema` is of, if the process gave one.
    #[must_use]
    pub fn digest_in(schema: &Schema) -> Option<&str> {
        Some(schema.encoding.as_str()).filter(|digest| !digest.is_empty())
    }
}

impl Dataset for Numbered {
    fn kind(&self) -> &'static str {
        Self::KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        Ok(Schema {
            kind: self.kind().to_owned(),
            encoding: self.digest.clone(),
            shape: Shape::sparse(self.count, Target::Classes(1)),
            classes: vec!["all".to_owned()],
            standardised: false,
        })
    }

    fn visit(&self, _: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let label = Label::Class(0);
        (0..self.count).try_for_each(|row| {
            visit(Row { dense: &[], hot: &[], columns: &[row], values: &[1.0], label })
        })
    }

    fn rows(&self) -> Option<u64> {
        Some(self.count.into())
    }

    fn words(&self) -> Option<String> {
        let Self { count, digest } = self;
        let digest = if digest.is_empty() { String::new() } else { format!(",{digest}") };
        Some(format!("rows:{count}{digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_n_has_column_n() {
        let rows = super::super::open("rows:3,abc", 1).unwrap();
        assert_eq!(rows.words().as_deref(), Some("rows:3,abc"));
        let schema = rows.schema(&Features::default()).unwrap();
        assert_eq!(Numbered::digest_in(&schema), Some("abc"));
        let mut found = Vec::new();
        let visit = &mut |row: Row<'_>| {
            found.push(row.columns.to_vec());
            Ok(())
        };
        rows.visit(&schema, visit).unwrap();
        assert_eq!(found, [[0], [1], [2]]);
        for wrong in ["rows", "rows:", "rows:0", "rows:many"] {
            assert!(super::super::open(wrong, 1).unwrap_err().contains("write rows:COUNT"));
        }
    }
}
