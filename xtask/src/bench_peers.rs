//! Measures ganger and Redis, PostgreSQL and beanstalkd: the same loads, on the same machine, in one run.
//!
//! Every peer flushes to the device before it answers: Redis with `appendfsync always`, PostgreSQL as it is installed,
//! beanstalkd with `-f0`. Each has a private instance on the loopback, with its data beside the others' in one temporary
//! directory, and is stopped before the next one starts. The crate `ganger-bench` makes all loads: `ganger bench` those of
//! ganger, and this program those of the peers, over plain sockets, so that no client library is measured. Only ratios
//! within one run mean anything.

mod beanstalkd;
mod ganger;
mod goals;
mod install;
mod load;
pub(crate) mod postgres;
mod programs;
pub(crate) mod redis;
mod report;
pub(crate) mod scratch;
pub(crate) mod wire;

use anyhow::{Result, bail};
use ganger_bench::BlockingPeer;
use tokio::runtime::Runtime;

use crate::process::{OPTIMISED, exists, start_optimised};
pub(crate) use install::peers as install_peers;
use report::Report;
use scratch::Scratch;

/// Installs what is missing, measures everyone, prints the tables.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            install::peers()?;
            start_optimised("bench-peers", &[])
        }
        [OPTIMISED] => Runtime::new()?.block_on(measure()),
        [other, ..] => bail!("`{other}` is not known: bench-peers takes no arguments"),
    }
}

async fn measure() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut report = Report::default();
    {
        let server = ganger::Server::start(&scratch.directory("ganger")?).await?;
        programs::measure(&server, &scratch.directory("programs")?, &mut report).await?;
    }
    ganger::measure_http(&scratch.directory("http")?, &mut report)?;
    ganger::measure_grpc(&scratch.directory("grpc")?, &mut report)?;
    if exists("redis-server") {
        let directory = scratch.directory("redis")?;
        let server = redis::Server::start(&directory);
        measure_peer("redis", server, &mut report).await;
    }
    if let Some(programs) = postgres::programs() {
        let directory = scratch.directory("postgres")?;
        let server = postgres::Server::start(&programs, &directory);
        measure_peer("postgres", server, &mut report).await;
    }
    if exists("beanstalkd") {
        let directory = scratch.directory("beanstalkd")?;
        let server = beanstalkd::Server::start(&directory);
        measure_peer("beanstalkd", server, &mut report).await;
    }
    report.print();
    Ok(())
}

/// A peer that fails leaves holes in the table; what was measured of the others stays.
async fn measure_peer(name: &str, server: Result<impl BlockingPeer>, report: &mut Report) {
    let measured = match server {
        Ok(server) => load::measure(name, server, report).await,
        Err(error) => Err(error),
    };
    if let Err(error) = measured {
        println!("  {name} is left out from here: {error:#}");
    }
}
