//! Measures the dashboard of a server with many jobs: how long each page takes, how large it is, and what ten open pages
//! cost the queue.
//!
//! The variable `GANGER_BIN` names another program than `target/release/ganger`.

mod pages;
mod seed;
mod viewers;

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench_peers::scratch::{Process, Scratch, free_address};
use crate::http::{Answer, Server};
use crate::process::{OPTIMISED, root, start_optimised};

pub(crate) const USAGE: &str = "\
usage: cargo xtask bench-dashboard [--live N] [--finished N] [--queues N] [--graph N] [--no-load]

  --live N      jobs that wait, 1000000 by default
  --finished N  jobs that have ended, 1000000 by default
  --queues N    queues that they are spread over, 1000 by default
  --graph N     jobs of the largest graph, 1000000 by default; 0 leaves it out
  --no-load     only the pages, not the load beside ten open ones";

/// Sizes of what the server is filled with, and whether the load is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) live: usize,
    pub(crate) finished: usize,
    pub(crate) queues: usize,
    pub(crate) graph: usize,
    has_load: bool,
}

impl Plan {
    fn read(arguments: &[&str]) -> Result<Self> {
        let mut plan = Self {
            live: 1_000_000,
            finished: 1_000_000,
            queues: 1_000,
            graph: 1_000_000,
            has_load: true,
        };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let place = match *option {
                "--live" => &mut plan.live,
                "--finished" => &mut plan.finished,
                "--queues" => &mut plan.queues,
                "--graph" => &mut plan.graph,
                "--no-load" => {
                    plan.has_load = false;
                    continue;
                }
                _ => bail!("{option} is not an option\n\n{USAGE}"),
            };
            let value = rest
                .next()
                .with_context(|| format!("{option} needs a number"))?;
            *place = value
                .parse()
                .with_context(|| format!("{option}: {value}"))?;
        }
        ensure!(plan.queues > 0, "--queues must be 1 or more");
        Ok(plan)
    }
}

/// Starts a server, fills it, measures it, and prints tables in Markdown.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [OPTIMISED, rest @ ..] => measure(Plan::read(rest)?),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        rest if env::var_os("GANGER_BIN").is_some() => measure(Plan::read(rest)?),
        rest => {
            Plan::read(rest)?;
            start_optimised("bench-dashboard", rest)
        }
    }
}

/// The program that is measured.
pub(crate) fn program() -> PathBuf {
    let named = env::var_os("GANGER_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| root().join("target/release/ganger"))
}

fn measure(plan: Plan) -> Result<()> {
    let scratch = Scratch::new()?;
    let directory = scratch.directory("server")?;
    let address = free_address()?;
    let mut command = Command::new(program());
    command
        .args(["server", "--addr", &address.to_string(), "--db"])
        .arg(directory.join("jobs.db"))
        // A graph of a million jobs is larger than what a server takes in one request unless it is told to.
        .args(["--set", "limits.graph_bytes=512MiB"])
        .args(["--set", "limits.bytes_in_flight=4GiB"]);
    let process = Process::start(&mut command, &directory, address)?;
    let server = Server { address };
    server.until_ready()?;
    let graphs = seed::fill(&server, plan)?;
    println!(
        "{} live and {} finished jobs in {} queues, in {:.1} s\n",
        plan.live,
        plan.finished,
        plan.queues,
        graphs.took.as_secs_f64()
    );
    pages::measure(&server, &graphs)?;
    if plan.has_load {
        viewers::measure(&server, process.id())?;
    }
    Ok(())
}
