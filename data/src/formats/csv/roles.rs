//! Finds the roles of a table's columns: numbers, dates, texts, label.

mod sum;

use std::collections::{BTreeMap, BTreeSet};

use self::sum::Sum;
use super::Csv;
use super::counts::Counts;
use super::different::Different;
use super::odd::{self, Taken};
use super::options::Roles;
use super::reader::{Reader, quoted};
use super::table::{Numbers, Table, Texts};
use crate::dataset::Schema;
use crate::error::DataError;
use crate::info;
use crate::profile::{self, Missing, Profile, sort_as_numbers};

/// Fewest rows of a column that is said to count them.
const COUNTED: u64 = 10;
/// Most different values of a column that is named as one of classes.
const FEW_CLASSES: usize = 20;
/// Most columns that are named so.
const MOST_NAMED: usize = 3;
/// The name that pandas gives an index that it reads from a file.
pub(super) const INDEX: &str = "Unnamed: 0";

/// The role of a column.
enum Role {
    Dropped,
    Classes,
    /// Numbers to predict.
    Target,
    Number,
    Date,
    Texts(Vec<String>),
}

impl Role {
    /// True if the different values of the column are kept.
    const fn has_texts(&self) -> bool {
        matches!(self, Self::Classes | Self::Texts(_))
    }
}

/// A column with its role and the reason for it.
struct Column {
    name: String,
    role: Role,
    why: String,
    /// True if a user named the role.
    is_named: bool,
    sum: Sum,
}

/// The roles of all columns of a table.
pub(super) struct Found {
    columns: Vec<Column>,
    classes: Vec<String>,
    missing: Missing,
    standardised: bool,
    /// Rows that are left out for a missing value.
    pub(super) left_out: u64,
    /// Remarks on odd columns, a line each.
    pub(super) remarks: Vec<String>,
}

/// Finds the roles of the columns. Reads the table twice, and keeps the different texts of its
/// columns.
pub(super) fn find(csv: &Csv) -> Result<Found, DataError> {
    let roles = &csv.roles;
    let mut reader = csv.reader()?;
    let mut columns = named_roles(roles, &reader)?;
    let used: Vec<usize> =
        (0..columns.len()).filter(|&at| !matches!(columns[at].role, Role::Dropped)).collect();
    let is_left_out = |reader: &Reader| Ok(roles.missing == Missing::Skip && reader.lacks(&used)?);
    let (mut rows, mut left_out) = (0_u64, 0_u64);
    while reader.advance()? {
        if is_left_out(&reader)? {
            left_out += 1;
            continue;
        }
        rows += 1;
        for &at in &used {
            let Column { role, sum, .. } = &mut columns[at];
            match role {
                Role::Date => sum.add_date(&reader, at)?,
                _ => sum.add(&reader, at)?,
            }
        }
    }
    if rows == 0 {
        let problem = match left_out {
            0 => "it has no rows after its first line, which names the columns".to_owned(),
            _ => format!(
                "each of its {left_out} rows has a missing value, and missing=skip leaves them out"
            ),
        };
        return Err(reader.refused_whole(&problem));
    }
    for (at, column) in columns.iter_mut().enumerate() {
        column.decide(rows);
        let are_numbers = matches!(column.role, Role::Number | Role::Target);
        if are_numbers && let Some(problem) = column.sum.problem(&column.name) {
            return Err(reader.refused_column(at, &problem));
        }
        if matches!(column.role, Role::Classes) {
            column.check_gaps(&reader, at, rows)?;
        }
    }
    let mut different = different_texts(csv, &columns, &is_left_out)?;
    let mut remarks = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let remark = column.judge(csv, &reader, at, &different[at])?;
        let remark = remark.or_else(|| column.remark(rows));
        remarks.extend(remark.map(|told| reader.remark(at, &told)));
    }
    let mut classes = Vec::new();
    for (at, column) in columns.iter_mut().enumerate() {
        let texts = std::mem::take(&mut different[at]).into_texts();
        match &mut column.role {
            Role::Classes => {
                classes = texts;
                sort_as_numbers(&mut classes, |class| class);
                remarks.extend(odd::alike(&classes).map(|told| reader.remark(at, &told)));
            }
            Role::Texts(its) => *its = texts,
            Role::Dropped | Role::Target | Role::Number | Role::Date => {}
        }
    }
    let Roles { missing, standardised, .. } = *roles;
    let found = Found { columns, classes, missing, standardised, left_out, remarks };
    found.check(&reader)?;
    Ok(found)
}

/// The columns of a table, with the roles that users named. The others are numbers until a text is
/// found.
fn named_roles(roles: &Roles, reader: &Reader) -> Result<Vec<Column>, DataError> {
    let undecided = |name: &String| {
        let (name, sum) = (name.clone(), Sum::default());
        Column { name, role: Role::Number, why: String::new(), is_named: false, sum }
    };
    let mut columns: Vec<Column> = reader.header().iter().map(undecided).collect();
    let mut set = |name: &String, role, word: &str| {
        let at = reader.place(name)?;
        let column = &mut columns[at];
        if column.is_named {
            let problem = format!("{word}={name} contradicts {}", column.why);
            return Err(reader.refused_column(at, &problem));
        }
        (column.role, column.why, column.is_named) = (role, format!("{word}={name}"), true);
        Ok(())
    };
    for name in &roles.dropped {
        set(name, Role::Dropped, "drop")?;
    }
    for name in &roles.one_hot {
        set(name, Role::Texts(Vec::new()), "one-hot")?;
    }
    for name in &roles.dates {
        set(name, Role::Date, "date")?;
    }
    let named = roles.target.as_ref().map(|name| (name, Role::Target, "target"));
    let named = named.or_else(|| roles.label.as_ref().map(|name| (name, Role::Classes, "label")));
    let has_label = named.is_some();
    if let Some((name, role, word)) = named {
        set(name, role, word)?;
    }
    let first = &mut columns[0];
    if !first.is_named && (first.name.is_empty() || first.name == INDEX) {
        (first.role, first.why) = (Role::Dropped, "an index of the rows".into());
    }
    if has_label {
        return Ok(columns);
    }
    let last = columns.len() - 1;
    if !columns[last].why.is_empty() {
        let problem = format!(
            "it has {} and is the last: name the classes by label=COLUMN",
            columns[last].why
        );
        return Err(reader.refused_column(last, &problem));
    }
    (columns[last].role, columns[last].why) = (Role::Classes, "the last column".into());
    Ok(columns)
}

impl Column {
    /// Decides the role by the values, unless it is known.
    fn decide(&mut self, rows: u64) {
        if !self.why.is_empty() {
            return;
        }
        match &self.sum.text {
            Some((line, text)) => {
                let shown: String = text.chars().take(20).collect();
                self.role = Role::Texts(Vec::new());
                self.why = format!("line {line} has {shown:?}");
            }
            None => self.why = format!("{} of {rows} values are numbers", self.sum.count),
        }
    }

    /// Refuses missing classes.
    fn check_gaps(&self, reader: &Reader, at: usize, rows: u64) -> Result<(), DataError> {
        let Some((line, text)) = &self.sum.gap else { return Ok(()) };
        let keep = match text.is_empty() {
            true => String::new(),
            false => format!("say keep={text} if that is a class, "),
        };
        let problem = format!(
            "is a missing class, as {} of {rows} are: {keep}remove the line, or say missing=skip",
            self.sum.missing
        );
        Err(reader.refused_value(at, *line, text, &problem))
    }

    /// Refuses texts and classes that are something else by their looks; returns a remark on odd
    /// ones.
    fn judge(
        &self,
        csv: &Csv,
        reader: &Reader,
        at: usize,
        different: &Different,
    ) -> Result<Option<String>, DataError> {
        let Self { name, role, why, is_named, sum } = self;
        let empty = (0, String::new());
        let (line, first) = sum.text.as_ref().unwrap_or(&empty);
        let column = odd::Column {
            name,
            dialect: reader.dialect(),
            numbers: sum.count,
            texts: sum.texts,
            first,
            different,
        };
        match role {
            Role::Classes => {
                let values = sum.values();
                let problem = odd::classes(different, values, name, why, *is_named);
                let Some(problem) = problem else { return Ok(None) };
                let others = with_few_values(csv)?;
                Err(reader.refused_column(at, &format!("{problem}{others}")))
            }
            Role::Texts(_) if !is_named => match column.judge() {
                Taken::Names => Ok(None),
                Taken::Said(remark) => Ok(Some(remark)),
                Taken::Refused(problem) => Err(reader.refused_value(at, *line, first, &problem)),
            },
            Role::Texts(_) if different.is_full => {
                Err(reader.refused_column(at, &column.too_many()))
            }
            _ => Ok(None),
        }
    }

    /// A remark on odd numbers.
    fn remark(&self, rows: u64) -> Option<String> {
        let Self { name, role, why, is_named, sum } = self;
        match role {
            _ if *is_named => None,
            Role::Dropped if name.is_empty() => {
                Some(format!("it has no name, and is left out as {why}"))
            }
            Role::Dropped => Some(format!("it is left out as {why}")),
            Role::Number if sum.count == 0 => Some("it has no value in any row".into()),
            Role::Number => {
                let first = sum.counts_from.filter(|_| sum.count == rows && rows >= COUNTED)?;
                Some(format!("it counts the rows from {first}: leave it out with drop={name}"))
            }
            _ => None,
        }
    }
}

/// The index of the column with the classes or the numbers to predict.
fn label_of(columns: &[Column]) -> usize {
    columns
        .iter()
        .position(|it| matches!(it.role, Role::Classes | Role::Target))
        .unwrap_or_default()
}

impl Found {
    /// The columns that a model sees.
    pub(super) fn table(&self) -> Table {
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        for Column { name, role, sum, .. } in &self.columns {
            // Where each value is there, an own column would always be 0.
            let missing = self.missing == Missing::Category && sum.missing > 0;
            let group = |texts| Texts { name: name.clone(), texts, missing };
            match role {
                Role::Dropped | Role::Classes | Role::Target => {}
                Role::Number | Role::Date => {
                    let (name, mean, origin) = (name.clone(), sum.mean(), sum.origin);
                    let origin = origin.or_else(|| matches!(role, Role::Date).then_some(0));
                    numbers.push(Numbers { name, mean, deviation: None, origin });
                    // A group without texts: a number is an "other" value.
                    texts.extend(missing.then(|| group(Vec::new())));
                }
                Role::Texts(its) => texts.push(group(its.clone())),
            }
        }
        let label = self.columns[label_of(&self.columns)].name.clone();
        Table { label, numbers, texts, skip: self.missing == Missing::Skip }
    }

    /// The schema of the table's rows.
    pub(super) fn schema(&self, csv: &Csv) -> Result<Schema, DataError> {
        if !self.predicts_numbers() && self.classes.len() < 2 {
            let found = self.classes.join(", ");
            let left_out = match self.left_out {
                0 => String::new(),
                rows => format!(
                    "; {rows} rows with a missing value are left out: keep=TEXT keeps a word, such \
                     as NA"
                ),
            };
            let problem =
                format!("all its values are {found:?}; two classes or more are needed{left_out}");
            return Err(csv.reader()?.refused_column(label_of(&self.columns), &problem));
        }
        self.schema_of_any()
    }

    /// The schema of the table's rows, even if all of them have the same class.
    fn schema_of_any(&self) -> Result<Schema, DataError> {
        self.table().schema(self.labels(), self.standardised)
    }

    fn predicts_numbers(&self) -> bool {
        self.columns.iter().any(|column| matches!(column.role, Role::Target))
    }

    /// The classes; none if a number is predicted.
    pub(super) fn labels(&self) -> Option<Vec<String>> {
        (!self.predicts_numbers()).then(|| self.classes.clone())
    }

    /// Writes down the columns, and their statistics over the rows of `csv`.
    pub(super) fn profile(&self, csv: &Csv) -> Result<Profile, DataError> {
        let (table, schema) = (self.table(), self.schema_of_any()?);
        let predicted = &self.columns[label_of(&self.columns)].sum;
        let counts = Counts::of(csv, &table, &schema, predicted.mean())?;
        let rows = counts.rows;
        let deviation = |squares: f64| (squares / rows.max(1) as f64).sqrt() as f32;
        let missing: BTreeMap<&str, u64> =
            self.columns.iter().map(|column| (&*column.name, column.sum.missing)).collect();
        let missing = |name: &str| missing.get(name).copied().unwrap_or_default();
        let number = |(Numbers { name, mean, origin, .. }, square): (&Numbers, &f64)| {
            let (mean, deviation, missing) = (*mean, deviation(*square), missing(name));
            profile::Numbers { name: name.clone(), mean, deviation, missing, origin: *origin }
        };
        let numbers: BTreeSet<&str> = table.numbers.iter().map(|it| &*it.name).collect();
        let text = |(group, rows): (&Texts, &[u64])| profile::Texts {
            name: group.name.clone(),
            texts: group.texts.clone(),
            rows: rows[..group.texts.len()].to_vec(),
            missing: missing(&group.name),
        };
        let texts = table.texts.iter().zip(counts.groups(&table));
        let target = self.predicts_numbers().then(|| profile::Numbers {
            name: table.label.clone(),
            mean: predicted.mean(),
            deviation: deviation(counts.target_squares),
            missing: 0,
            origin: None,
        });
        let label = if target.is_some() { String::new() } else { table.label.clone() };
        Ok(Profile {
            rows,
            label,
            target,
            classes: self.classes.clone(),
            class_rows: counts.classes.clone(),
            missing: self.missing,
            standardise: self.standardised,
            numbers: table.numbers.iter().zip(&counts.squares).map(number).collect(),
            texts: texts.filter(|(group, _)| !numbers.contains(&*group.name)).map(text).collect(),
        })
    }

    /// The roles, for users.
    pub(super) fn told(&self) -> Vec<info::Role> {
        let told = |Column { name, role, why, sum, .. }: &Column| {
            let role = match role {
                Role::Dropped => "dropped".into(),
                Role::Classes => format!("classes: {}", self.classes.len()),
                Role::Target => "number to predict".into(),
                Role::Number => "number".into(),
                Role::Date => "date, in days".into(),
                Role::Texts(texts) => format!("one-hot: {}", texts.len()),
            };
            info::Role { column: name.clone(), role, why: why.clone(), missing: sum.missing }
        };
        self.columns.iter().map(told).collect()
    }

    /// Refuses rows of more columns than can be numbered.
    fn check(&self, reader: &Reader) -> Result<(), DataError> {
        let Err(problem) = self.table().check() else { return Ok(()) };
        let texts = self.columns.iter().position(|it| matches!(it.role, Role::Texts(_)));
        Err(reader.refused_column(texts.unwrap_or_else(|| label_of(&self.columns)), &problem))
    }
}

/// Returns the different texts of each column that has classes or texts, and none of the others.
fn different_texts(
    csv: &Csv,
    columns: &[Column],
    is_left_out: &impl Fn(&Reader) -> Result<bool, DataError>,
) -> Result<Vec<Different>, DataError> {
    let mut reader = csv.reader()?;
    let mut different: Vec<Different> = columns.iter().map(|_| Different::default()).collect();
    let with_texts: Vec<usize> =
        (0..columns.len()).filter(|&at| columns[at].role.has_texts()).collect();
    while reader.advance()? {
        if is_left_out(&reader)? {
            continue;
        }
        for &at in &with_texts {
            if let Some(text) = reader.value(at)? {
                different[at].add(text);
            }
        }
    }
    Ok(different)
}

/// Names the columns with few different values: one of them perhaps has the classes.
fn with_few_values(csv: &Csv) -> Result<String, DataError> {
    let mut reader = csv.reader()?;
    let mut different: Vec<Different> =
        reader.header().iter().map(|_| Different::default()).collect();
    let mut possible: Vec<usize> = (0..different.len()).collect();
    while reader.advance()? {
        for &at in &possible {
            if let Some(text) = reader.value(at)? {
                different[at].add(text);
            }
        }
        possible.retain(|&at| different[at].len() <= FEW_CLASSES);
    }
    let named = possible.iter().filter(|&&at| different[at].len() > 1).take(MOST_NAMED);
    let named: Vec<_> = named
        .map(|&at| format!("{} has {}", quoted(&reader.header()[at]), different[at].len()))
        .collect();
    match named.is_empty() {
        true => Ok(String::new()),
        false => Ok(format!(" ({})", named.join(", "))),
    }
}
