//! Measures ganger, Redis, PostgreSQL and beanstalkd with the same loads, on the same machine, in one run.
//!
//! Every server flushes to the device before it answers: Redis with `appendfsync always`, PostgreSQL with its default
//! settings, beanstalkd with `-f0`. Each runs as a private instance on loopback, with its data in one temporary
//! directory, and is stopped before the next one starts. All loads come from the crate `ganger-bench`: `ganger bench`
//! measures ganger, and this program the peers, over plain sockets, so that no client library is measured. Only ratios
//! within one run are meaningful.

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

/// Installs missing servers, measures all of them, and prints the tables.
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

/// Measures a peer. A failure leaves cells of the table empty and does not affect other peers.
async fn measure_peer(name: &str, server: Result<impl BlockingPeer>, report: &mut Report) {
    let measured = match server {
        Ok(server) => load::measure(name, server, report).await,
        Err(error) => Err(error),
    };
    if let Err(error) = measured {
        println!("  {name} is not measured further: {error:#}");
    }
}
