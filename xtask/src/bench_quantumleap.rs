//! Measures QuantumLeap's place: notifications taken, and rows inserted by its workers, beside what PostgreSQL itself
//! takes of the same rows by `COPY`, on the same machine, in one run.

mod copy;
mod inserts;
mod notify;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use ganger_bench::cpu_of;

use crate::bench_peers::postgres;
use crate::bench_peers::scratch::{Process, Scratch, free_address};
use crate::process::{OPTIMISED, built, start_optimised};

/// Entities of a notification, in two sizes: a sensor that reports, and a broker that gathers.
const SIZES: [usize; 2] = [1, 50];

/// Installs what is missing, measures, prints the tables.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            crate::bench_peers::install_peers()?;
            start_optimised("bench-quantumleap", &[])
        }
        [OPTIMISED] => measure(),
        [other, ..] => {
            bail!("`{other}` is not known: bench-quantumleap takes no arguments")
        }
    }
}

fn measure() -> Result<()> {
    let programs = postgres::programs().context("PostgreSQL is missing")?;
    let scratch = Scratch::new()?;
    let database = postgres::Server::start(&programs, &scratch.directory("postgres")?)?;

    let server = Server::start(&scratch.directory("notify")?, &database)?;
    notify::measure(&server)?;
    drop(server);

    let server = Server::start(&scratch.directory("inserts")?, &database)?;
    let rates = inserts::measure(&server, &database)?;
    drop(server);
    copy::measure(&programs, &database, &scratch.directory("copy")?, &rates)
}

/// A private server with QuantumLeap's port, which queues.
pub(crate) struct Server {
    process: Process,
    /// Where it listens for workers.
    pub(crate) address: SocketAddr,
    /// Where it listens for notifications.
    pub(crate) port: SocketAddr,
}

impl Server {
    fn start(directory: &Path, database: &postgres::Server) -> Result<Self> {
        let (address, port) = (free_address()?, free_address()?);
        let mut command = Command::new(program());
        command
            .args(["server", "--addr", &address.to_string()])
            .args(["--quantumleap", &port.to_string()])
            .arg("--db")
            .arg(directory.join("store.db"))
            .env("WQ_OFFLOAD_WORK", "true")
            .envs(variables(database));
        let process = Process::start(&mut command, directory, port)?;
        Ok(Self {
            process,
            address,
            port,
        })
    }

    /// CPU seconds that it has used.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(cpu_of(self.process.id())?)
    }
}

/// The binary under measurement.
pub(crate) fn program() -> PathBuf {
    built("release", "ganger")
}

/// The variables that say where the database is.
pub(crate) fn variables(database: &postgres::Server) -> [(&'static str, String); 5] {
    [
        ("POSTGRES_HOST", "127.0.0.1".to_owned()),
        ("POSTGRES_PORT", database.address().port().to_string()),
        ("POSTGRES_DB_NAME", "postgres".to_owned()),
        ("POSTGRES_DB_USER", postgres::USER.to_owned()),
        ("POSTGRES_DB_PASS", "*".to_owned()),
    ]
}

/// A notification of so many rooms. Numbers differ, so that nothing is twice the same.
pub(crate) fn notification(entities: usize, number: usize) -> String {
    let rooms: Vec<String> = (0..entities)
        .map(|place| {
            let degrees = (number * 7 + place) % 400;
            format!(
                "{{\"id\":\"Room:{}\",\"type\":\"Room\",\"temperature\":{{\"type\":\"Number\",\"value\":{}.{}}},\
                 \"pressure\":{{\"type\":\"Integer\",\"value\":{}}}}}",
                number * entities + place,
                degrees / 10,
                degrees % 10,
                700 + degrees
            )
        })
        .collect();
    format!("{{\"data\":[{}]}}", rooms.join(","))
}
