//! A temporary directory, servers that die with us, and free ports.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::{output, shown};

/// A directory that is removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let path = output(Command::new("mktemp").arg("-d"))?;
        let path = PathBuf::from(path.trim());
        // Servers that must not run as root need to reach their own directories below.
        output(Command::new("chmod").arg("755").arg(&path))?;
        Ok(Self(path))
    }

    /// A new directory in it.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about what cannot be removed, and the system clears its temporary directory anyway.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A started server; stopped when dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it with its words in a file of the directory, and waits until somebody listens at `address`.
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
                let said = fs::read_to_string(directory.join("log.txt"))?;
                bail!("`{}` ended with {status}:\n{said}", shown(command));
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
    /// Process id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The polite signal first: PostgreSQL's children end with it.
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

/// An address of the loopback on which nobody listens now.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
