//! Measures ganger's Redis port beside Redis: the same clients and the same bytes, on the same machine, in one run.
//!
//! Redis runs with `appendfsync always`, so that both answer when a write is on the device. Both get the same script of
//! qless, with an additional first line that makes it work in current versions of Redis.

mod clients;
mod script;

use std::collections::BTreeMap;
use std::env;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ganger_bench::cpu_of;

use crate::bench_peers::redis;
use crate::bench_peers::scratch::{Process, Scratch, free_address};
use crate::process::{OPTIMISED, root, start_optimised};

/// Servers that are compared, one for each column.
const SERVERS: [&str; 2] = ["ganger", "redis"];

/// Kinds of loads: published clients, and calls of the qless script.
const LOADS: [&str; 2] = ["clients", "script"];

/// Installs missing programs, measures both servers, and prints the table.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [OPTIMISED] => measure(&LOADS),
        [OPTIMISED, load] => measure(&[load]),
        [] | ["clients" | "script"] => {
            clients::install()?;
            start_optimised("bench-redis", &words)
        }
        _ => bail!("bench-redis takes nothing, `clients` or `script`, not {words:?}"),
    }
}

/// A server under load.
pub(crate) struct Server {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    fn start(name: &str, directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = match name {
            "redis" => redis::command(address, directory),
            _ => ganger(address, directory)?,
        };
        let process = Process::start(&mut command, directory, address)?;
        until_ready(address)?;
        Ok(Self { process, address })
    }

    /// Returns the CPU seconds that the server has used.
    fn cpu(&self) -> Result<f64> {
        Ok(cpu_of(self.process.id())?)
    }
}

/// Waits until the server answers: both accept connections shortly before they have loaded their data.
fn until_ready(address: SocketAddr) -> Result<()> {
    for _ in 0..1_000 {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        if reply == *b"+PONG" {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("the server at {address} does not become ready")
}

fn ganger(address: SocketAddr, directory: &Path) -> Result<Command> {
    // The variable names another binary, to compare builds.
    let named = env::var_os("GANGER_BIN").map(PathBuf::from);
    let mut command = Command::new(named.unwrap_or_else(|| root().join("target/release/ganger")));
    command
        .args(["server", "--addr", &free_address()?.to_string()])
        .args(["--resp", &address.to_string(), "--resp-allow-flush"])
        .arg("--db")
        .arg(directory.join("store.db"));
    Ok(command)
}

/// The results: for each load and server, operations per second and CPU seconds per million operations.
#[derive(Default)]
pub(crate) struct Figures {
    rows: Vec<String>,
    values: BTreeMap<(String, &'static str), (f64, f64)>,
}

impl Figures {
    /// Runs a load of `operations` operations, which returns the seconds that it took, and records the result.
    pub(crate) fn measure(
        &mut self,
        row: &str,
        name: &'static str,
        server: &Server,
        operations: usize,
        load: impl FnOnce() -> Result<f64>,
    ) -> Result<()> {
        let before = [server.cpu()?, cpu_of(id())?];
        let seconds = load().with_context(|| format!("{row} on {name}"))?;
        let operations = f64::from(u32::try_from(operations)?);
        let rate = operations / seconds;
        let a_million = |after: f64, before: f64| (after - before) / operations * 1e6;
        let own = a_million(cpu_of(id())?, before[1]);
        let cpu = a_million(server.cpu()?, before[0]);
        println!(
            "  {row}: {name} {rate:.0} a second, {cpu:.1} CPU s a million, {own:.1} of this program"
        );
        if !self.rows.iter().any(|known| known == row) {
            self.rows.push(row.to_owned());
        }
        self.values.insert((row.to_owned(), name), (rate, cpu));
        Ok(())
    }

    fn print(&self) {
        println!(
            "\n| load | ganger, a second | Redis, a second | ratio | ganger, CPU s a million | Redis | ratio |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|");
        for row in &self.rows {
            let value = |name| self.values.get(&(row.clone(), name)).copied();
            let [ours, theirs] = SERVERS.map(value);
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                println!(
                    "| {row} | {:.0} | {:.0} | {:.2} | {:.1} | {:.1} | {:.2} |",
                    ours.0,
                    theirs.0,
                    ours.0 / theirs.0,
                    ours.1,
                    theirs.1,
                    ours.1 / theirs.1
                );
            }
        }
    }
}

fn measure(loads: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut figures = Figures::default();
    for name in SERVERS {
        let server = Server::start(name, &scratch.directory(name)?)?;
        if loads.contains(&"clients") {
            clients::measure(name, &server, &mut figures)?;
        }
        if loads.contains(&"script") {
            script::measure(name, &server, &mut figures)?;
        }
    }
    figures.print();
    Ok(())
}
