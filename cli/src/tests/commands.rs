//! The reference page of commands, written from the tree that parses the command line.

use clap::{Arg, Command, CommandFactory};

use super::{assert_page, row};
use crate::args::Cli;
use crate::job::settings;

/// A text of the command line in Markdown: code stays code, and nothing else is markup.
fn text(of: Option<&clap::builder::StyledStr>) -> String {
    let text = of.map(ToString::to_string).unwrap_or_default();
    let parts = text.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => part.replace('*', "\\*").replace('<', "&lt;"),
        _ => format!("`{part}`"),
    });
    let text: String = parts.collect();
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|it| !it.is_empty())
        .collect();
    // A paragraph of a help needs no full stop at its end, and a sentence of a page does.
    let is_whole = |it: &str, next: &str| it.ends_with(['.', ':', ';']) || next.starts_with('[');
    paragraphs
        .into_iter()
        .reduce(|all, next| {
            let gap = if is_whole(&all, &next) { " " } else { ". " };
            format!("{all}{gap}{next}")
        })
        .unwrap_or_default()
}

/// Text without a full stop at its end.
fn open(text: &str) -> &str {
    text.trim_end_matches('.')
}

/// The argument as a user writes it.
fn form(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let value = values.join(" ");
    if arg.is_positional() {
        return value;
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    if arg.get_action().takes_values() { format!("{names} {value}") } else { names }
}

/// The meaning of an argument, with the values that it offers and its default.
fn meaning(arg: &Arg) -> String {
    let mut meaning = text(arg.get_long_help().or_else(|| arg.get_help()));
    let takes_values = arg.get_action().takes_values();
    if takes_values && !arg.is_hide_possible_values_set() {
        let values: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| match value.get_help() {
                Some(help) => format!("`{}` ({})", value.get_name(), text(Some(help))),
                None => format!("`{}`", value.get_name()),
            })
            .collect();
        if !values.is_empty() {
            meaning = format!("{}: {}", open(&meaning), values.join(", "));
        }
    }
    let defaults = arg.get_default_values();
    if takes_values && !defaults.is_empty() {
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        meaning = format!("{meaning} [default: `{}`]", defaults.join(" "));
    }
    meaning
}

/// The table of a command's arguments: without settings, which have a page of their own, and
/// without the flags of the command above it.
fn arguments(command: &Command, above: &Command) -> String {
    let is_key = |arg: &Arg, key: &str| arg.get_id().as_str() == key;
    let has = |key: &str| command.get_arguments().any(|arg| is_key(arg, key));
    // A command without a job may have an argument of the same name.
    let has_settings = settings().all(|it| has(it.key));
    let is_setting = |arg: &Arg| has_settings && settings().any(|it| is_key(arg, it.key));
    let is_above = |arg: &Arg| above.get_arguments().any(|it| it.get_id() == arg.get_id());
    let is_help = |arg: &Arg| ["help", "version"].contains(&arg.get_id().as_str());
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !(is_setting(arg) || is_above(arg) || is_help(arg) || arg.is_hide_set()))
        .collect();
    let rows: String =
        own.iter().map(|arg| row(&[&format!("`{}`", form(arg)), &meaning(arg)])).collect();
    let mut table = String::new();
    if !rows.is_empty() {
        table = format!("\n| argument | meaning |\n|---|---|\n{rows}");
    }
    if has_settings {
        table.push_str("\nEvery [setting](settings.md) of a job is a flag, too.\n");
    }
    table
}

fn section(command: &Command, above: &Command, level: &str) -> String {
    let name = command.get_bin_name().unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let about = text(command.get_long_about().or_else(|| command.get_about()));
    let table = arguments(command, above);
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    let after = after.map(|it| format!("\n```text\n{it}\n```\n")).unwrap_or_default();
    let parts: String =
        parts(command).map(|part| section(part, command, &format!("{level}#"))).collect();
    let about = open(&about);
    format!("\n{level} {name}\n\n{about}.\n\n```text\n{usage}\n```\n{table}{after}{parts}")
}

/// The commands of a command that its help shows.
fn parts(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

fn page() -> String {
    let mut tree = Cli::command();
    tree.build();
    let list: String = parts(&tree)
        .map(|part| {
            let name = part.get_bin_name().unwrap_or_default();
            let link = format!("[`{name}`](#{})", name.replace(' ', "-"));
            row(&[&link, &text(part.get_about())])
        })
        .collect();
    let sections: String = parts(&tree).map(|part| section(part, &tree, "##")).collect();
    format!(
        "# Commands\n\nThis page is generated from the program: `pstrain COMMAND --help` says the \
         same. [Exit codes](exit-codes.md) are the same for all commands.\n\n\
         | command | what it does |\n|---|---|\n{list}{sections}"
    )
}

#[test]
fn the_page_of_commands_is_that_of_the_command_line() {
    assert_page("commands", &page());
}
