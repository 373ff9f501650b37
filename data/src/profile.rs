//! Profiles of tables: roles, categories, classes and statistics, written down as TOML.
//!
//! With a profile the encoding of a table does not depend on the rows at hand: all nodes of a job
//! agree on it even if each has rows of its own. The profiles of several files can be merged.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How missing values of a table are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// A number is the mean of its column, a text belongs to the column for all other texts.
    #[default]
    Mean,
    /// A row with a missing value is left out.
    Skip,
    /// A column of its own says that the value is missing; a number is the mean besides.
    Category,
}

impl FromStr for Missing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mean" => Ok(Self::Mean),
            "skip" => Ok(Self::Skip),
            "category" => Ok(Self::Category),
            _ => Err(format!("missing={text}: write mean, skip or category")),
        }
    }
}

/// The columns and classes of a table, with their statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// Number of rows.
    #[serde(default)]
    pub rows: u64,
    /// The column with the classes; empty if numbers are predicted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The classes, in the order of the labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Number of rows of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_rows: Vec<u64>,
    /// How missing values are encoded.
    #[serde(default)]
    pub missing: Missing,
    /// True if columns of numbers get mean 0 and deviation 1.
    #[serde(default = "yes")]
    pub standardise: bool,
    /// The column with the numbers to predict, in place of classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Numbers>,
    /// The columns of numbers.
    #[serde(default, rename = "number")]
    pub numbers: Vec<Numbers>,
    /// The columns of texts.
    #[serde(default, rename = "text")]
    pub texts: Vec<Texts>,
}

const fn yes() -> bool {
    true
}

/// A column of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The column's name.
    pub name: String,
    /// The mean of the values that are there.
    pub mean: f32,
    /// The population standard deviation over all rows, with the mean for missing values.
    pub deviation: f32,
    /// Number of missing values.
    #[serde(default)]
    pub missing: u64,
    /// The beginning from which days are counted, in seconds since 1970, if the values are dates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<i64>,
}

/// A column of texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Texts {
    /// The column's name.
    pub name: String,
    /// The different texts.
    pub texts: Vec<String>,
    /// Number of rows with each text.
    #[serde(default)]
    pub rows: Vec<u64>,
    /// Number of missing values.
    #[serde(default)]
    pub missing: u64,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// The problem, in words for the user.
    pub fn read(text: &str) -> Result<Self, String> {
        let profile: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        profile.check()?;
        Ok(profile)
    }

    /// The column with the classes or with the numbers to predict.
    pub(crate) fn predicted(&self) -> &String {
        self.target.as_ref().map_or(&self.label, |target| &target.name)
    }

    fn check(&self) -> Result<(), String> {
        let names = self.numbers.iter().map(|column| &column.name);
        let names = names.chain(self.texts.iter().map(|column| &column.name));
        if self.label.is_empty() == self.target.is_none() {
            return Err("either label or target must name a column to predict".into());
        }
        if self.target.is_none() && self.classes.is_empty() {
            return Err("classes are missing".into());
        }
        if let Some(name) = repeated(names.chain([self.predicted()]), |name| name.into()) {
            return Err(format!("column {name:?} is there twice"));
        }
        if let Some(class) = repeated(&self.classes, code) {
            return Err(format!("class {class:?} is there twice"));
        }
        for Numbers { name, mean, deviation, .. } in self.numbers.iter().chain(&self.target) {
            if !mean.is_finite() || !deviation.is_finite() || *deviation < 0.0 {
                return Err(format!(
                    "column {name:?}: mean {mean} and deviation {deviation} must be finite, and \
                     the deviation 0 or more"
                ));
            }
        }
        for Texts { name, texts, .. } in &self.texts {
            if let Some(text) = repeated(texts, code) {
                return Err(format!("column {name:?}: {text:?} is there twice"));
            }
        }
        Ok(())
    }

    /// Returns the profile of the rows of two tables.
    ///
    /// # Errors
    /// A column with different roles, in words for the user.
    pub fn merged(self, other: Self) -> Result<Self, String> {
        let names = |profile: &Self| {
            let kind = |column: &Numbers| match column.origin {
                Some(_) => "dates",
                None => "numbers",
            };
            let numbers = profile.numbers.iter().map(|column| (column.name.clone(), kind(column)));
            let texts = profile.texts.iter().map(|column| (column.name.clone(), "texts"));
            numbers.chain(texts).collect::<BTreeMap<_, _>>()
        };
        let (mine, theirs) = (names(&self), names(&other));
        let mut all = mine.iter().chain(&theirs);
        if let Some((name, _)) = all.find(|&(name, _)| mine.get(name) != theirs.get(name)) {
            let role = |of: &BTreeMap<_, &'static str>| of.get(name).copied().unwrap_or("nothing");
            return Err(format!(
                "column {name} has {} in one profile and {} in another: say one-hot={name} or \
                 drop={name} for each",
                role(&mine),
                role(&theirs)
            ));
        }
        let settings =
            |of: &Self| (of.target.is_some(), of.predicted().clone(), of.missing, of.standardise);
        if settings(&self) != settings(&other) {
            return Err("the profiles differ in label, target, missing or standardise".into());
        }
        if let Some(problem) = self.other_classes(&other) {
            return Err(problem);
        }
        let (mine, theirs) = (self.rows, other.rows);
        let others: BTreeMap<&String, &Numbers> =
            other.numbers.iter().map(|column| (&column.name, column)).collect();
        let mut numbers = self.numbers;
        for column in &mut numbers {
            if let Some(other) = others.get(&column.name) {
                column.merge(mine, other, theirs);
            }
        }
        let mut target = self.target;
        if let (Some(target), Some(other)) = (&mut target, &other.target) {
            target.merge(mine, other, theirs);
        }
        let others: BTreeMap<&String, &Texts> =
            other.texts.iter().map(|column| (&column.name, column)).collect();
        let mut texts = self.texts;
        for column in &mut texts {
            if let Some(other) = others.get(&column.name) {
                column.missing += other.missing;
                let theirs = (other.texts.as_slice(), other.rows.as_slice());
                let sums = union((&column.texts, &column.rows), theirs);
                (column.texts, column.rows) = sums.into_iter().unzip();
            }
        }
        let theirs = (other.classes.as_slice(), other.class_rows.as_slice());
        let mut classes = union((&self.classes, &self.class_rows), theirs);
        sort_as_numbers(&mut classes, |(class, _)| class);
        let (classes, class_rows) = classes.into_iter().unzip();
        let rows = self.rows + other.rows;
        Ok(Self { rows, classes, class_rows, target, numbers, texts, ..self })
    }
}

impl Profile {
    /// The problem of two nodes that name their classes in other ways, as far as it shows: the
    /// classes of one are numbers, and those of the other are not.
    fn other_classes(&self, other: &Self) -> Option<String> {
        let is_number = |class: &String| class.parse().is_ok_and(|it: f64| it.is_finite());
        let are_all = |of: &Self, numbers| of.classes.iter().all(|it| is_number(it) == numbers);
        let are_other = |one: &Self, other: &Self| are_all(one, true) && are_all(other, false);
        let is_one = self.target.is_none() && (are_other(self, other) || are_other(other, self));
        is_one.then(|| {
            format!(
                "column {} has the classes {} in one profile and {} in another: give the classes \
                 of all nodes the same names",
                self.label,
                self.classes.join(", "),
                other.classes.join(", ")
            )
        })
    }
}

impl Numbers {
    /// Takes in the statistics of other rows (Chan, Golub and LeVeque, 1979). Missing values count
    /// as rows with the mean.
    fn merge(&mut self, rows: u64, other: &Self, other_rows: u64) {
        let present = |rows: u64, missing: u64| rows.saturating_sub(missing) as f64;
        let (mine, theirs) = (present(rows, self.missing), present(other_rows, other.missing));
        // Dates are counted from the beginning of these rows.
        let origin = |of: &Self| of.origin.unwrap_or_default();
        let later = (origin(other) - origin(self)) as f64 / DAY;
        let difference = f64::from(other.mean) + later - f64::from(self.mean);
        let share = theirs / (mine + theirs).max(1.0);
        let square = |deviation: f32, rows: u64| f64::from(deviation).powi(2) * rows as f64;
        let squares = square(self.deviation, rows)
            + square(other.deviation, other_rows)
            + difference * difference * mine * share;
        self.mean = (f64::from(self.mean) + difference * share) as f32;
        self.deviation = (squares / ((rows + other_rows).max(1) as f64)).sqrt() as f32;
        self.missing += other.missing;
    }
}

/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// The texts of both, sorted, with the sums of their counts.
fn union(mine: (&[String], &[u64]), theirs: (&[String], &[u64])) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::new();
    for (texts, counts) in [mine, theirs] {
        for (index, text) in texts.iter().enumerate() {
            let (_, sum) = sums.entry(code(text)).or_insert_with(|| (text.clone(), 0));
            *sum += counts.get(index).copied().unwrap_or(0);
        }
    }
    sums.into_values().collect()
}

/// The name by which equal classes and equal texts of a column are found: a whole number has one,
/// however it is written (`1`, `1.0`, `+1`, `1e0`). Zeros at its begin tell codes apart.
pub(crate) fn code(text: &str) -> Cow<'_, str> {
    /// Whole numbers up to this one have 64-bit numbers of their own.
    const MOST: f64 = 9_007_199_254_740_991.0;
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|it: char| it.is_ascii_digit())
        || is_plain(text.strip_prefix('-').unwrap_or(text))
        || (digits.starts_with('0') && digits[1..].starts_with(|it: char| it.is_ascii_digit()))
    {
        return Cow::Borrowed(text);
    }
    match text.parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && value.abs() <= MOST => {
            Cow::Owned((value as i64).to_string())
        }
        _ => Cow::Borrowed(text),
    }
}

/// Sorts items by their texts, as numbers if all of them are numbers.
pub(crate) fn sort_as_numbers<T>(items: &mut [T], text: impl Fn(&T) -> &str) {
    let value = |item: &T| text(item).parse().ok().filter(|value: &f32| value.is_finite());
    if items.iter().all(|item| value(item).is_some()) {
        let value = |item: &T| value(item).unwrap_or_default();
        items.sort_by(|one, other| value(one).total_cmp(&value(other)));
    }
}

/// The first text that comes again, as far as `key` tells them apart.
fn repeated<'a>(
    texts: impl IntoIterator<Item = &'a String>,
    key: impl Fn(&'a str) -> Cow<'a, str>,
) -> Option<&'a String> {
    let mut seen = BTreeSet::new();
    texts.into_iter().find(|text| !seen.insert(key(text)))
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(toml::to_string(self).map_err(|_error| fmt::Error)?.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_one_code_however_they_are_written() {
        for text in ["1", "1.0", "1.", "+1", "1e0", "10e-1", "1.00"] {
            assert_eq!(code(text), "1", "{text}");
        }
        assert_eq!((code("-2.0"), code("-2"), code("0.0")), ("-2".into(), "-2".into(), "0".into()));
        for text in [
            "01",
            "01.0",
            "1.10",
            "1.5",
            "a",
            "",
            "-",
            "inf",
            "nan",
            "0x1",
            "1 ",
            "é",
            "-é",
            "9007199254740993",
            "9007199254740993.0",
            "1e300",
        ] {
            assert_eq!(code(text), text);
        }
    }
}
