//! The command line of the `ganger` program: server, worker, and all tools.
//!
//! There is one file per subcommand under `command`; no rule of the queue is here. Everything but `server`, `check
//! PATH` and `completions` calls a server through `ganger-client`, like any other program.

#![forbid(unsafe_code)]

mod args;
mod command;
mod context;
mod document;
mod exit;
#[cfg(test)]
mod parity;
mod show;

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use crate::args::Cli;
use crate::context::{Context, remark};
use crate::exit::{Exit, Failure};

/// Reads the arguments of the process, runs the command, and returns the exit code.
pub fn main() -> ExitCode {
    // The worker starts this program again as a supervisor of programs.
    ganger_worker::become_supervisor_if_asked();
    let cli = Cli::parse();
    let context = Context::new(cli.global);
    let outcome = command::run(&context, cli.command);
    match outcome {
        Ok(exit) => ExitCode::from(exit.number()),
        Err(failure) => end(&context, &failure),
    }
}

/// Prints the failure, and returns its exit code.
fn end(context: &Context, failure: &Failure) -> ExitCode {
    if !failure.is_quiet {
        if context.is_json() {
            let error = json!({
                "error": {
                    "code": failure.code,
                    "message": failure.message,
                    "next_step": failure.next_step,
                    "exit_code": failure.exit.number(),
                }
            });
            remark(error.to_string());
        } else {
            remark(describe(failure));
        }
    }
    ExitCode::from(failure.exit.number())
}

fn describe(failure: &Failure) -> String {
    let message = show::escape::text(&failure.message);
    let has_own_code =
        matches!(failure.exit, Exit::Refused | Exit::NotFound).then_some(failure.code.as_str());
    let code = has_own_code
        .map(|code| format!(" [{code}]"))
        .unwrap_or_default();
    let step = failure
        .next_step
        .as_ref()
        .map(|step| format!("\n{step}"))
        .unwrap_or_default();
    format!("error: {message}{code}{step}")
}
