//! Measures a shard in PostgreSQL beside one in a file, on this machine: whole lives, and jobs enqueued one by one;
//! with PostgreSQL alone, and with a synchronous standby.
//!
//! The variable `GANGER_BIN` names another program than `target/release/ganger`.

mod database;

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use ganger_bench::Used;
use serde_json::Value;

use crate::bench_peers::scratch::{Process, Scratch, free_address};
use crate::http::Server;
use crate::process::{OPTIMISED, output, root, start_optimised};
use database::Database;

const USAGE: &str = "usage: cargo xtask bench-cluster [RUNS]

  RUNS    how often everything is measured in turn, 3 by default";
/// Seconds of each measurement.
const SECONDS: f64 = 4.0;

/// Starts the servers, measures them in turn, and prints medians and ratios in Markdown.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [OPTIMISED, rest @ ..] => measure(runs(rest)?),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        rest if env::var_os("GANGER_BIN").is_some() => measure(runs(rest)?),
        rest => {
            runs(rest)?;
            start_optimised("bench-cluster", rest)
        }
    }
}

fn runs(arguments: &[&str]) -> Result<usize> {
    let runs = match arguments {
        [] => 3,
        [runs] => runs.parse().with_context(|| format!("RUNS: {runs}"))?,
        _ => bail!("{USAGE}"),
    };
    ensure!(runs > 0, "RUNS must be 1 or more");
    Ok(runs)
}

fn program() -> PathBuf {
    let named = env::var_os("GANGER_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| root().join("target/release/ganger"))
}

/// A server with one shard, and the database in which the shard is, if it is in one.
struct System {
    name: &'static str,
    address: SocketAddr,
    server: Process,
    database: Option<Database>,
}

/// The medians of one system.
#[derive(Debug, Default)]
struct Figures {
    lives: Vec<f64>,
    /// CPU of the server for a life, in us.
    server_cpu: Vec<f64>,
    /// CPU of the database for a life, in us.
    database_cpu: Vec<f64>,
    /// Time of one enqueueing, in ms.
    enqueue: Vec<f64>,
    /// Time of one insertion of a row in the same database, in ms.
    insert: Vec<f64>,
}

impl System {
    fn start(name: &'static str, scratch: &Scratch, database: Option<Database>) -> Result<Self> {
        let directory = scratch.directory(name)?;
        let address = free_address()?;
        let mut command = Command::new(program());
        command
            .current_dir(&directory)
            .args(["server", "--addr", &address.to_string()]);
        match &database {
            Some(database) => database.name_to(&mut command, name),
            None => {
                command.arg("--db").arg(directory.join("jobs.db"));
            }
        }
        let server = Process::start(&mut command, &directory, address)?;
        let system = Self {
            name,
            address,
            server,
            database,
        };
        Server { address }.until_ready()?;
        Ok(system)
    }

    /// Runs one load against the server; returns what it printed.
    fn load(&self, load: &str, scratch: &Path) -> Result<Value> {
        let mut command = Command::new(program());
        let (address, server) = (self.address.to_string(), self.server.id().to_string());
        command
            .args(["bench", "--attach", "--json", "--apis", "streams"])
            .args(["--loads", load, "--connections", "16", "--batches", "256"])
            .args(["--server", &address, "--server-pid", &server])
            .args(["--time", &format!("{SECONDS}s"), "--dir"])
            .arg(scratch);
        Ok(serde_json::from_str(&output(&mut command)?)?)
    }

    fn measure(&self, scratch: &Path, figures: &mut Figures) -> Result<()> {
        let used = || match &self.database {
            Some(database) => Ok::<_, anyhow::Error>(Used::of_family(database.process()?).cpu),
            None => Ok(None),
        };
        let before = used()?;
        let lives = self.load("lives", scratch)?;
        let after = used()?;
        let lives = &lives["lives"][0];
        let rate = number(lives, "per_second")?;
        figures.lives.push(rate);
        let server_cpu = number(lives, "server_cpu_seconds_per_million")?;
        figures.server_cpu.push(server_cpu);
        if let (Some(before), Some(after)) = (before, after) {
            let each = (after - before) / (rate * SECONDS);
            figures.database_cpu.push(each * 1e6);
        }
        let one_by_one = self.load("e1", scratch)?;
        let rate = number(&one_by_one["loads"][0], "per_second")?;
        figures.enqueue.push(1e3 / rate);
        if let Some(database) = &self.database {
            figures.insert.push(database.insert_time(SECONDS)?);
        }
        println!("  {}: {figures:?}", self.name);
        Ok(())
    }
}

fn number(document: &Value, field: &str) -> Result<f64> {
    let number = document[field].as_f64();
    number.with_context(|| format!("{field} is missing in {document}"))
}

fn measure(runs: usize) -> Result<()> {
    let scratch = Scratch::new()?;
    let directory = scratch.directory("bare-log")?;
    let systems = [
        System::start("file", &scratch, None)?,
        System::start("alone", &scratch, Some(Database::start(&scratch, false)?))?,
        System::start("standby", &scratch, Some(Database::start(&scratch, true)?))?,
    ];
    let mut figures = [(); 3].map(|()| Figures::default());
    for run in 1..=runs {
        println!("run {run} of {runs}");
        for (system, figures) in systems.iter().zip(&mut figures) {
            system.measure(&directory, figures)?;
        }
    }
    report(figures);
    Ok(())
}

fn report(figures: [Figures; 3]) {
    let [file, alone, standby] = figures.map(|figures| Figures {
        lives: vec![median(figures.lives)],
        server_cpu: vec![median(figures.server_cpu)],
        database_cpu: vec![median(figures.database_cpu)],
        enqueue: vec![median(figures.enqueue)],
        insert: vec![median(figures.insert)],
    });
    println!("\n| | file | PostgreSQL alone | with a synchronous standby |\n|---|---:|---:|---:|");
    let row = |name: &str, digits: usize, of: fn(&Figures) -> f64| {
        let shown = [&file, &alone, &standby].map(|figures| match of(figures) {
            value if value.is_nan() => "-".to_owned(),
            value => format!("{value:.digits$}"),
        });
        println!("| {name} | {} |", shown.join(" | "));
    };
    row("lives/s, 16 connections, batches of 256", 0, |of| {
        of.lives[0]
    });
    row("CPU of the server, us a life", 1, |of| of.server_cpu[0]);
    row("CPU of the database, us a life", 1, |of| of.database_cpu[0]);
    row("enqueueing one by one, ms", 2, |of| of.enqueue[0]);
    row("INSERT of one row, prepared, one by one, ms", 2, |of| {
        of.insert[0]
    });
    println!(
        "\nPostgreSQL alone / file: {:.2}; with standby / alone: {:.2}; enqueueing / INSERT: {:.2} alone, {:.2} with standby",
        alone.lives[0] / file.lives[0],
        standby.lives[0] / alone.lives[0],
        alone.enqueue[0] / alone.insert[0],
        standby.enqueue[0] / standby.insert[0]
    );
}

/// The median; not a number if there are no values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
