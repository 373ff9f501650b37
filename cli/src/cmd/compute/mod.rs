//! `pstrain compute`: compute processes.

mod check;
mod probes;
mod serve;

use std::io::IsTerminal as _;

use pstrain_compute::model::Answers;
use pstrain_transports::process::protocol::Description;

use crate::args::{ComputeArgs, ComputeCommand, DescribeArgs, Form};
use crate::exit::Ending;
use crate::process::ComputeProcess;
use crate::{messages, table};

pub(crate) fn run(args: &ComputeArgs) -> anyhow::Result<Ending> {
    match &args.command {
        ComputeCommand::Check(args) => check::run(args),
        ComputeCommand::Describe(args) => describe(args),
        ComputeCommand::Serve(args) => serve::run(args),
    }
}

fn describe(args: &DescribeArgs) -> anyhow::Result<Ending> {
    let description = ComputeProcess::new(args.process.clone(), 0, None).describe()?;
    // A file or a pipe leads to a server.
    let json = args.form.json || !std::io::stdout().is_terminal();
    Form { json }.print(&description, || shown(&description))?;
    Ok(Ending::Done)
}

/// The description for a terminal.
fn shown(description: &Description) -> String {
    let shape = |shape: &[u32]| {
        let sizes: Vec<String> = shape.iter().map(u32::to_string).collect();
        if sizes.is_empty() { "1".to_owned() } else { sizes.join(" x ") }
    };
    let tensors = description.tensors.iter();
    let tensors = tensors.map(|it| vec![it.name.clone(), "parameters".into(), shape(&it.shape)]);
    let state = description.state.iter();
    let state = state.map(|it| vec![it.name.clone(), "state".into(), shape(&it.shape)]);
    let answers = match description.answers {
        Answers::Gradient => "gradients",
        Answers::Difference => "differences",
    };
    format!(
        "examples  {}\nanswers   {answers}\n\n{}",
        description.examples,
        table::table(
            &["tensor", "kind", "shape"],
            3,
            tensors.chain(state).collect(),
            messages::width()
        )
    )
}
