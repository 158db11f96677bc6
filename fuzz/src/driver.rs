//! Runs a target on the stable toolchain: first the saved inputs, then mutations of them, for some seconds.
//!
//! Without coverage feedback this finds less than libFuzzer, which runs the same functions on a nightly toolchain
//! (`cargo fuzz run --features libfuzzer submission`). It finds simple bugs within seconds, on any machine and in CI.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::Target;
use crate::mutation::Mutator;

/// Default length of a search in seconds.
const SECONDS: u64 = 10;
const USAGE: &str =
    "usage: ganger-fuzz TARGET [--seconds N | --runs N] [--seed S] | ganger-fuzz TARGET FILE...";

/// The `main` function of the driver. Arguments are the name of a target, then `--seconds N` or `--runs N` and
/// `--seed S`, or files on which to run the target once. A search starts from the saved inputs and the target's seeds.
/// The same seed and number of runs give the same inputs on every machine.
pub fn main(targets: &[Target]) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(target) = targets.iter().find(|target| target.name == name) else {
        let names: Vec<&str> = targets.iter().map(|target| target.name).collect();
        let names = names.join(", ");
        eprintln!("error: {name:?} is not a fuzz target, use one of {names}\n{USAGE}");
        return ExitCode::FAILURE;
    };
    match parse(arguments) {
        Ok(Task::Files(files)) => run_files(&files, target.run),
        Ok(Task::Search { limit, seed }) => search(target, limit, seed),
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

enum Task {
    Files(Vec<PathBuf>),
    Search { limit: SearchLimit, seed: u64 },
}

/// The limit of a search.
#[derive(Clone, Copy)]
enum SearchLimit {
    Seconds(u64),
    Runs(u64),
}

impl SearchLimit {
    fn is_reached(self, begun: Instant, runs: u64) -> bool {
        match self {
            Self::Seconds(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
            Self::Runs(limit) => runs >= limit,
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Task, String> {
    let (mut limit, mut seed) = (SearchLimit::Seconds(SECONDS), None);
    let mut files = Vec::new();
    while let Some(argument) = arguments.next() {
        let mut number = |name: &str| {
            let text = arguments
                .next()
                .ok_or_else(|| format!("{name} needs a number"))?;
            text.parse::<u64>()
                .map_err(|error| format!("{name} {text:?}: {error}"))
        };
        match argument.as_str() {
            "--seconds" => limit = SearchLimit::Seconds(number("--seconds")?),
            "--runs" => limit = SearchLimit::Runs(number("--runs")?),
            "--seed" => seed = Some(number("--seed")?),
            file => files.push(PathBuf::from(file)),
        }
    }
    if !files.is_empty() {
        return Ok(Task::Files(files));
    }
    // A new seed each time tries new inputs each time. The seed is printed so that a run can be repeated.
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| u64::from(now.subsec_nanos()) ^ now.as_secs())
    });
    Ok(Task::Search { limit, seed })
}

fn run_files(files: &[PathBuf], target: fn(&[u8])) -> ExitCode {
    for file in files {
        match fs::read(file) {
            Ok(input) => target(&input),
            Err(error) => {
                eprintln!("error: cannot read {}: {error}", file.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn search(target: &Target, limit: SearchLimit, seed: u64) -> ExitCode {
    let name = target.name;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = read_corpus(&directory.join("corpus").join(name));
    corpus.extend((target.seeds)());
    let mut mutator = Mutator::new(seed, corpus.clone());
    let begun = Instant::now();
    let mut inputs = corpus.into_iter();
    let mut runs = 0_u64;
    loop {
        let input = inputs.next().unwrap_or_else(|| mutator.next_input());
        runs += 1;
        if panic::catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            let path = save_crash(directory, name, &input);
            eprintln!(
                "target {name} panicked in run {runs} with seed {seed}; the input is kept: {path}"
            );
            return ExitCode::FAILURE;
        }
        if limit.is_reached(begun, runs) {
            break;
        }
    }
    eprintln!(
        "target {name}: {runs} inputs in {:.1} s, seed {seed}, nothing found",
        begun.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// Returns the saved inputs of a target, in order of their file names.
fn read_corpus(directory: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| fs::read(path).ok())
        .collect()
}

/// Saves an input on which the target panicked; returns its path.
fn save_crash(directory: &Path, name: &str, input: &[u8]) -> String {
    let directory = directory.join("artifacts").join(name);
    let path = directory.join(format!("crash-{}", input.len()));
    let written = fs::create_dir_all(&directory).and_then(|()| fs::write(&path, input));
    match written {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("(not written: {error}) {input:?}"),
    }
}
