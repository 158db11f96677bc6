//! Runs faults of every kind against a cluster under load: `cargo xtask chaos`.

#![expect(
    clippy::print_stdout,
    reason = "a tool for the terminal: what it prints is its result"
)]

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::chaos::{Case, Databases, Options, all_cases, describe, pairs, run};
use ganger_e2e::random::Random;

const USAGE: &str = "\
Hits a cluster of three nodes under load with one fault after the other, and checks what its clients observed.

usage: cargo xtask chaos [OPTIONS]

  --only TEXT    only cases whose description contains this; repeat it for several words
  --rounds N     so many cases, of all in a random order; without it, every case once
  --pairs N      instead, so many cases of two faults at once, chosen at random from these cases
  --standbys N   standbys of the database for which commits wait: 0, 1 or 2 (2)
  --pooler       reach the database through pgbouncer
  --disks        give each server of the database a disk of its own, which can be full: needs root
  --seed N       choices and load of an earlier run
  --list         only list the cases";

/// What the command line asks for.
#[derive(Default)]
struct Wanted {
    only: Vec<String>,
    rounds: Option<usize>,
    pairs: Option<usize>,
    standbys: Option<usize>,
    has_pooler: bool,
    has_disks: bool,
    seed: Option<u64>,
    is_list: bool,
}

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
    let Some(wanted) = Wanted::read(std::env::args().skip(1))? else {
        println!("{USAGE}");
        return Ok(());
    };
    let seed = match wanted.seed {
        Some(seed) => seed,
        None => u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()),
    };
    let standbys = wanted.standbys.unwrap_or(2);
    let databases = Databases {
        standbys,
        confirming: standbys,
        has_pooler: wanted.has_pooler,
        has_disks: wanted.has_disks,
    };
    let mut cases = all_cases(databases);
    cases.retain(|case| {
        wanted
            .only
            .iter()
            .all(|text| case.to_string().contains(text))
    });
    ensure!(
        !cases.is_empty(),
        "no case is described so; --list lists all"
    );
    if let Some(count) = wanted.pairs {
        cases = pairs(&cases, count, &mut Random::new(seed));
        ensure!(!cases.is_empty(), "no case has a node as its target");
    }
    if wanted.is_list {
        for case in &cases {
            println!("{case}");
        }
        return Ok(());
    }
    if wanted.pairs.is_none() {
        shuffle(&mut cases, seed);
    }
    cases.truncate(wanted.rounds.unwrap_or(cases.len()));
    println!("{} rounds, {standbys} standbys, seed {seed}", cases.len());
    let options = Options {
        test: "chaos".to_owned(),
        seed,
        databases,
        cases,
    };
    let Some(report) = run(&options, |round| println!("{}", describe(round)))? else {
        bail!("it cannot run here");
    };
    let done = report
        .rounds
        .iter()
        .filter(|round| round.void.is_none())
        .count();
    let moved = report.rounds.iter().filter(|round| round.has_moved).count();
    println!(
        "{done} of {} rounds done, {moved} with another owner; {:?}",
        report.rounds.len(),
        report.counts
    );
    Ok(())
}

impl Wanted {
    /// Reads the arguments; `None` if they ask for help.
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let mut wanted = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .with_context(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--only" => wanted.only.push(value()?),
                "--rounds" => wanted.rounds = Some(value()?.parse()?),
                "--pairs" => wanted.pairs = Some(value()?.parse()?),
                "--standbys" => wanted.standbys = Some(value()?.parse()?),
                "--seed" => wanted.seed = Some(value()?.parse()?),
                "--pooler" => wanted.has_pooler = true,
                "--disks" => wanted.has_disks = true,
                "--list" => wanted.is_list = true,
                "--help" | "-h" => return Ok(None),
                _ => bail!("{argument:?} is no option\n\n{USAGE}"),
            }
        }
        ensure!(
            wanted.standbys.is_none_or(|standbys| standbys <= 2),
            "--standbys is 0, 1 or 2"
        );
        Ok(Some(wanted))
    }
}

fn shuffle(cases: &mut [Case], seed: u64) {
    let mut random = Random::new(seed);
    cases.sort_by_cached_key(|_| random.draw());
}
