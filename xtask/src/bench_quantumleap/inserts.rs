//! Rows per second: a pool of workers empties a full queue.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use ganger_bench::cpu_of_family;

use super::notify::send;
use super::{SIZES, Server, program, variables};
use crate::bench_peers::postgres;

/// Number of rows of each load.
const ROWS: usize = 100_000;

/// The measured rate of one load.
pub(super) struct Rate {
    pub(super) entities: usize,
    pub(super) workers: usize,
    /// Rows inserted per second.
    pub(super) rows: f64,
}

/// Measures the loads and prints the table; returns the rates.
pub(super) fn measure(server: &Server, database: &postgres::Server) -> Result<Vec<Rate>> {
    println!("\nRows inserted by a pool that empties a full queue, its start included:\n");
    println!(
        "| workers | entities each | rows/s | CPU s per million rows: server | workers | PostgreSQL |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    let mut rates = Vec::new();
    for entities in SIZES {
        for workers in [1, 2] {
            // Notifications of one entity need a job for every row.
            let rows = if entities == 1 { ROWS / 5 } else { ROWS };
            rates.push(measure_load(server, database, entities, workers, rows)?);
        }
    }
    Ok(rates)
}

fn measure_load(
    server: &Server,
    database: &postgres::Server,
    entities: usize,
    workers: usize,
    rows: usize,
) -> Result<Rate> {
    let there = count(database)?;
    send(server, 16, rows / entities, entities)?;
    let (of_server, of_database) = (server.cpu()?, cpu_of_family(database.id())?);
    let began = Instant::now();
    let of_workers = pool(server, database, workers)?;
    let seconds = began.elapsed().as_secs_f64();
    let inserted = count(database)? - there;
    ensure!(
        inserted == rows / entities / 16 * 16 * entities,
        "{inserted} rows were inserted of {rows}"
    );
    let inserted = f64::from(u32::try_from(inserted)?);
    let rate = inserted / seconds;
    let per_million = |cpu: f64| cpu / inserted * 1e6;
    println!(
        "| {workers} | {entities} | {rate:.0} | {:.1} | {:.1} | {:.1} |",
        per_million(server.cpu()? - of_server),
        per_million(of_workers),
        per_million(cpu_of_family(database.id())? - of_database)
    );
    Ok(Rate {
        entities,
        workers,
        rows: rate,
    })
}

/// Returns the number of rows in the table of rooms; 0 before the table exists.
fn count(database: &postgres::Server) -> Result<usize> {
    let sql = "SELECT coalesce((xpath('/row/c/text()', query_to_xml(\
               CASE WHEN to_regclass('etroom') IS NULL THEN 'select 0 as c' \
               ELSE 'select count(*) as c from etroom' END, false, true, '')))[1]::text, '0')";
    let rows = database.query_value(sql)?;
    Ok(rows.parse()?)
}

/// Runs a pool until the queue is empty; returns its CPU seconds.
fn pool(server: &Server, database: &postgres::Server, workers: usize) -> Result<f64> {
    let before = cpu_of_family(std::process::id())?;
    let status = Command::new(program())
        .args(["worker", "--ngsi", "--burst-mode", "--log", "error"])
        .args(["--server", &server.address.to_string()])
        .args(["--workers", &workers.to_string()])
        .envs(variables(database))
        .stdin(Stdio::null())
        .status()
        .context("the pool cannot be started")?;
    ensure!(status.success(), "the pool ended with {status}");
    // The servers are children of this process too, but they are still running, so their times are not included.
    let after = cpu_of_family(std::process::id())?;
    Ok((after - before).max(0.0))
}
