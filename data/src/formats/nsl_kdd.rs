//! NSL-KDD records in files, and the encoding that all NSL-KDD records share.

mod facts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::examples::{Label, Row};

use self::facts::Facts;
use super::arguments::Arguments;
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::decompress::find;
use crate::error::DataError;
use crate::info::Info;
use crate::nsl_kdd::{
    CLASSES, Columns, Problem, ReadError, RecipeName, Record, numeric_name, read_file,
};

const FORM: &str = "nsl-kdd:PATH";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "records of the NSL-KDD data set: a file or its folder; the word may be left out",
    paths: Paths::All,
    open: |arguments, _| {
        let [path] = Arguments::read(arguments, FORM, &[])?.exactly()?;
        at(&path)
    },
};

/// The records at a path.
pub(super) fn at(path: &Path) -> Result<Arc<dyn Dataset>, String> {
    if path.as_os_str().eq_ignore_ascii_case("nsl-kdd") && !path.exists() {
        return Err("there is no such file or folder here, and the data set is not shipped: give \
                    the path to your copy (KDDTrain+.txt), or say synthetic, which is drawn from \
                    its profile"
            .into());
    }
    Ok(Arc::new(NslKdd { path: path.to_owned() }))
}

/// The kind of all NSL-KDD records.
pub(super) const KIND: &str = "NSL-KDD records";

/// Names of data files in a folder; each may be plain or compressed.
const NAMES: [&str; 2] = ["KDDTrain+.txt", "synth.csv"];

/// The records of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NslKdd {
    /// The file, or a folder that holds `KDDTrain+.txt` or `synth.csv`; plain or compressed with
    /// gzip, xz or zstd (`.gz`, `.xz`, `.zst`).
    pub path: PathBuf,
}

/// A dataset of NSL-KDD records.
pub(super) trait Records {
    /// Passes every record to `visit`, in order. Numeric features outside `columns` may be 0.
    fn records(
        &self,
        columns: Columns,
        visit: &mut dyn FnMut(&Record) -> Result<(), DataError>,
    ) -> Result<(), DataError>;
}

/// The schema of records.
pub(super) fn schema(features: &Features) -> Result<Schema, DataError> {
    features.unhashed()?;
    Ok(Schema {
        kind: KIND.into(),
        encoding: features.recipe.name().into(),
        shape: features.recipe.shape(),
        classes: CLASSES.map(String::from).into(),
        standardised: true,
    })
}

/// Passes every record to `visit`, encoded by `schema`.
pub(super) fn visit(
    data: &impl Records,
    schema: &Schema,
    visit: &mut Visit<'_>,
) -> Result<(), DataError> {
    let recipe: RecipeName = schema.encoding.parse().map_err(DataError::format)?;
    let mut dense = vec![0.0; recipe.numerics().len()];
    data.records(recipe.columns(), &mut |record| {
        let hot = recipe.encode(record, &mut dense);
        let label = Label::Class(record.attack.class().into());
        visit(Row { dense: &dense, hot: &hot, columns: &[], values: &[], label })
    })
}

/// Passes the class of every record to `visit`, without its numeric features.
pub(super) fn visit_labels(
    data: &impl Records,
    visit: &mut dyn FnMut(Label),
) -> Result<(), DataError> {
    data.records(Columns::NONE, &mut |record| {
        visit(Label::Class(record.attack.class().into()));
        Ok(())
    })
}

/// The names of the dense columns.
pub(super) fn columns(schema: &Schema) -> Vec<String> {
    let recipe: Result<RecipeName, _> = schema.encoding.parse();
    let numerics = recipe.map_or(&[][..], RecipeName::numerics);
    numerics.iter().map(|&numeric| numeric_name(numeric.into()).into()).collect()
}

/// Collects the facts about records.
pub(super) fn info(data: &impl Records, name: String) -> Result<Info, DataError> {
    let mut facts = Facts::new();
    data.records(Columns::ALL, &mut |record| {
        facts.add(record);
        Ok(())
    })?;
    Ok(facts.finish(name))
}

impl Records for NslKdd {
    fn records(
        &self,
        columns: Columns,
        visit: &mut dyn FnMut(&Record) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        read_file(&located(&self.path)?, columns, visit)
    }
}

impl Dataset for NslKdd {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        schema(features)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        self::visit(self, schema, visit)
    }

    fn visit_labels(&self, _: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        visit_labels(self, visit)
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![located(&self.path).unwrap_or_else(|_| self.path.clone())]
    }

    fn columns(&self, schema: &Schema) -> Vec<String> {
        columns(schema)
    }

    fn info(&self) -> Result<Info, DataError> {
        info(self, self.describe())
    }
}

impl From<ReadError> for DataError {
    fn from(error: ReadError) -> Self {
        Self::format(error)
    }
}

/// Returns the data file at a path to a file or to a folder.
fn located(path: &Path) -> Result<PathBuf, ReadError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    NAMES.iter().find_map(|name| find(path, name)).ok_or_else(|| {
        let tried = NAMES.iter().map(|name| format!("{name}[.gz|.xz|.zst]")).collect();
        ReadError::whole(&path.display().to_string(), Problem::NoFile { tried })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_the_file_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let source = NslKdd { path: folder.path().to_owned() };
        let refused = source.records(Columns::ALL, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(
            refused.contains("looked for KDDTrain+.txt[.gz|.xz|.zst], synth.csv["),
            "{refused}"
        );

        std::fs::write(folder.path().join("synth.csv.zst"), "").unwrap();
        assert_eq!(source.describe(), "synth.csv.zst");
        std::fs::write(folder.path().join("KDDTrain+.txt"), "").unwrap();
        assert_eq!(source.describe(), "KDDTrain+.txt");
        let refused = source.records(Columns::ALL, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(
            refused.ends_with(
                "/KDDTrain+.txt: empty file; expected NSL-KDD records (41 \
            features, label, difficulty), one a line"
            ),
            "{refused}"
        );
    }

    #[test]
    fn a_missing_file_says_why() {
        let missing = NslKdd { path: "no/such/file".into() }.records(Columns::ALL, &mut |_| Ok(()));
        let missing = missing.unwrap_err();
        assert_eq!(missing.to_string(), "no/such/file: cannot be read");
        assert!(std::error::Error::source(&missing).is_some());
    }
}
