//! Measures take-overs, hand-overs and promotions of a cluster: `cargo xtask bench-failover`.

#![expect(
    clippy::print_stdout,
    reason = "a tool for the terminal: what it prints is its result"
)]

use std::process::ExitCode;

use anyhow::{Result, ensure};
use ganger_e2e::figures::{Options, USAGE, measure};

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<()> {
    let Some(options) = Options::read(std::env::args().skip(1))? else {
        println!("{USAGE}");
        return Ok(());
    };
    let report = measure(&options, &|line| println!("{line}"))?;
    println!("\n{report}");
    let faults = report.faults();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}
