//! Data formats, by the words that name them.
//!
//! To add a format, implement [`Dataset`] in a file of this directory, and add its [`Format`] to
//! `ALL`. A program that is built on this crate [`register`]s formats of its own.

mod arguments;
mod array;
mod bytes;
mod cifar;
mod csv;
mod idx;
mod libsvm;
mod npy;
#[cfg(feature = "npz")]
mod npz;
mod nsl_kdd;
mod pictures;
mod pixels;
mod predict;
mod range;
mod raw;
mod regression;
mod rows;
mod sparse;
mod synthetic;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use self::arguments::{joined, meant, option, split};

pub use self::cifar::{Cifar, CifarSet};
pub use self::csv::{Csv, Dialect, Header, Notation, Roles, Thousands, Words};
pub use self::idx::Idx;
pub use self::libsvm::Libsvm;
pub use self::npy::Npy;
#[cfg(feature = "npz")]
pub use self::npz::Npz;
pub use self::nsl_kdd::NslKdd;
pub use self::pictures::SyntheticPictures;
pub use self::predict::Predict;
pub use self::raw::Raw;
pub use self::regression::{NOISE, SyntheticRegression};
pub use self::rows::Numbered;
pub use self::sparse::SyntheticSparse;
pub use self::synthetic::{SyntheticNslKdd, write_csv};
use crate::dataset::Dataset;
use pstrain_compute::named::word_of;

/// All formats that ship with this crate.
static ALL: &[Format] = &[
    synthetic::FORMAT,
    nsl_kdd::FORMAT,
    csv::FORMAT,
    npy::FORMAT,
    #[cfg(feature = "npz")]
    npz::FORMAT,
    raw::FORMAT,
    idx::FORMAT,
    cifar::FORMAT_10,
    cifar::FORMAT_100,
    libsvm::FORMAT,
    sparse::FORMAT,
    regression::FORMAT,
    pictures::FORMAT,
    rows::FORMAT,
];

/// Formats of the program.
static REGISTERED: OnceLock<Vec<Format>> = OnceLock::new();

/// Makes a dataset of a format's arguments, which are empty if there are none. Generators draw from
/// the seed, unless the arguments have another. The error says what to write.
pub type Open = fn(&str, u64) -> Result<Arc<dyn Dataset>, String>;

/// The arguments of a format that are paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// None.
    None,
    /// The first.
    First,
    /// The first, and the values of the options with these names (`NAME=VALUE`).
    FirstAnd(&'static [&'static str]),
    /// All.
    All,
    /// All, except for the options with these names.
    AllBut(&'static [&'static str]),
}

impl Paths {
    /// The path in an argument, counted from 0, and the text before it.
    fn in_argument(self, index: usize, argument: &str) -> Option<(&str, &str)> {
        let name = option(argument).map(|(name, _)| name);
        let is_one = |names: &[&str]| name.is_some_and(|name| names.contains(&name));
        match self {
            Self::First | Self::FirstAnd(_) if index == 0 => Some(("", argument)),
            Self::FirstAnd(names) if is_one(names) => {
                Some(argument.split_at(argument.find('=')? + 1))
            }
            Self::AllBut(names) if is_one(names) => None,
            Self::All | Self::AllBut(_) => Some(("", argument)),
            Self::None | Self::First | Self::FirstAnd(_) => None,
        }
    }
}

/// A data format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// How users write it: its name, and its arguments after a colon (`libsvm:PATH[,PATH...]`).
    pub form: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Which of the arguments, separated by commas, are paths.
    pub paths: Paths,
    /// Opens a dataset.
    pub open: Open,
}

impl Format {
    /// The name, before the colon.
    #[must_use]
    pub fn word(&self) -> &'static str {
        word_of(self.form)
    }
}

/// Adds formats to the formats of this crate, for the whole program.
///
/// # Panics
/// If formats were registered before, or one has the name of another.
pub fn register(formats: Vec<Format>) {
    for (index, format) in formats.iter().enumerate() {
        let (word, mut others) = (format.word(), ALL.iter().chain(&formats[..index]));
        assert!(others.all(|other| other.word() != word), "there are two formats {word}");
    }
    assert!(REGISTERED.set(formats).is_ok(), "data formats are registered once");
}

/// Iterates over all formats.
pub fn formats() -> impl Iterator<Item = &'static Format> {
    ALL.iter().chain(REGISTERED.get().into_iter().flatten())
}

/// Endings of names of files, plain or compressed, each with the format of a path without one.
const ENDINGS: &[(&str, &str)] = &[
    (".csv", "csv"),
    (".tsv", "csv"),
    (".npy", "npy"),
    (".npz", "npz"),
    (".svm", "libsvm"),
    (".libsvm", "libsvm"),
    ("-ubyte", "idx"),
];

/// Opens the dataset called `text`: a format with its arguments (`synthetic:1000`,
/// `libsvm:a9a,a9a.t`), arguments whose first shows the format by its ending (`rows.csv,drop=id`),
/// or the path of NSL-KDD records. A comma of a path is written `\,`. Generators draw from `seed`.
///
/// # Errors
/// The problem of the text, in words for the user.
pub fn open(text: &str, seed: u64) -> Result<Arc<dyn Dataset>, String> {
    if let Some((format, arguments)) = format_of(text) {
        return (format.open)(arguments, seed);
    }
    if text.is_empty() {
        return Err("name a file or a folder, or say synthetic".into());
    }
    if let Some(word) = foreign_word(text) {
        let words: Vec<&str> = formats().map(Format::word).collect();
        let meant = meant(word, words.iter().copied());
        let all = words.join(", ");
        return Err(format!("there is no format {word}{meant}; the formats are {all}"));
    }
    nsl_kdd::at(Path::new(text))
}

/// Returns `text` with its paths replaced by `replace`, and the text itself if it has none.
///
/// # Errors
/// The error of `replace`.
pub fn with_paths<E>(
    text: &str,
    mut replace: impl FnMut(&Path) -> Result<String, E>,
) -> Result<String, E> {
    let Some((format, arguments)) = format_of(text) else {
        return if text.is_empty() { Ok(String::new()) } else { replace(Path::new(text)) };
    };
    let mut arguments = split(arguments);
    if format.paths == Paths::None || arguments.iter().any(String::is_empty) {
        return Ok(text.to_owned());
    }
    for (index, argument) in arguments.iter_mut().enumerate() {
        if let Some((before, path)) = format.paths.in_argument(index, argument) {
            *argument = format!("{before}{}", replace(Path::new(path))?);
        }
    }
    Ok(format!("{}:{}", format.word(), joined(&arguments)))
}

/// The format that `text` names, or that its first path shows, with its arguments.
fn format_of(text: &str) -> Option<(&'static Format, &str)> {
    let (word, arguments) = text.split_once(':').unwrap_or((text, ""));
    let named = formats().find(|format| format.word() == word);
    // The bare name of a format of files is the path of a file.
    match named.filter(|format| text.contains(':') || format.paths == Paths::None) {
        Some(format) => Some((format, arguments)),
        None if foreign_word(text).is_some() => None,
        None => Some((shown_by(text)?, text)),
    }
}

/// The word before the colon of a text that is neither a format nor the path of a file.
fn foreign_word(text: &str) -> Option<&str> {
    let (word, _) = text.split_once(':')?;
    // One letter is a drive.
    let is_word = word.len() > 1 && word.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    (is_word && !Path::new(text).exists()).then_some(word)
}

/// The format that the ending of the first path of `arguments` shows. A file of NSL-KDD records may
/// be called `.csv`.
fn shown_by(arguments: &str) -> Option<&'static Format> {
    let path = split(arguments).swap_remove(0);
    let lower = path.to_lowercase();
    let plain = [".gz", ".xz", ".zst"].iter().find_map(|ending| lower.strip_suffix(ending));
    let plain = plain.unwrap_or(&lower);
    let (_, word) = ENDINGS.iter().find(|(ending, _)| plain.ends_with(ending))?;
    let format = formats().find(|format| format.word() == *word)?;
    (format.word() != "csv" || !crate::nsl_kdd::begins(Path::new(&path))).then_some(format)
}

/// Reads `yes` or `no`.
///
/// # Errors
/// The words that are allowed.
fn yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".into()),
    }
}

/// Reads arguments `A[,B...]`: whole numbers of which each may be left out for its default.
///
/// # Errors
/// If an argument is no number, or there are too many.
pub fn numbers<const N: usize>(arguments: &str, defaults: [u64; N]) -> Result<[u64; N], String> {
    let mut numbers = defaults;
    for (index, text) in arguments.split(',').map(str::trim).enumerate() {
        let Some(number) = numbers.get_mut(index) else {
            return Err(format!("there are more than {N} numbers"));
        };
        if !text.is_empty() {
            *number = text.parse().map_err(|_| format!("{text:?} is no such number"))?;
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_word() {
        for format in formats() {
            let text = format!("{}:", format.word());
            let (found, arguments) = format_of(&text).unwrap();
            assert_eq!((found.form, arguments), (format.form, ""));
        }
    }

    #[test]
    fn a_path_shows_its_format_by_its_ending() {
        let shown =
            |text: &str| format_of(text).map(|(format, rest)| (format.word(), rest == text));
        for (text, word) in [
            ("rows.csv", "csv"),
            ("a/rows.TSV.gz,drop=id", "csv"),
            ("C:rows.csv", "csv"),
            ("x.npy,y.npy", "npy"),
            ("a9a.svm.xz", "libsvm"),
            ("train-images-idx3-ubyte.gz,train-labels-idx1-ubyte.gz", "idx"),
        ] {
            assert_eq!(shown(text), Some((word, true)), "{text}");
        }
        for text in ["KDDTrain+.txt", "csv", "cvs:rows.csv", "rows.csv/", "a,rows.csv", ""] {
            assert_eq!(shown(text), None, "{text}");
        }
        // Records that are called so.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("synth.csv");
        write_csv(3, 1, &mut std::fs::File::create(&path).unwrap()).unwrap();
        assert_eq!(open(path.to_str().unwrap(), 1).unwrap().kind(), "NSL-KDD records");
    }

    #[test]
    fn a_format_that_there_is_not_is_refused_with_the_one_that_is_meant() {
        for (text, meant) in [
            ("cvs:rows", "did you mean csv?"),
            ("libsvm-regression:rows", "did you mean libsvm?"),
            ("parquet:rows", "there is no format parquet; the formats are synthetic, nsl-kdd, csv"),
        ] {
            let told = open(text, 1).unwrap_err();
            assert!(told.contains(meant), "{told}");
        }
        // A file may be called so.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("12:30.txt");
        std::fs::write(&path, "").unwrap();
        open(path.to_str().unwrap(), 1).unwrap();
    }

    #[test]
    fn generated_rows_are_opened_by_their_own_words() {
        for text in [
            "synthetic",
            "synthetic:9",
            "synthetic:9,4",
            "sparse",
            "sparse:9,3",
            "regression:9,3",
            "pictures:9,8",
        ] {
            let opened = open(text, 7).unwrap();
            let again = open(&opened.words().unwrap(), 8).unwrap();
            assert_eq!(format!("{opened:?}"), format!("{again:?}"));
            assert_ne!(format!("{opened:?}"), format!("{:?}", open("synthetic:8", 7).unwrap()));
        }
        assert_eq!(open("records", 1).unwrap().words(), None);
        for wrong in [
            "synthetic:many",
            "synthetic:1,2,3",
            "sparse:9,0",
            "sparse:1,2,3,4",
            "regression:9,0",
            "pictures:9,7",
        ] {
            open(wrong, 1).unwrap_err();
        }
    }

    #[test]
    fn paths_are_replaced_where_there_are_some() {
        let replace = |path: &Path| Ok::<_, ()>(format!("/x/{}", path.display()));
        for (text, replaced) in [
            ("a", "/x/a"),
            ("a.csv,drop=b", "csv:/x/a.csv,drop=b"),
            (r"csv:a\,b,label=c", r"csv:/x/a\,b,label=c"),
            ("libsvm:a,b", "libsvm:/x/a,/x/b"),
            ("csv:a,label=b", "csv:/x/a,label=b"),
            ("csv:a=b,profile=c", "csv:/x/a=b,profile=/x/c"),
            ("nsl-kdd:a", "nsl-kdd:/x/a"),
            ("npy:a,b=c,standardise=no", "npy:/x/a,/x/b=c,standardise=no"),
            ("libsvm:a,", "libsvm:a,"),
            ("libsvm:a,b,rows=dense", "libsvm:/x/a,/x/b,rows=dense"),
            ("synthetic:9", "synthetic:9"),
            ("", ""),
        ] {
            assert_eq!(with_paths(text, replace), Ok(replaced.into()), "{text}");
        }
    }
}
