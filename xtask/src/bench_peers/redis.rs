//! A private Redis, for raw lists.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ganger_bench::redis::Lists;
use ganger_bench::{BlockingLink, BlockingPeer, Used};

use super::scratch::{Process, free_address};

/// A private Redis that flushes before it answers.
pub(super) struct Server {
    _process: Process,
    lists: Lists,
}

impl Server {
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let process = Process::start(&mut command(address, directory), directory, address)?;
        Ok(Self {
            lists: Lists::new(address, Some(process.id())),
            _process: process,
        })
    }
}

impl BlockingPeer for Server {
    fn connect(&self, queue: &str) -> Result<Box<dyn BlockingLink>> {
        self.lists.connect(queue)
    }

    fn used(&self) -> Used {
        self.lists.used()
    }
}

/// A Redis that flushes before it answers.
pub(crate) fn command(address: SocketAddr, directory: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .args(["--save", "", "--dir"])
        .arg(directory);
    command
}
