//! Tables in text: a header with the names of the columns, then a row per line.
//!
//! A column of numbers or dates is a dense column; any other is a one-hot group with a column for
//! each of its texts, and one for all others. One column has the label. The roles of the columns
//! are found in the server's copy and travel with the schema, so that a worker whose copy has other
//! rows encodes them alike.

mod counts;
mod dates;
mod different;
mod fit;
mod head;
mod odd;
mod options;
mod reader;
mod roles;
mod spaces;
mod table;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use self::counts::Counts;
pub use self::options::{Dialect, Header, Roles};
use self::options::{FORM, Options};
use self::reader::Reader;
use self::roles::Found;
use self::table::{Encoder, Table, Texts};
pub use self::values::{Notation, Thousands, Words};
use super::arguments::split;
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::{Category, Column, Info, Occurrence, Role, Tally};
use crate::profile::Profile;
use crate::standardise::Standard;

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "a table with a header; options: label, target, drop, one-hot, date, missing, \
              standardise, profile, header, delimiter, decimal, thousands, na, keep, comment",
    paths: Paths::FirstAnd(&["profile"]),
    open: |arguments, _| {
        let arguments = split(arguments);
        let mut arguments = arguments.iter().map(String::as_str);
        let path = arguments.next().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("a path is missing; write {FORM}"))?;
        let Options { dialect, roles, profile } = Options::read(arguments)?;
        Ok(Arc::new(Csv { dialect, roles, profile, ..Csv::new(path) }))
    },
};

const KIND: &str = "rows of a table";

/// Numbers in the first line that are counted from the first, so that they are no row.
const COUNTED: usize = 4;

/// The rows of a table.
#[derive(Clone, Debug)]
pub struct Csv {
    /// The file.
    pub path: PathBuf,
    /// How the file is written.
    pub dialect: Dialect,
    /// The roles of columns, if there is no profile.
    pub roles: Roles,
    /// The file of a profile, which has the roles and the statistics of all columns.
    pub profile: Option<PathBuf>,
    remarks: Remarks,
}

/// Remarks on the roles of the columns as they were found last, a line each.
#[derive(Clone, Default)]
struct Remarks(Arc<Mutex<Vec<String>>>);

impl fmt::Debug for Remarks {
    /// Writes nothing that tells two datasets apart: they have the same rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remarks")
    }
}

impl Csv {
    /// The table at `path`, whose columns get their roles from their values.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (dialect, roles) = (Dialect::default(), Roles::default());
        Self { path: path.into(), dialect, roles, profile: None, remarks: Remarks::default() }
    }

    /// Finds the roles of the columns.
    fn find(&self) -> Result<Found, DataError> {
        let found = roles::find(self)?;
        *self.remarks.0.lock().unwrap_or_else(PoisonError::into_inner) = found.remarks.clone();
        Ok(found)
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
        let label = match profile.target {
            Some(_) => "number to predict".into(),
            None => format!("classes: {}", profile.classes.len()),
        };
        let texts =
            table.texts.iter().map(|it| (&*it.name, format!("one-hot: {}", it.texts.len())));
        // Numbers come last: they may have a group, too, that says whether they are missing.
        let numbers = table.numbers.iter().map(|number| (&*number.name, "number".into()));
        let roles: BTreeMap<&str, String> =
            [(&*table.label, label)].into_iter().chain(texts).chain(numbers).collect();
        let told = |(column, missing): (String, u64)| {
            let (role, why) = match roles.get(&*column) {
                Some(role) => (role.clone(), "the profile"),
                None => ("dropped".into(), "not in the profile"),
            };
            Role { column, role, why: why.into(), missing }
        };
        Ok((header.into_iter().zip(missing).map(told).collect(), left_out))
    }

    /// A sign that the first line is a row.
    fn doubt_of_header(&self) -> Option<String> {
        // A user who names columns knows the first line.
        if self.has_profile()
            || self.roles.name_columns()
            || self.dialect.header != Header::default()
        {
            return None;
        }
        let reader = self.reader().ok()?;
        let names = reader.header();
        let number = |name: &str| self.dialect.notation.number(name);
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
             {first:?}; if it is a row, say header=no",
            self.path.display(),
            numbers.len(),
            names.len()
        ))
    }

    fn reader(&self) -> Result<Reader, DataError> {
        Reader::open(&self.path, &self.dialect)
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
            None => self.find()?.schema(self),
        }
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut reader = self.reader()?;
        if let Some(problem) = self.roles.contradiction(&Table::of(schema)?) {
            return Err(reader.refused_whole(&problem));
        }
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

    fn remarks(&self, job: Option<&Schema>) -> Vec<String> {
        if let Some(schema) = job {
            // The reading itself reports what cannot be read.
            return fit::unknown(self, schema).unwrap_or_default();
        }
        let found = self.remarks.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.doubt_of_header().into_iter().chain(found).collect()
    }

    fn check_columns(&self, schema: &Schema) -> Result<(), DataError> {
        if self.has_profile() {
            // What the profile does not have, the user leaves out.
            return Ok(());
        }
        let (table, reader) = (Table::of(schema)?, self.reader()?);
        let columns = table.columns();
        // A column without a name is an index, too.
        let known: BTreeSet<&str> = columns.iter().copied().chain(["", roles::INDEX]).collect();
        let foreign =
            |name: &String| !known.contains(&**name) && !self.roles.dropped.contains(name);
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
            None => self.find()?.profile(self),
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
                let found = self.find()?;
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
        let missing: BTreeMap<&str, u64> =
            roles.iter().map(|role| (&*role.column, role.missing)).collect();
        let category = |(group, counts): (&Texts, &[u64])| {
            let missing = missing.get(&*group.name).copied().unwrap_or_default();
            let values = group.values(counts, missing);
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
