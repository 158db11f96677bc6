//! All steps of CI; the fastest ones that find mistakes come first.
//!
//! Compilation takes most of the time, so everything is compiled once: with one build profile, by clippy as the
//! compiler, and the documents are checked with the same build. The profile optimises the crates in which the
//! simulator and the fuzzer spend their time; the profile `sim`, for longer searches, optimises everything.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{self, built, exists, line, linted, root, shown, words};
use crate::{dependencies, features, tidy};

/// Arguments that build and lint everything that later steps run. Tests are included, so that libraries have the same
/// features in all steps, and none is compiled twice.
const BUILD: &str = "build --workspace --all-targets --locked";
/// Arguments that build the optimised programs for long searches.
const BUILD_OPTIMISED: &str = "build --profile sim --locked --bins -p ganger-cli -p ganger-sim -p ganger-powercut -p ganger-fuzz";
/// Seed of each fuzz target in CI: always the same, so that the same sources have the same result. `cargo xtask fuzz`
/// uses a new seed each time.
const FUZZ_SEED: u64 = 1;
/// Number of inputs that each fuzz target tries in CI.
const FUZZ_RUNS: u64 = 100_000;
/// A target whose inputs take a hundredth of the others' time, and its number of inputs.
const FUZZ_QUICK: (&str, u64) = ("record", 10_000_000);
const SIMULATOR: &str = "ganger-sim";
const FUZZER: &str = "ganger-fuzz";
const POWER_CUTS: &str = "ganger-powercut";

/// Runs every step until one fails, and prints the time of each.
pub(crate) fn run() -> Result<()> {
    let skips = root().join("target").join("skipped-tests.txt");
    fs::create_dir_all(root().join("target"))?;
    fs::write(&skips, "")?;

    let mut steps = Steps::default();
    steps.cargo("format", "fmt --all --check")?;
    steps.step("tidy", "cargo xtask tidy", tidy::run)?;
    steps.step(
        "dependencies",
        "cargo xtask dependencies",
        dependencies::check,
    )?;
    steps.command("build and lints", &mut linted(BUILD)?)?;
    steps.step("features", "cargo xtask features", features::check)?;
    steps.step("fuzzing", "cargo xtask fuzz", fuzz_as_ci)?;
    steps.command(
        "documents and their examples",
        linted("test --workspace --doc --locked")?.env("RUSTDOC", rustdoc_wrapper()),
    )?;
    steps.command(
        "tests",
        test_command()?
            .env("GANGER_BIN", built("debug", "ganger"))
            .env("GANGER_SKIPS", &skips),
    )?;

    println!("\nskipped tests:");
    let skipped = fs::read_to_string(&skips)?;
    println!(
        "{}",
        if skipped.is_empty() {
            "none\n"
        } else {
            &skipped
        }
    );
    if !skipped.is_empty() && is_ci() {
        bail!("CI skips no test: ./test installs what the tests named above need");
    }
    Ok(())
}

/// Runs the simulator with these arguments.
pub(crate) fn simulate(arguments: &[String]) -> Result<()> {
    run_optimised(SIMULATOR, arguments)
}

/// Runs the power cut tests with these arguments.
pub(crate) fn cut_power(arguments: &[String]) -> Result<()> {
    run_optimised(POWER_CUTS, arguments)
}

/// Runs faults against a cluster, with the optimised program unless `GANGER_BIN` names another one.
pub(crate) fn chaos(arguments: &[String]) -> Result<()> {
    process::run(line("run --quiet --package ganger-e2e --example chaos --").args(arguments))
}

/// Runs a program of the optimised profile. It is built together with the others, because alone it would need other
/// features of the libraries, which would all be compiled again.
fn run_optimised(program: &str, arguments: &[String]) -> Result<()> {
    process::run(line(BUILD_OPTIMISED).arg("--quiet"))?;
    process::run(Command::new(built("sim", program)).args(arguments))
}

/// Runs each fuzz target with the same arguments.
pub(crate) fn fuzz(arguments: &[String]) -> Result<()> {
    fuzz_targets()?.iter().try_for_each(|target| {
        println!("{FUZZER} {target} {}", arguments.join(" "));
        let arguments: Vec<String> = [target].into_iter().chain(arguments).cloned().collect();
        run_optimised(FUZZER, &arguments)
    })
}

fn fuzz_as_ci() -> Result<()> {
    for target in fuzz_targets()? {
        let (quick, many) = FUZZ_QUICK;
        let runs = if target == quick { many } else { FUZZ_RUNS };
        let arguments = format!("{target} --seed {FUZZ_SEED} --runs {runs}");
        println!("{FUZZER} {arguments}");
        process::run(Command::new(built("debug", FUZZER)).args(words(&arguments)))?;
    }
    Ok(())
}

/// Returns the names of the fuzz targets: the files in their directory.
fn fuzz_targets() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(root().join("fuzz").join("fuzz_targets"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(
                path.file_stem()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    targets.sort();
    if targets.is_empty() {
        bail!("no fuzz targets found");
    }
    Ok(targets)
}

/// Returns the command that runs all tests: with nextest if it is installed, otherwise with cargo alone.
fn test_command() -> Result<Command> {
    if !exists("cargo-nextest") {
        return linted("test --workspace --all-targets --locked --no-fail-fast");
    }
    let mut command = linted("nextest run --workspace --locked --no-fail-fast")?;
    if is_ci() {
        command.args(["--profile", "ci"]);
    }
    Ok(command)
}

fn is_ci() -> bool {
    env::var_os("CI").is_some()
}

/// Returns the path of a rustdoc that also checks the documents of a crate when cargo runs its examples.
fn rustdoc_wrapper() -> PathBuf {
    root().join("scripts").join("rustdoc-check")
}

/// The steps that have run, with their times.
#[derive(Default)]
struct Steps {
    done: Vec<(String, Duration)>,
}

impl Steps {
    fn cargo(&mut self, name: &str, arguments: &str) -> Result<()> {
        self.command(name, &mut line(arguments))
    }

    fn command(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let line = shown(command);
        self.step(name, &line, || process::run(command))
    }

    fn step(&mut self, name: &str, line: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n=== {name}: {line}");
        let begun = Instant::now();
        let end = work();
        self.done.push((name.to_owned(), begun.elapsed()));
        println!(
            "=== {name}: {}",
            if end.is_ok() { "good" } else { "failed" }
        );
        for (name, time) in &self.done {
            println!("    {:>6.1} s  {name}", time.as_secs_f64());
        }
        end
    }
}
