//! PostgreSQL as a queue: one table and `SKIP LOCKED`, in batches, over the simple query protocol.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use ganger_bench::{BlockingLink, BlockingPeer};

use super::scratch::{Process, free_address};
use super::wire::Wire;
use crate::process::{exists, run};

const TABLE: &str =
    "CREATE TABLE jobs (id bigserial PRIMARY KEY, leased_until timestamptz, payload text NOT NULL)";

/// Returns the directory of the server's programs on Debian; `None` if they are not installed.
pub(crate) fn programs() -> Option<PathBuf> {
    let directory = PathBuf::from("/usr/lib/postgresql/15/bin");
    directory.join("postgres").is_file().then_some(directory)
}

/// Name of the database superuser that connects.
pub(crate) const USER: &str = "bench";

/// A private PostgreSQL with default settings.
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
        // The server listens shortly before it accepts logins.
        let mut session = (0..100)
            .find_map(|_| {
                let session = Session::open(address).ok();
                if session.is_none() {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                session
            })
            .context("PostgreSQL accepts no logins")?;
        session.query(TABLE)?;
        Ok(server)
    }

    /// Address on which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the id of the server's process, whose children are its sessions.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Runs a query; returns the first value of its result.
    pub(crate) fn query_value(&self, sql: &str) -> Result<String> {
        let rows = Session::open(self.address)?.query(sql)?;
        let value = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next());
        Ok(String::from_utf8(value.context("no rows")?)?)
    }
}

impl BlockingPeer for Server {
    fn connect(&self) -> Result<Box<dyn BlockingLink>> {
        Ok(Box::new(Session::open(self.address)?))
    }
}

/// A connection, and the rows that it has leased.
struct Session {
    wire: Wire,
    taken: Vec<String>,
}

impl Session {
    fn open(address: SocketAddr) -> Result<Self> {
        let mut wire = Wire::connect(address)?;
        let mut startup = Vec::new();
        startup.extend_from_slice(&196_608_u32.to_be_bytes());
        startup.extend_from_slice(b"user\0bench\0database\0postgres\0\0");
        wire.add(&u32::try_from(startup.len() + 4)?.to_be_bytes());
        wire.add(&startup);
        wire.flush()?;
        let mut session = Self {
            wire,
            taken: Vec::new(),
        };
        session.rows()?;
        Ok(session)
    }

    fn query(&mut self, text: &str) -> Result<Vec<Vec<Vec<u8>>>> {
        self.wire.add(b"Q");
        self.wire.add(&u32::try_from(text.len() + 5)?.to_be_bytes());
        self.wire.add(text.as_bytes());
        self.wire.add(&[0]);
        self.wire.flush()?;
        self.rows()
    }

    /// Reads the result of a query, until the server is ready for the next one.
    fn rows(&mut self) -> Result<Vec<Vec<Vec<u8>>>> {
        let mut rows = Vec::new();
        let mut error = None;
        loop {
            let head = self.wire.bytes(5)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let body = self.wire.bytes(usize::try_from(length)? - 4)?;
            match head[0] {
                b'D' => rows.push(columns(&body)?),
                b'E' => error = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'Z' => break,
                _ => {}
            }
        }
        match error {
            None => Ok(rows),
            Some(error) => bail!("PostgreSQL answered: {error}"),
        }
    }
}

/// Decodes the columns of a row; a null becomes an empty value.
fn columns(body: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (count, mut rest) = body.split_first_chunk::<2>().context("a row too short")?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>().context("a row too short")?;
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let (column, after) = after.split_at_checked(length).context("a row too short")?;
        columns.push(column.to_vec());
        rest = after;
    }
    Ok(columns)
}

impl BlockingLink for Session {
    fn put(&mut self, payloads: &[Vec<u8>]) -> Result<()> {
        let values: Vec<String> = payloads
            .iter()
            .map(|payload| format!("('{}')", String::from_utf8_lossy(payload)))
            .collect();
        self.query(&format!(
            "INSERT INTO jobs (payload) VALUES {}",
            values.join(",")
        ))?;
        Ok(())
    }

    fn take(&mut self, jobs: usize) -> Result<Vec<Vec<u8>>> {
        let rows = self.query(&format!(
            "UPDATE jobs SET leased_until = now() + interval '60 s' WHERE id IN (SELECT id FROM jobs \
             WHERE leased_until IS NULL ORDER BY id LIMIT {jobs} FOR UPDATE SKIP LOCKED) RETURNING id, payload"
        ))?;
        let mut payloads = Vec::new();
        for mut row in rows {
            ensure!(
                row.len() == 2,
                "PostgreSQL sent {} columns instead of 2",
                row.len()
            );
            payloads.extend(row.pop());
            self.taken.extend(
                row.pop()
                    .map(|id| String::from_utf8_lossy(&id).into_owned()),
            );
        }
        Ok(payloads)
    }

    fn finish(&mut self) -> Result<()> {
        let taken = std::mem::take(&mut self.taken);
        if !taken.is_empty() {
            self.query(&format!(
                "DELETE FROM jobs WHERE id IN ({})",
                taken.join(",")
            ))?;
        }
        Ok(())
    }

    fn waits(&self) -> bool {
        false
    }
}
