//! The real server as a process: start, wait until it is ready, kill, stop.

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

/// How long a server may take to get ready, or to end, before a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// What a server is started with, the same at every start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the store is.
    pub store: PathBuf,
    /// Where the server's words go, appended start after start.
    pub log: PathBuf,
    /// Address on which the server listens.
    pub address: SocketAddr,
    /// Further arguments of the command line.
    pub arguments: Vec<String>,
    /// Put in front of the program: a tracer and its arguments.
    pub wrapper: Vec<String>,
    /// Variables of its environment.
    pub variables: Vec<(String, String)>,
}

impl Setup {
    /// A server with its store in `directory`, on a free port of the loopback.
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

    /// Starts it, without waiting for anything.
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

    /// Starts it and waits until it is ready.
    pub fn start(&self) -> Result<Server> {
        let mut server = self.spawn()?;
        server.wait_until_ready(TIMEOUT)?;
        Ok(server)
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        Client::new(self.address, Duration::from_secs(20))
    }

    /// What the server has written so far.
    pub fn log_text(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Fails if the server ever panicked.
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
            "`ganger check` found something ({}):\n{}{}",
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
    /// Its process id; the tracer's, if it runs under one.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says that it is ready.
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

    /// How it ended, if it has.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.has_ended |= status.is_some();
        Ok(status)
    }

    /// Waits for its end.
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

    /// Kills it with signal 9 and waits until it is gone.
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

    /// Asks it to stop, and expects that it ends well.
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
        // A test that fails must not leave a server behind; there is nobody left to tell of an error.
        let _ = self.kill();
    }
}

/// The last lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Makes an empty file of a length without filling it.
pub fn sparse_file(path: &Path, bytes: u64) -> Result<()> {
    Ok(File::create(path)?.set_len(bytes)?)
}
