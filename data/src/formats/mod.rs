//! Data formats, by the words that name them.
//!
//! To add a format, implement [`Dataset`] in a file of this directory, and add its [`Format`] to
//! `ALL`. A program that is built on this crate [`register`]s formats of its own.

mod bytes;
mod cifar10;
mod csv;
mod idx;
mod libsvm;
mod npy;
#[cfg(feature = "npz")]
mod npz;
mod nsl_kdd;
mod pixels;
mod raw;
mod regression;
mod rows;
mod sparse;
mod synthetic;

use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use self::cifar10::Cifar10;
pub use self::csv::{Csv, Dialect, Header, Notation, Roles, Thousands, Words};
pub use self::idx::Idx;
pub use self::libsvm::Libsvm;
pub use self::npy::Npy;
#[cfg(feature = "npz")]
pub use self::npz::Npz;
pub use self::nsl_kdd::NslKdd;
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
    cifar10::FORMAT,
    libsvm::FORMAT,
    libsvm::REGRESSION,
    sparse::FORMAT,
    regression::FORMAT,
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

/// The name and the value of an option `NAME=VALUE`.
fn option(argument: &str) -> Option<(&str, &str)> {
    argument.split_once('=')
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

/// Opens the dataset called `text`: a format with its arguments (`synthetic:1000`,
/// `libsvm:a9a,a9a.t`), or the path of NSL-KDD records. Generators draw from `seed`.
///
/// # Errors
/// The problem of the text, in words for the user.
pub fn open(text: &str, seed: u64) -> Result<Arc<dyn Dataset>, String> {
    match format_of(text) {
        Some((format, arguments)) => (format.open)(arguments, seed),
        None if text.is_empty() => Err("name a file or a folder, or say synthetic".into()),
        None => (nsl_kdd::FORMAT.open)(text, seed),
    }
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
    if format.paths == Paths::None || arguments.split(',').any(str::is_empty) {
        return Ok(text.to_owned());
    }
    let mut replaced = Vec::new();
    for (index, argument) in arguments.split(',').enumerate() {
        replaced.push(match format.paths.in_argument(index, argument) {
            Some((before, path)) => format!("{before}{}", replace(Path::new(path))?),
            None => argument.to_owned(),
        });
    }
    // The comma in the folder's name would separate two arguments.
    let is_ambiguous = replaced.iter().any(|argument| argument.contains(','));
    let all = replaced.join(",");
    Ok(if is_ambiguous { text.to_owned() } else { format!("{}:{all}", format.word()) })
}

/// The format that `text` names, with its arguments.
fn format_of(text: &str) -> Option<(&'static Format, &str)> {
    let (word, arguments) = text.split_once(':').unwrap_or((text, ""));
    let format = formats().find(|format| format.word() == word)?;
    // The bare name of a format of files is the path of a file.
    (text.contains(':') || format.paths == Paths::None).then_some((format, arguments))
}

/// Reads arguments `PATH[,PATH...]` of the format `form`.
///
/// # Errors
/// If a path is empty.
fn paths<'a>(arguments: &'a str, form: &str) -> Result<impl Iterator<Item = &'a Path>, String> {
    if arguments.split(',').any(str::is_empty) {
        return Err(format!("a path is empty; write {form}"));
    }
    Ok(arguments.split(',').map(Path::new))
}

/// Reads the value of the option `name`, `yes` or `no`.
///
/// # Errors
/// If it is another word.
fn yes(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("{name}={value}: write yes or no")),
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
        assert_eq!(format_of("rows.csv").map(|(format, _)| format.form), None);
        assert_eq!(format_of("C:rows.csv").map(|(format, _)| format.form), None);
    }

    #[test]
    fn generated_rows_are_opened_by_their_own_words() {
        for text in
            ["synthetic", "synthetic:9", "synthetic:9,4", "sparse", "sparse:9,3", "regression:9,3"]
        {
            let opened = open(text, 7).unwrap();
            let again = open(&opened.words().unwrap(), 8).unwrap();
            assert_eq!(format!("{opened:?}"), format!("{again:?}"));
            assert_ne!(format!("{opened:?}"), format!("{:?}", open("synthetic:8", 7).unwrap()));
        }
        assert_eq!(open("rows.csv", 1).unwrap().words(), None);
        for wrong in
            ["synthetic:many", "synthetic:1,2,3", "sparse:9,0", "sparse:1,2,3,4", "regression:9,0"]
        {
            open(wrong, 1).unwrap_err();
        }
    }

    #[test]
    fn paths_are_replaced_where_there_are_some() {
        let replace = |path: &Path| Ok::<_, ()>(format!("/x/{}", path.display()));
        for (text, replaced) in [
            ("a.csv", "/x/a.csv"),
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
