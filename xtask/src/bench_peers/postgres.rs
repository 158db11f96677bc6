//! PostgreSQL with one table and `SKIP LOCKED`.

mod jobs;
mod session;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ganger_bench::{BlockingLink, BlockingPeer, Used};

use super::scratch::{Process, free_address};
use crate::process::{exists, run};
use jobs::Jobs;
use session::Session;

const TABLE: &str =
    "CREATE TABLE jobs (id bigserial PRIMARY KEY, leased_until timestamptz, payload text NOT NULL)";

/// Where Debian puts the server's programs, if they are installed.
pub(crate) fn programs() -> Option<PathBuf> {
    let directory = PathBuf::from("/usr/lib/postgresql/15/bin");
    directory.join("postgres").is_file().then_some(directory)
}

/// The user that connects, with every right.
pub(crate) const USER: &str = "bench";

/// A private PostgreSQL with its settings as installed.
pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    pub(crate) fn start(programs: &Path, directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let data = directory.join("data");
        let is_root = run(Command::new("sh").args(["-c", "[ \"$(id -u)\" = 0 ]"])).is_ok();
        ensure!(
            !is_root || exists("setpriv"),
            "PostgreSQL does not run as root, and setpriv is missing"
        );
        let as_user = |program: &str| {
            let path = programs.join(program);
            if !is_root {
                return Command::new(path);
            }
            let mut command = Command::new("setpriv");
            command
                .args([
                    "--reuid",
                    "postgres",
                    "--regid",
                    "postgres",
                    "--init-groups",
                ])
                .arg(path);
            command
        };
        if is_root {
            run(Command::new("chown").arg("postgres").arg(directory))?;
        }
        let mut initialise = as_user("initdb");
        initialise
            .args([
                "--username",
                USER,
                "--auth",
                "trust",
                "--no-instructions",
                "--pgdata",
            ])
            .arg(&data);
        crate::process::output(&mut initialise)?;
        let mut command = as_user("postgres");
        command
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &address.port().to_string(),
                "-k",
                "",
                "-D",
            ])
            .arg(&data);
        let process = Process::start(&mut command, directory, address)?;
        let server = Self { process, address };
        // It listens a moment before it lets anybody in.
        let mut session = (0..100)
            .find_map(|_| {
                let session = Session::open(address).ok();
                if session.is_none() {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                session
            })
            .context("PostgreSQL lets nobody in")?;
        session.query(TABLE)?;
        Ok(server)
    }

    /// Address on which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of its process; its sessions are children of that.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The first value that a query gives.
    pub(crate) fn query_value(&self, sql: &str) -> Result<String> {
        let value = Session::open(self.address)?.query(sql)?;
        Ok(String::from_utf8(value.context("no rows")?)?)
    }
}

impl BlockingPeer for Server {
    fn connect(&self, _: &str) -> Result<Box<dyn BlockingLink>> {
        Ok(Box::new(Jobs::new(Session::open(self.address)?)?))
    }

    fn used(&self) -> Used {
        Used::of_family(self.process.id())
    }
}
