//! Runs other programs, and finds the project.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Returns the root of the workspace, regardless of the current directory.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Returns the cargo that runs this tool.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Returns a cargo command with these arguments, separated by spaces.
pub(crate) fn line(arguments: &str) -> Command {
    let mut command = cargo();
    command.args(words(arguments));
    command
}

/// Splits a line into words at single spaces.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Returns a cargo command that compiles the crates of the workspace with clippy, with warnings as errors. Commands
/// that share build results must all be made by this function.
pub(crate) fn linted(arguments: &str) -> Result<Command> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let clippy = Path::new(sysroot.trim()).join("bin").join("clippy-driver");
    if !clippy.is_file() {
        bail!("clippy is missing: `rustup component add clippy`");
    }
    let mut command = line(arguments);
    command
        .env("RUSTC_WORKSPACE_WRAPPER", clippy)
        // In the form in which `cargo clippy -- -D warnings` passes it.
        .env(
            "CLIPPY_ARGS",
            "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
        );
    Ok(command)
}

/// Returns the command as it would be typed.
pub(crate) fn shown(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut words = vec![
        program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned(),
    ];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

/// Runs a command with the output of this process; fails if the command fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command; returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be started.
pub(crate) fn exists(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| {
        env::split_paths(&path).any(|directory| directory.join(program).is_file())
    })
}

/// Returns the path of a program that cargo built with a profile.
pub(crate) fn built(profile: &str, program: &str) -> PathBuf {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join(profile).join(program)
}

/// Argument of the optimised build of this tool, which the other build starts for measurements.
pub(crate) const OPTIMISED: &str = "--optimised";

/// Builds the product and this tool with full optimisation, and runs the same command there: a slow load generator
/// would distort the measurement.
pub(crate) fn start_optimised(command: &str, arguments: &[&str]) -> Result<()> {
    run(cargo().args([
        "build",
        "--release",
        "--package",
        "ganger-cli",
        "--bin",
        "ganger",
    ]))?;
    run(cargo()
        .args(["run", "--quiet", "--release", "--package", "xtask", "--"])
        .args([command, OPTIMISED])
        .args(arguments))
}
