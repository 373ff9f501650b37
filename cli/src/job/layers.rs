//! Sources of the settings, weakest first: defaults, job file, environment, flags.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::Serialize;

use super::setting::{Setting, Words};
use super::settings::{GROUPS, find, settings, unknown};
use super::suggest::suggestion;

/// Prefix of the environment variables of settings.
pub(crate) const ENVIRONMENT: &str = "PSTRAIN_JOB_";

/// Said at the end of `-h`.
const SHORT: &str = "Defaults of settings are in brackets. --help explains each flag, and lists the \
    values of each setting.";

/// Said at the end of `--help`.
const LONG: &str = "Every setting is also a key of the job file (without the dashes) and a variable \
    such as PSTRAIN_JOB_LEARNING_RATE. A flag overrules a variable, which overrules the file.";

/// Most bytes of a job file, and of one line of it: an error may quote a line.
const MOST_BYTES: usize = 1024 * 1024;
const MOST_LINE: usize = 64 * 1024;

/// The settings given as flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFlags(BTreeMap<&'static str, String>);

impl JobFlags {
    /// The flags without the one of `key`, and the value of that one.
    pub(crate) fn without(&self, key: &'static str) -> (Self, Option<&str>) {
        let mut others = self.0.clone();
        others.remove(key);
        (Self(others), self.0.get(key).map(String::as_str))
    }

    /// The key of a setting that was given as a flag, if there is any.
    pub(crate) fn first(&self) -> Option<&'static str> {
        self.0.keys().next().copied()
    }
}

/// Offers the names of words to a shell's completion. Accepts every text: the job tells an error
/// with what is allowed.
#[derive(Clone)]
struct Offered(Words);

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = self.0.all().into_iter();
        Some(Box::new(words.map(|it| PossibleValue::new(it.name).help(it.about))))
    }
}

impl Args for JobFlags {
    fn augment_args(command: Command) -> Command {
        let headed =
            GROUPS.iter().flat_map(|it| it.settings.iter().map(|setting| (it.name, setting)));
        headed.fold(command.after_help(SHORT).after_long_help(LONG), |command, (group, setting)| {
            let arg = Arg::new(setting.key)
                .long(setting.key)
                .visible_aliases(setting.aliases)
                .value_name(setting.value_name())
                .help(setting.brief())
                .long_help(setting.full_help())
                .help_heading(group)
                .action(if setting.many { ArgAction::Append } else { ArgAction::Set })
                .allow_negative_numbers(true);
            command.arg(match setting.words {
                Words::None => arg,
                words => arg.value_parser(Offered(words)).hide_possible_values(true),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for JobFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = settings().filter_map(|setting| {
            let values: Vec<&str> =
                matches.get_many::<String>(setting.key)?.map(String::as_str).collect();
            Some((setting.key, values.join(" ")))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// Settings whose defaults are others in a job with a compute process, and these defaults.
pub(crate) const OF_PROCESS: [(&str, &str); 2] = [("model", "external"), ("data", "process")];

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Default,
    File(String),
    Environment(String),
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => f.write_str(path),
            Self::Flag => f.write_str("flag"),
            Self::Environment(variable) => f.write_str(variable),
        }
    }
}

/// Every setting with its strongest value.
#[derive(Clone, Debug)]
pub(crate) struct Layers(BTreeMap<&'static str, (String, Origin)>);

impl Layers {
    /// Gathers all layers, from a job file, the environment and flags.
    pub(crate) fn gather(file: Option<&Path>, flags: &JobFlags) -> anyhow::Result<Self> {
        let environment = std::env::vars_os().filter_map(|(variable, value)| {
            Some((variable.into_string().ok()?, value.into_string().ok()?))
        });
        Self::stack(file.map(read).transpose()?, flags, environment)
    }

    /// The settings of a job file alone: those of a past run, whatever the environment says now.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Self> {
        Self::stack(Some(read(path)?), &JobFlags::default(), std::iter::empty())
    }

    /// Settings that were put together elsewhere, by key. Messages name `place` as their source.
    pub(crate) fn of(place: &str, texts: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let mut layers = Self::stack(None, &JobFlags::default(), std::iter::empty())?;
        for (key, value) in texts {
            let Some(setting) = find(key) else { bail!("{place}: {}", unknown(key)) };
            layers.0.insert(setting.key, (value.clone(), Origin::File(place.to_owned())));
        }
        layers.follow_process();
        Ok(layers)
    }

    /// The settings that come from the environment, with the names of their variables.
    #[cfg(feature = "pictures")]
    pub(crate) fn environment(self) -> Vec<(&'static str, String, String)> {
        let from_environment = |(key, (value, origin))| match origin {
            Origin::Environment(variable) => Some((key, value, variable)),
            _ => None,
        };
        self.0.into_iter().filter_map(from_environment).collect()
    }

    fn stack(
        file: Option<(String, String)>,
        flags: &JobFlags,
        environment: impl Iterator<Item = (String, String)>,
    ) -> anyhow::Result<Self> {
        let defaults = settings().map(|s| (s.key, (s.default.to_owned(), Origin::Default)));
        let mut values: BTreeMap<_, _> = defaults.collect();
        if let Some((path, text)) = file {
            for (key, value) in parse_file(&path, &text)? {
                values.insert(key, (value, Origin::File(path.clone())));
            }
        }
        for (variable, value) in environment {
            let Some(name) = variable.strip_prefix(ENVIRONMENT) else { continue };
            let key = name.replace('_', "-").to_lowercase();
            let Some(setting) = find(&key) else { bail!("{variable}: {}", unknown(&key)) };
            values.insert(setting.key, (value, Origin::Environment(variable)));
        }
        for (key, value) in &flags.0 {
            values.insert(key, (value.clone(), Origin::Flag));
        }
        let mut layers = Self(values);
        layers.follow_process();
        Ok(layers)
    }

    /// A compute process has the model and the data of its job, unless a layer has others.
    fn follow_process(&mut self) {
        if self.text("process") == "none" {
            return;
        }
        for (key, text) in OF_PROCESS {
            if self.is_default(key) {
                self.set(key, text.to_owned());
            }
        }
    }

    /// The value of a setting as text.
    pub(crate) fn text(&self, key: &'static str) -> &str {
        self.0.get(key).map_or("", |(value, _)| value)
    }

    /// True if no layer but the defaults has the setting.
    fn is_default(&self, key: &'static str) -> bool {
        self.0.get(key).is_none_or(|(_, origin)| *origin == Origin::Default)
    }

    /// Replaces the text of a setting, but not its origin.
    pub(crate) fn set(&mut self, key: &'static str, text: String) {
        if let Some((value, _)) = self.0.get_mut(key) {
            *value = text;
        }
    }

    /// The value of a setting.
    pub(crate) fn get<T>(&self, key: &'static str) -> anyhow::Result<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.parse(key, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// The value of a setting that is a number.
    pub(crate) fn number<T: FromStr>(&self, key: &'static str) -> anyhow::Result<T> {
        self.parse(key, |text| {
            let example = find(key).map_or("", |setting| setting.default);
            text.trim().parse().map_err(|_| match text.parse::<f64>() {
                Ok(_) => format!("must be a whole number, not negative, such as {example}"),
                Err(_) => format!("must be a number such as {example}"),
            })
        })
    }

    /// The value of a setting, parsed by `parse`.
    pub(crate) fn parse<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        let text = self.text(key);
        parse(text).map_err(|why| {
            let suggestion = suggestion(key, text, |other| parse(other).is_ok());
            let why = suggestion.map_or(why, |suggestion| format!("did you mean {suggestion:?}?"));
            let place = match self.0.get(key) {
                Some((_, Origin::File(path))) => format!("{path}: {key} = {text:?}"),
                Some((_, Origin::Environment(variable))) => format!("{variable}={text}"),
                _ => format!("--{key} {text}"),
            };
            anyhow::anyhow!("{place}: {why}")
        })
    }

    /// The resolved settings as a job file with the origin of each value.
    pub(crate) fn to_toml(&self) -> String {
        let mut text =
            String::from("# job file of pstrain: every setting, and where it comes from\n");
        for group in GROUPS {
            let _infallible = writeln!(text, "\n# {}", group.name);
            for Setting { key, .. } in group.settings {
                if let Some((value, origin)) = self.0.get(key) {
                    let _infallible = writeln!(text, "{key} = {}  # {origin}", toml_value(value));
                }
            }
        }
        text
    }

    /// The resolved settings by key, with the origin of each value.
    pub(crate) fn origins(&self) -> BTreeMap<&'static str, Given<'_>> {
        let given = self.0.iter();
        given.map(|(key, (value, it))| (*key, Given { value, from: it.to_string() })).collect()
    }
}

/// A value of a setting as `--print-job --json` prints it.
#[derive(Serialize)]
pub(crate) struct Given<'a> {
    value: &'a str,
    from: String,
}

/// A job file's name and text.
fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let cannot = || format!("cannot read the job file {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(cannot)?;
    file.take(MOST_BYTES as u64 + 1).read_to_string(&mut text).with_context(cannot)?;
    let path = path.display().to_string();
    if text.len() > MOST_BYTES {
        bail!("{path} is no job file: it has more than {MOST_BYTES} bytes");
    }
    if let Some((line, _)) = (1..).zip(text.lines()).find(|(_, text)| text.len() > MOST_LINE) {
        bail!(
            "{path}:{line}: the line is longer than {MOST_LINE} bytes; a long setting may be an \
             array of texts, each on a line"
        );
    }
    Ok((path, text))
}

/// A value as TOML: a bare number if that reads back as the same text, else a quoted text.
fn toml_value(text: &str) -> toml::Value {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(number), _) if number.to_string() == text => toml::Value::Integer(number),
        (_, Ok(number)) if number.to_string() == text && text.contains('.') => {
            toml::Value::Float(number)
        }
        _ => toml::Value::String(text.to_owned()),
    }
}

fn parse_file(path: &str, text: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The parser draws the place of the error, and ends with an empty line.
        anyhow::anyhow!("{path} is no job file: {}", error.to_string().trim_end())
    })?;
    let mut values = Vec::new();
    for (key, value) in table {
        let Some(setting) = find(&key) else { bail!("{path}: {}", unknown(&key)) };
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Array(items) if setting.many || matches!(setting.words, Words::Models) => {
                let items: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
                let items = items.with_context(|| format!("{path}: {key} may hold texts only"))?;
                match setting.many {
                    true => items.join(" "),
                    false => format!("net:{}", items.join(",")), // the layers of a network
                }
            }
            other => bail!(
                "{path}: {key} is of type {}, but a setting is a number or a text such as {:?}",
                other.type_str(),
                setting.default
            ),
        };
        values.push((setting.key, text));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(pairs: &[(&'static str, &str)]) -> JobFlags {
        JobFlags(pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect())
    }

    fn file(text: &str) -> Option<(String, String)> {
        Some(("job.toml".into(), text.into()))
    }

    #[test]
    fn the_environment_overrules_the_file_and_flags_overrule_both() {
        let file = file("workers = 3\nepochs = 7\nlearning-rate = 0.5\nweight-decay = 1\n");
        let flags = flags(&[("epochs", "8"), ("learning-rate", "0.25")]);
        let environment =
            [("PSTRAIN_JOB_LEARNING_RATE", "0.125"), ("PSTRAIN_JOB_WEIGHT_DECAY", "2")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let layers = Layers::stack(file, &flags, environment.into_iter()).unwrap();
        assert_eq!(layers.get::<u32>("workers").unwrap(), 3);
        assert_eq!(layers.get::<u32>("epochs").unwrap(), 8);
        assert_eq!(layers.get::<f32>("learning-rate").unwrap(), 0.25);
        assert_eq!(layers.get::<f32>("weight-decay").unwrap(), 2.0);
        assert_eq!(layers.get::<u32>("batch-size").unwrap(), 64);
        let printed = layers.to_toml();
        for line in ["learning-rate = 0.25  # flag", "weight-decay = 2  # PSTRAIN_JOB_WEIGHT_DECAY"]
        {
            assert!(printed.contains(line), "{printed}");
        }
    }

    #[test]
    fn a_printed_job_is_a_job_file_with_the_same_values() {
        let flags = flags(&[
            ("consistency", "ssp:3"),
            ("seed", "18446744073709551615"),
            ("name", "007"),
            ("data", "2024.10"),
            ("learning-rate", "1e-3"),
            ("weight-decay", "0.5"),
        ]);
        let layers = Layers::stack(None, &flags, std::iter::empty()).unwrap();
        let again =
            Layers::stack(file(&layers.to_toml()), &JobFlags::default(), std::iter::empty());
        let again = again.unwrap();
        for setting in settings() {
            assert_eq!(again.text(setting.key), layers.text(setting.key), "{}", setting.key);
        }
    }

    #[test]
    fn settings_of_items_may_be_arrays_and_repeated_flags() {
        let file = file("link = [\"1.delay=1ms\", \"2.delay=100ms\"]\ncompute = \"4.5ms\"\n");
        let command = JobFlags::augment_args(Command::new("pstrain"));
        let args = ["pstrain", "--compute", "1ms", "--compute", "2.factor=4"];
        let flags = JobFlags::from_arg_matches(&command.get_matches_from(args)).unwrap();
        let layers = Layers::stack(file, &flags, std::iter::empty()).unwrap();
        assert_eq!(layers.text("link"), "1.delay=1ms 2.delay=100ms");
        assert_eq!(layers.text("compute"), "1ms 2.factor=4");
        assert_eq!(layers.text("faults"), "none");
    }

    #[test]
    fn unknown_keys_are_errors_with_the_nearest_name() {
        let none = JobFlags::default();
        let error = Layers::stack(file("worker = 3"), &none, std::iter::empty()).unwrap_err();
        assert!(error.to_string().contains("did you mean \"workers\""), "{error}");
        let variable = [("PSTRAIN_JOB_BATCHSIZE".to_owned(), "1".to_owned())];
        let error = Layers::stack(None, &none, variable.into_iter()).unwrap_err();
        assert!(error.to_string().contains("\"batch-size\""), "{error}");
        let error = Layers::stack(file("workers = [1]"), &none, std::iter::empty()).unwrap_err();
        assert!(error.to_string().contains("array"), "{error}");
    }

    #[test]
    fn a_bad_value_is_named_with_its_place() {
        let layers =
            Layers::stack(file("workers = \"two\""), &JobFlags::default(), std::iter::empty());
        let error = layers.unwrap().number::<u32>("workers").unwrap_err().to_string();
        assert_eq!(error, "job.toml: workers = \"two\": must be a number such as 2");
        let layers = Layers::stack(None, &flags(&[("epochs", "2.5")]), std::iter::empty());
        let error = layers.unwrap().number::<u32>("epochs").unwrap_err().to_string();
        assert_eq!(error, "--epochs 2.5: must be a whole number, not negative, such as 10");
    }
}
