//! The options of a table: the roles of its columns, missing values, the delimiter.

use std::path::PathBuf;

use super::super::{option, yes};
use crate::profile::Missing;

pub(super) const FORM: &str = "csv:PATH[,OPTION=VALUE...]";

const OPTIONS: &str = "label=COLUMN, target=COLUMN, drop=COLUMN, one-hot=COLUMN, \
                       missing=mean|skip|category, standardise=yes|no, delimiter=CHARACTER, \
                       profile=PATH";

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
    /// How missing values are encoded.
    pub missing: Missing,
    /// True if columns of numbers get mean 0 and deviation 1.
    pub standardised: bool,
}

impl Default for Roles {
    fn default() -> Self {
        let (dropped, one_hot, missing) = (Vec::new(), Vec::new(), Missing::Mean);
        Self { label: None, target: None, dropped, one_hot, missing, standardised: true }
    }
}

/// The parsed arguments of a table.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) roles: Roles,
    pub(super) delimiter: Option<u8>,
    pub(super) profile: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments after the path.
    pub(super) fn read<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            let Some((name, value)) = option(argument) else {
                return Err(format!("{argument:?} is no option; write {FORM} with {OPTIONS}"));
            };
            let column = || match value {
                "" => Err(format!("{name}= names no column")),
                column => Ok(column.to_owned()),
            };
            let Self { roles, delimiter, profile } = &mut options;
            match name {
                "label" if roles.label.is_none() => roles.label = Some(column()?),
                "label" => return Err("label= is there twice; one column has the classes".into()),
                "target" if roles.target.is_none() => roles.target = Some(column()?),
                "target" => return Err("target= is there twice; one number is predicted".into()),
                "drop" => roles.dropped.push(column()?),
                "one-hot" => roles.one_hot.push(column()?),
                "missing" => roles.missing = value.parse()?,
                "standardise" => roles.standardised = yes(name, value)?,
                "delimiter" => *delimiter = Some(delimiter_of(value)?),
                "profile" if value.is_empty() => return Err("profile= names no file".into()),
                "profile" => *profile = Some(value.into()),
                _ => return Err(format!("there is no option {name}; the options are {OPTIONS}")),
            }
        }
        if options.roles.label.is_some() && options.roles.target.is_some() {
            return Err(format!(
                "classes or numbers are predicted, not both: write {FORM} with label or target"
            ));
        }
        if options.profile.is_some() && options.roles != Roles::default() {
            return Err(
                "a profile has the roles of all columns: besides profile only delimiter is \
                        possible"
                    .into(),
            );
        }
        Ok(options)
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
