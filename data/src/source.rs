//! Sources of records and sparse rows: files and generators.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pstrain_compute::examples::Examples;

use crate::decompress::{Opened, open};
use crate::error::DataError;
use crate::nsl_kdd::{self, Columns, Problem, ReadError, Record};
use crate::sparse::{self, Hashing, SparseGenerator, SparseRow, SparseSpec};
use crate::synthetic::{DEFAULT_ROWS, Generator, Profile};

/// Names of data files in a folder; each may be plain or compressed.
const NAMES: [&str; 2] = ["KDDTrain+.txt", "synth.csv"];
const ENDINGS: [&str; 4] = ["", ".gz", ".xz", ".zst"];

/// A source of records or sparse rows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Drawn from the profile that ships with the crate.
    Synthetic {
        /// Number of records.
        rows: u64,
        /// The seed. The same seed gives the same records on every machine.
        seed: u64,
    },
    /// A file, or a folder that holds `KDDTrain+.txt` or `synth.csv`, plain or compressed with
    /// gzip, xz or zstd (`.gz`, `.xz`, `.zst`).
    File(PathBuf),
    /// Sparse rows in LIBSVM format: the rows of these files, one file after the other.
    Libsvm(Vec<PathBuf>),
    /// Sparse rows drawn from a seed.
    SyntheticSparse {
        /// Number of rows.
        rows: u64,
        /// Number of features to draw from.
        columns: u32,
        /// The seed.
        seed: u64,
    },
}

impl Default for Source {
    fn default() -> Self {
        Self::Synthetic { rows: DEFAULT_ROWS, seed: 1 }
    }
}

impl Source {
    /// Passes every record to `visit`, in order. `visit` may stop by an error.
    ///
    /// Numeric features outside `columns` may be 0.
    ///
    /// # Errors
    /// [`DataError`] at the first problem, or the error of `visit`.
    pub fn visit(
        &self,
        columns: Columns,
        mut visit: impl FnMut(&Record) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        match self {
            Self::Synthetic { rows, seed } => {
                let generator = Generator::new(&Profile::embedded()?, *seed, columns);
                (0..*rows).try_for_each(|row| visit(&generator.record(row)))
            }
            Self::File(path) => nsl_kdd::read_file(&located(path)?, columns, visit),
            Self::Libsvm(_) | Self::SyntheticSparse { .. } => {
                Err(DataError::Specification { problem: "its rows are sparse, not records" })
            }
        }
    }

    /// True if the rows are sparse, and not records.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        matches!(self, Self::Libsvm(_) | Self::SyntheticSparse { .. })
    }

    /// Returns length and modification time of each file, to detect changes.
    pub(crate) fn stamp(&self) -> Vec<Option<(u64, SystemTime)>> {
        let of = |path: &Path| {
            let known = std::fs::metadata(path).ok()?;
            Some((known.len(), known.modified().ok()?))
        };
        match self {
            Self::File(path) => vec![located(path).ok().and_then(|path| of(&path))],
            Self::Libsvm(files) => files.iter().map(|path| of(path)).collect(),
            Self::Synthetic { .. } | Self::SyntheticSparse { .. } => Vec::new(),
        }
    }

    /// True if the rows are cheap to read repeatedly: the files are regular and not compressed.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_plain = |path: &Path| {
            // Excludes pipes: opening one for this check would consume its first bytes.
            path.is_file() && matches!(open(path), Ok(Opened { compression: None, .. }))
        };
        match self {
            Self::File(path) => located(path).is_ok_and(|path| is_plain(&path)),
            Self::Libsvm(files) => files.iter().all(|path| is_plain(path)),
            Self::Synthetic { .. } | Self::SyntheticSparse { .. } => false,
        }
    }

    /// Passes every sparse row to `visit`, in order. `visit` may stop by an error.
    ///
    /// # Errors
    /// [`DataError`] at the first problem, or the error of `visit`.
    pub fn visit_sparse(
        &self,
        mut visit: impl FnMut(&SparseRow) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        match self {
            Self::Libsvm(files) => {
                files.iter().try_for_each(|file| sparse::read_file(file, &mut visit))
            }
            Self::SyntheticSparse { rows, columns, seed } => {
                let generator = SparseGenerator::new(*columns, *seed);
                (0..*rows).try_for_each(|row| visit(&generator.row(row)))
            }
            Self::Synthetic { .. } | Self::File(_) => {
                Err(DataError::Specification { problem: "its rows are records, not sparse" })
            }
        }
    }

    /// Returns the columns of sparse rows, or the columns that `hashing` maps them to; none if the
    /// rows are not sparse.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, or `hashing` is set for rows that are not
    /// sparse.
    pub(crate) fn sparse_spec(&self, hashing: Hashing) -> Result<Option<SparseSpec>, DataError> {
        let columns = match (self, hashing) {
            (Self::Libsvm(_) | Self::SyntheticSparse { .. }, Hashing::To(columns)) => {
                return Ok(Some(SparseSpec { columns, hashed: true }));
            }
            (Self::SyntheticSparse { columns, .. }, Hashing::None) => *columns,
            (Self::Libsvm(_), Hashing::None) => {
                let mut columns = 1;
                self.visit_sparse(|row| {
                    let last = row.features.iter().max().map_or(0, |&last| last + 1);
                    columns = columns.max(last);
                    Ok(())
                })?;
                columns
            }
            (_, Hashing::To(columns)) => {
                return Err(DataError::Setting {
                    name: "hash-features",
                    value: columns.to_string(),
                    allowed: "none for data whose rows are not sparse",
                });
            }
            (_, Hashing::None) => return Ok(None),
        };
        Ok(Some(SparseSpec { columns, hashed: false }))
    }

    /// Encodes all sparse rows.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, or has a feature past the last column.
    pub(crate) fn encode_sparse(&self, spec: SparseSpec) -> Result<Examples, DataError> {
        let (mut encoder, mut all) = (spec.encoder(), Examples::new(spec.shape()));
        self.visit_sparse(|row| {
            let row = encoder.encode(row);
            Ok(all.push_sparse(row.columns, row.values, row.label)?)
        })?;
        Ok(all)
    }

    /// Describes the source. A path is reduced to the file name, because the text travels to
    /// workers.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Synthetic { rows, seed } => {
                format!("synthetic NSL-KDD, {rows} rows, seed {seed}")
            }
            Self::File(path) => {
                let path = located(path).unwrap_or_else(|_| path.clone());
                name_of(&path)
            }
            Self::Libsvm(files) => {
                files.iter().map(|file| name_of(file)).collect::<Vec<_>>().join(", ")
            }
            Self::SyntheticSparse { rows, columns, seed } => {
                format!("synthetic sparse rows, {rows} of {columns} columns, seed {seed}")
            }
        }
    }
}

/// Writes `rows` synthetic records in the original format. A reader of the output gets the same
/// records as from [`Source::Synthetic`] with the same seed.
///
/// The difficulty is [`DIFFICULTY`](nsl_kdd::DIFFICULTY) in every record.
///
/// # Errors
/// [`DataError::Write`] if `out` fails.
pub fn write_csv(rows: u64, seed: u64, out: &mut impl Write) -> Result<(), DataError> {
    let source = Source::Synthetic { rows, seed };
    source.visit(Columns::ALL, |record| nsl_kdd::write(record, out).map_err(DataError::Write))?;
    out.flush().map_err(DataError::Write)
}

/// Returns the last component of a path.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into())
}

/// Returns the data file at a path to a file or to a folder.
fn located(path: &Path) -> Result<PathBuf, ReadError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let names = || {
        NAMES.iter().flat_map(|name| ENDINGS.iter().map(move |ending| format!("{name}{ending}")))
    };
    names().map(|name| path.join(name)).find(|candidate| candidate.is_file()).ok_or_else(|| {
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
        let source = Source::File(folder.path().to_owned());
        let refused = source.visit(Columns::ALL, |_| Ok(())).unwrap_err().to_string();
        assert!(
            refused.contains("looked for KDDTrain+.txt[.gz|.xz|.zst], synth.csv["),
            "{refused}"
        );

        std::fs::write(folder.path().join("synth.csv.zst"), "").unwrap();
        assert_eq!(source.describe(), "synth.csv.zst");
        std::fs::write(folder.path().join("KDDTrain+.txt"), "").unwrap();
        assert_eq!(source.describe(), "KDDTrain+.txt");
        let refused = source.visit(Columns::ALL, |_| Ok(())).unwrap_err().to_string();
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
        let missing = Source::File("no/such/file".into()).visit(Columns::ALL, |_| Ok(()));
        let missing = missing.unwrap_err();
        assert_eq!(missing.to_string(), "no/such/file: cannot be read");
        assert!(std::error::Error::source(&missing).is_some());
    }
}
