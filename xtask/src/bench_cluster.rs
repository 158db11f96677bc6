//! Measures a shard in PostgreSQL beside one in a file, on this machine: whole lives, and jobs enqueued one by one, as
//! fast as it goes and at a steady rate; with PostgreSQL alone, and with a synchronous standby. Or what an old snapshot of
//! another session costs.
//!
//! The variable `GANGER_BIN` names another program than `target/release/ganger`.

mod database;
mod snapshot;

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
       cargo xtask bench-cluster --snapshot MINUTES

  RUNS                 how often everything is measured in turn, 3 by default
  --snapshot MINUTES   instead, lives while another session holds a snapshot for so long, and before and after";
/// Seconds of each measurement.
const SECONDS: f64 = 4.0;
/// Insertions a second of a steady rate, as many as jobs in the load `ack`.
const PACE: u32 = 1_000;

/// Starts the servers, measures them in turn, and prints medians and ratios in Markdown.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [OPTIMISED, rest @ ..] => measure(&Wanted::read(rest)?),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        rest if env::var_os("GANGER_BIN").is_some() => measure(&Wanted::read(rest)?),
        rest => {
            Wanted::read(rest)?;
            start_optimised("bench-cluster", rest)
        }
    }
}

/// What the command line asks for.
enum Wanted {
    /// Everything, so many times.
    Runs(usize),
    /// A snapshot that is held for so many minutes.
    Snapshot(u32),
}

impl Wanted {
    fn read(arguments: &[&str]) -> Result<Self> {
        let positive = |name: &str, text: &str| {
            let number: u32 = text.parse().with_context(|| format!("{name}: {text}"))?;
            ensure!(number > 0, "{name} must be 1 or more");
            Ok(number)
        };
        match arguments {
            [] => Ok(Self::Runs(3)),
            ["--snapshot", minutes] => Ok(Self::Snapshot(positive("MINUTES", minutes)?)),
            [runs] => Ok(Self::Runs(usize::try_from(positive("RUNS", runs)?)?)),
            _ => bail!("{USAGE}"),
        }
    }
}

fn measure(wanted: &Wanted) -> Result<()> {
    match wanted {
        Wanted::Runs(runs) => measure_runs(*runs),
        Wanted::Snapshot(minutes) => snapshot::measure(*minutes),
    }
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
    /// The part of it of the session that appends to the log, in us.
    append_cpu: Vec<f64>,
    /// Time of one enqueueing, in ms.
    enqueue: Vec<f64>,
    /// Time of one insertion of a row in the same database, in ms.
    insert: Vec<f64>,
    /// The median of the times of enqueueings at a steady rate, in ms.
    paced_enqueue: Vec<f64>,
    /// The same of insertions.
    paced_insert: Vec<f64>,
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

    /// Runs one load against the server for a time; returns what it printed.
    fn load(&self, load: &str, seconds: f64, scratch: &Path) -> Result<Value> {
        let mut command = Command::new(program());
        let (address, server) = (self.address.to_string(), self.server.id().to_string());
        command
            .args(["bench", "--attach", "--json", "--apis", "streams"])
            .args(["--loads", load, "--connections", "16", "--batches", "256"])
            .args(["--server", &address, "--server-pid", &server])
            .args(["--time", &format!("{seconds}s"), "--dir"])
            .arg(scratch);
        Ok(serde_json::from_str(&output(&mut command)?)?)
    }

    fn measure(&self, scratch: &Path, figures: &mut Figures) -> Result<()> {
        let lives = self.lives(SECONDS, scratch)?;
        figures.lives.push(lives.rate);
        figures.server_cpu.push(lives.server_cpu);
        figures.database_cpu.extend(lives.database_cpu);
        figures.append_cpu.extend(lives.append_cpu);
        let one_by_one = self.load("e1", SECONDS, scratch)?;
        let rate = number(&one_by_one["loads"][0], "per_second")?;
        figures.enqueue.push(1e3 / rate);
        let paced = self.load("ack", SECONDS, scratch)?;
        let latency = &paced["loads"][0]["latency"];
        figures.paced_enqueue.push(number(latency, "p50_ms")?);
        if let Some(database) = &self.database {
            figures.insert.push(database.insert_time(SECONDS)?);
            let paced = database.paced_insert_time(PACE, SECONDS)?;
            figures.paced_insert.push(paced);
        }
        println!("  {}: {figures:?}", self.name);
        Ok(())
    }
}

/// A rate of lives, and the CPU of one in us.
struct Lives {
    rate: f64,
    server_cpu: f64,
    database_cpu: Option<f64>,
    append_cpu: Option<f64>,
}

impl System {
    /// Runs whole lives for a time.
    fn lives(&self, seconds: f64, scratch: &Path) -> Result<Lives> {
        let used = || match &self.database {
            Some(database) => {
                let all = Used::of_family(database.process()?).cpu;
                Ok::<_, anyhow::Error>((all, database.append_cpu()?))
            }
            None => Ok((None, None)),
        };
        let before = used()?;
        let lives = self.load("lives", seconds, scratch)?;
        let after = used()?;
        let lives = &lives["lives"][0];
        let rate = number(lives, "per_second")?;
        let each = |before: Option<f64>, after: Option<f64>| {
            let seconds_used = after? - before?;
            Some(seconds_used / (rate * seconds) * 1e6)
        };
        Ok(Lives {
            rate,
            server_cpu: number(lives, "server_cpu_seconds_per_million")?,
            database_cpu: each(before.0, after.0),
            append_cpu: each(before.1, after.1),
        })
    }
}

fn number(document: &Value, field: &str) -> Result<f64> {
    let number = document[field].as_f64();
    number.with_context(|| format!("{field} is missing in {document}"))
}

fn measure_runs(runs: usize) -> Result<()> {
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
        append_cpu: vec![median(figures.append_cpu)],
        enqueue: vec![median(figures.enqueue)],
        insert: vec![median(figures.insert)],
        paced_enqueue: vec![median(figures.paced_enqueue)],
        paced_insert: vec![median(figures.paced_insert)],
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
    row("the session that appends, us a life", 1, |of| {
        of.append_cpu[0]
    });
    row("enqueueing one by one, ms", 2, |of| of.enqueue[0]);
    row("INSERT of one row, prepared, one by one, ms", 2, |of| {
        of.insert[0]
    });
    row("enqueueing 1,000 a second, p50, ms", 2, |of| {
        of.paced_enqueue[0]
    });
    row(
        "INSERT of 1,000 rows a second, prepared, p50, ms",
        2,
        |of| of.paced_insert[0],
    );
    println!(
        "\nPostgreSQL alone / file: {:.2}; with standby / alone: {:.2}",
        alone.lives[0] / file.lives[0],
        standby.lives[0] / alone.lives[0],
    );
    for (name, figures) in [("alone", &alone), ("with standby", &standby)] {
        println!(
            "enqueueing / INSERT {name}: {:.2} one by one, {:.2} at 1,000 a second",
            figures.enqueue[0] / figures.insert[0],
            figures.paced_enqueue[0] / figures.paced_insert[0]
        );
    }
}

/// The median; not a number if there are no values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
