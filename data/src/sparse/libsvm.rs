//! Files in LIBSVM format: `LABEL NUMBER:VALUE NUMBER:VALUE ...`, one row per line.
//!
//! Feature numbers start at 1, or at 0, and ascend; `#` starts a comment. `qid:NUMBER` before the
//! features, the query of a row that is to be ranked, is left out.

use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;

use super::SparseRow;
use crate::decompress;

/// Limit for the bytes of a line: some two million features.
const LONGEST: u64 = 32 * 1024 * 1024;
/// Maximum length of a word that is quoted in a message, in characters.
const QUOTED: usize = 40;

/// Error for a file that cannot be read.
#[derive(Debug)]
pub struct LibsvmError {
    /// The path of the file, as it was given.
    pub file: String,
    /// Line and column of the problem, counted from 1, if it has a position.
    pub place: Option<(u64, usize)>,
    problem: Problem,
}

/// A problem of a file or a line.
#[derive(Debug)]
enum Problem {
    Io(io::Error),
    Damaged(&'static str, io::Error),
    Empty,
    NotText,
    Label(String),
    Labels(String),
    Weight(String),
    Feature(String),
    First,
    TooLarge(String),
    Order(u32, u32),
    Value(String),
}

impl fmt::Display for LibsvmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        f.write_str(": ")?;
        match &self.problem {
            Problem::Io(_) => f.write_str("cannot be read"),
            Problem::Damaged(compression, _) => write!(
                f,
                "{compression}-compressed file is damaged or ends early; fetch or pack it again"
            ),
            Problem::Empty => f.write_str("no rows; expected lines such as `+1 3:1 11:0.5`"),
            Problem::NotText => f.write_str(
                "no text, or a line that never ends; expected lines such as `+1 3:1 11:0.5`, plain \
                 or packed with gzip, xz or zstd",
            ),
            Problem::Label(word) => write!(
                f,
                "label {word:?} is no finite number; write -1 and +1, a number for each class, or \
                 the number to predict"
            ),
            Problem::Labels(word) => write!(
                f,
                "{word:?} names several classes, and a row has one: write a file for each class, \
                 with the labels -1 and +1, or leave out all labels but one"
            ),
            Problem::Weight(word) => write!(
                f,
                "{word:?} stands in place of a label: if it is a label with a weight, leave out \
                 the weight, which no model here reads; if it is a feature, the line lacks a label"
            ),
            Problem::Feature(word) => {
                write!(f, "{word:?} is no feature; write NUMBER:VALUE, such as 11:0.5")
            }
            Problem::First => f.write_str(
                "feature 0, but numbers begin at 1: if they begin at 0 in this file, say base=0",
            ),
            Problem::TooLarge(number) => {
                write!(f, "feature {number}, but at most {} features are possible", u32::MAX)
            }
            Problem::Order(before, now) => {
                write!(f, "feature {now} after {before}; numbers must ascend, each once a line")
            }
            Problem::Value(word) => write!(f, "value {word:?} is no finite number"),
        }
    }
}

impl std::error::Error for LibsvmError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(source) | Problem::Damaged(_, source) => Some(source),
            _ => None,
        }
    }
}

/// Reads the file at `path`, plain or compressed with gzip, xz or zstd, row by row. Numbers of
/// features begin at `base`, 0 or 1. `visit`
/// receives each row with its line, and may stop by an error.
///
/// # Errors
/// [`LibsvmError`] at the first problem, or the error of `visit`.
pub fn read_file<E: From<LibsvmError>>(
    path: &Path,
    base: u32,
    mut visit: impl FnMut(u64, &SparseRow) -> Result<(), E>,
) -> Result<(), E> {
    let file = path.display().to_string();
    let failed = |place, problem| LibsvmError { file: file.clone(), place, problem };
    let opened = decompress::open(path).map_err(|why| failed(None, Problem::Io(why)))?;
    let unreadable = |why| match opened.compression {
        Some(compression) => Problem::Damaged(compression, why),
        None => Problem::Io(why),
    };
    let mut bytes = opened.bytes;
    let (mut line, mut number, mut rows) = (Vec::new(), 0, 0_u64);
    let mut row = SparseRow::default();
    loop {
        line.clear();
        let read = bytes.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        if read.map_err(|why| failed(None, unreadable(why)))? == 0 {
            break;
        }
        number += 1;
        let whole = (line.len() as u64) < LONGEST && !line.contains(&0);
        let text = decompress::without_mark(&line, number);
        let text = std::str::from_utf8(text).ok().filter(|_| whole);
        let text = text.ok_or_else(|| failed(Some((number, 1)), Problem::NotText))?;
        let text = text.split('#').next().unwrap_or_default();
        if text.trim().is_empty() {
            continue;
        }
        parse(text, base, &mut row)
            .map_err(|(column, problem)| failed(Some((number, column)), problem))?;
        rows += 1;
        visit(number, &row)?;
    }
    if rows == 0 {
        return Err(failed(None, Problem::Empty).into());
    }
    Ok(())
}

/// Parses a line that is not blank. An error has the column of the problem, counted from 1.
fn parse(text: &str, base: u32, row: &mut SparseRow) -> Result<(), (usize, Problem)> {
    row.features.clear();
    row.values.clear();
    let mut words = text.split_ascii_whitespace().peekable();
    // Each word is a slice of `text`, so the pointers give its position.
    let column = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize + 1;
    let label = words.next().unwrap_or_default();
    let wrong = || {
        let are_numbers = |by: char| {
            label.contains(by) && label.split(by).all(|part| part.parse::<f32>().is_ok())
        };
        let problem = match label {
            _ if are_numbers(',') => Problem::Labels,
            _ if are_numbers(':') => Problem::Weight,
            _ => Problem::Label,
        };
        (column(label), problem(quoted(label)))
    };
    row.label = label.parse().ok().filter(|label: &f32| label.is_finite()).ok_or_else(wrong)?;
    let _query = words.next_if(|word| word.starts_with("qid:"));
    for word in words {
        let malformed = || (column(word), Problem::Feature(quoted(word)));
        let (feature, value) = word.split_once(':').ok_or_else(malformed)?;
        let feature: u32 = feature.parse().map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => (column(word), Problem::TooLarge(quoted(feature))),
            _ => malformed(),
        })?;
        if feature == u32::MAX && base == 0 {
            return Err((column(word), Problem::TooLarge(feature.to_string())));
        }
        let feature = feature.checked_sub(base).ok_or_else(|| (column(word), Problem::First))?;
        if let Some(&before) = row.features.last().filter(|&&before| before >= feature) {
            return Err((column(word), Problem::Order(before + base, feature + base)));
        }
        let number = value.parse::<f32>().ok().filter(|value| value.is_finite());
        let number = number.ok_or_else(|| (column(value), Problem::Value(quoted(value))))?;
        row.features.push(feature);
        row.values.push(number);
    }
    Ok(())
}

/// Shortens a word for a message.
fn quoted(word: &str) -> String {
    match word.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &word[..end]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> Result<Vec<SparseRow>, String> {
        read_from(1, text)
    }

    fn read_from(base: u32, text: &[u8]) -> Result<Vec<SparseRow>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        std::fs::write(&path, text).unwrap();
        let mut rows = Vec::new();
        let read = read_file(&path, base, |_, row| {
            rows.push(row.clone());
            Ok::<(), LibsvmError>(())
        });
        let folder = folder.path().display().to_string() + "/";
        read.map(|()| rows).map_err(|error| error.to_string().replace(&folder, ""))
    }

    #[test]
    fn rows_are_read_with_remarks_and_blank_lines() {
        let rows = read(b"+1 1:0.5 3:-2e1 # three\n\n-1\n 0 7:1\r\n1 2:1").unwrap();
        let row = |label, features: &[u32], values: &[f32]| SparseRow {
            label,
            features: features.to_vec(),
            values: values.to_vec(),
        };
        assert_eq!(
            rows,
            [
                row(1.0, &[0, 2], &[0.5, -20.0]),
                row(-1.0, &[], &[]),
                row(0.0, &[6], &[1.0]),
                row(1.0, &[1], &[1.0])
            ]
        );
    }

    #[test]
    fn numbers_to_predict_are_read_as_they_are() {
        let rows = read(b"2.5 1:1\n-1e3\n+1 2:1\n").unwrap();
        let labels: Vec<f32> = rows.iter().map(|row| row.label).collect();
        assert_eq!(labels, [2.5, -1000.0, 1.0]);
        for text in ["1 1:1\nmuch 1:1\n", "1\ninf\n", "1\nnan 2:1\n"] {
            let told = read(text.as_bytes()).unwrap_err();
            assert!(told.starts_with("rows:2:1: label") && told.ends_with("to predict"), "{told}");
        }
    }

    #[test]
    fn features_may_be_counted_from_0_and_queries_are_left_out() {
        let from_0 = read_from(0, b"1 qid:7 0:2 4294967294:1\n").unwrap();
        assert_eq!((&from_0[0].features[..], from_0[0].values.len()), (&[0, u32::MAX - 1][..], 2));
        assert_eq!(read(b"1 qid:7 2:2\n"), read(b"1 2:2\n"));
        let order = read_from(0, b"1 0:1 0:1\n").unwrap_err();
        assert!(order.contains("feature 0 after 0"), "{order}");
        let most = read_from(0, b"1 4294967295:1\n").unwrap_err();
        assert!(most.contains("at most 4294967295 features"), "{most}");
    }

    #[test]
    fn a_byte_order_mark_is_skipped_at_the_start_only() {
        assert_eq!(read("\u{feff}+1 1:1\n".as_bytes()), read(b"+1 1:1\n"));
        assert_eq!(read("\u{feff}# none\n+1 4294967295:1".as_bytes()).unwrap().len(), 1);
        let later = read("+1 1:1\n\u{feff}+1 1:1\n".as_bytes()).unwrap_err();
        assert!(later.starts_with("rows:2:1: label"), "{later}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, told) in [
            ("+1 1:1\ntwo 1:1\n", "rows:2:1: label \"two\" is no finite number"),
            ("inf 1:1\n", "rows:1:1: label \"inf\" is no finite number"),
            ("+1 1:1 5\n", "rows:1:8: \"5\" is no feature; write NUMBER:VALUE"),
            ("+1 1:1 x:1\n", "rows:1:8: \"x:1\" is no feature"),
            ("+1 0:1\n", "rows:1:4: feature 0, but numbers begin at 1: if they begin at 0 in"),
            ("1,3 1:1\n", "rows:1:1: \"1,3\" names several classes"),
            (
                "1:0.5 2:1\n",
                "rows:1:1: \"1:0.5\" stands in place of a label: if it is a label with",
            ),
            ("+1 1:1 qid:3\n", "rows:1:8: \"qid:3\" is no feature"),
            (
                "+1 4294967296:1\n",
                "rows:1:4: feature 4294967296, but at most 4294967295 features are possible",
            ),
            ("\n-1 3:1 3:1\n", "rows:2:8: feature 3 after 3; numbers must ascend"),
            ("-1 3:1 2:1\n", "rows:1:8: feature 2 after 3"),
            ("-1 3:nan\n", "rows:1:6: value \"nan\" is no finite number"),
            ("-1 3:1e99\n", "rows:1:6: value \"1e99\" is no finite number"),
            ("", "rows: no rows"),
            ("a\0b", "rows:1:1: no text"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.starts_with(told), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail_otherwise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _read = read(&bytes);
        }
    }
}
