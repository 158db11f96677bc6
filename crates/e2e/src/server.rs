//! Starts, kills and stops the real server as a process.

use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::ganger;
use crate::http::Client;
use crate::ports::free_address;

/// Longest time for a server to become ready or to end.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a client waits for an answer.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

/// The setup of a server, which is the same at every start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Path of the store.
    pub store: PathBuf,
    /// Path of the server's log, to which every start appends.
    pub log: PathBuf,
    /// Address on which the server listens.
    pub address: SocketAddr,
    /// Additional arguments of the command line.
    pub arguments: Vec<String>,
    /// Prefix of the command line, such as a tracer and its arguments.
    pub wrapper: Vec<String>,
    /// Environment variables in addition to those of the test.
    pub variables: Vec<(String, String)>,
}

impl Setup {
    /// Creates the setup of a server with its store in `directory`, on a free loopback port.
    pub fn in_directory(directory: &Path) -> Result<Self> {
        Ok(Self {
            store: directory.join("store.db"),
            log: directory.join("server.log"),
            address: free_address()?,
            arguments: Vec::new(),
            wrapper: Vec::new(),
            variables: Vec::new(),
        })
    }

    /// Starts the server without waiting for it.
    pub fn spawn(&self) -> Result<Server> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let mut words = self.wrapper.iter();
        let mut command = match words.next() {
            Some(program) => Command::new(program),
            None => Command::new(ganger()),
        };
        command.args(words);
        if !self.wrapper.is_empty() {
            command.arg(ganger());
        }
        command
            .args(["server", "--addr", &self.address.to_string(), "--db"])
            .arg(&self.store)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .env_remove("GANGER_CONFIG")
            .env_remove("GANGER_TOKEN")
            .env_remove("NOTIFY_SOCKET")
            .envs(self.variables.iter().cloned());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok(Server {
            child,
            setup: self.clone(),
            has_ended: false,
        })
    }

    /// Starts the server and waits until it is ready.
    pub fn start(&self) -> Result<Server> {
        let mut server = self.spawn()?;
        server.wait_until_ready(TIMEOUT)?;
        Ok(server)
    }

    /// Returns a client of the server.
    pub fn client(&self) -> Client {
        Client::new(self.address, CLIENT_TIMEOUT)
    }

    /// Returns the server's log so far.
    pub fn log_text(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Fails if the log shows a panic.
    pub fn expect_no_panic(&self) -> Result<()> {
        let text = self.log_text();
        ensure!(
            !text.contains("panicked at"),
            "the server panicked:\n{}",
            tail(&text)
        );
        Ok(())
    }

    /// Audits the store at rest with `ganger check`.
    pub fn check(&self) -> Result<()> {
        let output = Command::new(ganger())
            .arg("check")
            .arg(&self.store)
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            output.status.success(),
            "`ganger check` found defects ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// A started server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    setup: Setup,
    has_ended: bool,
}

impl Server {
    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server reports that it is ready.
    pub fn wait_until_ready(&mut self, timeout: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut client = Client::new(self.setup.address, Duration::from_secs(2));
            if let Ok(answer) = client.request("GET", "/readyz", &Value::Null)
                && answer.status == 200
            {
                return Ok(());
            }
            if let Some(status) = self.exit_status()? {
                bail!(
                    "the server ended with {status} before it was ready:\n{}",
                    tail(&self.setup.log_text())
                );
            }
            if begun.elapsed() > timeout {
                bail!(
                    "the server is not ready after {timeout:?}:\n{}",
                    tail(&self.setup.log_text())
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the exit status; `None` while the server runs.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.has_ended |= status.is_some();
        Ok(status)
    }

    /// Waits for the end of the server.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.exit_status()? {
                return Ok(status);
            }
            ensure!(
                begun.elapsed() < timeout,
                "the server has not ended after {timeout:?}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        Ok(kill_process(pid, signal)?)
    }

    /// Kills the server with SIGKILL and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        if !self.has_ended {
            self.child.kill()?;
            let status = self.child.wait()?;
            self.has_ended = true;
            ensure!(
                status.signal() == Some(9) || status.code().is_some(),
                "an unexpected end: {status}"
            );
        }
        Ok(())
    }

    /// Sends SIGTERM and expects a successful exit.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.wait(TIMEOUT)?;
        ensure!(
            status.success(),
            "the server stopped with {status}:\n{}",
            tail(&self.setup.log_text())
        );
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test must not leave a server behind; an error could not be reported here.
        let _ = self.kill();
    }
}

/// Returns the last 30 lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Creates a sparse file of this length.
pub fn sparse_file(path: &Path, bytes: u64) -> Result<()> {
    Ok(File::create(path)?.set_len(bytes)?)
}
