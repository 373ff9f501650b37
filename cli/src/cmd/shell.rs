//! Completion scripts and manual pages, generated from the command line itself.

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Ending;
use crate::messages;

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pstrain", &mut script);
    messages::result(&String::from_utf8_lossy(&script))?;
    Ok(Ending::Done)
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Ending> {
    let place = || format!("cannot write manual pages to {}", args.out.display());
    std::fs::create_dir_all(&args.out).with_context(place)?;
    clap_mangen::generate_to(Cli::command(), &args.out).with_context(place)?;
    Ok(Ending::Done)
}
