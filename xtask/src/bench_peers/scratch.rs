//! Temporary directories, server processes that end with this program, and free ports.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::{output, shown};

/// A temporary directory, removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let path = output(Command::new("mktemp").arg("-d"))?;
        let path = PathBuf::from(path.trim());
        // Servers that do not run as root must be able to reach their own directories in it.
        output(Command::new("chmod").arg("755").arg(&path))?;
        Ok(Self(path))
    }

    /// Creates a directory in it.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The system clears its temporary directory if this fails.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server process, stopped when dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a server with its output in a file of the directory, and waits until it listens at `address`.
    pub(crate) fn start(
        command: &mut Command,
        directory: &Path,
        address: SocketAddr,
    ) -> Result<Self> {
        let log = fs::File::create(directory.join("log.txt"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start `{}`", shown(command)))?;
        let mut process = Self(child);
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = process.0.try_wait()? {
                let text = fs::read_to_string(directory.join("log.txt"))?;
                bail!("`{}` ended with {status}:\n{text}", shown(command));
            }
            if begun.elapsed() > Duration::from_secs(30) {
                bail!("`{}` does not listen at {address}", shown(command));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(process)
    }
}

impl Process {
    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM first, with which PostgreSQL ends its children.
        let _ = Command::new("kill")
            .args(["-INT", &self.0.id().to_string()])
            .status();
        for _ in 0..200 {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a loopback address that is free at the moment.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
