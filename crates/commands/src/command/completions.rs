//! `ganger completions`: completions for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Exit, Outcome};

/// Prints completions, such as `ganger completions bash > ~/.local/share/bash-completion/completions/ganger`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to write the completions for.
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ganger", &mut text);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &text)?;
    Ok(Exit::Done)
}
