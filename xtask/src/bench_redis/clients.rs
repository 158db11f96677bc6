//! The published clients as loads: redis-work-queue for Rust, qless for Python.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};

use super::{Figures, Server};
use crate::process::{cargo, output, root, run as run_command};

/// Number of items that redis-work-queue adds and completes.
const ITEMS: usize = 20_000;
/// Number of jobs that qless-py puts and completes.
const JOBS: usize = 2_000;
/// First line of the script, for versions of Redis that protect Lua's libraries, one of which the script extends.
const FIRST_LINE: &str = "local table = setmetatable({}, {__index = table})\n";

fn directory() -> PathBuf {
    root().join("target/clients/bench")
}

/// Installs the Python library, adapts its script, and builds the Rust program.
pub(super) fn install() -> Result<()> {
    let directory = directory();
    if !directory.join("ready").exists() {
        run_command(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
        run_command(Command::new(directory.join("bin/pip")).args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "qless-py==0.11.4",
            "redis==5.*",
            "setuptools<81",
        ]))?;
        let path = script_path()?;
        let text = fs::read_to_string(&path)?;
        fs::write(&path, format!("{FIRST_LINE}{text}"))?;
        fs::write(directory.join("ready"), "")?;
    }
    run_command(
        cargo()
            .current_dir(root().join("crates/e2e/clients/rust"))
            .env("CARGO_TARGET_DIR", directory.join("rust"))
            .args(["build", "--quiet", "--release", "--locked", "--bin", "load"]),
    )
}

fn script_path() -> Result<PathBuf> {
    let program = "import importlib.util as u; print(u.find_spec('qless').origin)";
    let found = output(Command::new(directory().join("bin/python")).args(["-c", program]))?;
    let package = PathBuf::from(found.trim());
    let package = package.parent().context("the library has no directory")?;
    Ok(package.join("qless-core/qless.lua"))
}

/// Returns the script of qless that both servers get.
pub(super) fn script() -> Result<&'static str> {
    static TEXT: OnceLock<String> = OnceLock::new();
    if TEXT.get().is_none() {
        let text = fs::read_to_string(script_path()?)?;
        return Ok(TEXT.get_or_init(|| text));
    }
    Ok(TEXT.get().map_or("", String::as_str))
}

/// Runs both clients against the server.
pub(super) fn measure(name: &'static str, server: &Server, figures: &mut Figures) -> Result<()> {
    let port = server.address.port().to_string();
    for workers in ["1", "4", "16"] {
        let mut command = Command::new(directory().join("rust/release/load"));
        let command = command.args([&port, workers, &ITEMS.to_string()]);
        let mut seconds = Vec::new();
        let row = format!("redis-work-queue, adds in pipelines of 100, then {workers} workers");
        figures.measure(&row, name, server, ITEMS, || {
            seconds = numbers(&output(command)?)?;
            Ok(seconds.iter().sum())
        })?;
    }
    let program = root().join("crates/e2e/clients/qless_load.py");
    figures.measure("qless-py, lives of jobs", name, server, JOBS, || {
        let mut command = Command::new(directory().join("bin/python"));
        command.arg(program).args([&port, &JOBS.to_string()]);
        Ok(numbers(&output(&mut command)?)?.iter().sum())
    })
}

/// Parses the numbers in a line.
fn numbers(line: &str) -> Result<Vec<f64>> {
    let numbers: Vec<f64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("the load printed {line:?}"))?;
    ensure!(!numbers.is_empty(), "the load printed nothing");
    Ok(numbers)
}
