//! The bare server with group commit, as a process of its own.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use ganger_bench::{Bare, BareServer, BlockingLink, BlockingPeer, Used};

use super::scratch::{Process, free_address};

/// The command of this tool that is the server.
pub(crate) const COMMAND: &str = "bare-server";

/// A private bare server.
pub(super) struct Server {
    _process: Process,
    bare: Bare,
}

impl Server {
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(env::current_exe()?);
        command.args([COMMAND, &address.to_string()]).arg(directory);
        let process = Process::start(&mut command, directory, address)?;
        Ok(Self {
            bare: Bare {
                address,
                process: process.id(),
            },
            _process: process,
        })
    }
}

impl BlockingPeer for Server {
    fn connect(&self, queue: &str) -> Result<Box<dyn BlockingLink>> {
        self.bare.connect(queue)
    }

    fn used(&self) -> Used {
        self.bare.used()
    }
}

/// Is the server: `bare-server ADDRESS DIRECTORY`.
pub(crate) fn serve(arguments: &[String]) -> Result<()> {
    let [address, directory] = arguments else {
        bail!("{COMMAND} takes an address and a directory, not {arguments:?}");
    };
    let address: SocketAddr = address.parse()?;
    // It listens when it is ready: until then nothing is measured.
    let server = BareServer::create(Path::new(directory))?;
    Ok(server.serve(&TcpListener::bind(address)?)?)
}
