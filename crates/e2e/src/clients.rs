//! Published client libraries of other systems, installed as their users install them.
//!
//! Under `target/clients`, once; what cannot be installed here (no network, no program) is said by the caller.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// What Python's tests import: the registry's only release line of the library, with the newest library below it.
const PYTHON: &[&str] = &["redis==8.*", "redis-work-queue==0.1.5"];
/// qless with the library of Redis of its time's successors, which speaks RESP2 unless told otherwise.
const QLESS_OLD: &[&str] = &["redis==5.2.1", "qless-py==0.11.4"];
/// With the newest one, which speaks RESP3.
const QLESS: &[&str] = &["redis==8.*", "qless-py==0.11.4"];
/// qless with throttles, from which reqless came.
const QLESS_WITH_THROTTLES: &[&str] = &["redis==8.*", "qless-with-throttles==0.11.4"];
/// reqless, as the registry has it last of those that speak as qless does.
const REQLESS: &[&str] = &["redis==8.*", "reqless==0.13.3"];
/// RQ and what else QuantumLeap's tasks are made of, in the versions that it uses.
const RQ: &[&str] = &[
    "redis==5.2.1",
    "rq==1.15.1",
    "pydantic==1.10.*",
    "geojson==2.5.0",
    "pg8000==1.23.0",
];
/// What Node's tests import.
const NODE: &[&str] = &["@mevitae/redis-work-queue@0.1.5", "ioredis@5"];

/// A Python that has the libraries.
pub fn python() -> Result<Command> {
    program_of("python", PYTHON, "redis_work_queue", "python")
}

/// A Python that has RQ.
pub fn rq() -> Result<Command> {
    program_of("rq", RQ, "rq, pydantic, geojson, pg8000", "python")
}

/// A published client of qless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qless {
    /// qless-py over an older library of Redis.
    Old,
    /// qless-py over the newest one.
    New,
    /// The variant called qless-with-throttles.
    Throttles,
    /// The variant called reqless.
    Reqless,
}

impl Qless {
    /// All variants, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Old, Self::New, Self::Throttles, Self::Reqless];

    /// What its scripts import.
    pub fn name(self) -> &'static str {
        match self {
            Self::Old | Self::New | Self::Throttles => "qless",
            Self::Reqless => "reqless",
        }
    }

    /// A Python that has it.
    pub fn python(self) -> Result<Command> {
        self.program("python")
    }

    /// The program that runs workers.
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

/// A program of an environment of Python with these packages, which bring a module.
fn program_of(name: &str, packages: &[&str], module: &str, program: &str) -> Result<Command> {
    let directory = installed(name, packages, |directory| {
        run(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
        run(Command::new(directory.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(packages))?;
        // A library may be too old for the language's newest version.
        run(Command::new(directory.join("bin/python")).args(["-c", &format!("import {module}")]))
    })?;
    Ok(Command::new(directory.join("bin").join(program)))
}

/// A Node that has the libraries.
pub fn node() -> Result<Command> {
    let directory = installed("node", NODE, |directory| {
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

/// The script that drives a browser, with the versions of its libraries that its lock file names.
pub fn browser() -> Result<Command> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
    let lock = fs::read_to_string(source.join("package-lock.json"))?;
    let directory = installed("browser", &[&lock], |directory| {
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
    // Modules are found beside the script that names them.
    let script = directory.join("dashboard.mjs");
    fs::copy(source.join("dashboard.mjs"), &script)?;
    let mut command = Command::new("node");
    command.arg(script);
    Ok(command)
}

/// The program that uses the library for Rust, with the port and the prefix as its arguments.
pub fn rust() -> Result<Command> {
    let source = script("rust");
    let directory = all()?.join("rust");
    // Cargo does nothing where nothing has changed, and lets one build at a time.
    run(
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(&source)
            .env("CARGO_TARGET_DIR", &directory)
            .args(["build", "--quiet", "--locked"]),
    )?;
    Ok(Command::new(directory.join("debug/lives")))
}

fn all() -> Result<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients");
    fs::create_dir_all(&all)?;
    Ok(all.canonicalize()?)
}

/// A program of these tests.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

/// The directory with these packages: made again if it is not there, or was made for others.
fn installed(
    name: &str,
    packages: &[&str],
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let all = all()?;
    // Tests run side by side; one installs, the others wait.
    let lock = File::create(all.join(format!("{name}.lock")))?;
    lock.lock()?;
    let (directory, stamp) = (all.join(name), all.join(format!("{name}.stamp")));
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
