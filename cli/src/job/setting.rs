//! The form of a setting: its names, its values, its help.

use pstrain_compute::model::{ModelSpec, registered};
use pstrain_compute::named::{Family, Named};
use pstrain_data::formats;

/// Settings with a heading of their own in `--help`, in a printed job and on the reference page.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) settings: &'static [Setting],
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    /// Other names of the flag. Job files and variables have the key alone.
    pub(crate) aliases: &'static [&'static str],
    /// Form of the value.
    pub(crate) value: &'static str,
    /// The help, without the words. Its first clause, up to `,`, `:` or `;`, stands for it in `-h`.
    pub(crate) help: &'static str,
    pub(crate) words: Words,
    pub(crate) default: &'static str,
    /// True if the value is a list of items: the flag may be repeated, and the key may be an array.
    pub(crate) many: bool,
}

/// The words that a value may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Words {
    /// None.
    None,
    /// The words of a family.
    Of(&'static Family),
    /// The models of pstrain, and the models that the program added.
    Models,
    /// The data formats of pstrain, and the formats that the program added.
    Formats,
}

/// A word, described.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) name: &'static str,
    /// The word with its numbers or other arguments.
    pub(crate) form: String,
    pub(crate) about: &'static str,
}

impl Words {
    /// All words, in the order of help.
    pub(crate) fn all(self) -> Vec<Described> {
        let of = |family: &'static Family| {
            family.words.iter().map(|word| Described {
                name: word.name,
                form: word.form(family.separator),
                about: word.about,
            })
        };
        let other = |name, form: &str, about| Described { name, form: form.into(), about };
        match self {
            Self::None => Vec::new(),
            Self::Of(family) => of(family).collect(),
            Self::Models => {
                let added = registered().iter().map(|it| other(it.word(), it.form, it.summary));
                of(ModelSpec::WORDS).chain(added).collect()
            }
            Self::Formats => {
                formats::formats().map(|it| other(it.word(), it.form, it.summary)).collect()
            }
        }
    }
}

pub(super) const fn setting(
    key: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { key, aliases: &[], value, help, words: Words::None, default, many: false }
}

/// A setting whose values are the words of `T`.
pub(super) const fn named<T: Named>(
    key: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { words: Words::Of(T::FAMILY), ..setting(key, "NAME", default, help) }
}

pub(super) const fn items(key: &'static str, value: &'static str, help: &'static str) -> Setting {
    Setting { many: true, ..setting(key, value, "none", help) }
}

impl Setting {
    /// The same setting, whose flag has other names, too.
    pub(super) const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// The name of the value in the flag's synopsis: its first form.
    pub(crate) fn value_name(&self) -> &'static str {
        self.value.split('|').next().unwrap_or(self.value)
    }

    /// The line of `-h`: the first clause of the help, and the default.
    pub(crate) fn brief(&self) -> String {
        let clause = self.help.split([',', ':', ';']).next().unwrap_or(self.help);
        format!("{clause} [{}]", self.default)
    }

    /// The text of `--help`: the help, the forms and descriptions of all words, and the default.
    pub(crate) fn full_help(&self) -> String {
        let words = self.words.all();
        let lines = words.iter().map(|word| format!("\n- {}: {}", word.form, word.about));
        let words: String = lines.collect();
        let colon = if words.is_empty() { "" } else { ":" };
        let form = match self.value.contains('|') {
            true => format!("[value: {}] ", self.value),
            false => String::new(),
        };
        format!("{}{colon}{words}\n\n{form}[default: {}]", self.help, self.default)
    }
}
