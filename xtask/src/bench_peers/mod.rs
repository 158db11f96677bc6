//! Measures ganger beside Redis, PostgreSQL and beanstalkd: the same loads, on the same machine, in one run.
//!
//! Every peer flushes to the device before it answers: Redis with `appendfsync always`, PostgreSQL as it is installed,
//! beanstalkd with `-f0`. Each has a private instance on the loopback, with its data beside the others' in one temporary
//! folder, and is stopped before the next one starts. Every client is a plain socket in this program, so that no library
//! is measured; only ratios within one run mean anything.

mod beanstalkd;
mod ganger;
mod install;
mod load;
mod postgres;
mod programs;
mod redis;
mod report;
mod scratch;
mod wire;

use anyhow::{Result, bail};

use crate::process::{cargo, exists, run as run_command};
use report::Report;
use scratch::Scratch;

/// Jobs sent, taken or finished together.
const BATCH: usize = 100;
/// Bytes of a job's payload.
const PAYLOAD_BYTES: usize = 200;
/// Says that this is the optimised build, started by the other one.
const INNER: &str = "--optimised";

/// Installs what is missing, measures everyone, prints the table.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => start_optimised(),
        [INNER] => measure(),
        [other, ..] => bail!("`{other}` is not known: bench-peers takes no arguments"),
    }
}

/// Builds the product and this tool with full optimisation and goes on there: a slow load generator would be what
/// is measured.
fn start_optimised() -> Result<()> {
    install::peers()?;
    run_command(cargo().args([
        "build",
        "--release",
        "--package",
        "ganger-cli",
        "--bin",
        "ganger",
    ]))?;
    run_command(cargo().args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "xtask",
        "--",
        "bench-peers",
        INNER,
    ]))
}

fn measure() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut report = Report::default();
    {
        let server = ganger::Server::start(&scratch.folder("ganger")?)?;
        load::measure("ganger HTTP", &server, &mut report)?;
        programs::measure(&server, &scratch.folder("programs")?, &mut report)?;
        load::measure_deep("ganger HTTP", &server, &mut report)?;
    }
    ganger::measure_own(&scratch.folder("own")?, &mut report)?;
    if exists("redis-server") {
        let server = redis::Server::start(&scratch.folder("redis")?)?;
        load::measure("redis", &server, &mut report)?;
    }
    if let Some(programs) = postgres::programs() {
        let server = postgres::Server::start(&programs, &scratch.folder("postgres")?)?;
        load::measure("postgres", &server, &mut report)?;
    }
    if exists("beanstalkd") {
        let server = beanstalkd::Server::start(&scratch.folder("beanstalkd")?)?;
        load::measure("beanstalkd", &server, &mut report)?;
    }
    report.print();
    Ok(())
}
