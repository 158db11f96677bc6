//! Measures ganger and Redis, PostgreSQL, beanstalkd and a bare server: the same loads, on the same machine, in one run.
//!
//! Every system flushes to the device before it answers: Redis with `appendfsync always`, PostgreSQL as it is installed,
//! beanstalkd with `-f0`. For each load each of them is started with an empty directory on the loopback and stopped again,
//! so that nothing but the load runs; the systems follow one another load by load, and with `--runs` in turn. The crate
//! `ganger-bench` makes all loads: `ganger bench` those of ganger, and this program those of the others, over plain
//! sockets, so that no client library is measured. Only ratios within one run mean anything.

pub(crate) mod bare;
mod beanstalkd;
mod figures;
mod ganger;
mod goals;
mod install;
mod options;
pub(crate) mod postgres;
mod programs;
pub(crate) mod redis;
mod report;
mod row;
pub(crate) mod scratch;
mod system;

use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::process::{OPTIMISED, start_optimised};
use figures::Figures;
pub(crate) use install::peers as install_peers;
use options::{Options, USAGE};
use row::Load;
use scratch::Scratch;
use system::System;

/// Installs what is missing, measures everyone, prints the tables.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        [OPTIMISED, words @ ..] => Runtime::new()?.block_on(measure(&Options::read(words)?)),
        words => {
            let options = Options::read(words)?;
            if options.systems.iter().any(|system| !system.is_there()) {
                install::peers()?;
            }
            start_optimised("bench-peers", words)
        }
    }
}

async fn measure(options: &Options) -> Result<()> {
    let mut figures = Figures::default();
    let systems = options.systems.iter().copied();
    let (mut systems, missing): (Vec<System>, Vec<System>) =
        systems.partition(|system| system.is_there());
    for system in missing {
        println!("{} is left out: it is not installed", system.name());
    }
    for run in 1..=options.runs {
        figures.begin_run();
        for load in &options.loads {
            println!("run {run} of {}: {}", options.runs, load.name());
            for system in &systems {
                // A system that fails leaves a hole in the table; what was measured of the others stays.
                if let Err(error) = measure_one(*load, *system, options, &mut figures).await {
                    println!(
                        "  {}: {} is left out: {error:#}",
                        load.name(),
                        system.name()
                    );
                }
            }
        }
        // Another one is first in the next run.
        systems.rotate_left(1);
    }
    print!("{}", report::report(&figures, &options.loads, options.runs));
    Ok(())
}

/// Measures one load of one system, if it can do it, in a directory of its own.
async fn measure_one(
    load: Load,
    system: System,
    options: &Options,
    figures: &mut Figures,
) -> Result<()> {
    let scratch = Scratch::new()?;
    let time = Duration::from_secs(options.seconds.into());
    match (load, system.api()) {
        (Load::Named(named), None) => {
            let directory = scratch.directory("data")?;
            system.measure(named, time, &directory, figures).await
        }
        (Load::Programs, Some(_)) if system == System::Streams => {
            let server = ganger::Server::start(&scratch.directory("data")?).await?;
            programs::measure(&server, &scratch.directory("programs")?, figures).await
        }
        // These are about the server, however it is reached.
        (Load::Lives | Load::Restart | Load::Memory | Load::Programs, Some(_))
            if system != System::Streams =>
        {
            Ok(())
        }
        (_, Some(api)) => {
            let directory = scratch.directory("data")?;
            ganger::measure(system, api, load, options, &directory, figures)
        }
        (_, None) => Ok(()),
    }
}
