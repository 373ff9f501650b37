//! The command line as a whole: every command is looked at.

use clap::{Command, CommandFactory, Parser};

use super::{ADDRESS, Cli, Command as Words};
use crate::job::settings;

/// Commands without `--json`, and the reason.
const WITHOUT_JSON: &[(&str, &str)] = &[
    ("pstrain completions", "a script for a shell"),
    ("pstrain man", "manual pages, in files"),
    ("pstrain top", "draws on a terminal; `pstrain why --json` says the same"),
    ("pstrain compute serve", "speaks the protocol of compute processes on stdout"),
    ("pstrain crowd", "part of `pstrain bench server`, which starts it"),
];

/// All commands that do something, by their words.
fn leaves(command: &Command, before: &str, found: &mut Vec<(String, Command)>) {
    let words = format!("{before}{}", command.get_name());
    if !command.has_subcommands() {
        found.push((words.clone(), command.clone()));
    }
    for inner in command.get_subcommands().filter(|it| it.get_name() != "help") {
        leaves(inner, &format!("{words} "), found);
    }
}

fn commands() -> Vec<(String, Command)> {
    let mut command = Cli::command().term_width(80);
    command.build();
    let mut found = Vec::new();
    leaves(&command, "", &mut found);
    assert!(found.len() > 15);
    found
}

#[test]
fn every_command_has_json_or_a_reason() {
    for (words, command) in commands() {
        let has_json = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
        let reason = WITHOUT_JSON.iter().find(|(name, _)| *name == words);
        assert!(has_json != reason.is_some(), "{words}: {has_json}, {reason:?}");
    }
}

#[test]
fn short_help_fits_a_terminal_and_has_one_line_for_each_setting() {
    for (words, mut command) in commands() {
        let help = command.render_help().to_string();
        // The synopsis is not wrapped.
        let is_usage =
            |line: &&str| line.starts_with("Usage:") || line.starts_with("       pstrain");
        for line in help.lines().filter(|line| !is_usage(line)) {
            assert!(line.chars().count() <= 80, "{words}: {line}");
        }
        if !["pstrain run", "pstrain server", "pstrain simulate"].contains(&words.as_str()) {
            continue;
        }
        for setting in settings() {
            let begin = format!("      --{} <", setting.key);
            let line = help.lines().find(|line| line.starts_with(&begin)).expect(setting.key);
            assert!(line.contains(&setting.brief()), "{words}: {line}");
        }
    }
}

#[test]
fn the_long_help_of_a_setting_has_its_values_below_the_heading_of_its_group() {
    let (_, mut command) =
        commands().into_iter().find(|(words, _)| words == "pstrain run").unwrap();
    let help = command.render_long_help().to_string();
    let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text:?}"));
    assert!(place("\nConsistency:\n") < place("ssp:SLACK"));
    assert!(place("ssp:SLACK") < place("\nNetwork:\n"));
    assert!(place("[value: RATE|auto]") < place("\nConsistency:\n"));
}

#[test]
fn clients_and_workers_look_where_a_server_listens_by_default() {
    let parse =
        |words: &[&str]| Cli::try_parse_from([&["pstrain"], words].concat()).unwrap().command;
    let Words::Server(server) = parse(&["server"]) else { panic!() };
    let listens = server.listen;
    assert_eq!(listens.to_string(), format!("tcp://{ADDRESS}"));
    let Words::Worker(worker) = parse(&["worker"]) else { panic!() };
    assert_eq!(worker.server, listens);
    for name in ["status", "why"] {
        let (Words::Status(args) | Words::Why(args)) = parse(&[name]) else { panic!() };
        assert_eq!(args.server.address, listens);
    }
    let Words::Pull(pull) = parse(&["pull", "-o", "x"]) else { panic!() };
    assert_eq!(pull.server.address, listens);
    for words in [&["stop"][..], &["set", "consistency", "asp"], &["leave-server", "2"]] {
        let Words::Control(control) = parse(&[&["control"], words].concat()) else { panic!() };
        assert_eq!(control.server.address, listens);
        let far = [&["control", "gw:1"], words, &["--json"]].concat();
        let Words::Control(control) = parse(&far) else { panic!() };
        assert_eq!(control.server.address.to_string(), "tcp://gw:1");
        assert!(control.form.json);
    }
}
