//! A ganger server that is started for a measurement.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ganger_client::{Client, Options};

use crate::{Error, cpu_of};

/// A server that has not answered after so long has not started.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A server of a measurement. Its process ends when this is dropped.
pub(crate) struct Server {
    /// How to reach it.
    pub(crate) options: Options,
    command: Command,
    child: Child,
    /// CPU seconds of its earlier processes.
    spent: f64,
}

impl Server {
    /// Starts the program as a server at an address with a store at `db`.
    pub(crate) fn start(
        program: &Path,
        addr: String,
        db: PathBuf,
        arguments: Vec<String>,
    ) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command
            .args(["server", "--addr", &addr, "--db"])
            .arg(db)
            .args(arguments)
            .env_remove("GANGER_CONFIG")
            .env_remove("GANGER_TOKEN")
            .env_remove("GANGER_TOKEN_FILE")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Ok(Self {
            child: command.spawn()?,
            command,
            options: Options::new(addr),
            spent: 0.0,
        })
    }

    /// Waits until it answers.
    pub(crate) async fn until_ready(&self) -> Result<(), Error> {
        let mut options = self.options.clone();
        options.retry.total_max = START_WITHIN;
        Client::connect(options).await?;
        Ok(())
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// CPU seconds of all its processes.
    pub(crate) fn cpu(&self) -> f64 {
        self.spent + cpu_of(self.child.id()).unwrap_or(0.0)
    }

    pub(crate) fn kill(&mut self) -> Result<(), Error> {
        self.spent = self.cpu();
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it once more, after it was killed.
    pub(crate) fn start_again(&mut self) -> Result<(), Error> {
        self.child = self.command.spawn()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of the loopback on which nobody listens now.
pub(crate) fn free_address() -> Result<SocketAddr, Error> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
