//! Columns whose values are perhaps not what they look like: refused with the ways to read them,
//! or remarked on.

use super::dates::{Date, date};
use super::different::Different;
use super::options::Dialect;
use super::reader::quoted;
use super::values::{Notation, Value, unit};

/// Most different values of a column of names, whatever they look like.
const FEW: usize = 10;
/// Most different values that are classes, or names, without a look at their number of rows.
const SEVERAL: usize = 20;

/// A column that has texts.
pub(super) struct Column<'a> {
    pub(super) name: &'a str,
    pub(super) dialect: &'a Dialect,
    /// Number of values that are numbers, and of others; missing ones are neither.
    pub(super) numbers: u64,
    pub(super) texts: u64,
    /// The first text.
    pub(super) first: &'a str,
    /// All values.
    pub(super) different: &'a Different,
}

/// The kinds of a column of texts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Names.
    Names,
    /// Names, with a remark.
    Said(String),
    /// Nothing; the problem of its first text.
    Refused(String),
}

impl Column<'_> {
    /// Judges a column whose role no user named.
    pub(super) fn judge(&self) -> Taken {
        let Self { name, numbers, texts, first, different, .. } = *self;
        let (values, count) = (numbers + texts, different.len());
        let ways = format!(
            "drop={name} to leave the column out, or one-hot={name} if its values are names"
        );
        let are_few = count <= FEW && 2 * count as u64 <= values;
        let is_number = |text: &&str| {
            matches!(self.dialect.notation.value(text, &self.dialect.words), Value::Number(_))
        };
        let different_numbers = different.iter().filter(is_number).count();
        let are_numbers = 2 * numbers >= values
            || (different_numbers > SEVERAL && count - different_numbers <= FEW / 2);
        if are_few {
            return match (are_numbers, unit(first)) {
                (true, _) => Taken::Said(format!(
                    "{numbers} of {values} values are numbers, but one is {}: its {count} \
                     different values are taken for names",
                    quoted(first)
                )),
                (false, Some(unit)) => Taken::Said(format!(
                    "values such as {} have the unit {unit:?}, and are taken for names",
                    quoted(first)
                )),
                (false, None) => Taken::Names,
            };
        }
        if let Some(problem) = self.of_all(&ways) {
            return Taken::Refused(problem);
        }
        if are_numbers {
            let what = self.blemish();
            return Taken::Refused(format!(
                "is {what}, but {numbers} of {values} values are numbers: repair it, or say \
                 na={first} if it is a missing value, {ways}"
            ));
        }
        if different.is_full {
            return Taken::Refused(self.too_many());
        }
        if count > SEVERAL && 2 * count as u64 > values {
            return Taken::Refused(format!(
                "is one of {count} different texts in {values} rows, too many to learn from: say \
                 {ways}"
            ));
        }
        Taken::Names
    }

    /// The problem of more texts than there are columns for.
    pub(super) fn too_many(&self) -> String {
        let Self { name, different, .. } = self;
        format!(
            "is one of {} different texts, for which there are no columns: leave the column out \
             with drop={name}",
            different.count()
        )
    }

    /// The problem of values that are all written in a way that users can name.
    fn of_all(&self, ways: &str) -> Option<String> {
        // The texts that are kept perhaps lack the first one.
        let texts: Vec<&str> = self.different.iter().chain([self.first]).collect();
        let notations = Notation::of(&texts, &self.dialect.words);
        if !notations.is_empty() {
            let say: Vec<_> = notations.iter().map(Notation::to_string).collect();
            let say = say.join(" or ");
            return Some(format!("is a number in another notation: say {say}, {ways}"));
        }
        let are_all = |is_one: &dyn Fn(&str) -> bool| texts.iter().all(|text| is_one(text));
        if are_all(&|text| date(text).is_some()) {
            let name = self.name;
            return Some(match date(self.first) {
                Some(Date::Ambiguous) => format!(
                    "is a date that does not say which number is the month: write it as \
                     2024-01-31 and say date={name}, or say {ways}"
                ),
                _ => format!("is a date: say date={name} for its number of days, {ways}"),
            });
        }
        let unit = unit(self.first).filter(|it| are_all(&|text| unit(text) == Some(*it)))?;
        Some(format!(
            "is a number with the unit {unit:?}: write it without the unit, or say {ways}"
        ))
    }

    /// The first text, in words.
    fn blemish(&self) -> String {
        let text = self.first;
        let precise = self.dialect.notation.precise(text);
        match (precise, unit(text)) {
            (Some(_), _) => "too large for a 32-bit number".into(),
            (None, Some(unit)) => format!("a number with the unit {unit:?}"),
            (None, None) => "no finite number".into(),
        }
    }
}

/// The problem of classes that are numbers to predict, or names of single rows. `is_named` is true
/// if a user named the column.
pub(super) fn classes(
    different: &Different,
    values: u64,
    name: &str,
    why: &str,
    is_named: bool,
) -> Option<String> {
    let number = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite());
    let are_numbers = different.iter().all(|text| number(text).is_some());
    let are_whole = different.iter().all(|text| number(text).is_none_or(|it| it.fract() == 0.0));
    let count = different.len();
    let rows_of = |rows: usize| (rows * count) as u64 > values;
    let are_too_many = different.is_full
        || (count > SEVERAL && rows_of(4))
        || (!are_whole && ((count > SEVERAL && !is_named) || (count > 2 && rows_of(2))));
    let target = match are_numbers {
        true => format!("if it has numbers to predict, say target={name}; "),
        false => String::new(),
    };
    are_too_many.then(|| {
        format!(
            "it has {} different values in {values} rows, too many for classes ({why}): {target}if \
             another column has the classes, name it with label=COLUMN",
            different.count()
        )
    })
}

/// A remark on classes that differ in their case alone.
pub(super) fn alike(classes: &[String]) -> Option<String> {
    let mut folded = std::collections::BTreeMap::new();
    for class in classes {
        if let Some(other) = folded.insert(class.to_lowercase(), class) {
            return Some(format!("the classes {other:?} and {class:?} differ in their case alone"));
        }
    }
    None
}
