//! Finds the roles of a table's columns: numbers, texts, label.

mod range;

use std::collections::BTreeSet;

use self::range::Range;

use super::Csv;
use super::counts::Counts;
use super::options::Roles;
use super::reader::Reader;
use super::table::{Numbers, Table, Texts, number};
use crate::dataset::Schema;
use crate::error::DataError;
use crate::info;
use crate::profile::{self, Missing, Profile, sort_as_numbers};

/// Most different texts of a column.
const MOST_TEXTS: usize = 1000;

/// The values of a column, summed up.
#[derive(Clone, Default)]
struct Sum {
    /// The first value that is no number, and its line.
    text: Option<(u64, String)>,
    count: u64,
    sum: f64,
    range: Range,
    missing: u64,
}

impl Sum {
    fn add(&mut self, reader: &Reader, column: usize) -> Result<(), DataError> {
        match reader.value(column)? {
            None => self.missing += 1,
            Some(text) => match number(text) {
                Some(value) => {
                    self.count += 1;
                    self.sum += f64::from(value);
                    self.range.add(text, value);
                }
                None if self.text.is_none() => self.text = Some((reader.line(), text.to_owned())),
                None => {}
            },
        }
        Ok(())
    }

    fn mean(&self) -> f32 {
        (self.sum / self.count.max(1) as f64) as f32
    }
}

/// The role of a column.
enum Role {
    Dropped,
    Classes,
    /// Numbers to predict.
    Target,
    Number,
    Texts(BTreeSet<String>),
}

/// A column with its role and the reason for it.
struct Column {
    name: String,
    role: Role,
    why: String,
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
        for &column in &used {
            columns[column].sum.add(&reader, column)?;
        }
    }
    if rows == 0 && left_out == 0 {
        let problem = "it has no rows after its first line, which names the columns";
        return Err(reader.refused_whole(problem));
    }
    if rows == 0 {
        return Err(reader.refused_whole(&format!(
            "each of its {left_out} rows has a missing value, and missing=skip leaves them out"
        )));
    }
    for (at, column) in columns.iter_mut().enumerate() {
        column.decide(rows);
        let are_numbers = matches!(column.role, Role::Number | Role::Target);
        if are_numbers && let Some(problem) = column.sum.range.problem(&column.name) {
            return Err(reader.refused_column(at, &problem));
        }
    }
    let several = different_texts(csv, &columns, &is_left_out)?;
    let mut classes = Vec::new();
    for (column, texts) in columns.iter_mut().zip(several) {
        match &mut column.role {
            Role::Classes => {
                classes = texts.into_iter().collect();
                sort_as_numbers(&mut classes, |class| class);
            }
            Role::Texts(its) => *its = texts,
            Role::Dropped | Role::Target | Role::Number => {}
        }
    }
    let Roles { missing, standardised, .. } = *roles;
    let found = Found { columns, classes, missing, standardised, left_out };
    found.check(&reader)?;
    Ok(found)
}

/// The columns of a table, with the roles that users named. The others are numbers until a text is
/// found.
fn named_roles(roles: &Roles, reader: &Reader) -> Result<Vec<Column>, DataError> {
    let undecided = |name: &String| {
        let (role, why) = (Role::Number, String::new());
        Column { name: name.clone(), role, why, sum: Sum::default() }
    };
    let mut columns: Vec<Column> = reader.header().iter().map(undecided).collect();
    let mut set = |name: &String, role, word: &str| {
        let at = reader.place(name)?;
        if !columns[at].why.is_empty() {
            let problem = format!("{word}={name} contradicts {}", columns[at].why);
            return Err(reader.refused_column(at, &problem));
        }
        (columns[at].role, columns[at].why) = (role, format!("{word}={name}"));
        Ok(())
    };
    for name in &roles.dropped {
        set(name, Role::Dropped, "drop")?;
    }
    for name in &roles.one_hot {
        set(name, Role::Texts(BTreeSet::new()), "one-hot")?;
    }
    if let Some(name) = &roles.target {
        set(name, Role::Target, "target")?;
        return Ok(columns);
    }
    if let Some(name) = &roles.label {
        set(name, Role::Classes, "label")?;
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
    /// Decides the role by the values, unless the user named it.
    fn decide(&mut self, rows: u64) {
        if !self.why.is_empty() {
            return;
        }
        match &self.sum.text {
            Some((line, text)) => {
                let shown: String = text.chars().take(20).collect();
                self.role = Role::Texts(BTreeSet::new());
                self.why = format!("line {line} has {shown:?}");
            }
            None => self.why = format!("{} of {rows} values are numbers", self.sum.count),
        }
    }
}

impl Column {
    /// The problem of a column with more different values than there are columns or classes.
    fn has_too_many_texts(&self) -> String {
        let Self { name, role, why, .. } = self;
        let many = format!("it has more than {MOST_TEXTS} different values");
        match role {
            Role::Classes => format!(
                "{many}, and is for the classes ({why}): if it has numbers to predict, say \
                 target={name}; if another column has the classes, name it with label=COLUMN"
            ),
            _ => format!(
                "{many}, which are texts ({why}): repair a text that should be a number or \
                 missing, or leave the column out with drop={name}"
            ),
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
                Role::Number => {
                    let (name, mean) = (name.clone(), sum.mean());
                    numbers.push(Numbers { name, mean, deviation: None });
                    // A group without texts: a number is an "other" value.
                    texts.extend(missing.then(|| group(Vec::new())));
                }
                Role::Texts(its) => texts.push(group(its.iter().cloned().collect())),
            }
        }
        let label = self.columns[label_of(&self.columns)].name.clone();
        Table { label, numbers, texts, skip: self.missing == Missing::Skip }
    }

    /// The schema of the table's rows.
    pub(super) fn schema(&self, csv: &Csv) -> Result<Schema, DataError> {
        if !self.predicts_numbers() && self.classes.len() < 2 {
            let found = self.classes.join(", ");
            let problem = format!("all its values are {found:?}; two classes or more are needed");
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
        let missing = |name: &String| {
            let column = self.columns.iter().find(|column| column.name == *name);
            column.map_or(0, |column| column.sum.missing)
        };
        let number = |(Numbers { name, mean, .. }, square): (&Numbers, &f64)| profile::Numbers {
            name: name.clone(),
            mean: *mean,
            deviation: deviation(*square),
            missing: missing(name),
        };
        let is_text = |group: &Texts| table.numbers.iter().all(|it| it.name != group.name);
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
            texts: texts.filter(|(group, _)| is_text(group)).map(text).collect(),
        })
    }

    /// The roles, for users.
    pub(super) fn told(&self) -> Vec<info::Role> {
        let told = |Column { name, role, why, sum }: &Column| {
            let role = match role {
                Role::Dropped => "dropped".into(),
                Role::Classes => format!("classes: {}", self.classes.len()),
                Role::Target => "number to predict".into(),
                Role::Number => "number".into(),
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
) -> Result<Vec<BTreeSet<String>>, DataError> {
    let mut reader = csv.reader()?;
    let mut different = vec![BTreeSet::<String>::new(); columns.len()];
    while reader.advance()? {
        if is_left_out(&reader)? {
            continue;
        }
        for (at, column) in columns.iter().enumerate() {
            if matches!(column.role, Role::Dropped | Role::Target | Role::Number) {
                continue;
            }
            let Some(text) = reader.value(at)? else { continue };
            let texts = &mut different[at];
            if !texts.contains(text) {
                texts.insert(text.to_owned());
            }
            if texts.len() > MOST_TEXTS {
                return Err(reader.refused_column(at, &column.has_too_many_texts()));
            }
        }
    }
    Ok(different)
}
