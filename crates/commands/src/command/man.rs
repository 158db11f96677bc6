//! `ganger man`: manual pages.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::args::Cli;
use crate::exit::{Exit, Failure, Outcome};

/// Prints the manual page, such as `ganger man | man -l -`, or writes a page for each command into a directory.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for all pages, such as ~/.local/share/man/man1; it must exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> Outcome {
    if let Some(dir) = &args.out {
        clap_mangen::generate_to(Cli::command(), dir)
            .map_err(|error| Failure::file(dir, &error))?;
        return Ok(Exit::Done);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    std::io::stdout().lock().write_all(&page)?;
    Ok(Exit::Done)
}
