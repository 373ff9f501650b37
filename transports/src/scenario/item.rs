//! Parts that the texts of all three settings share: items, their subjects, and errors.

use std::fmt;

use pstrain_compute::id::WorkerId;
use pstrain_compute::likeness::nearest;

/// Error of a text that does not describe a scenario, or one that does not fit the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {item}: {problem}")]
pub struct ScenarioError {
    setting: &'static str,
    item: String,
    problem: String,
}

impl ScenarioError {
    pub(super) fn new(setting: &'static str, item: impl fmt::Display, problem: String) -> Self {
        Self { setting, item: item.to_string(), problem }
    }

    /// Returns the item and its error, without the setting, which the caller names.
    #[must_use]
    pub fn about_item(&self) -> String {
        format!("{}: {}", self.item, self.problem)
    }
}

/// Subject of an item. Items about one worker take precedence over items about all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    All,
    Server,
    Standby,
    /// A site by its number from 0 on; none for all.
    Site(Option<u32>),
    Worker(WorkerId),
}

impl Who {
    /// Parses the word before an item's dot.
    pub(super) fn read(word: &str) -> Result<Self, String> {
        match word {
            "all" => Ok(Self::All),
            "server" => Ok(Self::Server),
            "standby" => Ok(Self::Standby),
            "site" => Ok(Self::Site(None)),
            _ if word.starts_with("site") => {
                let number = word["site".len()..].parse::<u32>().ok();
                let site = number.and_then(|number| number.checked_sub(1));
                let site = site.ok_or_else(|| {
                    format!("{word:?} is no site; write site and its number from 1, or site alone")
                })?;
                Ok(Self::Site(Some(site)))
            }
            _ => word.parse().map(Self::Worker).map_err(|_not_a_worker| {
                format!("{word:?} is no worker; write its number (they count from 1), or all")
            }),
        }
    }

    /// Rejects a worker that a job with `workers` workers does not have.
    pub(super) fn check(self, workers: u32) -> Result<(), String> {
        match self {
            Self::Worker(worker) if worker.0 >= workers => {
                Err(format!("the job has no such worker; its workers are numbered 1 to {workers}"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Server => f.write_str("server"),
            Self::Standby => f.write_str("standby"),
            Self::Site(None) => f.write_str("site"),
            Self::Site(Some(site)) => write!(f, "site{}", site + 1),
            Self::Worker(worker) => worker.fmt(f),
        }
    }
}

/// Splits the text of a setting into items; none if it is empty or `none`.
pub(super) fn items<'a>(
    setting: &'static str,
    text: &'a str,
) -> Result<Vec<&'a str>, ScenarioError> {
    let items: Vec<&str> = text.split_whitespace().collect();
    if items == ["none"] {
        return Ok(Vec::new());
    }
    if items.contains(&"none") {
        let problem = "it stands alone: nothing is modelled then; leave it out".into();
        return Err(ScenarioError::new(setting, "none", problem));
    }
    Ok(items)
}

/// Names of keys in other programs, with the names used here.
const ALSO_CALLED: &[(&str, &str)] = &[
    ("latency", "delay"),
    ("lag", "delay"),
    ("bandwidth", "rate"),
    ("throughput", "rate"),
    ("drop", "loss"),
    ("straggler", "slow"),
];

/// Returns the error that `word` is not among `known`, with the likely intended word.
pub(super) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let is_meant =
        |(called, name): &&(&str, &str)| called.eq_ignore_ascii_case(word) && known.contains(name);
    if let Some((_, name)) = ALSO_CALLED.iter().find(is_meant) {
        return format!("{word:?} is no {what}; did you mean {name}?");
    }
    let hint = nearest(word, known.iter().copied())
        .map_or_else(String::new, |nearest| format!(" (did you mean {nearest}?)"));
    format!("{word:?} is no {what}{hint}; there are {}", known.join(", "))
}

/// Writes items separated by spaces, or `none`.
pub(super) fn write_items<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = T>,
) -> fmt::Result {
    let mut written = false;
    for item in items {
        write!(f, "{}{item}", if written { " " } else { "" })?;
        written = true;
    }
    if written { Ok(()) } else { f.write_str("none") }
}

/// Implements serialisation of a setting as its text.
macro_rules! as_text {
    ($name:ident) => {
        impl From<$name> for String {
            fn from(part: $name) -> Self {
                part.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = ScenarioError;

            fn try_from(text: String) -> Result<Self, ScenarioError> {
                text.parse()
            }
        }
    };
}
pub(super) use as_text;
