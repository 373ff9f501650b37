//! The options of a table: how its file is written, and the roles of its columns.

use std::path::PathBuf;

use super::super::arguments::{meant, option};
use super::super::yes;
use super::table::Table;
use super::values::{Notation, Thousands, Words};
use crate::profile::Missing;

pub(super) const FORM: &str = "csv:PATH[,OPTION=VALUE...]";

const OPTIONS: &str = "label=COLUMN, target=COLUMN, drop=COLUMN, one-hot=COLUMN, date=COLUMN, \
                       missing=mean|skip|category, standardise=yes|no, profile=PATH, \
                       header=yes|no|LINE, delimiter=CHARACTER, decimal=dot|comma, \
                       thousands=CHARACTER, na=TEXT, keep=TEXT, comment=CHARACTER";

/// How a file is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// The character between two columns; if there is none, the first lines show a comma,
    /// semicolon or tab.
    pub delimiter: Option<u8>,
    /// Where the names of the columns are.
    pub header: Header,
    /// The character with which lines begin that are comments, if there are comments.
    pub comment: Option<u8>,
    /// How numbers are written.
    pub notation: Notation,
    /// Words for missing values.
    pub words: Words,
}

/// The place of the names of a table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A line, counted from 1; the lines before it are not read.
    Line(u64),
    /// There are none: columns are called by their number, from 1.
    None,
}

impl Default for Header {
    fn default() -> Self {
        Self::Line(1)
    }
}

/// The roles of columns that a user names; the values of the other columns decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The name of the column with the classes; the last column if there is none.
    pub label: Option<String>,
    /// The name of the column with the numbers to predict, in place of classes.
    pub target: Option<String>,
    /// The names of columns that a model does not see.
    pub dropped: Vec<String>,
    /// The names of columns that are one-hot groups even if their values are numbers.
    pub one_hot: Vec<String>,
    /// The names of columns with dates, of which a model sees the number of days.
    pub dates: Vec<String>,
    /// How missing values are encoded.
    pub missing: Missing,
    /// True if columns of numbers get mean 0 and deviation 1.
    pub standardised: bool,
}

impl Default for Roles {
    fn default() -> Self {
        Self {
            label: None,
            target: None,
            dropped: Vec::new(),
            one_hot: Vec::new(),
            dates: Vec::new(),
            missing: Missing::Mean,
            standardised: true,
        }
    }
}

impl Roles {
    /// True if a user names a column.
    pub(super) fn name_columns(&self) -> bool {
        let Self { label, target, dropped, one_hot, dates, .. } = self;
        let named = label.iter().chain(target).chain(dropped).chain(one_hot).chain(dates);
        named.count() > 0
    }

    /// The problem of a role that the user names and that the job's `table` contradicts.
    pub(super) fn contradiction(&self, table: &Table) -> Option<String> {
        let Self { label, target, dropped, one_hot, .. } = self;
        let columns = table.columns();
        let used = dropped.iter().find(|name| columns.contains(&name.as_str()));
        let numbers = one_hot.iter().find(|name| table.numbers.iter().any(|it| it.name == **name));
        let predicted = label.iter().chain(target).find(|name| **name != table.label);
        let said = match (used, numbers, predicted) {
            (Some(name), ..) => format!("drop={name}, but a model of the job reads the column"),
            (_, Some(name), _) => {
                format!("one-hot={name}, but the column has numbers in the job")
            }
            (.., Some(name)) => format!("{name} is named, but the job predicts {}", table.label),
            (None, None, None) => return None,
        };
        Some(format!("{said}; leave the option out"))
    }
}

/// The parsed arguments of a table.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) dialect: Dialect,
    pub(super) roles: Roles,
    pub(super) profile: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments after the path.
    pub(super) fn read<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            let Some((name, value)) = option(argument) else {
                return Err(format!(
                    r"{argument:?} is no option (a comma of a path is written \,); write {FORM} with {OPTIONS}"
                ));
            };
            options.set(name, value)?;
        }
        let Self { dialect, roles, profile } = &options;
        if roles.label.is_some() && roles.target.is_some() {
            return Err(format!(
                "classes or numbers are predicted, not both: write {FORM} with label or target"
            ));
        }
        if profile.is_some() && *roles != Roles::default() {
            return Err("a profile has the roles of all columns: besides profile only options of \
                        the file are possible (header, delimiter, decimal, thousands, na, keep, \
                        comment)"
                .into());
        }
        let Notation { decimal_comma, thousands } = dialect.notation;
        if thousands == Some(if decimal_comma { Thousands::Comma } else { Thousands::Dot }) {
            return Err("decimal and thousands are the same character".into());
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Self { dialect, roles, profile } = self;
        let column = || match value {
            "" => Err(format!("{name}= names no column")),
            column => Ok(column.to_owned()),
        };
        match name {
            "label" if roles.label.is_none() => roles.label = Some(column()?),
            "label" => return Err("label= is there twice; one column has the classes".into()),
            "target" if roles.target.is_none() => roles.target = Some(column()?),
            "target" => return Err("target= is there twice; one number is predicted".into()),
            "drop" => roles.dropped.push(column()?),
            "one-hot" => roles.one_hot.push(column()?),
            "date" => roles.dates.push(column()?),
            "missing" => roles.missing = value.parse()?,
            "standardise" => {
                roles.standardised =
                    yes(value).map_err(|write| format!("{name}={value}: {write}"))?;
            }
            "profile" if value.is_empty() => return Err("profile= names no file".into()),
            "profile" => *profile = Some(value.into()),
            "header" => dialect.header = header_of(value)?,
            "delimiter" => dialect.delimiter = Some(delimiter_of(value)?),
            "decimal" => dialect.notation.decimal_comma = is_comma(value)?,
            "thousands" => dialect.notation.thousands = Some(Thousands::named(value)?),
            "na" => dialect.words.missing.push(value.to_owned()),
            "keep" => dialect.words.kept.push(value.to_owned()),
            "comment" => dialect.comment = Some(comment_of(value)?),
            _ => {
                let names = OPTIONS.split(", ").filter_map(|it| Some(option(it)?.0));
                let meant = meant(name, names);
                return Err(format!("there is no option {name}{meant}; the options are {OPTIONS}"));
            }
        }
        Ok(())
    }
}

fn header_of(text: &str) -> Result<Header, String> {
    match (text, text.parse()) {
        ("yes", _) => Ok(Header::default()),
        ("no", _) => Ok(Header::None),
        (_, Ok(line)) if line > 0 => Ok(Header::Line(line)),
        _ => Err(format!("header={text}: write yes, no, or the number of the line with the names")),
    }
}

fn is_comma(text: &str) -> Result<bool, String> {
    match text {
        "comma" => Ok(true),
        "dot" => Ok(false),
        _ => Err(format!("decimal={text}: write dot or comma")),
    }
}

fn comment_of(text: &str) -> Result<u8, String> {
    match *text.as_bytes() {
        [byte] if byte != b'"' && byte.is_ascii_punctuation() => Ok(byte),
        _ => {
            Err(format!("comment={text}: write the character with which comments begin, such as #"))
        }
    }
}

/// Reads a delimiter: its name, or the character itself.
fn delimiter_of(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        // Commas separate the options.
        ("comma", _) => Ok(b','),
        ("semicolon", _) => Ok(b';'),
        ("tab" | "\\t", _) => Ok(b'\t'),
        ("space", _) => Ok(b' '),
        (_, &[byte]) if byte != b'"' && (byte == b'\t' || byte.is_ascii_punctuation()) => Ok(byte),
        _ => Err(format!(
            "delimiter={text}: write comma, semicolon, tab, space, or one character such as |"
        )),
    }
}
