//! Runs `ganger` as people and scripts do: commands with arguments and variables, and workers in the background.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt as _;

use crate::binary::ganger;
use crate::server::TIMEOUT;

/// Variables of the user who runs the tests that commands must not inherit.
const INHERITED_VARIABLES: [&str; 6] = [
    "GANGER_CONFIG",
    "GANGER_URL",
    "GANGER_NAMESPACE",
    "GANGER_TOKEN",
    "GANGER_TOKEN_FILE",
    "NOTIFY_SOCKET",
];

/// Creates a `ganger` command with these arguments and variables.
pub fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(ganger());
    for name in INHERITED_VARIABLES {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end; its exit code does not matter.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Output> {
    let output = command(arguments, variables).output();
    output.with_context(|| format!("cannot run ganger {arguments:?}"))
}

/// Runs a command that must succeed; returns its standard output.
pub fn run_successfully(arguments: &[&str], variables: &[(&str, &str)]) -> Result<String> {
    let output = run(arguments, variables)?;
    ensure!(
        output.status.success(),
        "ganger {arguments:?} ended with {}: {}",
        output.status,
        output_text(&output)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns standard output and standard error as text.
pub fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A running worker; killed when dropped.
#[derive(Debug)]
pub struct Worker(Child);

impl Worker {
    /// Starts a worker that runs the programs of a directory. Its output goes to the file `log`.
    pub fn start(
        handlers: &Path,
        log: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let log = File::create(log)?;
        let child = command(&["worker", "--dir"], variables)
            .arg(handlers)
            .args(arguments)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the worker")?;
        Ok(Self(child))
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends SIGTERM and waits for the end of the worker.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        wait_for("the end of the worker", || Ok(self.0.try_wait()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes executable programs, given as name and text, into a new directory.
pub fn write_programs(directory: &Path, programs: &[(&str, &str)]) -> Result<PathBuf> {
    fs::create_dir(directory)?;
    for (name, text) in programs {
        let path = directory.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(directory.to_owned())
}

/// Polls until `ask` returns a value. After 90 s it fails with an error about `what`.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask()? {
            return Ok(found);
        }
        ensure!(
            begun.elapsed() < TIMEOUT * 3,
            "timed out waiting for {what}"
        );
        thread::sleep(std::time::Duration::from_millis(20));
    }
}
