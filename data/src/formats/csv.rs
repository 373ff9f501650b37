//! Tables in text: a header with the names of the columns, then a row per line.
//!
//! A column of numbers is a dense column; any other is a one-hot group with a column for each of
//! its texts, and one for all others. One column has the label. The roles of the columns are
//! found in the server's copy and travel with the schema, so that a worker whose copy has other
//! rows encodes them alike.

mod counts;
mod options;
mod reader;
mod roles;
mod table;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use self::counts::Counts;
pub use self::options::Roles;
use self::options::{FORM, Options};
use self::reader::Reader;
use self::table::{Encoder, Table, Texts, number};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::{Category, Column, Info, Occurrence, Role, Tally};
use crate::profile::Profile;
use crate::standardise::Standard;

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "a table with a header; options: label, target, drop, one-hot, missing, standardise, \
              delimiter, profile",
    paths: Paths::FirstAnd(&["profile"]),
    open: |arguments, _| {
        let mut arguments = arguments.split(',');
        let path = arguments.next().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("a path is missing; write {FORM}"))?.into();
        let Options { roles, delimiter, profile } = Options::read(arguments)?;
        Ok(Arc::new(Csv { path, delimiter, roles, profile }))
    },
};

const KIND: &str = "rows of a table";

/// Numbers in the first line that are counted from the first, so that they are no row.
const COUNTED: usize = 4;

/// The rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csv {
    /// The file.
    pub path: PathBuf,
    /// The character between two columns; if there is none, a comma, semicolon or tab.
    pub delimiter: Option<u8>,
    /// The roles of columns, if there is no profile.
    pub roles: Roles,
    /// The file of a profile, which has the roles and the statistics of all columns.
    pub profile: Option<PathBuf>,
}

impl Csv {
    /// The table at `path`, whose columns get their roles from their values.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), delimiter: None, roles: Roles::default(), profile: None }
    }

    /// The profile that users name, checked.
    fn read_profile(&self) -> Result<Option<Profile>, DataError> {
        let Some(path) = &self.profile else { return Ok(None) };
        let refused =
            |problem: &dyn Display| DataError::format(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| refused(&format!("cannot be read: {error}")))?;
        let profile = Profile::read(&text).map_err(|problem| refused(&problem))?;
        if profile.target.is_none() && profile.classes.len() < 2 {
            return Err(refused(&"two classes or more are needed"));
        }
        Table::of_profile(&profile).check().map_err(|problem| refused(&problem))?;
        Ok(Some(profile))
    }

    /// The roles of all columns by a profile, for users, and the number of rows that are left out.
    fn told(&self, table: &Table, profile: &Profile) -> Result<(Vec<Role>, u64), DataError> {
        let mut reader = self.reader()?;
        let header = reader.header().to_vec();
        let needed = table.needed(&reader)?;
        let (mut missing, mut left_out) = (vec![0; header.len()], 0);
        while reader.advance()? {
            if reader.lacks(&needed)? {
                left_out += 1;
                continue;
            }
            for (column, missing) in missing.iter_mut().enumerate() {
                *missing += u64::from(reader.value(column)?.is_none());
            }
        }
        let told = |(column, missing): (String, u64)| {
            let group = table.texts.iter().find(|group| group.name == column);
            let (role, why) = if table.label == column {
                let role = match profile.target {
                    Some(_) => "number to predict".into(),
                    None => format!("classes: {}", profile.classes.len()),
                };
                (role, "the profile")
            } else if table.numbers.iter().any(|number| number.name == column) {
                ("number".into(), "the profile")
            } else if let Some(group) = group {
                (format!("one-hot: {}", group.texts.len()), "the profile")
            } else {
                ("dropped".into(), "not in the profile")
            };
            Role { column, role, why: why.into(), missing }
        };
        Ok((header.into_iter().zip(missing).map(told).collect(), left_out))
    }

    fn reader(&self) -> Result<Reader, DataError> {
        Reader::open(&self.path, self.delimiter)
    }
}

/// The classes of a profile; none if numbers are predicted.
fn classes_of(profile: Profile) -> Option<Vec<String>> {
    profile.target.is_none().then_some(profile.classes)
}

impl Dataset for Csv {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        match self.read_profile()? {
            // The encoding standardises by the profile.
            Some(profile) => Table::of_profile(&profile).schema(classes_of(profile), false),
            None => roles::find(self)?.schema(self),
        }
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut reader = self.reader()?;
        let mut encoder = Encoder::new(schema, &reader)?;
        while reader.advance()? {
            if let Some(row) = encoder.encode(&reader)? {
                visit(row)?;
            }
        }
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn columns(&self, schema: &Schema) -> Vec<String> {
        Table::of(schema).map_or_else(|_| Vec::new(), |table| table.names())
    }

    fn values(&self) -> Result<Option<Standard>, DataError> {
        let target = self.read_profile()?.and_then(|profile| profile.target);
        let scale = |deviation| if deviation > 0.0 { deviation } else { 1.0 };
        Ok(target.map(|it| Standard { mean: it.mean, scale: scale(it.deviation) }))
    }

    fn has_profile(&self) -> bool {
        self.profile.is_some()
    }

    fn doubt(&self) -> Option<String> {
        let Roles { label, target, dropped, one_hot, .. } = &self.roles;
        let named = label.iter().chain(target).chain(dropped).chain(one_hot);
        // A user who names columns knows the first line.
        if self.has_profile() || named.count() > 0 {
            return None;
        }
        let reader = self.reader().ok()?;
        let names = reader.header();
        let numbers: Vec<(&String, f32)> =
            names.iter().filter_map(|name| Some((name, number(name)?))).collect();
        // Columns that are counted, such as 0 to 783, or years, are named so on purpose.
        let are_counted =
            numbers.len() >= COUNTED && numbers.windows(2).all(|it| it[0].1 + 1.0 == it[1].1);
        if 2 * numbers.len() < names.len() || are_counted {
            return None;
        }
        let (first, _) = numbers.first()?;
        Some(format!(
            "{}: its first line names the columns, but {} of {} names are numbers, such as \
             {first:?}; if it is a row, it is lost: put a line with the names before it",
            self.path.display(),
            numbers.len(),
            names.len()
        ))
    }

    fn check_columns(&self, schema: &Schema) -> Result<(), DataError> {
        if self.has_profile() {
            // What the profile does not have, the user leaves out.
            return Ok(());
        }
        let (table, reader) = (Table::of(schema)?, self.reader()?);
        let dropped = &self.roles.dropped;
        let columns = table.columns();
        let foreign = |name: &String| !columns.contains(&name.as_str()) && !dropped.contains(name);
        let header = reader.header();
        header.iter().find(|name| foreign(name)).map_or(Ok(()), |name| {
            let problem = format!(
                "the job has no column {name:?}, but {}: leave it out with drop={name}",
                columns.join(", ")
            );
            Err(reader.refused_whole(&problem))
        })
    }

    fn profile(&self) -> Result<Profile, DataError> {
        match self.read_profile()? {
            Some(profile) => Ok(profile),
            None => roles::find(self)?.profile(self),
        }
    }

    fn info(&self) -> Result<Info, DataError> {
        let (table, classes, (roles, left_out)) = match self.read_profile()? {
            Some(profile) => {
                // Values are shown as they are in the file.
                let profile = Profile { standardise: false, ..profile };
                let table = Table::of_profile(&profile);
                let roles = self.told(&table, &profile)?;
                (table, classes_of(profile), roles)
            }
            None => {
                let found = roles::find(self)?;
                let told = (found.told(), found.left_out);
                found.schema(self)?;
                (found.table(), found.labels(), told)
            }
        };
        let schema = table.schema(classes, true)?;
        let mut tally = Tally::new(schema.shape);
        self.visit(&schema, &mut |row| {
            tally.add(row);
            Ok(())
        })?;
        let info = tally.finish(self.describe(), &schema.classes, table.names());
        let counts = Counts::of(self, &table, &schema, 0.0)?;
        let category = |(group, counts): (&Texts, &[u64])| {
            let missing = roles.iter().find(|role| role.column == group.name);
            let values = group.values(counts, missing.map_or(0, |role| role.missing));
            let values = values.into_iter().filter(|(_, count)| *count > 0);
            let values = values.map(|(text, count)| Occurrence::new(text, count, info.rows));
            Category { name: group.name.clone(), values: values.collect() }
        };
        // A group without texts says of a number whether it is missing.
        let categories = table.texts.iter().zip(counts.groups(&table));
        let categories = categories.filter(|(group, _)| !group.texts.is_empty());
        let categories = categories.map(category).collect();
        let predicted = info.predicted.map(|it| Column { name: table.label, ..it });
        Ok(Info { categories, predicted, roles, left_out, ..info })
    }
}
