//! Parses the command line, and tells what is wrong with it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use pstrain_compute::likeness::alike;

use super::Cli;
use crate::exit;
use crate::job::nearest;
use crate::messages::{self, LogForm};

/// Most columns of a help text.
const HELP_WIDTH: usize = 100;

/// Parses the arguments of this process. If there is nothing to run, prints the help, the version
/// or the error, and returns the exit code.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    // In a pipe as wide as results are there.
    let mut command = Cli::command().term_width(messages::width().min(HELP_WIDTH));
    let parsed = command
        .try_get_matches_from_mut(&words)
        .inspect(follow_json)
        .and_then(|matches| Cli::from_arg_matches(&matches).map_err(|it| it.format(&mut command)));
    parsed.map_err(|error| {
        if !error.use_stderr() {
            // The reader of a pipe may be gone.
            let _unread = error.print();
            return ExitCode::SUCCESS;
        }
        let error = with_suggestion(error, named(&command, &words));
        if words.iter().any(|word| word == "--json") {
            messages::log_as(LogForm::Json);
            exit::code(Err(anyhow::anyhow!("{}", in_one_line(&error))))
        } else {
            let _unread = error.print();
            ExitCode::from(exit::USAGE)
        }
    })
}

/// With `--json`, messages are JSON, too, unless the command has a flag of its own for them.
fn follow_json(matches: &ArgMatches) {
    let mut matches = matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    let has_json = matches.try_get_one::<bool>("json").ok().flatten() == Some(&true);
    // `replay` has an argument of this name, too, which is a path.
    let has_log = matches.try_get_one::<LogForm>("log").ok().flatten().is_some();
    if has_json && !has_log {
        messages::log_as(LogForm::Json);
    }
}

/// The command that the words name.
fn named<'a>(command: &'a Command, words: &[OsString]) -> &'a Command {
    let words = words.iter().filter_map(|word| word.to_str());
    words.fold(command, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// Commands of other programs, and the commands here.
const ALSO_CALLED: &[(&str, &str)] = &[
    ("train", "run"),
    ("fit", "run"),
    ("start", "run"),
    ("launch", "run"),
    ("sim", "simulate"),
    ("serve", "server"),
    ("client", "worker"),
    ("ps", "status"),
    ("info", "status"),
    ("stop", "control"),
    ("evaluate", "eval"),
    ("predict", "eval"),
    ("test", "eval"),
    ("resume", "server"),
    ("watch", "top"),
    ("monitor", "top"),
    ("dataset", "data"),
    ("convert", "data"),
    ("benchmark", "bench"),
    ("certificate", "cert"),
];

/// The command of `command` that `word` most likely stands for.
fn command_for(word: &str, command: &Command) -> Option<&'static str> {
    let known = ALSO_CALLED.iter().filter(|(_, ours)| command.find_subcommand(ours).is_some());
    alike(word, known.copied()).into_iter().next()
}

/// Adds the command or the setting that an unknown word or flag of `command` most likely stands
/// for.
fn with_suggestion(mut error: clap::Error, command: &Command) -> clap::Error {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && error.get(ContextKind::SuggestedSubcommand).is_none()
        && let Some(near) = command_for(word, command)
    {
        let suggested = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, suggested);
        return error;
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let key = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
    let near = nearest(key).filter(|key| command.get_arguments().any(|arg| arg.get_id() == *key));
    if let Some(near) = near {
        let suggested = ContextValue::String(format!("--{near}"));
        error.insert(ContextKind::SuggestedArg, suggested);
        // It may name another flag, which is less likely.
        error.remove(ContextKind::Usage);
    }
    error
}

/// The error and the tips, without the usage.
fn in_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim);
    let lines =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ").trim_start_matches("error: ").to_owned()
}
