//! Values in text: which are missing, and how numbers are written.

use std::fmt;

use crate::profile::code;

/// Words for a missing value, whatever their case: those of pandas, and a question mark.
const MISSING: [&str; 17] = [
    "", "?", "na", "n/a", "nan", "-nan", "nat", "null", "none", "<na>", "#na", "#n/a", "#n/a n/a",
    "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan",
];

/// The words for missing values that a user adds or takes away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Texts that are missing values, too.
    pub missing: Vec<String>,
    /// Texts that are values although they are words for missing ones.
    pub kept: Vec<String>,
}

impl Words {
    /// True if a user named `text` as missing.
    fn is_named(&self, text: &str) -> bool {
        let mut missing = self.missing.iter();
        missing.any(|it| it == text || code(it) == code(text))
    }

    /// True if `text` is a missing value.
    pub(super) fn is_missing(&self, text: &str) -> bool {
        let is_word = || MISSING.iter().any(|word| word.eq_ignore_ascii_case(text));
        self.is_named(text) || (is_word() && !self.kept.iter().any(|kept| kept == text))
    }
}

/// The character between groups of three digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thousands {
    /// A comma.
    Comma,
    /// A full stop.
    Dot,
    /// A space of any width.
    Space,
    /// An apostrophe.
    Apostrophe,
    /// An underscore.
    Underscore,
}

impl Thousands {
    const ALL: [Self; 5] =
        [Self::Comma, Self::Dot, Self::Space, Self::Apostrophe, Self::Underscore];

    const fn word(self) -> &'static str {
        match self {
            Self::Comma => "comma",
            Self::Dot => "dot",
            Self::Space => "space",
            Self::Apostrophe => "apostrophe",
            Self::Underscore => "underscore",
        }
    }

    fn is(self, char: char) -> bool {
        match self {
            Self::Comma => char == ',',
            Self::Dot => char == '.',
            Self::Space => char.is_whitespace(),
            Self::Apostrophe => matches!(char, '\'' | '\u{2019}'),
            Self::Underscore => char == '_',
        }
    }

    /// The separator that `word` names.
    pub(super) fn named(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|it| it.word() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            format!("thousands={word}: write one of {words}")
        })
    }
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notation {
    /// True if a comma is before the fraction, in place of a full stop.
    pub decimal_comma: bool,
    /// The separator of groups of three digits before the fraction, if there is one.
    pub thousands: Option<Thousands>,
}

/// A value of a column of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Missing,
    Number(f32),
    /// A text that is no finite number.
    Text(&'a str),
}

impl Notation {
    /// Reads a value of a column of numbers.
    pub(super) fn value<'a>(self, text: &'a str, words: &Words) -> Value<'a> {
        // Most values are numbers, which no word for a missing value is.
        if (words.missing.is_empty() || !words.is_named(text))
            && let Some(number) = self.number(text)
        {
            return Value::Number(number);
        }
        if words.is_missing(text) { Value::Missing } else { Value::Text(text) }
    }

    /// Reads a number that is finite in 32 bits.
    pub(super) fn number(self, text: &str) -> Option<f32> {
        let plain = || self.plain(text)?.parse().ok();
        let read = if self == Self::default() { text.parse().ok() } else { None };
        read.or_else(plain).filter(|value: &f32| value.is_finite())
    }

    /// Reads a number in 64 bits.
    pub(super) fn precise(self, text: &str) -> Option<f64> {
        self.plain(text)?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// Writes a number plainly: a sign, digits, a full stop, digits, an exponent. Besides its own
    /// form it may have a minus of Unicode, spaces or apostrophes around it, and an exponent of
    /// Fortran (`1.5D+03`), since these have no other meaning.
    fn plain(self, text: &str) -> Option<String> {
        let text = text.trim();
        let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        let text = quoted.unwrap_or(text);
        let (sign, text) = match text.strip_prefix(['-', '\u{2212}']) {
            Some(text) => ("-", text),
            None => ("", text.strip_prefix('+').unwrap_or(text)),
        };
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some(parts) => parts,
            None => match text.find(['d', 'D']) {
                Some(at) if text[at + 1..].starts_with(['+', '-']) => {
                    (&text[..at], &text[at + 1..])
                }
                _ => (text, "0"),
            },
        };
        let mark = if self.decimal_comma { ',' } else { '.' };
        let (whole, fraction) = digits.split_once(mark).unwrap_or((digits, ""));
        let whole = self.whole(whole)?;
        let power = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let is_number = are_digits(fraction)
            && !(whole.is_empty() && fraction.is_empty())
            && !power.is_empty()
            && are_digits(power);
        is_number.then(|| format!("{sign}0{whole}.{fraction}0e{exponent}"))
    }

    /// The digits before the fraction, without separators of thousands.
    fn whole(self, text: &str) -> Option<String> {
        let Some(separator) = self.thousands.filter(|it| text.contains(|char| it.is(char))) else {
            return are_digits(text).then(|| text.to_owned());
        };
        let mut groups = text.split(|char| separator.is(char));
        let first = groups.next().filter(|group| (1..=3).contains(&group.len()))?;
        let is_group = |group: &str| group.len() == 3 && are_digits(group);
        let is_whole = are_digits(first) && groups.all(is_group);
        is_whole.then(|| text.chars().filter(char::is_ascii_digit).collect())
    }

    /// The notations in which all `texts` are numbers, but for missing ones; none with more
    /// options than necessary.
    pub(super) fn of(texts: &[&str], words: &Words) -> Vec<Self> {
        let groups = Thousands::ALL.map(Some);
        let all = [false, true].into_iter().flat_map(|decimal_comma| {
            let groups = [None].into_iter().chain(groups);
            groups.map(move |thousands| Self { decimal_comma, thousands })
        });
        let reads = |it: &Self| {
            let mark = if it.decimal_comma { Thousands::Comma } else { Thousands::Dot };
            it.thousands != Some(mark)
                && texts.iter().all(|text| !matches!(it.value(text, words), Value::Text(_)))
        };
        let mut found: Vec<Self> = all.filter(reads).collect();
        let reads_too = found.clone();
        found.retain(|it| {
            let without_groups = Self { thousands: None, ..*it };
            let with_dot = Self { decimal_comma: false, ..*it };
            it.thousands.is_none()
                || !(reads_too.contains(&without_groups)
                    || (it.decimal_comma && reads_too.contains(&with_dot)))
        });
        found
    }
}

impl fmt::Display for Notation {
    /// Writes the options that say so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.decimal_comma, self.thousands) {
            (true, None) => f.write_str("decimal=comma"),
            (false, None) => f.write_str("decimal=dot"),
            (true, Some(it)) => write!(f, "decimal=comma,thousands={}", it.word()),
            (false, Some(it)) => write!(f, "thousands={}", it.word()),
        }
    }
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The unit of a text that is a number with a unit, such as `kg` of `12.5 kg`, `%` or `$`.
pub(super) fn unit(text: &str) -> Option<&str> {
    let is_part = |char: char| char.is_ascii_digit() || matches!(char, '.' | ',' | '-' | '+');
    let number = text.trim_matches(|char| !is_part(char));
    let unit = text.trim_matches(|char: char| is_part(char) || char.is_whitespace());
    let is_number = number.parse().is_ok_and(|value: f64| value.is_finite());
    // Letters before a number are a name: gate A12.
    let is_sign = !unit.contains(char::is_alphanumeric);
    let is_unit = (1..=6).contains(&unit.chars().count())
        && !unit.contains(is_part)
        && ((text.starts_with(unit) && is_sign) != text.ends_with(unit));
    (is_number && is_unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Notation = Notation { decimal_comma: false, thousands: None };
    const COMMA: Notation = Notation { decimal_comma: true, thousands: None };

    #[test]
    fn numbers_are_read_in_their_notation_and_in_forms_without_another_meaning() {
        for (text, value) in [
            ("1", 1.0),
            ("+2.5", 2.5),
            (".5", 0.5),
            ("-5.", -5.0),
            ("007", 7.0),
            ("1e-3", 0.001),
            ("-8.5D+01", -85.0),
            ("1.5d-01", 0.15),
            ("\u{2212}0.25", -0.25),
            ("\u{a0}3\u{a0}", 3.0),
            ("'-0.8019'", -0.8019),
        ] {
            assert_eq!(PLAIN.number(text), Some(value), "{text}");
        }
        for text in [
            "", "-", "+", ".", "e5", "1e", "1e+", "1,5", "1 000", "1_000", "0x1f", "(1.5)",
            "12 kg", "inf", "-inf", "nan", "infinity", "1e39", "1D3", "--1", "1.2.3", "'1", "abc",
            "1'000",
        ] {
            assert_eq!(PLAIN.number(text), None, "{text}");
        }
        assert_eq!(COMMA.number("-0,8019"), Some(-0.8019));
        assert_eq!(COMMA.number("1.5"), None);
        let with =
            |decimal_comma, thousands| Notation { decimal_comma, thousands: Some(thousands) };
        for (notation, text, value) in [
            (with(false, Thousands::Comma), "-1,324,359.5", -1_324_359.5),
            (with(true, Thousands::Dot), "1.324.359,5", 1_324_359.5),
            (with(false, Thousands::Space), "1\u{a0}324\u{202f}359", 1_324_359.0),
            (with(false, Thousands::Underscore), "801_931.43", 801_931.43),
            (with(false, Thousands::Apostrophe), "1'000", 1000.0),
            (with(false, Thousands::Comma), "12.5", 12.5),
        ] {
            assert_eq!(notation.number(text), Some(value), "{text}");
        }
        for text in ["1,32,359", "1324,359", ",359", "1,359,", "1,3590"] {
            assert_eq!(with(false, Thousands::Comma).number(text), None, "{text}");
        }
    }

    #[test]
    fn a_notation_is_found_if_it_reads_all_values_with_no_more_options_than_necessary() {
        let words = Words::default();
        let found = |texts: &[&str]| {
            let found: Vec<_> =
                Notation::of(texts, &words).iter().map(Notation::to_string).collect();
            found.join("|")
        };
        assert_eq!(found(&["0,8", "NA", "-1,25", "3"]), "decimal=comma");
        assert_eq!(found(&["1,800", "25"]), "thousands=comma|decimal=comma");
        assert_eq!(found(&["1,800", "25", "1,234,567"]), "thousands=comma");
        assert_eq!(found(&["1.800,5", "25"]), "decimal=comma,thousands=dot");
        assert_eq!(found(&["1 800,5", "25"]), "decimal=comma,thousands=space");
        assert_eq!(found(&["1_800", "2.5"]), "thousands=underscore");
        assert_eq!(found(&["1_800", "2"]), "thousands=underscore");
        assert_eq!(found(&["1,8", "abc"]), "");
        assert_eq!(found(&["1,8", "2.5"]), "");
    }

    #[test]
    fn the_missing_words_of_pandas_are_missing_unless_a_user_keeps_them() {
        let mut words = Words::default();
        // `pandas._libs.parsers.STR_NA_VALUES` of pandas 2.
        for text in [
            "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
            "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
        ] {
            assert_eq!(PLAIN.value(text, &words), Value::Missing, "{text}");
        }
        for text in ["inf", "-", "--", ".", "\\N", "missing", "N.A.", "#DIV/0!"] {
            assert_eq!(PLAIN.value(text, &words), Value::Text(text));
        }
        words.missing = vec!["--".into(), "-999".into()];
        words.kept = vec!["NA".into()];
        for (text, is_missing) in [
            ("--", true),
            ("-999", true),
            ("-999.0", true),
            ("-99", false),
            ("NA", false),
            ("na", true),
        ] {
            assert_eq!(words.is_missing(text), is_missing, "{text}");
            assert_eq!(PLAIN.value(text, &words) == Value::Missing, is_missing, "{text}");
        }
    }

    #[test]
    fn units_of_numbers_are_found() {
        for (text, found) in [
            ("12.5 kg", "kg"),
            ("12%", "%"),
            ("$1.5", "$"),
            ("-3 \u{b0}C", "\u{b0}C"),
            ("\u{20ac} 7", "\u{20ac}"),
        ] {
            assert_eq!(unit(text), Some(found));
        }
        for text in ["abc", "a1b", "A-12", "1.5", "2024-01-01", "12 months long", "", "inf", "nan"]
        {
            assert_eq!(unit(text), None, "{text}");
        }
    }
}
