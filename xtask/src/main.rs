//! Development tools: `cargo xtask tidy`, `ci`, `dependencies`, `features`, `sim`, `powercut`, `fuzz`, `abuse`, `chaos`,
//! `bench-cluster`, `bench-failover`, `bench-dashboard`, `bench-peers`, `bench-redis`, `bench-quantumleap`.
//!
//! Each tool is a module that runs other programs and reads files; no part of the product depends on them.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "a tool for the terminal: what it prints is its result"
)]

mod abuse;
mod bench_cluster;
mod bench_dashboard;
mod bench_failover;
mod bench_peers;
mod bench_quantumleap;
mod bench_redis;
mod ci;
mod dependencies;
mod features;
mod http;
mod process;
mod tidy;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
House tools of ganger.

usage: cargo xtask COMMAND

  tidy           compare the sources with the house rules: arrows between crates, sizes, words, error codes
  ci             everything that CI does: format, lints, documents, tidy, simulator, fuzzing, all tests
  dependencies   check licences, versions, sources and advisories of the libraries with cargo-deny, where it is installed
  features [--tests]
                 check and lint the program with none of its optional parts, and with each alone; run the tests of
                 the Redis port without qless
  sim [ARGS]     run the simulator: `--seed N` replays one run; `--help` tells the rest
  powercut [ARGS]
                 cut the power under the store: `--depth N` every short run, `--seeds A..B` long ones, `--hunt` planted bugs
  fuzz [ARGS]    run every fuzz target on the stable toolchain: [--seconds N | --runs N] [--seed S], 10 seconds
                 each and a new seed unless said otherwise
  abuse [ATTACK] attack a server over its ports, and measure its memory, its health and the calls of others
  chaos [OPTIONS]
                 hit a cluster over PostgreSQL under load with every fault at every moment; `--help` tells the options
  bench-peers [OPTIONS]
                 measure ganger beside Redis, PostgreSQL, beanstalkd and a bare server, in one run on this machine;
                 `--help` tells the options
  bench-cluster [OPTIONS]
                 measure a shard in PostgreSQL, without and with a synchronous standby, beside one in a file; `--help`
                 tells the options
  bench-failover [OPTIONS]
                 measure how long a killed node, restarts in turn and a promoted standby stop a cluster over PostgreSQL,
                 and whether jobs are lost then; `--help` tells the options
  bench-dashboard [OPTIONS]
                 measure the pages of the dashboard with millions of jobs, and the load beside ten open pages
  bench-redis    measure the Redis port beside Redis with published clients and the script of qless
  bench-quantumleap
                 measure notifications taken and rows inserted, beside what PostgreSQL itself takes";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let Some((command, rest)) = arguments.split_first() else {
        bail!("no command given\n\n{USAGE}");
    };
    match (command.as_str(), rest) {
        ("tidy", []) => tidy::run(),
        ("ci", []) => ci::run(),
        ("dependencies", []) => dependencies::check(),
        ("features", rest) => features::run(rest),
        ("sim", rest) => ci::simulate(rest),
        ("powercut", rest) => ci::cut_power(rest),
        ("fuzz", rest) => ci::fuzz(rest),
        ("abuse", rest) => abuse::run(rest),
        ("chaos", rest) => ci::chaos(rest),
        (bench_peers::bare::COMMAND, rest) => bench_peers::bare::serve(rest),
        ("bench-peers", rest) => bench_peers::run(rest),
        ("bench-cluster", rest) => bench_cluster::run(rest),
        ("bench-failover", rest) => bench_failover::run(rest),
        ("bench-dashboard", rest) => bench_dashboard::run(rest),
        ("bench-redis", rest) => bench_redis::run(rest),
        ("bench-quantumleap", rest) => bench_quantumleap::run(rest),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(())
        }
        (command, _) => {
            bail!("`{command}` is not a command, or does not accept these arguments\n\n{USAGE}")
        }
    }
}
