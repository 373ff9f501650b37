//! Tests of the table of settings.

use std::fmt::{Display, Write as _};
use std::str::FromStr;

use proptest::prelude::*;
use proptest::sample::Index;
use pstrain_compute::model::ModelSpec;
use pstrain_compute::named::{Limits, Number, Word};

use super::*;
use crate::tests::{assert_page, row};

/// Reads a text and prints the value.
type Read = fn(&str) -> Result<String, String>;

fn read<T: FromStr<Err: Display> + Display>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|it| it.to_string()).map_err(|error| error.to_string())
}

const READ: [(&str, Read); 25] = [
    ("budget", read::<BudgetKind>),
    ("activation", read::<Activation>),
    ("loss", read::<Loss>),
    ("optimizer", read::<OptimizerSpec>),
    ("schedule", read::<Schedule>),
    ("local-training", read::<LocalTraining>),
    ("proximal", read::<Proximal>),
    ("server-functions", read::<FunctionSpec>),
    ("aggregation", read::<Aggregation>),
    ("consistency", read::<ConsistencySpec>),
    ("staleness", read::<StalenessSpec>),
    ("participation", read::<ParticipationSpec>),
    ("architecture", read::<Architecture>),
    ("graph", read::<Graph>),
    ("exchange", read::<Exchange>),
    ("filters", read::<FilterSpec>),
    ("pull-filter", read::<PullFilter>),
    ("key-caching", read::<KeyCaching>),
    ("error-feedback", read::<ErrorFeedback>),
    ("data-from", read::<DataFrom>),
    ("partition", read::<PartitionSpec>),
    ("redundancy", read::<Redundancy>),
    ("work", read::<WorkSpec>),
    ("on-worker-loss", read::<OnLoss>),
    ("power", read::<Device>),
];

/// All words, with the separator of their numbers and the way to read them.
fn all_words() -> Vec<(Word, char, Read)> {
    let family = |it: &Setting| match it.words {
        Words::Of(family) => Some((it.key, family)),
        _ => None,
    };
    assert_eq!(settings().filter_map(family).count(), READ.len(), "READ has all with words");
    let words =
        settings().filter_map(family).zip(READ).flat_map(|((key, family), (same, read))| {
            assert_eq!(key, same, "READ has the settings with words in their order");
            family.words.iter().map(move |word| (*word, family.separator, read))
        });
    words.collect()
}

/// A number within the limits, and one outside of them.
fn numbers(limits: Limits, random: u32) -> (String, String) {
    let share = f32::from(random as u16) / 65536.0;
    match limits {
        Limits::WholeOrInf if random.is_multiple_of(5) => {
            ("inf".into(), "18446744073709551616".into())
        }
        Limits::WholeOrInf => (random.to_string(), "18446744073709551616".into()),
        Limits::Whole(least, most) => {
            let inside = least + u64::from(random) % (most - least).max(1);
            (inside.to_string(), (u128::from(most) + 1).to_string())
        }
        Limits::Real(least, most) | Limits::Above(least, most) | Limits::Below(least, most) => {
            let (low, high) = (least.max(-9.0) as f32, most.min(99.0) as f32);
            let inside = low + (high - low) * share.clamp(0.001, 0.999);
            (inside.to_string(), if least.is_finite() { "-1" } else { "NaN" }.into())
        }
    }
}

fn text(word: &Word, separator: char, numbers: &[String]) -> String {
    let numbers = numbers.join(&separator.to_string());
    if numbers.is_empty() { word.name.to_owned() } else { format!("{}:{numbers}", word.name) }
}

proptest! {
    #[test]
    fn every_word_is_read_as_it_is_written_and_its_limits_hold(
        which in any::<Index>(),
        random in prop::collection::vec(any::<u32>(), 3),
    ) {
        let words = all_words();
        let (word, separator, read) = which.get(&words);
        let drawn: Vec<_> =
            word.numbers.iter().zip(random).map(|(it, by)| numbers(it.limits, by)).collect();
        let inside: Vec<String> = drawn.iter().map(|(inside, _)| inside.clone()).collect();
        for given in 0..=inside.len() {
            let text = text(word, *separator, &inside[..given]);
            let printed = read(&text);
            let whole = given == inside.len()
                || given == 0 && word.numbers.iter().all(|it| it.default().is_some());
            prop_assert!(printed.is_ok() || !whole, "{:?}", printed);
            if let Ok(printed) = printed {
                prop_assert_eq!(read(&printed), Ok(printed.clone()));
                prop_assert!(given < inside.len() || text.starts_with(&printed));
            }
        }
        for (place, number) in word.numbers.iter().enumerate() {
            let mut numbers = inside.clone();
            numbers[place].clone_from(&drawn[place].1);
            let text = text(word, *separator, &numbers);
            let error = read(&text).unwrap_err();
            prop_assert_eq!(error, format!("{text}: {}", number.must()));
        }
    }
}

fn described(number: &Number) -> String {
    let default = number.default().map(|it| format!(" (default {it})")).unwrap_or_default();
    format!("{}: {}{default}", number.name, number.limits)
}

/// The numbers of a word, with their limits.
fn numbers_of(words: Words, name: &str) -> &'static [Number] {
    let family = match words {
        Words::Of(family) => family,
        Words::Models => ModelSpec::WORDS,
        Words::Formats | Words::None => return &[],
    };
    family.words.iter().find(|word| word.name == name).map_or(&[], |word| word.numbers)
}

/// The reference page of all words.
fn page() -> String {
    let mut page = String::from(
        "# Words with numbers\n\nThe values of the settings that are a word with or without \
         numbers. Numbers in brackets may be\nleft out. This page is generated from the tables \
         that parse the words.\n",
    );
    for setting in settings() {
        let words = setting.words.all();
        if words.is_empty() {
            continue;
        }
        let Setting { key, help, default, .. } = setting;
        let _infallible = write!(
            page,
            "\n## {key}\n\n{help}. The default is `{default}`.\n\n\
             | word | meaning | numbers |\n|---|---|---|\n"
        );
        for word in words {
            let form = word.form.replace('|', "\\|");
            let numbers = numbers_of(setting.words, word.name).iter().map(described);
            let numbers: Vec<String> = numbers.collect();
            let _infallible =
                writeln!(page, "| `{form}` | {} | {} |", word.about, numbers.join("; "));
        }
    }
    page
}

/// The reference page of all settings.
fn page_of_settings() -> String {
    let mut page = String::from(
        "# Settings\n\nEvery setting is a key of the job file, a flag (`--KEY`), and an environment \
         variable\n(`PSTRAIN_JOB_KEY`, in capitals and with `_` for `-`): [the job](../job.md). \
         Some flags have a second,\nshorter name; files and variables have the key alone. \
         This page is generated from the table that parses\nthem. [Words](words.md) lists the \
         values of each setting that has words.\n",
    );
    for group in GROUPS {
        let _infallible = write!(
            page,
            "\n## {}\n\n| key | form | default | meaning |\n|---|---|---|---|\n",
            group.name
        );
        for Setting { key, aliases, value, help, words, default, .. } in group.settings {
            let words = match words {
                Words::None => String::new(),
                _ => format!(": [words](words.md#{key})"),
            };
            let aliases: String =
                aliases.iter().map(|alias| format!(", flag also `--{alias}`")).collect();
            let (key, value, default) =
                (format!("`{key}`{aliases}"), format!("`{value}`"), format!("`{default}`"));
            let meaning = format!("{help}{words}").replace('*', "\\*");
            page.push_str(&row(&[&key, &value, &default, &meaning]));
        }
    }
    page
}

#[test]
fn every_setting_has_one_name_and_no_flag_two_meanings() {
    let mut names: Vec<&str> =
        settings().flat_map(|it| [it.key].into_iter().chain(it.aliases.iter().copied())).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_name_of_another_program_leads_to_the_setting() {
    for (name, key) in [
        ("lr", "learning-rate"),
        ("batch", "batch-size"),
        ("opt", "optimizer"),
        ("wd", "weight-decay"),
        ("num_workers", "workers"),
        ("batchsize", "batch-size"),
    ] {
        assert_eq!(nearest(name), Some(key), "{name}");
        assert_eq!(unknown(name), format!("there is no setting {name:?}; did you mean {key:?}?"));
    }
    assert!(ALSO_CALLED.iter().all(|(_, key)| find(key).is_some()));
}

#[test]
fn the_page_of_words_is_that_of_the_tables() {
    assert_page("words", &page());
}

#[test]
fn the_page_of_settings_is_that_of_the_table() {
    assert_page("settings", &page_of_settings());
}
