//! Runs the simulator from the command line: one seed, a range of seeds, a tape, or the planted bugs.

#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::process::ExitCode;
use std::time::Instant;

use ganger_sim::{Recording, Tape, campaign, hunt, run, shrink};

const USAGE: &str = "usage: ganger-sim [--level 1|2|3|4] [--planted N] [--threads N] [--shrink] [--whole] \
    (--seed N | --seeds A..B | --tape FILE | --hunt SEEDS)";

struct Options {
    level: u8,
    planted: u32,
    threads: u64,
    shrink: bool,
    /// Print the whole log of the run, in full.
    whole: bool,
    mode: Mode,
}

enum Mode {
    Seed(u64),
    Seeds(std::ops::Range<u64>),
    Tape(String),
    Hunt(u64),
}

fn main() -> ExitCode {
    let Some(options) = read(std::env::args().skip(1)) else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    let all_well = match &options.mode {
        Mode::Seed(seed) => one(&options, &Tape::draw(*seed, options.level, options.planted)),
        Mode::Tape(path) => {
            match std::fs::read_to_string(path).map_err(|error| error.to_string()) {
                Ok(text) => match Tape::parse(&text) {
                    Ok(tape) => one(&options, &tape),
                    Err(why) => fails(&format!("{path}: {why}")),
                },
                Err(why) => fails(&format!("{path}: {why}")),
            }
        }
        Mode::Seeds(seeds) => many(&options, seeds.clone()),
        Mode::Hunt(seeds) => planted(options.level, *seeds),
    };
    if all_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut options = Options {
        level: 1,
        planted: 0,
        threads: u64::try_from(threads).ok()?,
        shrink: false,
        whole: false,
        mode: Mode::Seeds(0..0),
    };
    let mut has_mode = false;
    while let Some(word) = words.next() {
        let mut value = || words.next();
        match word.as_str() {
            "--level" => options.level = value()?.parse().ok()?,
            "--planted" => options.planted = value()?.parse().ok()?,
            "--threads" => options.threads = value()?.parse().ok()?,
            "--shrink" => options.shrink = true,
            "--whole" => options.whole = true,
            "--seed" => options.mode = Mode::Seed(value()?.parse().ok()?),
            "--tape" => options.mode = Mode::Tape(value()?),
            "--hunt" => options.mode = Mode::Hunt(value()?.parse().ok()?),
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..")?;
                options.mode = Mode::Seeds(from.parse().ok()?..to.parse().ok()?);
            }
            _ => return None,
        }
        has_mode |= matches!(word.as_str(), "--seed" | "--seeds" | "--tape" | "--hunt");
    }
    has_mode.then_some(options)
}

fn fails(why: &str) -> bool {
    println!("{why}");
    false
}

fn one(options: &Options, tape: &Tape) -> bool {
    let recording = Recording {
        log: true,
        deep: options.whole,
    };
    let tape = if options.shrink {
        shrink(tape)
    } else {
        tape.clone()
    };
    let outcome = run(&tape, recording);
    for line in &outcome.log {
        println!("{line}");
    }
    println!(
        "hash {:016x}, {} events, {} s simulated, {} steps{}",
        outcome.hash,
        outcome.events,
        outcome.simulated_micros / 1_000_000,
        tape.len(),
        if outcome.is_void { ", void" } else { "" }
    );
    let Some(violation) = outcome.violation else {
        return true;
    };
    println!("\nviolation of {violation}\n");
    if options.shrink {
        println!("{}", tape.to_text());
    }
    false
}

fn many(options: &Options, seeds: std::ops::Range<u64>) -> bool {
    let begun = Instant::now();
    let report = campaign(seeds, options.level, options.threads);
    let elapsed = begun.elapsed();
    let millis = u64::try_from(elapsed.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    for (seed, violation) in report.failures.iter().take(20) {
        println!("seed {seed}: violation of {violation}");
        println!(
            "  replay: cargo xtask sim --level {} --seed {seed} --shrink",
            options.level
        );
    }
    println!("{}", report.goals_text());
    println!(
        "{} runs, {} failed, {} void, {} events, {} events/s on each of {} threads, {} h simulated, {} s",
        report.runs,
        report.failures.len(),
        report.void,
        report.events,
        report.events.saturating_mul(1_000) / millis / options.threads.max(1),
        options.threads,
        report.simulated_micros / 3_600_000_000,
        elapsed.as_secs(),
    );
    report.failures.is_empty()
}

fn planted(level: u8, seeds: u64) -> bool {
    let mut all_found = true;
    for hunt in hunt(level, seeds) {
        match &hunt.found {
            Some((seeds, violation)) => {
                let first = violation.lines().next().unwrap_or_default();
                println!(
                    "planted {:>2}: found after {seeds} seeds: {}: {first}",
                    hunt.bug, hunt.what
                );
            }
            None => {
                all_found = false;
                println!("planted {:>2}: NOT FOUND: {}", hunt.bug, hunt.what);
            }
        }
    }
    all_found
}
