//! The program as people and scripts use it: a command with its arguments and variables, and a worker that runs beside.

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

/// Variables of the one who runs the tests, which must not get in.
const INHERITED_VARIABLES: [&str; 6] = [
    "GANGER_CONFIG",
    "GANGER_URL",
    "GANGER_NAMESPACE",
    "GANGER_TOKEN",
    "GANGER_TOKEN_FILE",
    "NOTIFY_SOCKET",
];

/// `ganger` with these arguments and variables.
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

/// Runs it to its end, whatever that is.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Output> {
    let output = command(arguments, variables).output();
    output.with_context(|| format!("cannot run ganger {arguments:?}"))
}

/// Runs it; what it prints, if it ends well.
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

/// All that it has said.
pub fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A worker; killed when dropped.
#[derive(Debug)]
pub struct Worker(Child);

impl Worker {
    /// Starts one that runs the programs of a directory; its words go into `log`.
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
            .context("the worker cannot be started")?;
        Ok(Self(child))
    }

    /// Process id of the command.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to stop, and waits for its end.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        wait_for("the end of the worker", || Ok(self.0.try_wait()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes programs into a new directory of this name.
pub fn write_programs(directory: &Path, programs: &[(&str, &str)]) -> Result<PathBuf> {
    fs::create_dir(directory)?;
    for (name, text) in programs {
        let path = directory.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(directory.to_owned())
}

/// Asks again until there is something; `what` is for the error if it never comes.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask()? {
            return Ok(found);
        }
        ensure!(begun.elapsed() < TIMEOUT * 3, "{what} has not come");
        thread::sleep(std::time::Duration::from_millis(20));
    }
}
