//! Installs published client libraries of other systems as their users do.
//!
//! Each is installed once, below `target/clients`. Callers skip tests if the installation fails, for example without a
//! network.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Packages of the Python tests: the only published release line of redis-work-queue, with the newest redis-py.
const PYTHON: &[&str] = &["redis==8.*", "redis-work-queue==0.1.5"];
/// qless-py with an older redis-py, which uses RESP2 by default.
const QLESS_OLD: &[&str] = &["redis==5.2.1", "qless-py==0.11.4"];
/// qless-py with the newest redis-py, which uses RESP3.
const QLESS: &[&str] = &["redis==8.*", "qless-py==0.11.4"];
/// The fork of qless-py from which reqless developed.
const QLESS_WITH_THROTTLES: &[&str] = &["redis==8.*", "qless-with-throttles==0.11.4"];
/// The last published release of reqless whose calls are those of qless.
const REQLESS: &[&str] = &["redis==8.*", "reqless==0.13.3"];
/// RQ and the other packages of QuantumLeap's tasks, in the versions that it uses.
const RQ: &[&str] = &[
    "redis==5.2.1",
    "rq==1.15.1",
    "pydantic==1.10.*",
    "geojson==2.5.0",
    "pg8000==1.23.0",
];
/// Packages of the Node tests.
const NODE: &[&str] = &["@mevitae/redis-work-queue@0.1.5", "ioredis@5"];

/// Returns a Python with redis-work-queue.
pub fn python() -> Result<Command> {
    program_of("python", PYTHON, "redis_work_queue", "python")
}

/// Returns a Python with RQ.
pub fn rq() -> Result<Command> {
    program_of("rq", RQ, "rq, pydantic, geojson, pg8000", "python")
}

/// A published client of qless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qless {
    /// qless-py over an older redis-py.
    Old,
    /// qless-py over the newest redis-py.
    New,
    /// The Python package qless-with-throttles.
    Throttles,
    /// The Ruby gem reqless.
    Reqless,
}

impl Qless {
    /// All variants, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Old, Self::New, Self::Throttles, Self::Reqless];

    /// Returns the name of the Python module.
    pub fn name(self) -> &'static str {
        match self {
            Self::Old | Self::New | Self::Throttles => "qless",
            Self::Reqless => "reqless",
        }
    }

    /// Returns a Python with the client.
    pub fn python(self) -> Result<Command> {
        self.program("python")
    }

    /// Returns the client's worker program.
    pub fn worker(self) -> Result<Command> {
        self.program(match self {
            Self::Old | Self::New | Self::Throttles => "qless-py-worker",
            Self::Reqless => "reqless-py-worker",
        })
    }

    fn program(self, program: &str) -> Result<Command> {
        let (name, packages) = match self {
            Self::Old => ("qless-old", QLESS_OLD),
            Self::New => ("qless", QLESS),
            Self::Throttles => ("qless-with-throttles", QLESS_WITH_THROTTLES),
            Self::Reqless => ("reqless", REQLESS),
        };
        program_of(name, packages, self.name(), program)
    }
}

/// Returns a program of a Python environment with these packages, which must provide `module`.
fn program_of(name: &str, packages: &[&str], module: &str, program: &str) -> Result<Command> {
    let directory = install_once(name, packages, |directory| {
        run(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
        run(Command::new(directory.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(packages))?;
        // A library may be too old for this version of Python.
        run(Command::new(directory.join("bin/python")).args(["-c", &format!("import {module}")]))
    })?;
    Ok(Command::new(directory.join("bin").join(program)))
}

/// Returns a Node with redis-work-queue.
pub fn node() -> Result<Command> {
    let directory = install_once("node", NODE, |directory| {
        fs::create_dir_all(directory)?;
        fs::write(directory.join("package.json"), "{\"private\": true}")?;
        run(Command::new("npm")
            .current_dir(directory)
            .args(["install", "--silent", "--no-audit", "--no-fund"])
            .args(NODE))
    })?;
    let mut command = Command::new("node");
    command.env("NODE_PATH", directory.join("node_modules"));
    Ok(command)
}

/// Returns a script that drives a browser, such as `dashboard.mjs`, with the library versions of its lock file.
pub fn browser(script: &str) -> Result<Command> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
    let lock = fs::read_to_string(source.join("package-lock.json"))?;
    let directory = install_once("browser", &[&lock], |directory| {
        fs::create_dir_all(directory)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(source.join(file), directory.join(file))?;
        }
        // The browser is Debian's.
        run(Command::new("npm")
            .current_dir(directory)
            .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
            .args(["ci", "--silent", "--no-audit", "--no-fund"]))
    })?;
    // Modules are found beside the scripts that name them. Tests that run side by side share the folder.
    for file in ["kit.mjs", script] {
        let copy = tempfile::NamedTempFile::new_in(&directory)?;
        fs::copy(source.join(file), copy.path())?;
        copy.persist(directory.join(file))?;
    }
    let mut command = Command::new("node");
    command.arg(directory.join(script));
    Ok(command)
}

/// Returns the program that uses redis-work-queue for Rust. Its arguments are the port and an optional prefix.
pub fn rust() -> Result<Command> {
    let source = script("rust");
    let directory = clients_directory()?.join("rust");
    // Cargo does nothing if nothing has changed, and runs one build at a time.
    run(
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(&source)
            .env("CARGO_TARGET_DIR", &directory)
            .args(["build", "--quiet", "--locked"]),
    )?;
    Ok(Command::new(directory.join("debug/lives")))
}

fn clients_directory() -> Result<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients");
    fs::create_dir_all(&directory)?;
    Ok(directory.canonicalize()?)
}

/// Returns the path of a script in `clients/`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

/// Returns the directory with these packages. Installs them if the directory is missing or has other packages.
fn install_once(
    name: &str,
    packages: &[&str],
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let directory = clients_directory()?;
    // Concurrent tests wait for the one that installs.
    let lock = File::create(directory.join(format!("{name}.lock")))?;
    lock.lock()?;
    let (directory, stamp) = (
        directory.join(name),
        directory.join(format!("{name}.stamp")),
    );
    let wanted = packages.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(directory);
    }
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    install(&directory)?;
    fs::write(&stamp, wanted)?;
    Ok(directory)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
