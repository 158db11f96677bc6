//! Measures the QuantumLeap port: accepted notifications and rows inserted by the workers, beside the rate at which
//! PostgreSQL copies the same rows with `COPY`, on the same machine, in one run.

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

/// Numbers of entities in a notification: that of a single sensor, and that of a broker which batches.
const SIZES: [usize; 2] = [1, 50];

/// Installs missing servers, measures, and prints the tables.
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

/// A private ganger server with the QuantumLeap port.
pub(crate) struct Server {
    process: Process,
    /// Address of the main port, for workers.
    pub(crate) address: SocketAddr,
    /// Address of the QuantumLeap port, for notifications.
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

    /// Returns the CPU seconds that the server has used.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(cpu_of(self.process.id())?)
    }
}

/// Returns the path of the binary under measurement.
pub(crate) fn program() -> PathBuf {
    built("release", "ganger")
}

/// Returns the environment variables that name the database.
pub(crate) fn variables(database: &postgres::Server) -> [(&'static str, String); 5] {
    [
        ("POSTGRES_HOST", "127.0.0.1".to_owned()),
        ("POSTGRES_PORT", database.address().port().to_string()),
        ("POSTGRES_DB_NAME", "postgres".to_owned()),
        ("POSTGRES_DB_USER", postgres::USER.to_owned()),
        ("POSTGRES_DB_PASS", "*".to_owned()),
    ]
}

/// Returns a notification of rooms, whose values differ by `number`.
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
