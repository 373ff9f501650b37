//! How rows fit a job whose columns others decided.

use std::collections::BTreeSet;

use super::Csv;
use super::reader::quoted;
use super::table::Table;
use crate::dataset::Schema;
use crate::error::DataError;
use crate::profile::code;

/// Most columns that are named.
const MOST_NAMED: usize = 3;

/// A column of texts in another table than the job's.
struct Column {
    name: String,
    place: usize,
    /// The codes of the texts that the job knows.
    known: BTreeSet<String>,
    values: u64,
    unknown: u64,
    /// The first unknown text, and its line.
    first: (u64, String),
}

/// Says of each column of texts how many of its values the job of `schema` does not know.
pub(super) fn unknown(csv: &Csv, schema: &Schema) -> Result<Vec<String>, DataError> {
    let (table, mut reader) = (Table::of(schema)?, csv.reader()?);
    let mut columns = Vec::new();
    // A group without texts says of a number whether it is missing.
    for group in table.texts.into_iter().filter(|group| !group.texts.is_empty()) {
        let known = group.texts.iter().map(|text| code(text).into_owned()).collect();
        let place = reader.place(&group.name)?;
        let (name, first) = (group.name, (0, String::new()));
        columns.push(Column { name, place, known, values: 0, unknown: 0, first });
    }
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    while reader.advance()? {
        for column in &mut columns {
            let Some(text) = reader.value(column.place)? else { continue };
            column.values += 1;
            if column.known.contains(&*code(text)) {
                continue;
            }
            if column.unknown == 0 {
                column.first = (reader.line(), text.to_owned());
            }
            column.unknown += 1;
        }
    }
    columns.retain(|column| column.unknown > 0);
    columns.sort_by_key(|column| u64::MAX - column.unknown);
    let more = columns.len().saturating_sub(MOST_NAMED);
    let path = csv.path.display();
    let told = |Column { name, values, unknown, first: (line, text), .. }: &Column| {
        let share = 100.0 * *unknown as f64 / *values as f64;
        format!(
            "{path}: column {name}: {unknown} of {values} texts ({share:.1} %) are unknown to the \
             job, such as {} in line {line}: to the model they are one other text",
            quoted(text)
        )
    };
    let mut told: Vec<_> = columns.iter().take(MOST_NAMED).map(told).collect();
    if more > 0 {
        told.push(format!("{path}: {more} more columns have texts that are unknown to the job"));
    }
    Ok(told)
}
