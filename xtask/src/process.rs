//! Running other programs, and finding the project.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the workspace, wherever the tool was called from.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Cargo with these arguments.
pub(crate) fn line(arguments: &str) -> Command {
    let mut command = cargo();
    command.args(words(arguments));
    command
}

/// The words of a line, which single spaces separate.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Cargo with these arguments, compiling our own crates with clippy as the compiler: a warning is an error. Commands
/// that are to share what was built must all be called this way.
pub(crate) fn linted(arguments: &str) -> Result<Command> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let clippy = Path::new(sysroot.trim()).join("bin").join("clippy-driver");
    if !clippy.is_file() {
        bail!("clippy is missing: `rustup component add clippy`");
    }
    let mut command = line(arguments);
    command
        .env("RUSTC_WORKSPACE_WRAPPER", clippy)
        // As `cargo clippy -- -D warnings` hands it on.
        .env(
            "CLIPPY_ARGS",
            "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
        );
    Ok(command)
}

/// The command as one would type it.
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

/// Runs a command with our own output, and fails if it does.
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

/// Runs a command and returns what it printed.
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

/// Where cargo puts what it builds with a profile.
pub(crate) fn built(profile: &str, program: &str) -> PathBuf {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join(profile).join(program)
}

/// Says that a measurement runs in the optimised build of this tool, started by the other one.
pub(crate) const OPTIMISED: &str = "--optimised";

/// Builds the product and this tool with full optimisation and goes on there with the same command: a slow load
/// generator would be what is measured.
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
