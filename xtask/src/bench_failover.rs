//! Measures what failures and restarts cost a cluster over PostgreSQL. The program that does it is an example of the crate
//! `e2e`, whose nodes, faults and checks it uses.
//!
//! The variable `GANGER_BIN` names another program than `target/release/ganger`.

use std::env;

use anyhow::Result;

use crate::process::{built, line, run as run_program};

/// Builds the program under test with full optimisation, unless another one is named, and measures it. The measuring
/// program itself only sends a paced load and waits, so it needs no optimisation.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let is_help = arguments.iter().any(|it| it == "--help" || it == "-h");
    let mut figures = line("run --quiet --package ganger-e2e --example cluster_figures --");
    if env::var_os("GANGER_BIN").is_none() && !is_help {
        run_program(&mut line(
            "build --release --package ganger-cli --bin ganger",
        ))?;
        figures.env("GANGER_BIN", built("release", "ganger"));
    }
    run_program(figures.args(arguments))
}
